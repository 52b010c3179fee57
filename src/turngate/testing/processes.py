"""Workers in processes of their own, so that a test can kill one in the middle of a tool."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Self

_PATIENCE = 180.0
"""Seconds for a start or an end: imports alone take a while where many processes share few cores."""


class WorkerProcess:
    """Run a Python module as a worker process; it prints a line `ready` once it polls.

        async with WorkerProcess("my_tests.worker", "--queue", "q") as worker:
            await worker.kill()

    `stop` asks it to end (SIGTERM), `kill` doesn't ask (SIGKILL).
    """

    def __init__(self, module: str, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        self._command = (sys.executable, "-m", module, *arguments)
        self._env = {**os.environ, **(env or {})}
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the process and wait until it is ready.

        Raises RuntimeError where it ends, or stays silent, before that.
        """
        self._process = await asyncio.create_subprocess_exec(
            *self._command, env=self._env, stdout=asyncio.subprocess.PIPE
        )
        assert self._process.stdout is not None
        ready = asyncio.Event()
        self._reading = asyncio.create_task(_read(self._process.stdout, ready))
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait({self._reading, waiting}, timeout=_PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not ready.is_set():
            await self.kill()
            raise RuntimeError(f"the worker process {' '.join(self._command)} did not get ready")

    async def kill(self) -> None:
        """Kill the process without warning, as a crash would."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """Ask the process to end, and wait until it has."""
        await self._end(signal.SIGTERM)

    async def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(how)
        try:
            await asyncio.wait_for(process.wait(), _PATIENCE)
        except TimeoutError:
            process.kill()
            await process.wait()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


async def _read(output: asyncio.StreamReader, ready: asyncio.Event) -> None:
    """Read to the end: Temporal's core logs here too, and a full pipe would stop the worker."""
    async for line in output:
        if line.strip() == b"ready":
            ready.set()
