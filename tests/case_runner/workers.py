"""The workers of a case: in this process, or in one of their own where a case kills them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from temporalio.client import Client
from temporalio.worker import Worker as TemporalWorker

from tests.case_runner.agents import Builder
from tests.crash.nursery import Nursery, Worker
from turngate import Agent, build_worker

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
        self._worker: TemporalWorker = build_worker(
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

    def __init__(self, plan: Plan, nursery: Callable[[], Awaitable[Nursery]]) -> None:
        self._plan = plan
        self._nursery = nursery
        self._worker: Worker | None = None

    async def start(self) -> None:
        nursery = await self._nursery()
        plan = self._plan
        self._worker = await nursery.worker(
            f"{__name__}:born", address=plan.address, queue=plan.task_queue, plan=vars(plan)
        )

    async def stop(self) -> None:
        if self._worker is not None:
            await self._worker.stop()

    async def kill(self) -> None:
        assert self._worker is not None
        await self._worker.kill()


def born(spec: Json) -> tuple[list[Agent], Json]:
    """Return the agents and the worker's options, in the process that was started for them."""
    builder = Plan(**spec["plan"]).builder()
    return builder.agents(), {"notifiers": builder.notifiers() or None, "graceful_shutdown_timeout": _DRAIN}
