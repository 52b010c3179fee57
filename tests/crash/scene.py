"""One test's stage: its agent, its workers, its client, its database."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from temporalio.worker import Replayer

from tests.crash.agents import Spec
from tests.crash.effects import Effects
from tests.crash.nursery import Nursery, Worker
from turngate import Approval, TurngateClient, TurngatePlugin, TurnHandle
from turngate.connect import connect
from turngate.contracts import ApprovalType
from turngate.testing import ScriptedModel

Json = dict[str, Any]
T = TypeVar("T")
PATIENCE = 60.0
_PAUSE = 0.03


def call(call_id: str, name: str, ref: str, amount: int = 1) -> Json:
    """One tool call of a script."""
    return {"id": call_id, "name": name, "args": {"ref": ref, "amount": amount}}


def step(*calls: Json) -> Json:
    """One answer of a script that calls tools."""
    return {"text": "", "tool_calls": list(calls)}


async def until(found: Callable[[], Coroutine[Any, Any, T | None]], what: str) -> T:
    """Poll until there is something that counts as true, and return it."""
    async with _patience(what):
        while True:
            if value := await found():
                return value
            await asyncio.sleep(_PAUSE)
    raise AssertionError("not reached")


async def holds(condition: Callable[[], bool], what: str) -> None:
    """Poll until a condition holds that needs no server."""
    async with _patience(what):
        while not condition():
            await asyncio.sleep(_PAUSE)


@contextlib.asynccontextmanager
async def _patience(what: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(PATIENCE):
            yield
    except TimeoutError:
        raise AssertionError(f"{what} did not come within {PATIENCE:.0f} s") from None


@dataclass
class Scene:
    """What a test works with. `spec` is the present build of the agent: change it for a deploy."""

    address: str
    queue: str
    client: TurngateClient
    nursery: Nursery
    spec: Spec
    workers: list[Worker] = field(default_factory=list)

    @property
    def effects(self) -> Effects:
        """The database of the effects."""
        return self.spec.effects

    async def worker(self, **changes: Any) -> Worker:
        """Start a worker of the present build; `changes` to it stay."""
        self.spec = replace(self.spec, **changes)
        worker = await self.nursery.worker(
            "tests.crash.agents:build", address=self.address, queue=self.queue, spec=vars(self.spec)
        )
        self.workers.append(worker)
        return worker

    async def connect(self) -> Client:
        """Return a connection of its own to the server."""
        return await connect(address=self.address, tls=False, config_file=None)

    async def start(self, *script: Json | str) -> TurnHandle:
        """Start a turn whose model follows this script."""
        self.spec = replace(self.spec, script=list(script))
        await self.worker()
        return await self.client.start_turn("clerk", "go", turn_id=self.queue)

    async def waiting(self, turn: TurnHandle, *refs: str) -> list[Approval]:
        """Wait until exactly the calls with these refs wait, and return their approvals in this order."""

        async def found() -> list[Approval] | None:
            approvals = {approval.args["ref"]: approval for approval in await turn.pending()}
            return [approvals[ref] for ref in refs] if set(approvals) == set(refs) else None

        return await until(found, f"the pause for {refs}")

    async def recovery(self, turn: TurnHandle, ref: str) -> Approval:
        """Wait until somebody has to say what became of the call with this ref."""

        async def found() -> Approval | None:
            ours = [one for one in await turn.pending() if one.args["ref"] == ref]
            return next((one for one in ours if one.type is ApprovalType.RECOVERY), None)

        return await until(found, f"a recovery of {ref}")

    async def all_die(self) -> None:
        """Kill every worker."""
        await asyncio.gather(*(worker.kill() for worker in self.workers))

    async def replay(self) -> None:
        """Replay every run of this stage: whatever happened, a worker that knows nothing of it can follow."""
        await replay_all(self.client.temporal, f"TaskQueue = '{self.queue}'")

    def model_calls(self) -> int:
        """How often the model gave an answer, over all processes."""
        return self.spec.journal.count("answer")

    def model_inputs(self) -> list[list[Json]]:
        """Return the messages that the model was given at each call."""
        return ScriptedModel(journal=self.spec.journal).inputs()

    async def history(self, turn: TurnHandle, kind: int) -> list[Any]:
        """Return the turn's history events of one type."""
        handle = self.client.temporal.get_workflow_handle(turn.id)
        return [event async for event in handle.fetch_history_events() if event.event_type == kind]

    async def reported(self, turn: TurnHandle, tools: int) -> bool:
        """Whether the server knows the results of so many tools, after the model's first answer."""
        completed = await self.history(turn, EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED)
        return len(completed) == tools + 1

    async def executed(self, turn: TurnHandle, approval: Approval) -> bool:
        """Whether what this approval allowed has run."""
        record = {one.id: one for one in await turn.approvals()}
        return record[approval.id].executed is not None


async def replay_all(temporal: Client, query: str) -> None:
    """Replay every run that a visibility query finds. Raises for the first one whose replay goes another way."""
    replayer = Replayer(workflows=[], plugins=[TurngatePlugin()], data_converter=temporal.data_converter)
    await replayer.replay_workflows(temporal.list_workflows(query).map_histories())


async def tool_results(turn: TurnHandle) -> dict[str, tuple[str, str]]:
    """Return what the model was told of each call: tool call id -> status and text."""
    return {
        message["tool_call_id"]: (message.get("status", "success"), str(message["content"]))
        for message in await turn.messages()
        if message["type"] == "tool"
    }
