"""Every accepted spelling of a request, and the path and code of every wrong one."""

from __future__ import annotations

from typing import Any

import pytest

from turngate.contracts import DECISION_LIMIT
from turngate.decisions import Answer, Edit, Reject, loads, parse, sender_of
from turngate.errors import RefusedError

GOOD_EDIT = {"name": "pay", "args": {"n": 1}}


@pytest.mark.parametrize(
    ("payload", "path"),
    [
        ({"approval_id": "a", "type": "edit"}, ("edited_action",)),
        ({"approval_id": "a", "type": "edit", "edited_action": None}, ("edited_action",)),
        ({"approval_id": "a", "type": "edit", "edited_action": {"name": "x"}}, ("edited_action", "args")),
        ({"approval_id": "a", "type": "edit", "edited_action": {"args": {}}}, ("edited_action", "name")),
        ({"approval_id": "a", "type": "edit", "edited_action": {**GOOD_EDIT, "id": 1}}, ("edited_action", "id")),
        ({"approval_id": "a", "type": "edit", "edited_action": GOOD_EDIT, "args": {}}, ("args",)),
        (
            {"approval_id": "a", "type": "edit", "edited_action": GOOD_EDIT, "editedAction": GOOD_EDIT},
            ("editedAction",),
        ),
        ({"approval_id": "a", "type": "reject", "message": "x", "reason": "x"}, ("reason",)),
        ({"approval_id": "a", "type": "approve", "reason": "x"}, ("reason",)),
        ({"approval_id": "a", "type": "approve", "message": "x"}, ("message",)),
        ({"approval_id": "a", "type": "approve", "reviewer": "x" * 257}, ("reviewer",)),
        ({"approval_id": "a", "type": "approve", "comment": "x" * 8193}, ("comment",)),
        ({"approval_id": "a", "type": "approve", "digest": 7}, ("digest",)),
        ({"approval_id": "a", "type": "Approve"}, ("type",)),
        ({"approval_id": "a", "type": ["approve"]}, ("type",)),
        ({"approval_id": "a"}, ("type",)),
        ({"approval_id": 5, "type": "approve"}, ("approval_id",)),
        ({"approval_id": "a", "type": "respond", "message": None}, ("message",)),
        ({"approval_id": "a", "type": "answer"}, ("value",)),
        ({"approval_id": "a", "type": "approve", "remember": {"scope": "x", "match": "tool"}}, ("remember", "scope")),
        ({"approval_id": "a", "type": "approve", "remember": {"match": "tool"}}, ("remember", "scope")),
    ],
)
def test_a_faulty_decision_names_the_field(payload: Any, path: tuple[str, ...]) -> None:
    """The refusal says which field inside that decision is at fault, and whose decision it was."""
    entry = parse(payload).entries[0]
    assert entry.refusal is not None
    assert (entry.refusal.code, entry.refusal.path) == ("malformed", path)


@pytest.mark.parametrize(
    "payload",
    [None, 1, True, "approve", "", [], {}, [{"type": "approve"}], {"decisions": None}, {"decisions": []}]
    + [{"decisions": "x"}, {"decision": [{}]}, {"decisions": [{"type": "approve"}], "extra": 1}, {"type": "approve"}]
    + [{"decisions": [{"approval_id": "a", "type": "approve"}, {"type": "approve"}]}]
    + [{"decisions": [{"approval_id": "a", "type": "approve"}, {"approval_id": "a", "type": "reject"}]}]
    + [{"a": {"approval_id": "a", "type": "approve"}}, {"a": {"type": "approve"}, "b": 1}],
)
def test_what_is_none_of_the_forms_is_malformed(payload: Any) -> None:
    """The request as a whole is refused."""
    with pytest.raises(RefusedError) as refused:
        parse(payload)
    assert refused.value.code == "malformed"


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"\xff", b'{"a": NaN}', b'{"a": 1e999}', b'{"a": "\\ud800"}', b"[" * 200 + b"]" * 200, b"[" * 100_000]
    + [b"1" * 5000, b'{"a": 1, "a": 2}', b'{"\\udc00": 1}'],
)
def test_what_is_not_strict_json_is_malformed(data: bytes) -> None:
    """Nothing but a refusal comes out, whatever goes in."""
    with pytest.raises(RefusedError) as refused:
        loads(data)
    assert refused.value.code == "malformed"


