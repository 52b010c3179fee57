"""What one look at a run finds; each thing is read once, when it is first asked for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from temporalio.client import WorkflowExecutionStatus

from tests.case_runner.matching import Bindings, Problems, match
from tests.case_runner.outcome import Outcome
from tests.case_runner.resolving import Resolver
from tests.case_runner.tree import messages_of, pending_of, turn_ids
from tests.case_runner.world import CaseError, Run, World, bounded
from turngate.contracts import Approval, TurnResult
from turngate.errors import TurnFailedError

Json = dict[str, Any]
_CLOSED_AS = {
    WorkflowExecutionStatus.FAILED: "failed",
    WorkflowExecutionStatus.CANCELED: "cancelled",
    WorkflowExecutionStatus.TERMINATED: "terminated",
    WorkflowExecutionStatus.TIMED_OUT: "timed_out",
}


class Facts:
    """A look at the run that a step is about."""

    def __init__(self, world: World, run: Run, outcome: Outcome) -> None:
        self.world = world
        self.run = run
        self.outcome = outcome
        self.resolver = Resolver(world, run)
        self._known: dict[str, Any] = {}

    async def approvals(self) -> list[Approval]:
        """Everything that was raised in the run and below it."""
        return await self.resolver.approvals(self.run)

    async def pending(self) -> list[Approval]:
        """What waits for people."""
        return await self._once("pending", lambda: pending_of(self.world, self.run))

    async def messages(self) -> list[Json]:
        """The whole conversation."""
        return await self._once("messages", lambda: messages_of(self.world, self.run))

    async def latest_turn(self) -> str:
        """The id of the run itself, or of the thread's latest turn."""
        turns: list[str] = await self._once("turns", lambda: turn_ids(self.world, self.run))
        if not turns:
            raise CaseError(f"the thread {self.run.name!r} has no turn")
        return turns[-1]

    async def result(self) -> TurnResult:
        """How the (latest) turn ended."""
        return await self._once("result", self._result)

    async def status(self) -> str:
        """What the (latest) turn is at."""
        turn = await self.latest_turn()
        status = (await self.world.describe(turn)).status
        if status in _CLOSED_AS:
            return _CLOSED_AS[status]
        if status is WorkflowExecutionStatus.COMPLETED:
            return str((await self.result()).status)
        told = str((await bounded(self.world.turn(turn).status()))["status"])
        # A turn whose subagent waits for people waits for them too, though nothing of its own does.
        return "waiting" if told == "running" and await self.pending() else told

    async def failure(self) -> str:
        """Why the turn failed."""
        try:
            await self.result()
        except TurnFailedError as error:
            return str(error)
        raise CaseError("the turn did not fail")

    def answers(self, *, whole_case: bool = False) -> list[Json]:
        """The journal's entries of the answers of the run's model (not of its subagents'), or of all runs'."""
        entries = self.world.journal.read("answer", subagent=False)
        below = f"{self.run.id}/turn-"
        return [
            entry for entry in entries if whole_case or entry["turn"] == self.run.id or entry["turn"].startswith(below)
        ]

    async def compare(self, expected: Any, found: Any, where: str, names: Bindings | None = None) -> Problems:
        """Match what was found, with approval ids in the place of references and names as the case has them."""
        wanted = self.world.plain(await self.resolver.fill(expected))
        return match(wanted, self.world.plain(found), where, names)

    async def _result(self) -> TurnResult:
        return await bounded(self.world.turn(await self.latest_turn()).result())

    async def _once(self, name: str, read: Callable[[], Awaitable[Any]]) -> Any:
        if name not in self._known:
            self._known[name] = await read()
        return self._known[name]
