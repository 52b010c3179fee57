"""What the ledger makes of single requests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from turngate.contracts import ApprovalContext, CallPlan, Json, Outcome, digest_of
from turngate.errors import RefusedError
from turngate.items import Item
from turngate.ledger import Ledger

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PAY: Json = {
    "type": "object",
    "properties": {"to": {"type": "string"}, "amount": {"type": ["integer", "boolean"]}},
    "additionalProperties": False,
}


def opened(args: Json, roles: dict[str, list[str]] | None = None, **plan: Any) -> tuple[Ledger, Item]:
    ledger = Ledger("run/abc123")
    item = ledger.open(
        CallPlan(**plan),
        name="pay",
        args=args,
        digest=digest_of("pay", args),
        tool_call_id="c1",
        context=ApprovalContext(requested_by="asker"),
        now=NOW,
        schemas={"pay": PAY},
        roles=roles,
    )
    return ledger, item


def outcome(ledger: Ledger, payload: Json) -> str:
    """The outcome, or the code of the refusal."""
    try:
        return ledger.submit(payload, NOW)[0].outcome
    except RefusedError as refused:
        return refused.code


def edit(**args: Any) -> Json:
    return {"approval_id": "run/abc123-1", "type": "edit", "args": args}


@pytest.mark.parametrize("number", ["02", "\N{SUPERSCRIPT TWO}", "\N{ARABIC-INDIC DIGIT TWO}", "0", "-2", "", "2 "])
def test_only_an_id_that_may_be_issued_is_held(number: str) -> None:
    """Another one would be kept for ever, and some digits are no numbers."""
    ledger, _ = opened({"to": "a"})
    early = {"approval_id": f"run/abc123-{number}", "type": "approve", "digest": "0" * 16}
    assert outcome(ledger, early) == "unknown_approval"
    assert outcome(ledger, {**early, "approval_id": "run/abc123-2"}) == Outcome.HELD


@pytest.mark.parametrize(
    ("sent", "args", "expected"),
    [
        (1, {"to": "b", "amount": 1.0}, Outcome.APPLIED),  # JavaScript knows one kind of number
        (1, {"to": "b", "amount": True}, "invalid_edit"),
        ("1", {"to": "b", "amount": "1"}, Outcome.APPLIED),  # the tool has read it, and nobody may correct it
        ("1", {"to": "b", "amount": 1}, "invalid_edit"),
        ("1", {"to": 5, "amount": "1"}, "invalid_edit"),
    ],
)
def test_what_may_not_be_changed_must_be_sent_back_as_it_was(sent: Any, args: Json, expected: str) -> None:
    """Equal, as JSON understands it; what the model sent is not the reviewer's to get right."""
    ledger, _ = opened({"to": "a", "amount": sent}, editable_args=["to"])
    assert outcome(ledger, edit(**args)) == expected


def test_what_is_settled_carries_no_schemas() -> None:
    """They are many where the tool may change, and go over continue-as-new with every approval of the turn."""
    ledger, item = opened({"to": "a"})
    assert ledger.view(item).response_schema["$defs"]["edited_args"]["properties"]
    assert outcome(ledger, edit(to="b")) == Outcome.APPLIED
    assert "schemas" not in ledger.state.compact()["items"][0]
    assert outcome(ledger, edit(to="b")) == Outcome.ALREADY_RESOLVED


def test_a_late_approval_of_the_call_before_its_edit_is_a_conflict() -> None:
    """Two people have agreed on an edit: who approves what the model wanted has not said the same."""
    ledger, item = opened({"to": "a"}, quorum=2)
    outcome(ledger, {**edit(to="b"), "reviewer": "ann"})
    assert item.approval.proposal is not None
    approve = {"approval_id": item.approval.id, "type": "approve"}
    proposed = {**approve, "digest": item.approval.proposal.digest}
    assert outcome(ledger, {**proposed, "reviewer": "bob"}) == Outcome.APPLIED
    assert outcome(ledger, {**proposed, "reviewer": "eve"}) == Outcome.ALREADY_RESOLVED
    late = {**approve, "digest": item.approval.digest, "reviewer": "eve"}
    assert outcome(ledger, late) == "already_decided_conflict"


@pytest.mark.parametrize(
    ("to", "good"),
    [
        (["bob"], True),
        (["role:dba"], True),
        (["role:dab"], False),
        (["bob", "role:dab"], False),
        (["asker"], False),
        (["asker", "bob"], True),
    ],
)
def test_an_approval_is_only_handed_to_people_who_can_decide(to: list[str], good: bool) -> None:
    """Otherwise it would wait for nobody."""
    ledger, item = opened({"to": "a"}, {"dba": ["cid"]}, reviewers=["ann"], allow_self_approval=False)
    request = {"approval_id": item.approval.id, "reviewers": to, "reviewer": "ann"}
    if good:
        assert ledger.reassign(request, NOW).approval.reviewers == to
        return
    with pytest.raises(RefusedError) as refused:
        ledger.reassign(request, NOW)
    assert (refused.value.code, refused.value.refusals[0].path) == ("malformed", ("reviewers",))


@pytest.mark.parametrize(("proposed", "status"), [(False, "approved"), (True, "expired")])
def test_silence_approves_nothing_that_somebody_has_spoken_against(proposed: bool, status: str) -> None:
    """Who proposes another call does not want this one."""
    ledger, item = opened({"to": "a"}, quorum=2, timeout_s=60, on_timeout={"type": "approve"})
    if proposed:
        assert outcome(ledger, {**edit(to="b"), "reviewer": "ann"}) == Outcome.VOTE_RECORDED
    ledger.tick(NOW + timedelta(seconds=60))
    assert item.approval.status == status
