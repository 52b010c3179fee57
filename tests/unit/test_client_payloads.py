"""Decisions are sorted by run before they leave, and repeated ones carry the same id."""

from __future__ import annotations

import pytest

from turngate.contracts import DECISION_LIMIT
from turngate.errors import MalformedError, RefusedError, TooLargeError, UnknownApprovalError
from turngate.payloads import by_run, check_json, for_run

A1, A2, B1 = "turn-a/9d21aa-1", "turn-a/9d21aa-2", "team/turn-b/111111-1"


def test_one_decision_goes_to_the_run_that_its_id_names() -> None:
    """The id alone finds the run, also where the run's own id has slashes."""
    (batch,) = by_run({"approval_id": B1, "type": "approve"})
    assert (batch.turn_id, batch.approval_ids) == ("team/turn-b", [B1])


def test_a_list_is_split_by_run_and_keeps_what_stands_beside_it() -> None:
    """The reviewer beside the decisions counts for each part."""
    payload = {
        "reviewer": "rev-1",
        "decisions": [{"approval_id": each, "type": "approve"} for each in (A1, B1, A2)],
    }
    # Null counts as absent: a client of typed structures writes every field.
    assert by_run({**payload, "approval_id": None, "type": None})[0].approval_ids == by_run(payload)[0].approval_ids
    first, second = by_run(payload)
    assert first.payload == {
        "reviewer": "rev-1",
        "decisions": [{"approval_id": A1, "type": "approve"}, {"approval_id": A2, "type": "approve"}],
    }
    assert (second.turn_id, second.approval_ids) == ("team/turn-b", [B1])


def test_a_map_is_split_by_run() -> None:
    """LangChain's answer-by-id form."""
    first, second = by_run({A1: {"type": "approve"}, B1: {"type": "reject"}, A2: {"type": "approve"}})
    assert first.payload == {A1: {"type": "approve"}, A2: {"type": "approve"}}
    assert second.payload == {B1: {"type": "reject"}}


def test_a_quoted_object_is_read() -> None:
    """Some clients send JSON inside a JSON text."""
    (batch,) = by_run('{"approval_id": "turn-a/9d21aa-1", "type": "approve"}')
    assert batch.payload == {"approval_id": A1, "type": "approve"}


def test_the_same_decision_has_the_same_update_id_in_every_form() -> None:
    """A repeat, however it is written, brings the first receipt back."""
    forms = (
        {"approval_id": A1, "type": "approve", "reviewer": "x"},
        {"reviewer": "x", "decisions": [{"type": "approve", "approval_id": A1}]},
        {A1: {"reviewer": "x", "type": "approve"}},
    )
    assert len({by_run(form)[0].update_id() for form in forms}) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"approval_id": A1, "type": "reject"},
        {"approval_id": A2, "type": "approve"},
        {"approval_id": A1, "type": "approve", "reviewer": "y"},
        {"approval_id": A1, "type": "approve", "digest": "0" * 16},
    ],
)
def test_another_decision_has_another_update_id(other: dict[str, str]) -> None:
    """Or the second one would silently get the first one's receipt."""
    one = {"approval_id": A1, "type": "approve"}
    assert by_run(one)[0].update_id() != by_run(other)[0].update_id()


def test_decisions_by_position_never_share_an_update_id() -> None:
    """Two batches of a turn may be answered alike, and both answers must count."""
    payload = {"decisions": [{"type": "approve"}]}
    batch = for_run("turn-a", payload)
    assert (batch.turn_id, batch.payload, batch.decisions) == ("turn-a", payload, None)
    assert batch.update_id() != for_run("turn-a", payload).update_id()


def test_a_run_gets_the_ids_it_is_sent_even_when_they_name_another() -> None:
    """The run itself refuses what is not its own."""
    batch = for_run("turn-x", {"approval_id": A1, "type": "approve"})
    assert (batch.turn_id, batch.approval_ids) == ("turn-x", [A1])


@pytest.mark.parametrize(
    "payload",
    [
        None,
        7,
        [],
        {},
        "approve",
        "[]",
        {"type": "approve"},
        {"decisions": []},
        {"decisions": [{"type": "approve"}]},
        {"decisions": [{"approval_id": A1, "type": "approve"}, {"type": "approve"}]},
        {"decisions": ["approve"]},
        {"approval_id": 7, "type": "approve"},
        {"approval_id": A1, "type": "respond", "message": "half \ud83d"},
        {"approval_id": A1, "type": "answer", "value": float("nan")},
        {"approval_id": A1, "type": "answer", "value": object()},
    ],
)
def test_what_names_no_run_or_is_no_json_is_malformed(payload: object) -> None:
    """Said by the client at once: there is nobody to send it to."""
    with pytest.raises(MalformedError):
        by_run(payload)


def test_endless_json_is_malformed() -> None:
    """A value that holds itself."""
    loop: dict[str, object] = {"approval_id": A1, "type": "answer"}
    loop["value"] = loop
    with pytest.raises(MalformedError):
        by_run(loop)


@pytest.mark.parametrize("approval_id", ["c1", "/1", "turn/"])
def test_an_id_without_a_run_is_unknown(approval_id: str) -> None:
    """Such as the id of the tool call."""
    with pytest.raises(UnknownApprovalError) as refused:
        by_run({"approval_id": approval_id, "type": "approve"})
    assert refused.value.refusals[0].approval_id == approval_id


def test_every_unknown_id_of_a_list_is_reported() -> None:
    """Not only the first."""
    with pytest.raises(RefusedError) as refused:
        by_run({"c1": {"type": "approve"}, A1: {"type": "approve"}, "c2": {"type": "approve"}})
    assert [refusal.approval_id for refusal in refused.value.refusals] == ["c1", "c2"]


def test_over_the_limit_is_too_large_and_says_how_much() -> None:
    """The error names the size and the limit."""
    with pytest.raises(TooLargeError, match=f"{DECISION_LIMIT} bytes are the limit"):
        by_run({"approval_id": A1, "type": "respond", "message": "x" * DECISION_LIMIT})


def test_the_limit_counts_bytes_not_characters() -> None:
    """Two bytes each."""
    check_json("é" * 49, "the text", 100)
    with pytest.raises(TooLargeError, match="the text is too large: 104 bytes"):
        check_json("é" * 51, "the text", 100)
