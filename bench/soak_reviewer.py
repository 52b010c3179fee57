"""A careless reviewer: decides at random, repeats itself, contradicts the others, and sends nonsense."""

from __future__ import annotations

import contextlib
import os
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from temporalio.service import RPCError

from tests.crash.effects import Effects
from turngate import Approval, TurngateClient
from turngate.contracts import ApprovalType
from turngate.errors import RefusedError

Json = dict[str, Any]


@dataclass
class Said:
    """What all reviewers sent, and what they were told."""

    sent: Counter[str] = field(default_factory=Counter)
    told: Counter[str] = field(default_factory=Counter)
    junk: Counter[str] = field(default_factory=Counter)
    recoveries: Counter[str] = field(default_factory=Counter)
    decisions: dict[str, list[Json]] = field(default_factory=dict)
    """Approval id -> everything that was sent about it and could count."""


class Reviewer:
    """One of them, with a connection of its own."""

    def __init__(self, name: str, seed: int, client: TurngateClient, effects: Effects, said: Said) -> None:
        self.name, self.client, self.effects, self.said = name, client, effects, said
        self.dice = random.Random(f"{seed}{name}")

    async def round(self) -> None:
        """Look at the inbox once, and deal with some of it."""
        # Without a digest it is only known that the run waits: no worker has told for what.
        waiting = [approval for approval in await self.client.pending() if approval.digest]
        self.dice.shuffle(waiting)
        for approval in waiting[: 1 + len(waiting) // 2]:
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
        if self.effects.happened(ref):
            decision = {"type": "respond", "message": "it did happen"}
        elif any(_alive(start.pid) for start in self.effects.starts(ref)):
            return
        else:
            decision = {"type": "approve"}
        if await self._send(approval, decision) == "applied":
            self.said.recoveries[decision["type"]] += 1

    async def _send(self, approval: Approval, decision: Json) -> str:
        comment = f"{self.name} {self.dice.random()}"
        about: Json = {"approval_id": approval.id, "digest": approval.digest}
        payload: Json = {**about, "reviewer": self.name, "comment": comment, **decision}
        self.said.decisions.setdefault(approval.id, []).append(payload)
        if self.dice.random() < 0.3:
            return await self._signal(approval, payload)
        self.said.sent["client"] += 1
        try:
            told = str((await self.client.decide(payload))[0].outcome)
        except RefusedError as error:
            told = error.refusals[0].code
        self.said.told[told] += 1
        return told

    async def _signal(self, approval: Approval, payload: Json) -> str:
        self.said.sent["signal"] += 1
        try:
            await self.client.temporal.get_workflow_handle(approval.context.turn_id).signal("decide", payload)
        except RPCError:
            return "closed"
        return "signalled"

    async def _junk(self, approval: Approval) -> None:
        base: Json = {"approval_id": approval.id, "type": "approve", "reviewer": self.name}
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
            self.said.junk["signalled"] += 1
            return
        try:
            told = str((await self.client.decide(junk))[0].outcome)
        except RefusedError as error:
            told = error.refusals[0].code
        self.said.junk[told] += 1


def _alive(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False
