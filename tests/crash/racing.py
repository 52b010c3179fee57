"""Decisions, votes, junk and stops that arrive while a paused turn continues as new.

The server suggests continue-as-new after a few events, so that every burst of messages meets one or more. Nothing may
be lost and nothing may count twice; what a sender was told must be what the record says. Many tries:

    python -m tests.crash.racing --tries 300
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from temporalio.client import (
    Client,
    Interceptor,
    OutboundInterceptor,
    StartWorkflowUpdateInput,
    WorkflowHandle,
    WorkflowHistoryEventFilterType,
    WorkflowUpdateHandle,
)
from temporalio.service import RPCError, RPCStatusCode

from tests.crash.agents import Spec, agent
from tests.crash.scene import Json, call, replay_all, step, until
from turngate import Approval, TurngateClient, TurnHandle, TurnResult, build_worker, rpc
from turngate.contracts import ApprovalStatus
from turngate.errors import RefusedError
from turngate.testing import dev_server

EVENTS = 16
"""The length of a history at which the server suggests to continue as new."""
CALLS = 8
JUNK = 6
_AT_ONCE = 3
_SETTLED_AS = {
    "approve": ApprovalStatus.APPROVED,
    "reject": ApprovalStatus.REJECTED,
    "respond": ApprovalStatus.RESPONDED,
}
_ANSWERS = {"applied", "already_resolved", "vote_recorded", "queued", "signalled"}
_AFTER_STOP = {"cancelled", "closed"}
_JUNK: tuple[Any, ...] = ("what?", {"approval_id": "nobody/000000-1", "type": "approve"}, {"type": "approve"}, 7)


@dataclass
class Tally:
    """What happened in all tries. `updates_sent_again`: these needed the client's retry with the same id."""

    tries: int = 0
    stops: int = 0
    continued_as_new: int = 0
    signals: int = 0
    updates: int = 0
    updates_sent_again: int = 0
    server_errors: Counter[str] = field(default_factory=Counter)
    told: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join(f"{name:20}{value}" for name, value in vars(self).items())


class Sends(Interceptor):
    """Counts how often a client sent each update, and the server's errors that made it send one again."""

    def __init__(self) -> None:
        self.times: Counter[tuple[str, str]] = Counter()
        self.errors: Counter[str] = Counter()

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002
        """Stand between the client and the server."""
        return _Counting(next, self)


class _Counting(OutboundInterceptor):
    def __init__(self, next: OutboundInterceptor, sends: Sends) -> None:  # noqa: A002
        super().__init__(next)
        self._sends = sends

    async def start_workflow_update(self, input: StartWorkflowUpdateInput) -> WorkflowUpdateHandle[Any]:  # noqa: A002
        self._sends.times[input.id, input.update_id or ""] += 1
        try:
            return await super().start_workflow_update(input)
        except RPCError as error:
            self._sends.errors[f"{error.status.name}: {error.message[:60]}"] += 1
            raise


@dataclass
class Sent:
    """One decision of a burst, the way it goes, and what its sender was told."""

    approval: Approval
    decision: Json
    by_signal: bool
    told: str = ""

    @property
    def payload(self) -> Json:
        """What is sent."""
        return {"approval_id": self.approval.id, "digest": self.approval.digest, **self.decision}

    async def send(self, client: TurngateClient, raw: WorkflowHandle[Any, Any]) -> None:
        """Send it, and note the answer."""
        if self.by_signal:
            self.told = await _signal(raw, self.payload)
            return
        try:
            self.told = str((await client.decide(self.payload))[0].outcome)
        except RefusedError as error:
            self.told = error.refusals[0].code


