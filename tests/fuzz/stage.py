"""A real server, a real worker, and turns that are paused on them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.tools import tool
from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowQueryFailedError,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError
from temporalio.worker import Worker

from tests.fuzz.sending import Shot, send
from turngate import Agent, DevServer, InterruptOnConfig, TurngateClient, build_worker, interrupt
from turngate.contracts import Approval
from turngate.testing import Journal, ScriptedModel, dev_server

Json = dict[str, Any]
AGENTS = ("main", "pair", "asker", "quorum")
AT_ONCE = 5.0
"""Seconds in which a paused run has to answer a question, on a machine that may be busy."""
_OTHERS_TURN = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND
_TOGETHER = 8


class Hurt(AssertionError):
    """A run was hurt by what was sent to it."""


@dataclass(frozen=True)
class Stage:
    """Where runs are paused and attacked."""

    server: DevServer
    client: Client
    queue: str
    agents: Sequence[Agent]
    journal: Journal

    def worker(self, **options: Any) -> Worker:
        """Return a worker of the agents, to be run."""
        return build_worker(self.client, self.agents, task_queue=self.queue, **options)

    async def pause(self, agent: str = "main") -> Target:
        """Start a turn and wait until it is paused."""
        turns = TurngateClient(self.client, task_queue=self.queue)
        paused = await turns.run_turn(agent, "go", turn_id=f"{agent}-{uuid.uuid4().hex[:8]}")
        return await self._target(paused.turn.id, paused.approvals)

    async def _target(self, turn_id: str, approvals: Sequence[Approval]) -> Target:
        handle: WorkflowHandle[Any, Any] = self.client.get_workflow_handle(turn_id)
        before = await handle.query("pending")
        run_id = (await handle.describe()).run_id
        return Target(self, handle, before["approvals"], run_id)

    async def fire(self, target_id: str, shots: Sequence[Shot]) -> list[str]:
        """Send the shots, some at a time; return what was answered to each."""
        room = asyncio.Semaphore(_TOGETHER)

        async def one(shot: Shot) -> str:
            async with room:
                return await send(self.client, target_id, self.queue, shot)

        return await asyncio.gather(*(one(shot) for shot in shots))


@dataclass
class Target:
    """A paused run, and what waited in it before it was attacked."""

    stage: Stage
    handle: WorkflowHandle[Any, Any]
    approvals: list[Json]
    run_id: str

    @property
    def id(self) -> str:
        """The id of the turn."""
        return self.handle.id

    async def attack(self, shots: Sequence[Shot]) -> list[str]:
        """Send the shots and look whether the run is whole. Raises Hurt, naming the shots."""
        answers = await self.stage.fire(self.id, shots)
        try:
            await self.check()
        except Hurt as hurt:
            raise Hurt(f"{hurt}, by one of: " + "; ".join(map(str, shots))) from None
        return answers

    async def check(self) -> float:
        """Ask at once what waits; it must be what waited before. Returns the seconds that the answer took."""
        began = time.monotonic()
        try:
            found = await asyncio.wait_for(self.handle.query("pending"), AT_ONCE)
        except Exception as error:
            raise Hurt(f"{self.id} does not answer: {error!r} {await self._failures()}") from None
        took = time.monotonic() - began
        if found["approvals"] != self.approvals:
            raise Hurt(f"what waits in {self.id} has changed: {json.dumps(found)[:500]}")
        status = (await self.handle.describe()).status
        if status is not WorkflowExecutionStatus.RUNNING:
            raise Hurt(f"{self.id} is {status}")
        if failed := await self._failures():
            raise Hurt(f"{self.id} has failed tasks: {failed}")
        return took

    async def decide(self) -> Json:
        """Approve everything that waits, and return the result of the turn."""
        people = ("alice", "bob")[: self.approvals[0]["quorum"]["required"]]
        for person in people:
            answers = [_good(approval, person) for approval in self.approvals]
            await asyncio.wait_for(self.handle.execute_update("decide", {"decisions": answers}), AT_ONCE)
        result: Json = await asyncio.wait_for(self.handle.result(), 4 * AT_ONCE)
        if failed := await self._failures():
            raise Hurt(f"{self.id} has failed tasks: {failed}")
        return result

    async def _failures(self) -> list[str]:
        return await task_failures(self.stage.client, self.id, self.run_id)


async def task_failures(client: Client, workflow_id: str, run_id: str) -> list[str]:
    """Return the failed workflow tasks of a run and of those that follow it.

    The server fails a task whose run wants to continue as new while a signal comes in: that is how it should be.
    Tasks that timed out don't count either: on a busy machine they do, and the next one heals it.
    """
    found: list[str] = []
    while run_id:
        following = ""
        handle = client.get_workflow_handle(workflow_id, run_id=run_id)
        async for event in handle.fetch_history_events():
            found += _failure(event)
            following = event.workflow_execution_continued_as_new_event_attributes.new_execution_run_id or following
        run_id = following
    return found


async def until_a_task_failed(handle: WorkflowHandle[Any, Any]) -> None:
    """Wait until a worker has tried a task of the run and failed."""
    async with asyncio.timeout(4 * AT_ONCE):
        while (await handle.describe()).raw_description.pending_workflow_task.attempt < 2:
            await asyncio.sleep(0.05)


def _failure(event: HistoryEvent) -> list[str]:
    if not event.HasField("workflow_task_failed_event_attributes"):
        return []
    failed = event.workflow_task_failed_event_attributes
    return [] if failed.cause == _OTHERS_TURN else [failed.failure.message[:300] or str(failed.cause)]


async def outcome_of_start(stage: Stage, workflow_id: str) -> str:
    """Wait until a started run has failed in order or waits, and end it. Returns failed or waiting; raises Hurt."""
    handle: WorkflowHandle[Any, Any] = stage.client.get_workflow_handle(workflow_id)
    deadline = time.monotonic() + 4 * AT_ONCE
    while time.monotonic() < deadline:
        described = await handle.describe()
        if failed := await task_failures(stage.client, workflow_id, described.run_id):
            raise Hurt(f"a start has failed tasks: {failed}")
        if described.status is WorkflowExecutionStatus.FAILED:
            return await _reason(handle)
        if await _is_waiting(handle, described.workflow_type):
            await handle.terminate()
            return "waiting"
        await asyncio.sleep(0.02)
    raise Hurt("a started run neither failed nor waits")


async def _reason(handle: WorkflowHandle[Any, Any]) -> str:
    try:
        await handle.result()
    except WorkflowFailureError as error:
        if isinstance(error.cause, ApplicationError):
            return "failed"
        raise Hurt(f"a start failed without a reason: {error.cause!r}") from None
    raise AssertionError("the run has failed")


async def _is_waiting(handle: WorkflowHandle[Any, Any], workflow_type: str) -> bool:
    """Tell whether a turn is paused, or a thread has no turn yet."""
    with contextlib.suppress(RPCError, WorkflowQueryFailedError, TimeoutError):
        if workflow_type == "AgentThread":
            return (await asyncio.wait_for(handle.query("status"), AT_ONCE))["agent"] is not None
        return bool((await asyncio.wait_for(handle.query("pending"), AT_ONCE))["approvals"])
    return False


def _good(approval: Json, reviewer: str) -> Json:
    answer = {"approval_id": approval["id"], "digest": approval["digest"], "reviewer": reviewer}
    return answer | ({"type": "answer", "value": "yes"} if approval["type"] == "question" else {"type": "approve"})


@contextlib.asynccontextmanager
async def stage(server: DevServer, *, client: Client | None = None, **worker_options: Any) -> AsyncIterator[Stage]:
    """Run a worker with the agents below on a server, for a client of the test's own where one is given."""
    journal = Journal()
    queue = f"fuzz-{uuid.uuid4().hex[:8]}"
    made = Stage(server, client or await server.client(), queue, agents(journal), journal)
    async with made.worker(**worker_options):
        yield made


