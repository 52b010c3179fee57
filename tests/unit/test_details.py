"""The details page: what a reviewer is shown, and what a model can't do to it."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st

from turngate import texts
from turngate.contracts import Approval, ApprovalType, CallPlan, Proposal, Quorum, Refused, Vote
from turngate.workflows import markdown
from turngate.workflows.details import PAGE_LIMIT, Waiting, page

MOMENT = datetime(2026, 12, 1, 17, 22, tzinfo=UTC)


def waiting(number: int = 1, *, plan: CallPlan | None = None, signed: bool = False, **fields: Any) -> Waiting:
    """One open approval of `pay`, with other fields as given."""
    given = {"name": "pay", "args": {"to": "acme", "amount": 5}, **fields}
    given.setdefault("description", texts.default_description(texts.DESCRIPTION_PREFIX, given["name"], given["args"]))
    given.setdefault("allowed_decisions", ["approve", "edit", "reject", "respond"])
    approval = Approval(id=f"turn-1/abc123-{number}", digest="d" * 16, **given)
    return Waiting(approval, plan or CallPlan(), signed)


def answers(text: str) -> dict[str, dict[str, Any]]:
    """Return the ready answers on a page by their type, in order."""
    lines = [line.strip("` ") for line in text.splitlines() if line.strip("` ").startswith('{"approval_id"')]
    return {answer["type"]: answer for answer in map(json.loads, lines)}


def test_nothing_waits() -> None:
    """A run that waits for nobody has no details."""
    assert page([], []) == ""


def test_safest_answer_first_and_complete() -> None:
    """A reject can be sent as it stands; who approves says of which call."""
    found = answers(page([waiting()], []))
    assert list(found) == ["reject", "respond", "approve", "edit"]
    assert found["reject"] == {"approval_id": "turn-1/abc123-1", "type": "reject"}
    assert found["approve"]["digest"] == "d" * 16
    assert found["edit"]["edited_action"] == {"name": "pay", "args": {"to": "acme", "amount": 5}}


def test_what_why_who_and_when() -> None:
    """All that a decision needs stands there: call, reasons, people, deadline and what silence means."""
    one = waiting(
        tool_description="Pay an invoice.\nDetails for the model.",
        tags=["money"],
        warnings=["the condition failed"],
        repeat_of="turn-1/abc123-0",
        reviewers=["ann", "role:cfo"],
        expires_at=MOMENT,
    )
    text = page([one], [])
    assert text.startswith("## pay waits for a decision")
    for wanted in (
        "| ann, role:cfo",
        '`to`: `"acme"`',
        "Pay an invoice.\n",
        "Tags: money",
        "Warning: the condition failed",
        "rejected before, as `turn-1/abc123-0`",
        "If nobody decides until 2026-12-01 17:22 UTC, it is rejected",
        "temporal workflow update execute --workflow-id turn-1 --name decide --input '{",
    ):
        assert wanted in text
    assert "Details for the model" not in text
    assert answers(text)["reject"]["reviewer"] == "YOUR NAME"


def test_silence_that_approves_is_said() -> None:
    """A deadline that lets the call run must not come as a surprise."""
    text = page([waiting(expires_at=MOMENT, plan=CallPlan(on_timeout={"type": "approve"}))], [])
    assert "**it runs** without a decision" in text


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("Deletes for good.\nAsk the owner.", "Deletes for good&#46;\nAsk the owner."),
        (texts.default_description("Big money", "pay", {"to": "acme", "amount": 5}), "Big money: pay"),
    ],
)
def test_own_description(given: str, shown: str) -> None:
    """What the agent's author wrote is shown, without the arguments that stand there anyway."""
    text = page([waiting(description=given)], [])
    assert shown.replace("&#46;", ".") in text
    assert "to = " not in text


def test_quorum_and_proposal() -> None:
    """Who votes on a proposal sees its arguments, and votes for them."""
    one = waiting(
        quorum=Quorum(required=2, received=1),
        votes=[Vote(reviewer="ann", type="edit")],
        proposal=Proposal(name="pay", args={"to": "acme", "amount": 3}, digest="e" * 16, by="ann"),
    )
    text = page([one], [])
    assert "anybody (1 of 2 agreed)" in text
    assert "proposed by ann" in text
    assert "`amount`: `3`" in text
    assert answers(text)["approve"]["digest"] == "e" * 16


def test_a_proposal_of_another_tool_names_it() -> None:
    """Two tools may take the same arguments."""
    one = waiting(proposal=Proposal(name="refund", args={"to": "acme", "amount": 3}, digest="e" * 16, by="ann"))
    text = page([one], [])
    assert "**refund** with these arguments is proposed by ann" in text
    assert answers(text)["edit"]["edited_action"] == {"name": "refund", "args": {"to": "acme", "amount": 3}}