async def race(tries: int, seed: int = 1) -> Tally:
    """Run so many turns, each under one burst of messages, and return what happened."""
    tally, sends, dice = Tally(), Sends(), random.Random(seed)
    async with dev_server(dynamic_config=[f"limit.historyCount.suggestContinueAsNew={EVENTS}"]) as server:
        with tempfile.TemporaryDirectory() as folder:
            async with _served(await server.client(interceptors=[sends]), folder) as (client, spec):
                turns = iter(
                    [_Try(client, spec, f"race-{n}", random.Random(dice.random()), tally) for n in range(tries)]
                )
                await asyncio.gather(*(_run(turns) for _ in range(_AT_ONCE)))
            await replay_all(client.temporal, "TaskQueue = 'race'")
    tally.updates = len(sends.times)
    tally.updates_sent_again = sum(times > 1 for times in sends.times.values())
    tally.server_errors = sends.errors
    return tally


async def _run(turns: Any) -> None:
    for turn in turns:
        await turn.run()


@contextlib.asynccontextmanager
async def _served(temporal: Client, folder: str) -> AsyncIterator[tuple[TurngateClient, Spec]]:
    calls = [call(f"c{n}", "pay" if n % 2 else "ship", f"r{n}", n) for n in range(CALLS)]
    two = {"allowed_decisions": ["approve", "respond"], "quorum": 2}
    spec = Spec(folder, script=[step(*calls), "done"], gates={"pay": True, "ship": two})
    async with build_worker(temporal, [agent(spec)], task_queue="race"):
        yield TurngateClient(temporal, "race"), spec