@contextlib.asynccontextmanager
async def own_stage(*dynamic_config: str, **worker_options: Any) -> AsyncIterator[Stage]:
    """Run a server and a worker."""
    async with dev_server(dynamic_config=dynamic_config) as server, stage(server, **worker_options) as running:
        yield running


def agents(journal: Journal) -> list[Agent]:
    """Return the agents: one approval; a batch that a named person decides; two who must agree; a tool that asks."""

    @tool
    def pay(amount: int) -> str:
        """Pay an amount."""
        journal.write("paid", amount=amount)
        return f"paid {amount}"

    @tool
    def ask(about: str) -> str:
        """Ask a person."""
        return f"they say {interrupt({'about': about})}"

    def call(number: int, name: str, **args: Any) -> Json:
        return {"id": f"call_{number}", "name": name, "args": args}

    paying = [{"tool_calls": [call(1, "pay", amount=5)]}, "done"]
    both = [{"tool_calls": [call(1, "pay", amount=5), call(2, "pay", amount=6)]}, "done"]
    asking = [{"tool_calls": [call(1, "ask", about="it")]}, "done"]
    named = InterruptOnConfig(reviewers=["alice"], timeout="30d", remind_every="10d")
    two = InterruptOnConfig(quorum=2, timeout="30d")
    return [
        Agent("main", model=ScriptedModel(paying), tools=[pay], interrupt_on={"pay": True}),
        Agent("pair", model=ScriptedModel(both), tools=[pay], interrupt_on={"pay": named}, interrupt_mode="batched"),
        Agent("quorum", model=ScriptedModel(paying), tools=[pay], interrupt_on={"pay": two}),
        Agent("asker", model=ScriptedModel(asking), tools=[ask], interrupt_on={"ask": False}),
    ]
