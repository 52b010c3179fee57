"""The workers of a case: in this process, or in one of their own where a case kills them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from temporalio.client import Client
from temporalio.worker import Worker

from tests.case_runner.agents import Builder
from turngate import build_worker
from turngate.connect import connect
from turngate.testing import WorkerProcess
from turngate.worker import run_worker

Json = dict[str, Any]
# Tools that hang would hold up the end of their worker for the default of 30 s.
_DRAIN = timedelta(seconds=0.5)


@dataclass(frozen=True)
class Plan:
    """What a worker needs: which server and queue, and what the case gives."""

    address: str
    task_queue: str
    given: Json
    journal: str
    prefix: str

    def builder(self) -> Builder:
        """Return the builder of the agents."""
        return Builder(self.given, Path(self.journal), self.prefix)


class CaseWorker(Protocol):
    """A worker that can be started, and stopped or killed."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    async def kill(self) -> None: ...


class LocalWorker:
    """A worker in this process."""

    def __init__(self, client: Client, plan: Plan) -> None:
        builder = plan.builder()
        self._worker: Worker = build_worker(
            client,
            builder.agents(),
            task_queue=plan.task_queue,
            notifiers=builder.notifiers() or None,
            graceful_shutdown_timeout=_DRAIN,
        )
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._running = asyncio.create_task(self._worker.run())

    async def stop(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            with contextlib.suppress(RuntimeError):
                await self._worker.shutdown()
            await running

    async def kill(self) -> None:
        raise AssertionError("a worker in this process can't be killed")


class RemoteWorker:
    """A worker in a process of its own."""

    def __init__(self, plan: Plan) -> None:
        path = Path(plan.journal).with_suffix(".plan.json")
        path.write_text(json.dumps(vars(plan)))
        self._process = WorkerProcess("tests.case_runner.workers", str(path))

    async def start(self) -> None:
        await self._process.start()

    async def stop(self) -> None:
        await self._process.stop()

    async def kill(self) -> None:
        await self._process.kill()


async def _serve(plan: Plan) -> None:
    client = await connect(address=plan.address, config_file=None, tls=False)
    builder = plan.builder()
    print("ready", flush=True)
    await run_worker(
        client,
        builder.agents(),
        task_queue=plan.task_queue,
        notifiers=builder.notifiers() or None,
        graceful_shutdown_timeout=_DRAIN,
    )


if __name__ == "__main__":
    asyncio.run(_serve(Plan(**json.loads(Path(sys.argv[1]).read_text()))))