class _Try:
    """One turn and its burst."""

    def __init__(self, client: TurngateClient, spec: Spec, turn_id: str, dice: random.Random, tally: Tally) -> None:
        self.client, self.spec, self.turn_id, self.dice, self.tally = client, spec, turn_id, dice, tally
        self.stops = dice.random() < 0.25
        self.junk_taken = 0
        self.raw: WorkflowHandle[Any, Any] = client.temporal.get_workflow_handle(turn_id)

    async def run(self) -> None:
        """Start the turn, send everything at once, and compare."""
        turn = await self.client.start_turn("clerk", "go", turn_id=self.turn_id)
        sent = [
            each for approval in await until(lambda: _all_wait(turn), "the pause") for each in self._about(approval)
        ]
        senders = [each.send(self.client, self.raw) for each in sent]
        senders += [self._litter(self.dice.choice(_JUNK)) for _ in range(JUNK)]
        senders += [self._stop(turn)] if self.stops else []
        self.dice.shuffle(senders)
        await asyncio.gather(*senders)
        async with asyncio.timeout(60):
            result = await turn.result()
        await self._compare(turn, result, sent)

    def _about(self, approval: Approval) -> list[Sent]:
        """One decision where one settles it, a vote of each of two people where it takes two."""
        dice = self.dice
        voters = ("ann", "bob")[: approval.quorum.required]
        # Mostly what runs nothing: a turn continues as new only when no tool runs.
        kind = dice.choice(["approve", "respond", "respond", "respond" if len(voters) > 1 else "reject"])
        text = {"message": "done by hand"} if kind == "respond" else {}
        return [Sent(approval, {"type": kind, "reviewer": voter, **text}, dice.random() < 0.5) for voter in voters]

    async def _litter(self, payload: Any) -> None:
        if await _signal(self.raw, payload) == "signalled":
            self.junk_taken += 1

    async def _stop(self, turn: TurnHandle) -> None:
        if self.dice.random() < 0.5:
            await _signal(self.raw, {}, "stop")
            return
        with contextlib.suppress(RefusedError):
            await turn.stop()

    async def _compare(self, turn: TurnHandle, result: TurnResult, sent: list[Sent]) -> None:
        tally = self.tally
        wrong = [*self._wrong_record(result, sent), *self._wrong_effects(result)]
        wrong += await self._wrong_refusals(turn, result, sent)
        tally.wrong += [f"{self.turn_id}: {what}" for what in wrong]
        tally.tries += 1
        tally.stops += self.stops
        tally.signals += sum(each.by_signal for each in sent) + JUNK
        tally.continued_as_new += await _continued(self.client.temporal, self.turn_id)
        tally.told.update(each.told for each in sent)

    def _wrong_record(self, result: TurnResult, sent: list[Sent]) -> list[str]:
        """Every decision counts as it was sent, or, after a stop, its sender was told that it does not."""
        record = {approval.id: approval for approval in result.approvals}
        wrong = [] if len(record) == len(result.approvals) == CALLS else [f"{len(result.approvals)} approvals"]
        for each in sent:
            if each.told not in (_ANSWERS | _AFTER_STOP if self.stops else _ANSWERS):
                wrong.append(f"{each.approval.id}: its sender was told {each.told}")
            approval = record[each.approval.id]
            voters = [vote.reviewer for vote in approval.votes]
            if len(set(voters)) != len(voters):
                wrong.append(f"votes twice: {voters}")
            counts = each.decision["reviewer"] in voters and each.decision["type"] in [v.type for v in approval.votes]
            settled = approval.status is _SETTLED_AS[each.decision["type"]]
            if each.told in ("applied", "already_resolved") and not (counts and settled):
                wrong.append(f"{approval.id} was {each.told}, and is {approval.status} by {voters}")
            if each.told == "vote_recorded" and not counts:
                wrong.append(f"{approval.id} lacks a recorded vote")
            if not self.stops and not (counts and settled):
                wrong.append(f"{approval.id} lost a decision ({each.told}, signal: {each.by_signal}): {approval.votes}")
            if counts and each.told in _AFTER_STOP:
                wrong.append(f"{approval.id} took a decision that was refused as {each.told}")
        return wrong

    def _wrong_effects(self, result: TurnResult) -> list[str]:
        """Exactly what was approved ran, once; a stop may keep something from running."""
        ran = Counter(start.key for start in self.spec.effects.starts() if f"/{self.turn_id}/" in start.key)
        approved = sum(approval.status is ApprovalStatus.APPROVED for approval in result.approvals)
        if any(times > 1 for times in ran.values()):
            return [f"ran twice: {ran}"]
        fits = len(ran) <= approved if self.stops else len(ran) == approved
        return [] if fits else [f"{approved} approved, {len(ran)} ran"]

    async def _wrong_refusals(self, turn: TurnHandle, result: TurnResult, sent: list[Sent]) -> list[str]:
        """Each signal that the server took and that did not count stands among the refusals, once."""
        record = {approval.id: approval for approval in result.approvals}
        late = 0
        for each in sent:
            voters = [vote.reviewer for vote in record[each.approval.id].votes]
            late += each.told in ("signalled", "queued") and each.decision["reviewer"] not in voters
        count = (await rpc.query(self.client.temporal, turn.id, "refused"))["count"]
        return [] if count == self.junk_taken + late else [f"{count} refusals, not {self.junk_taken} + {late}"]


async def _all_wait(turn: TurnHandle) -> list[Approval] | None:
    waiting = await turn.pending()
    return waiting if len(waiting) == CALLS else None


async def _signal(raw: WorkflowHandle[Any, Any], payload: Any, name: str = "decide") -> str:
    try:
        await raw.signal(name, payload)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return "closed"
    return "signalled"


async def _continued(temporal: Client, turn_id: str) -> int:
    """Count the runs of the chain after the first."""
    described = (await temporal.get_workflow_handle(turn_id).describe()).raw_description
    run, count = described.workflow_execution_info.first_run_id, 0
    while True:
        handle = temporal.get_workflow_handle(turn_id, run_id=run)
        history = handle.fetch_history_events(event_filter_type=WorkflowHistoryEventFilterType.CLOSE_EVENT)
        run = [event async for event in history][
            -1
        ].workflow_execution_continued_as_new_event_attributes.new_execution_run_id
        if not run:
            return count
        count += 1


def main() -> int:
    """Run from the command line; exit with 0 if nothing was lost or doubled."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--tries", type=int, default=300)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    before = time.monotonic()
    tally = asyncio.run(race(given.tries, given.seed))
    print(tally)
    print(f"{'seconds':20}{time.monotonic() - before:.0f}")
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
