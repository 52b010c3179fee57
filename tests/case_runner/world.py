"""The state of one case while it runs: its server, worker, runs and journal."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.service import RPCError

from tests.case_runner.agents import Builder
from tests.case_runner.loading import Case, Json
from tests.case_runner.workers import CaseWorker, LocalWorker, Plan, RemoteWorker
from tests.crash.nursery import Nursery
from turngate.client import TurngateClient
from turngate.contracts import Approval
from turngate.devserver import DevServer
from turngate.handles import TurnHandle
from turngate.threads import ThreadHandle

T = TypeVar("T")
PATIENCE = 45.0
"""Seconds that one question to the product may take."""


class CaseError(Exception):
    """The case can't go on; the message says why."""


@dataclass
class Run:
    """One run of the case: a turn, or a thread with its turns."""

    name: str
    id: str
    is_thread: bool = False
    events: list[Any] = field(default_factory=list)


async def bounded(work: Coroutine[Any, Any, T], seconds: float = PATIENCE) -> T:
    """Await with a bound."""
    try:
        return await asyncio.wait_for(work, seconds)
    except TimeoutError:
        raise CaseError(f"no answer within {seconds:.0f} s") from None


class World:
    """Everything that the steps of a case act on."""

    def __init__(
        self, case: Case, server: DevServer, temporal: Client, folder: Path, nursery: Callable[[], Awaitable[Nursery]]
    ) -> None:
        unique = uuid.uuid4().hex[:6]
        self.case = case
        self.server = server
        self.temporal = temporal
        self.given: Json = case.given
        self.prefix = f"{case.id.lower()}-{unique}-"
        self.task_queue = f"{case.id.lower()}-{unique}"
        self.journal_path = folder / f"{self.task_queue}.jsonl"
        self.client = TurngateClient(temporal, self.task_queue)
        self.runs: dict[str, Run] = {}
        self.noted: dict[str, Any] = {}
        self.last_seen: dict[str, tuple[list[str], list[Approval]]] = {}
        self.worker: CaseWorker | None = None
        self.builder = self.new_builder()
        self.journal = self.builder.journal
        self.tasks: list[asyncio.Task[Any]] = []
        self.nursery = nursery
        self.kills = any("kill_worker_during" in step["do"] for step in case.steps)

    # --- Runs ----------------------------------------------------------------------------------------------------

    def new_run(self, name: str, *, is_thread: bool = False) -> Run:
        """Return the run of this name, known from now on."""
        return self.runs.setdefault(name, Run(name, self.prefix + name, is_thread))

    def run(self, name: str) -> Run:
        """Return a run by its name. Raises CaseError for one that was not started."""
        if name not in self.runs:
            raise CaseError(f"there is no run {name!r}")
        return self.runs[name]

    def turn(self, run: Run | str) -> TurnHandle:
        """Return the product's handle of a turn."""
        return self.client.turn(run if isinstance(run, str) else run.id)

    def thread(self, run: Run) -> ThreadHandle:
        """Return the product's handle of a thread."""
        return self.client.thread(run.id, agent=self.agent_name)

    @property
    def agent_name(self) -> str:
        """The name of the case's main agent."""
        return str(self.given["agent"].get("name", "main"))

    async def describe(self, workflow_id: str) -> WorkflowExecutionDescription:
        """Return what Temporal says of a run."""
        return await bounded(self.temporal.get_workflow_handle(workflow_id).describe())

    async def is_open(self, workflow_id: str) -> bool:
        """Tell whether a run exists and has not ended."""
        try:
            return (await self.describe(workflow_id)).status is WorkflowExecutionStatus.RUNNING
        except RPCError:
            return False

    def plain(self, value: Any) -> Any:
        """Return `value` with the names of runs and threads as the case has them, in place of our unique ids."""
        if isinstance(value, str):
            return value.replace(self.prefix, "")
        if isinstance(value, list):
            return [self.plain(entry) for entry in value]
        if isinstance(value, dict):
            return {self.plain(key): self.plain(inner) for key, inner in value.items()}
        return value

    # --- The worker ----------------------------------------------------------------------------------------------

    def new_builder(self) -> Builder:
        """Return a builder of what is given now."""
        return Builder(self.given, self.journal_path, self.prefix)

    async def start_worker(self) -> None:
        """Start a worker with what is given now."""
        plan = Plan(self.server.address, self.task_queue, self.given, str(self.journal_path), self.prefix)
        self.worker = RemoteWorker(plan, self.nursery) if self.kills else LocalWorker(self.temporal, plan)
        await self.worker.start()

    async def stop_worker(self) -> None:
        """Stop the worker in order."""
        worker, self.worker = self.worker, None
        if worker is not None:
            await worker.stop()

    # --- The end -------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """End everything that the case has started."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.builder.log.release.touch()
        for run in self.runs.values():
            with contextlib.suppress(RPCError):
                await self.temporal.get_workflow_handle(run.id).terminate(rpc_timeout=timedelta(seconds=5))
        await self.stop_worker()
