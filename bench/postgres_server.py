"""A PostgreSQL server of our own in a temporary folder, for as long as a block lasts.

It listens in that folder only, and does not wait for the disk (`fsync=off`): nor does Temporal's server in memory.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bench.stage import family_cpu_of
from turngate.devserver import _end_with_parent

MISSING = "PostgreSQL's programs are missing: apt-get install postgresql"
_DEBIAN = Path("/usr/lib/postgresql")
_SECONDS = 60.0


@dataclass(frozen=True)
class Postgres:
    """A server that runs."""

    pid: int
    url: str

    @property
    def cpu(self) -> float:
        """Seconds of processor time that its processes have used."""
        return family_cpu_of(self.pid)


@contextlib.contextmanager
def postgres() -> Iterator[Postgres]:
    """Run a server, and end it together with its data."""
    programs, account = _programs(), _account()
    with tempfile.TemporaryDirectory(prefix="turngate-") as name:
        folder = Path(name)
        if account:
            os.chown(folder, account["user"], account["group"])
        with (folder / "log").open("w+b") as log:
            options: Any = {"cwd": folder, "stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, **account}
            made = subprocess.run(
                [programs / "initdb", "-D", "data", "-U", "bench", "-A", "trust", "-E", "UTF8", "-N"], **options
            )
            if made.returncode:
                raise _failure(folder)
            server = subprocess.Popen(
                [programs / "postgres", "-D", "data", "-k", folder, "-c", "listen_addresses=", "-c", "fsync=off"],
                start_new_session=True,
                preexec_fn=_end_with_parent,
                **options,
            )
            try:
                if not _answers(programs, folder, server):
                    raise _failure(folder)
                yield Postgres(server.pid, f"postgresql://bench@/postgres?host={quote(name, safe='')}")
            finally:
                _end(server)


def _failure(folder: Path) -> SystemExit:
    return SystemExit(f"PostgreSQL did not start:\n{(folder / 'log').read_text()[-2000:]}")


def _programs() -> Path:
    """Return the folder of the server's programs. Debian keeps them by version, and off the PATH."""
    versions = sorted(_DEBIAN.glob("*/bin"), key=lambda found: float(found.parent.name), reverse=True)
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *map(str, versions)])
    if (found := shutil.which("initdb", path=path)) is None:
        raise SystemExit(MISSING)
    return Path(found).resolve().parent


def _account() -> dict[str, Any]:
    """Return whom the server runs as: it refuses to be root."""
    if os.geteuid() != 0:
        return {}
    accounts = {entry.pw_name: entry for entry in pwd.getpwall()}
    chosen = accounts.get("postgres") or accounts["nobody"]
    return {"user": chosen.pw_uid, "group": chosen.pw_gid, "extra_groups": []}


def _answers(programs: Path, folder: Path, server: subprocess.Popen[bytes]) -> bool:
    """Wait until the server answers; False where it ends or takes too long."""
    asked = (programs / "pg_isready", "--quiet", "--host", folder)
    deadline = time.monotonic() + _SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        if subprocess.run(asked, check=False).returncode == 0:
            return True
        time.sleep(0.05)
    return False


def _end(server: subprocess.Popen[bytes]) -> None:
    """End it without waiting for its clients."""
    server.send_signal(signal.SIGINT)
    try:
        server.wait(_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
