"""Turngate's side: a development server with its state in a file, and a worker process that is killed.

After each death a new worker process is started, as any supervisor does; nobody tells it what to go on with.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    HandleSignalInput,
    HandleUpdateInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)

from bench.crash_moments import (
    PROCESS,
    REPORT,
    STARTING,
    TAKEN,
    Build,
    Json,
    Moment,
    Outcome,
    ScriptOnDisk,
    check_traps,
    counted,
    effects_in,
    lay_traps,
    prepare,
    tools_of,
)
from tests.crash.effects import Effects
from tests.crash.nursery import Nursery, Worker
from turngate import Agent, Approval, DevServer, TurngateClient, TurnHandle
from turngate.contracts import ApprovalType
from turngate.errors import NoWorkerError, RefusedError

LOST_AFTER = "2s"
"""The tools' heartbeat timeout: so long after its worker's death a call counts as interrupted."""
_PATIENCE = 90.0
_LOOK_EVERY = 0.05


class Place:
    """A server and a source of workers for any number of tries."""

    def __init__(self, server: DevServer, nursery: Nursery) -> None:
        self._server, self._nursery = server, nursery
        self._tries = 0

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, folder: Path) -> AsyncIterator[Place]:
        """Run the server, with its state below `folder`."""
        async with (
            DevServer(db=folder / "temporal.db", ui=False) as server,
            Nursery("bench.crash_turngate", "turngate.plugin", log=folder / "workers.log") as nursery,
        ):
            yield cls(server, nursery)

    async def play(self, moment: Moment, folder: Path) -> Outcome:
        """Go through one moment."""
        self._tries += 1
        queue = f"crash-{self._tries}"
        clients = [TurngateClient(await self._server.client(), queue) for _ in range(2)]
        return await _Play(moment, folder, self, clients, queue).run()

    async def worker(self, queue: str, folder: Path, build: Build) -> Worker:
        """Start a worker process."""
        return await self._nursery.worker(
            "bench.crash_turngate:build",
            address=self._server.address,
            queue=queue,
            folder=str(folder),
            made_of=asdict(build),
        )


class _Play:
    """One try."""

    def __init__(self, moment: Moment, folder: Path, place: Place, clients: list[TurngateClient], queue: str) -> None:
        self.moment, self.folder, self.place, self.queue = moment, folder, place, queue
        self.clients = clients
        self.effects = prepare(moment, folder)
        self.outcome = Outcome()
        self.answered: dict[str, Json] = {}
        """Approval id -> the answer to it."""

    async def run(self) -> Outcome:
        worker = await self.place.worker(self.queue, self.folder, self.moment.before)
        turn = await self.clients[0].start_turn("clerk", "go", turn_id=self.queue)
        async with asyncio.timeout(_PATIENCE):
            while not await self._is_paused(turn):  # noqa: ASYNC110  (another process pauses it)
                await asyncio.sleep(_LOOK_EVERY)
        lay_traps(self.moment, self.effects)
        if not self.moment.stays_alive:
            await worker.kill()
        supervisor = asyncio.create_task(self._supervise(worker))
        try:
            await self._go_through(turn)
        finally:
            supervisor.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await supervisor
        check_traps(self.moment, self.effects)
        self.outcome.effects = counted(self.effects)
        return self.outcome

    async def _supervise(self, worker: Worker) -> None:
        """Start a new process whenever one has died."""
        try:
            while True:
                await worker.ended.wait()
                worker = await self.place.worker(self.queue, self.folder, self.moment.after)
        finally:
            await worker.kill()

    async def _go_through(self, turn: TurnHandle) -> None:
        result = asyncio.create_task(turn.result())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                while not result.done():
                    for approval in await self._waiting(turn):
                        await self._look_at(approval)
                    await asyncio.wait([result], timeout=_LOOK_EVERY)
        self.outcome.ended = result.done() and result.exception() is None
        if result.done() and (error := result.exception()):
            self.outcome.errors.append(f"{type(error).__name__}: {error}"[:150])
        result.cancel()

    async def _is_paused(self, turn: TurnHandle) -> bool:
        """Whether something waits and nothing runs any more."""
        if not all(self.effects.happened(ref) for ref in self.moment.ungated):
            return False
        described = await turn.client.get_workflow_handle(turn.id).describe()
        return not described.raw_description.pending_activities and bool(await self._waiting(turn))

    async def _waiting(self, turn: TurnHandle) -> list[Approval]:
        try:
            return [approval for approval in await turn.pending() if approval.digest]
        except (NoWorkerError, RefusedError):
            return []

    # --- What people do ----------------------------------------------------------------------------------------------

    async def _look_at(self, approval: Approval) -> None:
        ref = approval.args["ref"]
        if approval.type is ApprovalType.RECOVERY:
            await self._clear_up(approval, ref)
            return
        earlier = list(self.answered.values())
        if self.moment.answered == "again" and earlier and approval.id not in self.answered:
            await self._send(earlier[0])
        self.outcome.asked_again += approval.id in self.answered
        await self._answer(approval, {"type": self.moment.answers[ref]})

    async def _clear_up(self, approval: Approval, ref: str) -> None:
        """Look whether the call took effect, and say so; what did not happen may run."""
        self.outcome.asked_to_look += 1
        happened = self.effects.happened(ref)
        await self._answer(approval, {"type": "respond", "message": "it did"} if happened else {"type": "approve"})

    async def _answer(self, approval: Approval, decision: Json) -> None:
        payload = {"approval_id": approval.id, "digest": approval.digest, **decision}
        self.answered[approval.id] = payload
        senders = list(zip(self.clients, ("ann", "bob"), strict=True))[: 2 if self.moment.answered == "by two" else 1]
        await asyncio.gather(*(self._send({**payload, "reviewer": name}, client) for client, name in senders))

    async def _send(self, payload: Json, client: TurngateClient | None = None) -> None:
        try:
            (receipt,) = await (client or self.clients[0]).decide(payload)
            self.outcome.told.append(str(receipt.outcome))
        except RefusedError as error:
            self.outcome.told.append(error.refusals[0].code)


# --- In the worker's process -----------------------------------------------------------------------------------------


def build(data: Json) -> tuple[list[Agent], Json]:
    """Return the agent and the worker's options for a nursery's spec."""
    folder, made_of = data["folder"], Build(**data["made_of"])
    effects = effects_in(Path(folder))
    agent = Agent(
        "clerk",
        model=ScriptOnDisk(folder=folder),
        tools=tools_of(effects, made_of.tools),
        interrupt_on=dict.fromkeys(made_of.gates, True),
        tool_options={name: {"heartbeat": LOST_AFTER} for name in made_of.tools},
    )
    return [agent], {"interceptors": [_Traps(effects)]}


class _Traps(Interceptor):
    """Places to die: where a worker takes an answer, and right before and after a tool."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        """Stand around the activities."""
        return _AroundTools(next, self._effects)

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:  # noqa: A002
        """Stand before the handlers."""
        effects = self._effects

        class BeforeAnswers(WorkflowInboundInterceptor):
            async def handle_signal(self, input: HandleSignalInput) -> None:  # noqa: A002
                effects.pass_by(PROCESS, TAKEN)
                await super().handle_signal(input)

            async def handle_update_handler(self, input: HandleUpdateInput) -> Any:  # noqa: A002
                effects.pass_by(PROCESS, TAKEN)
                return await super().handle_update_handler(input)

        return BeforeAnswers


class _AroundTools(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, effects: Effects) -> None:  # noqa: A002
        super().__init__(next)
        self._effects = effects

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        is_tool = input.fn.__name__ == "call_tool"
        if is_tool:
            self._effects.pass_by(PROCESS, STARTING)
        result = await super().execute_activity(input)
        if is_tool:
            self._effects.pass_by(PROCESS, REPORT)
        return result
