"""Worker processes for tests that kill many of them: each is a fork of one process that has everything imported.

Importing takes a worker two seconds of processor time, forking a few milliseconds. A fork is a process like any other:
it connects to the server by itself and dies by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from turngate.connect import connect
from turngate.loading import load
from turngate.worker import run_worker

Json = dict[str, Any]
_PATIENCE = 60.0
_DRAIN = timedelta(seconds=1)
_TOLD = 63
"""The file descriptor on which the nursery tells of its workers."""


class Worker:
    """A worker process, from the outside."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.pid = 0
        self.ready = asyncio.Event()
        self.ended = asyncio.Event()

    @property
    def alive(self) -> bool:
        """Whether the process is there."""
        return not self.ended.is_set()

    async def kill(self) -> None:
        """Kill the process without warning, and wait until it is gone."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """Ask the process to end, and wait until it has."""
        await self._end(signal.SIGTERM)

    async def gone(self) -> None:
        """Wait until the process has ended by itself."""
        async with asyncio.timeout(_PATIENCE):
            await self.ended.wait()

    async def _end(self, how: signal.Signals) -> None:
        # A pid of 0 would be our own process group.
        if self.alive and self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, how)
        await self.gone()


class Nursery:
    """Starts workers. Leaving the block kills those that are left.

    `prepare` names modules to import before the first fork; what the workers log goes to the file `log`, where given.
    """

    def __init__(self, *prepare: str, log: Path | None = None) -> None:
        self._prepare = prepare
        self._log = log
        self._workers: list[Worker] = []
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    async def worker(self, build: str, **spec: Any) -> Worker:
        """Start a worker; `build` names the function `module:name` that returns its agents and options for `spec`.

        Returns once it is about to poll. Raises RuntimeError where it ended before that.
        """
        assert self._process is not None
        assert self._process.stdin is not None
        worker = Worker(len(self._workers))
        self._workers.append(worker)
        line = json.dumps({"number": worker.number, "build": build, **spec})
        self._process.stdin.write(line.encode() + b"\n")
        await _first(worker.ready, worker.ended)
        if not (worker.pid and worker.alive):
            raise RuntimeError("the worker did not get ready")
        return worker

    async def __aenter__(self) -> Self:
        with contextlib.ExitStack() as files:
            log = files.enter_context(self._log.open("ab")) if self._log else None
            await self._start(log)
        return self

    async def _start(self, log: IO[bytes] | None) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.crash.nursery",
            *self._prepare,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )
        self._reading = asyncio.create_task(self._read(self._process))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        # Its input ends, and with it the nursery and all its workers.
        self._process.stdin.close()
        await asyncio.wait_for(self._process.wait(), _PATIENCE)
        if self._reading is not None:
            await self._reading

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            told = json.loads(line)
            worker = self._workers[told["number"]]
            worker.pid = told["pid"]
            (worker.ended if told["is"] == "ended" else worker.ready).set()
        for worker in self._workers:
            worker.ended.set()


async def _first(*events: asyncio.Event) -> None:
    waiting = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waiting, timeout=_PATIENCE, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()


# --- In the nursery's process ----------------------------------------------------------------------------------------


def _main() -> None:
    # Temporal's core logs to standard output, which belongs to what the nursery tells.
    os.dup2(1, _TOLD)
    os.dup2(2, 1)
    for module in sys.argv[1:]:
        import_module(module)
    children: dict[int, int] = {}

    def reap(*_: object) -> None:
        with contextlib.suppress(ChildProcessError):
            while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                _tell(children.pop(pid), pid, "ended")

    signal.signal(signal.SIGCHLD, reap)
    for line in sys.stdin:
        spec = json.loads(line)
        # Held back until the new child is known.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        pid = os.fork()
        if pid == 0:
            _child(spec)
        children[pid] = spec["number"]
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for pid in children:
        os.kill(pid, signal.SIGKILL)


def _child(spec: Json) -> None:
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        asyncio.run(_serve(spec))
        code = 0
    finally:
        os._exit(code)


async def _serve(spec: Json) -> None:
    agents, options = load(spec["build"])(spec)
    client = await connect(address=spec["address"], tls=False, config_file=None)
    _tell(spec["number"], os.getpid(), "ready")
    await run_worker(client, agents, task_queue=spec["queue"], **{"graceful_shutdown_timeout": _DRAIN, **options})


def _tell(number: int, pid: int, what: str) -> None:
    os.write(_TOLD, json.dumps({"number": number, "pid": pid, "is": what}).encode() + b"\n")


if __name__ == "__main__":
    _main()
