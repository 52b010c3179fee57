"""Many turns, three careless reviewers, and workers that are killed at random: `make soak`.

Every process is real: the server with its state in a file, the workers, which are killed with SIGKILL from outside and
by traps inside their tools, and the effects, rows of a SQLite database that would show everything that ran twice.
Ends with 0 only if the effects are exactly the approved calls, every decision in the record is one that somebody sent,
and every history can be replayed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHistory
from temporalio.service import RPCError
from temporalio.worker import Replayer

from bench.soak_agents import GATED, plan
from tests.crash.effects import Effects
from tests.crash.nursery import Nursery, Worker
from turngate import Approval, DevServer, TurngateClient, TurngatePlugin, TurnResult
from turngate.contracts import ApprovalStatus, ApprovalType
from turngate.errors import NoWorkerError, RefusedError, TurngateError

Json = dict[str, Any]
QUEUE = "soak"
OPEN_TURNS = 16
WORKERS = 2
REVIEWERS = ("ann", "bob", "eve")
_KILL_EVERY = (3.0, 7.0)
_TRAPPED = 0.06
_TRAPS = ("die before", "die after", "die at report")


@dataclass
class Tally:
    """What happened."""

    killed_outside: int = 0
    killed_inside: int = 0
    sent: Counter[str] = field(default_factory=Counter)
    told: Counter[str] = field(default_factory=Counter)
    junk: Counter[str] = field(default_factory=Counter)
    recoveries: Counter[str] = field(default_factory=Counter)
    decisions: dict[str, list[Json]] = field(default_factory=dict)
    """Approval id -> everything that was sent about it and could count."""
    results: dict[int, TurnResult] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)


class Soak:
    """One run of the soak."""

    def __init__(self, turns: int, seed: int, folder: Path, server: DevServer, nursery: Nursery) -> None:
        self.turns, self.seed, self.folder, self.server, self.nursery = turns, seed, folder, server, nursery
        self.dice = random.Random(seed)
        self.effects = Effects(folder / "effects.db")
        self.tally = Tally()
        self.workers: list[Worker] = []

    async def run(self, seconds: float) -> None:
        """Run all turns to their end, or raise TimeoutError."""
        starter = TurngateClient(await self.server.client(), QUEUE)
        everybody = [self._keep_workers(), self._kill_workers(), *(self._review(name) for name in REVIEWERS)]
        async with asyncio.timeout(seconds):
            around = [asyncio.create_task(one) for one in everybody]
            try:
                turns = iter(range(self.turns))
                finishing = asyncio.gather(*(self._start(starter, turns) for _ in range(OPEN_TURNS)))
                done, _ = await asyncio.wait([finishing, *around], return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                for task in around:
                    task.cancel()
                await asyncio.gather(*around, return_exceptions=True)

    async def _start(self, client: TurngateClient, turns: Any) -> None:
        for number in turns:
            for call in (call for step in plan(self.seed, number) for call in step):
                if call["name"] in GATED and self.dice.random() < _TRAPPED:
                    self.effects.trap(call["args"]["ref"], self.dice.choice(_TRAPS))
            asked = json.dumps({"seed": self.seed, "turn": number})
            turn = await client.start_turn("clerk", asked, turn_id=f"soak-{number}")
            try:
                self.tally.results[number] = await turn.result()
            except TurngateError as error:
                self.tally.failed.append(f"{turn.id}: {error}")

    # --- Workers come and go -------------------------------------------------------------------------------------------

    async def _keep_workers(self) -> None:
        await asyncio.gather(*(self._keep_one() for _ in range(WORKERS)))

    async def _keep_one(self) -> None:
        while True:
            worker = await self.nursery.worker(
                "bench.soak_agents:build", address=self.server.address, queue=QUEUE, folder=str(self.folder)
            )
            self.workers.append(worker)
            await worker.ended.wait()
            self.workers.remove(worker)
            self.tally.killed_inside += 1

    async def _kill_workers(self) -> None:
        while True:
            await asyncio.sleep(self.dice.uniform(*_KILL_EVERY))
            # The last turns end in peace, or the time it takes would be a matter of luck.
            if self.workers and len(self.tally.results) < self.turns * 0.95:
                await self.dice.choice(self.workers).kill()
                self.tally.killed_outside += 1
                self.tally.killed_inside -= 1

    # --- Reviewers -----------------------------------------------------------------------------------------------------

    async def _review(self, name: str) -> None:
        reviewer = Reviewer(name, self, TurngateClient(await self.server.client(), QUEUE))
        while True:
            with contextlib.suppress(NoWorkerError):
                await reviewer.round()
            await asyncio.sleep(0.2)


class Reviewer:
    """Decides at random, repeats itself, contradicts the others, and sends nonsense."""

    def __init__(self, name: str, soak: Soak, client: TurngateClient) -> None:
        self.name, self.soak, self.client = name, soak, client
        self.dice = random.Random(f"{soak.seed}{name}")
        self.tally = soak.tally

    async def round(self) -> None:
        """Look at the inbox once, and deal with some of it."""
        waiting = [approval for approval in await self.client.pending() if approval.id and approval.name]
        self.dice.shuffle(waiting)
        for approval in waiting[:6]:
            if self.dice.random() < 0.2:
                await self._junk(approval)
            elif approval.type is ApprovalType.RECOVERY:
                await self._recover(approval)
            else:
                await self._decide(approval)

    async def _decide(self, approval: Approval) -> None:
        kind = self.dice.choice(["approve", "approve", "approve", "edit", "reject", "respond"])
        decision: Json = {"type": kind}
        if kind == "edit":
            changed = {**approval.args, "amount": approval.args["amount"] + 1000}
            decision["edited_action"] = {"name": approval.name, "args": changed}
        elif kind == "respond":
            decision["message"] = "done by hand"
        for _ in range(self.dice.choice([1, 1, 1, 2, 3])):
            await self._send(approval, decision)

    async def _recover(self, approval: Approval) -> None:
        """Look at the database: what happened is told, what did not is run again, what still runs is left alone."""
        ref = approval.args["ref"]
        if self.soak.effects.happened(ref):
            decision = {"type": "respond", "message": "it did happen"}
        elif any(_alive(start.pid) for start in self.soak.effects.starts(ref)):
            return
        else:
            decision = {"type": "approve"}
        if await self._send(approval, decision) == "applied":
            self.tally.recoveries[decision["type"]] += 1

    async def _send(self, approval: Approval, decision: Json) -> str:
        comment = f"{self.name} {self.dice.random()}"
        payload = {
            "approval_id": approval.id, "digest": approval.digest, "reviewer": self.name, "comment": comment, **decision,
        }  # fmt: skip
        self.tally.decisions.setdefault(approval.id, []).append(payload)
        if self.dice.random() < 0.3:
            return await self._signal(approval, payload)
        self.tally.sent["client"] += 1
        try:
            told = str((await self.client.decide(payload))[0].outcome)
        except RefusedError as error:
            told = error.refusals[0].code
        self.tally.told[told] += 1
        return told

    async def _signal(self, approval: Approval, payload: Json) -> str:
        self.tally.sent["signal"] += 1
        try:
            await self.client.temporal.get_workflow_handle(approval.context.turn_id).signal("decide", payload)
        except RPCError:
            return "closed"
        return "signalled"

    async def _junk(self, approval: Approval) -> None:
        base = {"approval_id": approval.id, "type": "approve", "reviewer": self.name}
        junk = self.dice.choice(
            [
                {**base, "digest": "0" * 16},
                {**base, "approval_id": f"{approval.id}0"},
                {**base, "type": "aprove"},
                {**base, "sure": True},
                {**base, "type": "edit", "edited_action": {"name": approval.name, "args": {"amount": "much"}}},
                {**base, "type": "answer", "value": 1},
            ]
        )
        if self.dice.random() < 0.3:
            await self._signal(approval, junk)
            self.tally.junk["signalled"] += 1
            return
        try:
            told = str((await self.client.decide(junk))[0].outcome)
        except RefusedError as error:
            told = error.refusals[0].code
        self.tally.junk[told] += 1


def _alive(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


# --- The verdict -------------------------------------------------------------------------------------------------------


def allowed_effects(seed: int, results: dict[int, TurnResult]) -> Counter[tuple[str, str, int]]:
    """Return what should have happened: the calls without a gate, and what the records say was allowed."""
    allowed: Counter[tuple[str, str, int]] = Counter()
    for number, result in results.items():
        for call in (call for step in plan(seed, number) for call in step if call["name"] not in GATED):
            allowed[call["name"], call["args"]["ref"], call["args"]["amount"]] += 1
        for approval in result.approvals:
            if approval.type is ApprovalType.TOOL and (args := _allowed_args(approval)):
                allowed[approval.name, args["ref"], args["amount"]] += 1
    return allowed


def _allowed_args(approval: Approval) -> Json | None:
    if approval.status is ApprovalStatus.APPROVED:
        return approval.args
    resolution = approval.resolution
    if approval.status is ApprovalStatus.EDITED and resolution and resolution.edited_action:
        args: Json = resolution.edited_action["args"]
        return args
    return None


def wrong_records(tally: Tally) -> list[str]:
    """Return the settled approvals whose decision nobody sent, and those that never were settled."""
    wrong = []
    for approval in (approval for result in tally.results.values() for approval in result.approvals):
        sent = tally.decisions.get(approval.id, [])
        settled = approval.resolution
        if settled is None:
            wrong.append(f"{approval.id} was not decided: {approval.status}")
        elif not any(each["type"] == settled.type and each["reviewer"] == settled.reviewer for each in sent):
            wrong.append(f"{approval.id}: nobody sent the {settled.type} of {settled.reviewer}")
    return wrong


async def replay(temporal: Client) -> Counter[str]:
    """Replay every history; return how many there were, and the failed workflow tasks in them by cause."""
    found: Counter[str] = Counter()

    async def histories() -> AsyncIterator[WorkflowHistory]:
        async for history in temporal.list_workflows(f"TaskQueue = '{QUEUE}'").map_histories():
            found["histories replayed"] += 1
            for event in history.events:
                if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
                    found[f"failed task: {event.workflow_task_failed_event_attributes.failure.message[:50]}"] += 1
            yield history

    replayer = Replayer(workflows=[], plugins=[TurngatePlugin()], data_converter=temporal.data_converter)
    failures = await replayer.replay_workflows(histories(), raise_on_replay_failure=False)
    found["replays that went another way"] = len(failures.replay_failures)
    return found


def report(soak: Soak, replayed: Counter[str], seconds: float) -> bool:
    """Print the counts, and return whether all is as it should be."""
    tally, statuses = soak.tally, Counter[str]()
    for result in tally.results.values():
        statuses.update(f"{approval.type}: {approval.status}" for approval in result.approvals)
    allowed, effects = allowed_effects(soak.seed, tally.results), Counter(soak.effects.all())
    wrong = wrong_records(tally)
    _table({
        "seconds": round(seconds),
        "turns completed": f"{len(tally.results)} of {soak.turns}",
        "turns failed": len(tally.failed),
        "workers killed from outside": tally.killed_outside,
        "workers killed inside a tool": tally.killed_inside,
        "decisions sent": dict(tally.sent),
        "what the client was told": dict(tally.told),
        "junk sent, and the answer": dict(tally.junk),
        "approvals": dict(statuses),
        "recoveries answered": dict(tally.recoveries),
        "bodies started": len(soak.effects.starts()),
        "effects allowed": allowed.total(),
        "effects in the database": effects.total(),
        "allowed, did not happen": (allowed - effects).total(),
        "happened, not allowed": (effects - allowed).total(),
        "records that nobody sent": len(wrong),
        **replayed,
    })  # fmt: skip
    _list("did not happen", list((allowed - effects).elements()))
    _list("not allowed", list((effects - allowed).elements()))
    _list("records", wrong)
    _list("failed", tally.failed)
    complete = len(tally.results) == soak.turns and not tally.failed
    return complete and allowed == effects and not wrong and not replayed["replays that went another way"]


def _table(rows: Json) -> None:
    for name, value in rows.items():
        text = ", ".join(f"{key} {count}" for key, count in sorted(value.items())) if isinstance(value, dict) else value
        print(f"{name:34}{text}")


def _list(title: str, lines: Sequence[Any]) -> None:
    for line in lines[:20]:
        print(f"{title}: {line}")


async def soak(turns: int, seed: int, limit: float) -> bool:
    """Run it and say whether it went well."""
    before = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with DevServer(db=folder / "temporal.db", ui=False) as server:
            async with Nursery("bench.soak_agents", "turngate.plugin") as nursery:
                run = Soak(turns, seed, folder, server, nursery)
                try:
                    await run.run(limit)
                except TimeoutError:
                    run.tally.failed.append(f"not at an end after {limit:.0f} s")
            seconds = time.monotonic() - before
            return report(run, await replay(await server.client()), seconds)


def main() -> int:
    """Run from the command line."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--turns", type=int, default=300)
    options.add_argument("--seed", type=int, default=random.randrange(10_000))
    options.add_argument("--limit", type=float, default=420, help="seconds after which it counts as failed")
    given = options.parse_args()
    print(f"soak: {given.turns} turns, seed {given.seed}", flush=True)
    good = asyncio.run(soak(given.turns, given.seed, given.limit))
    print("effects are exactly what was allowed" if good else "NOT as it should be")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