def test_size_is_checked_before_anything_is_read() -> None:
    """A request over the budget is `too_large`, even where it is no JSON."""
    with pytest.raises(RefusedError) as refused:
        loads(b"{" * (DECISION_LIMIT + 1))
    assert refused.value.code == "too_large"


def test_spellings_of_other_systems_mean_the_same() -> None:
    """LangChain JS says editedAction; Warlock says args and reason; some clients quote the object."""
    js = parse({"approval_id": "a", "type": "edit", "editedAction": GOOD_EDIT}).entries[0].decision
    ours = parse({"approval_id": "a", "type": "edit", "edited_action": GOOD_EDIT}).entries[0].decision
    assert js == ours
    warlock = parse({"approval_id": "a", "type": "edit", "args": {"n": 1}}).entries[0].decision
    assert isinstance(warlock, Edit)
    assert warlock.args == {"n": 1}
    quoted = parse('{"a": {"type": "reject", "reason": "no"}}').entries[0].decision
    assert isinstance(quoted, Reject)
    assert quoted.message == "no"


def test_null_counts_as_absent_but_is_an_answer() -> None:
    """A null field is as good as none, and null is a value that a question may be answered with."""
    assert parse({"approval_id": "a", "type": "approve", "message": None, "value": None}).entries[0].refusal is None
    answer = parse({"approval_id": "a", "type": "answer", "value": None}).entries[0].decision
    assert isinstance(answer, Answer)
    assert answer.value is None
    reject = parse({"approval_id": "a", "type": "reject", "reason": None, "message": "no"}).entries[0].decision
    assert isinstance(reject, Reject)
    assert reject.message == "no"
    edit = parse({"approval_id": "a", "type": "edit", "editedAction": GOOD_EDIT, "edited_action": None}).entries[0]
    assert edit.refusal is None
    # A client of typed structures writes all fields of all forms.
    assert parse({"approval_id": "a", "type": "approve", "decisions": None}).entries[0].refusal is None
    listed = {"decisions": [{"approval_id": "a", "type": "approve"}], "approval_id": None, "type": None}
    assert parse(listed).entries[0].refusal is None


@pytest.mark.parametrize(
    ("payload", "sender"),
    [
        ({"approval_id": "a", "type": "nuke", "reviewer": "ann"}, "ann"),
        ('{"approval_id": "a", "type": "nuke", "reviewer": "ann"}', "ann"),
        ({"decisions": [{}, {}], "reviewer": "ann"}, "ann"),
        ({"decisions": [{"reviewer": "ann"}, {"reviewer": "ann"}]}, "ann"),
        ({"decisions": [{"reviewer": "ann"}, {"reviewer": "bob"}]}, None),
        ({"a": {"type": "nuke", "reviewer": "ann"}}, "ann"),
        ({"approval_id": "a", "type": "edit", "args": {"reviewer": "an argument"}}, None),
        ({"approval_id": "a", "reviewer": 5}, None),
        ("no JSON", None),
        (None, None),
    ],
)
def test_who_sent_a_refused_request_is_found_in_every_form(payload: Any, sender: str | None) -> None:
    """It is kept beside the refusal of a signal."""
    assert sender_of(payload) == sender


def test_a_reviewer_may_stand_once_beside_the_list() -> None:
    """It counts for every decision of the list; said twice it is refused."""
    entries = parse({"decisions": [{"approval_id": "a", "type": "approve"}], "reviewer": "ann"}).entries
    assert entries[0].decision is not None
    assert entries[0].decision.reviewer == "ann"
    twice = {"decisions": [{"approval_id": "a", "type": "approve", "reviewer": "bob"}], "reviewer": "ann"}
    assert parse(twice).entries[0].refusal is not None
