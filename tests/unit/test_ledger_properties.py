"""For any interleaving of requests, deadlines and raised calls: every approval is settled at most once, nothing is
settled without a decision, and a refused request changes nothing."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from turngate.contracts import ApprovalContext, ApprovalStatus, CallPlan, Json, digest_of
from turngate.errors import RefusedError
from turngate.ledger import Ledger

SCHEMA: Json = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}
KINDS = st.sampled_from(["approve", "edit", "reject", "respond", "answer", "nuke", None, 5])
NAMES = st.sampled_from([None, "", "ann", "bob", "eve"])
EXTRAS = st.sampled_from(
    [
        {},
        {"message": "why"},
        {"message": 5},
        {"edited_action": {"name": "pay", "args": {"n": 1}}},
        {"edited_action": {"name": "pay", "args": {"n": "x"}}},
        {"edited_action": {"name": "other", "args": {"n": 1}}},
        {"args": {"n": 2}},
        {"remember": {"scope": "turn", "match": "args"}},
        {"remember": {"scope": "turn", "match": "tool", "apply_to_pending": True}},
        {"digest": "0" * 16},
        {"foo": 1},
    ]
)


class LedgerMachine(RuleBasedStateMachine):
    """A ledger under arbitrary clients."""

    def __init__(self) -> None:
        super().__init__()
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.ledger = Ledger("run/abc123")
        self.settled: dict[str, str] = {}

    def snapshot(self) -> str:
        """Everything that a query could show, refusals left out."""
        state = self.ledger.state.to_json()
        state.pop("refused", None)
        state.pop("refused_count", None)
        return json.dumps(state, sort_keys=True, default=str)

    def some_id(self, pick: int) -> str:
        number = pick % (len(self.ledger.items) + 2) + 1
        return f"run/abc123-{number}"

    @precondition(lambda self: len(self.ledger.items) < 12)
    @rule(
        n=st.integers(0, 3),
        quorum=st.integers(1, 2),
        timeout=st.sampled_from([None, 60.0]),
        reviewers=st.sampled_from([[], ["ann", "bob"]]),
        batch=st.sampled_from([0, 1]),
    )
    def raise_call(self, n: int, quorum: int, timeout: float | None, reviewers: list[str], batch: int) -> None:
        args = {"n": n}
        plan = CallPlan(quorum=quorum, timeout_s=timeout, reviewers=reviewers, allow_remember=quorum == 1)
        self.ledger.open(
            plan,
            name="pay",
            args=args,
            digest=digest_of("pay", args),
            tool_call_id="c",
            context=ApprovalContext(),
            now=self.now,
            schemas={"pay": SCHEMA},
            batch=batch,
        )

    @rule(pick=st.integers(0, 20), kind=KINDS, who=NAMES, extra=EXTRAS)
    def decide(self, pick: int, kind: Any, who: str | None, extra: Json) -> None:
        self.send({"approval_id": self.some_id(pick), "type": kind, "reviewer": who, **extra})

    @rule(picks=st.lists(st.integers(0, 20), min_size=1, max_size=4), kind=KINDS, who=NAMES)
    def decide_several(self, picks: list[int], kind: Any, who: str | None) -> None:
        decisions = [{"approval_id": self.some_id(pick), "type": kind, "reviewer": who} for pick in picks]
        self.send({"decisions": decisions})

    @rule(count=st.integers(0, 4))
    def decide_by_position(self, count: int) -> None:
        self.send({"decisions": [{"type": "reject", "reviewer": "ann"}] * count})

    @rule(pick=st.integers(0, 20), n=st.integers(0, 3))
    def decide_early(self, pick: int, n: int) -> None:
        payload = {"type": "approve", "digest": digest_of("pay", {"n": n}), "reviewer": "ann"}
        self.send({"approval_id": f"run/abc123-{len(self.ledger.items) + 1 + pick % 2}", **payload})

    @rule(junk=st.recursive(st.none() | st.booleans() | st.text(max_size=5), lambda x: st.lists(x, max_size=3)))
    def send_junk(self, junk: Any) -> None:
        self.send(junk)

    @rule(seconds=st.integers(1, 90))
    def wait(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)
        self.ledger.tick(self.now)

    @rule(pick=st.integers(0, 20), to=st.lists(st.sampled_from(["ann", "eve"]), max_size=2), by=NAMES)
    def reassign(self, pick: int, to: list[str], by: str | None) -> None:
        before = self.snapshot()
        try:
            self.ledger.reassign({"approval_id": self.some_id(pick), "reviewers": to, "reviewer": by}, self.now)
        except RefusedError:
            assert self.snapshot() == before

    def send(self, payload: Any) -> None:
        self.ledger.tick(self.now)
        before = self.snapshot()
        try:
            self.ledger.examine(payload, self.now)
            passed = True
        except RefusedError:
            passed = False
        assert self.snapshot() == before, "looking at a request changed something"
        try:
            receipts = self.ledger.submit(payload, self.now)
        except RefusedError:
            assert not passed, "a request that passed its check was refused"
            assert self.snapshot() == before, "a refused request changed something"
        else:
            assert passed
            assert all(receipt.approval_id for receipt in receipts)

    @invariant()
    def settled_once_and_for_a_reason(self) -> None:
        for item in self.ledger.items:
            approval = item.approval
            if approval.status is ApprovalStatus.PENDING:
                assert approval.resolution is None
                continue
            assert approval.resolution is not None
            now = approval.resolution.model_dump_json()
            assert self.settled.setdefault(approval.id, now) == now, "an approval was settled twice"
            if approval.resolution.by == "reviewer":
                assert approval.votes, "somebody decided without a vote"
                if approval.quorum.required > 1 and approval.resolution.type == "approve":
                    assert len({vote.reviewer for vote in approval.votes}) >= approval.quorum.required

    @invariant()
    def the_state_survives_being_carried(self) -> None:
        state = self.ledger.state
        assert type(state).model_validate(json.loads(json.dumps(state.compact()))) == state


LedgerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLedger = LedgerMachine.TestCase