def test_question_recovery_and_people_as_tools() -> None:
    """Other approvals say in their own words what an answer does."""
    question = waiting(type=ApprovalType.QUESTION, question={"ask": "which?"}, allowed_decisions=["answer", "reject"])
    recovery = waiting(type=ApprovalType.RECOVERY, allowed_decisions=["approve", "respond", "reject"])
    human = waiting(plan=CallPlan(human=True), allowed_decisions=["respond"])
    assert "pay asks a question" in page([question], [])
    assert '`{"ask": "which?"}`' in page([question], [])
    assert "it runs again, with the same arguments" in page([recovery], [])
    assert "there is nothing to run" in page([human], [])


def test_signed_decisions() -> None:
    """Where decisions must be signed, the ready ones have a place for it."""
    assert answers(page([waiting(signed=True)], []))["approve"]["token"] == "YOUR SIGNATURE"


def test_refusals() -> None:
    """The newest three refusals stand above the calls, also when nothing waits any more."""
    refused = [Refused(message=f"wrong {number}", by="ann", at=MOMENT) for number in range(5)]
    text = page([waiting()], refused)
    assert text.index("wrong 4") < text.index("wrong 2") < text.index("**reject**")
    assert "wrong 1" not in text
    assert "17:22:00 UTC, signal by ann: wrong 4" in page([], refused)


def test_long_arguments_are_cut_in_plain_sight() -> None:
    """What is not shown is said, and no answer is offered that repeats it."""
    text = page([waiting(args={"query": "x" * 9000})], [])
    assert "**cut here**, 9002 bytes in all" in text
    assert "edit" not in answers(text)
    assert "approve" in answers(text)


def test_large_calls_are_cheap() -> None:
    """The page is written inside a server task, which must be short."""
    calls = [
        waiting(number, args={"query": "é\u202e  " * 60_000, "nested": [{"a": [1]}] * 9000}) for number in range(8)
    ]
    start = time.process_time()
    text = page(calls, [])
    assert time.process_time() - start < 1
    assert text.count("**cut here**") >= 2


def test_many_calls() -> None:
    """A page stays within what Temporal stores; every call has its row, or is said to be missing."""
    text = page([waiting(number) for number in range(1, 401)], [])
    assert len(text.encode()) <= PAGE_LIMIT
    assert "more: query `pending`" in text
    assert "**Not shown here**: `turn-1/abc123-" in text


TEXTS = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('`|#*_<>\n\\ "~-\u202e\u200b\u00a0'))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=12,
)


@settings(deadline=None)
@given(st.dictionaries(TEXTS, VALUES, max_size=4), TEXTS, st.integers(1, 4))
def test_any_call_gives_one_table_and_whole_answers(args: dict[str, Any], description: str, calls: int) -> None:
    """Whatever a model says: one table with a row a call, no layout of its own, answers that are JSON."""
    text = page([waiting(number, args=args, description=description) for number in range(1, calls + 1)], [])
    assert len(text.encode()) <= PAGE_LIMIT
    lines = text.split("\n")
    assert sum(line.startswith("| ") for line in lines) == 1 + calls
    assert sum(line.startswith("#") for line in lines) <= 1 + calls
    assert not any(re.match(r"```+[^`]*$|[-*] |>| {4}|=", line) for line in lines)
    assert "approve" in answers(text)


@settings(deadline=None)
@given(VALUES)
def test_copied_json_is_the_same_json(value: Any) -> None:
    """What is copied is exact, though a browser makes one space of many; and nothing in it is invisible."""
    text = markdown.json_to_copy(value)
    assert json.loads(text) == value
    assert "  " not in text
    assert text == markdown.visible(text)


@given((TEXTS | st.text("`x", max_size=12)).filter(bool))
@example("``")
@example("` `` ```")
def test_code_holds_any_backticks(text: str) -> None:
    """Inline code ends where it should: no run of backticks inside is as long as the fence, nor is one that is free."""
    span = markdown.code(text)
    fence = re.match("`+", span)[0]  # type: ignore[index]
    inside = span[len(fence) : -len(fence)]
    runs = {len(run) for run in re.findall("`+", inside)}
    assert len(fence) not in runs
    assert set(range(1, len(fence))) <= runs
    assert inside.strip(" ") == text.strip(" ")


def test_hidden_signs_are_shown() -> None:
    """A direction mark can't turn a command around, a line separator can't break one."""
    (shown,) = markdown.json_to_read("rm \u202egpj.exe\u2028 \u00a0x")
    assert shown == '"rm \\u202egpj.exe\\u2028 \\u00a0x"'


def test_texts_of_several_lines_are_read_line_by_line() -> None:
    """Lines of a text stay lines, and their indentation is seen."""
    assert markdown.json_to_read("a:\n  b\n") == ['"a:\\n', '\u00a0\u00a0b\\n"']
    assert markdown.json_to_read("C:\\new") == ['"C:\\\\new"']
