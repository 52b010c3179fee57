"""What a worker remembers of conversations: the same as it would read again, bounded, and nobody else's changes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.fakes import environment
from turngate.activities import conversation
from turngate.activities.remembered import Remembered
from turngate.contracts import Segment

KEY = ("default", "run", "turn", "0")


def message(text: str) -> dict[str, Any]:
    return {"type": "human", "content": [{"type": "text", "text": text, "more": {"n": [1.5, None, "ü"]}}]}


def test_what_was_added_is_read_as_it_was() -> None:
    """Piece by piece, and never more than was asked for."""
    remembered = Remembered()
    assert remembered.read(KEY, 3) == []
    remembered.add(KEY, 0, [message("a"), message("b")])
    remembered.add(KEY, 2, [message("c")])
    assert remembered.read(KEY, 2) == [message("a"), message("b")]
    assert remembered.read(KEY, 9) == [message("a"), message("b"), message("c")]
    assert remembered.read(("default", "other run", "turn", "0"), 9) == []


def test_what_a_model_does_to_its_messages_is_not_remembered() -> None:
    """Not even deep inside a block."""
    remembered = Remembered()
    given = [message("a")]
    remembered.add(KEY, 0, given)
    given[0]["content"][0]["more"]["n"].append("mine")
    remembered.read(KEY, 1)[0]["content"][0]["more"]["n"].append("mine")
    assert remembered.read(KEY, 1) == [message("a")]


def test_a_gap_is_never_closed_over() -> None:
    """Two attempts that read the same page add it once; a page behind a gap is left out."""
    remembered = Remembered()
    remembered.add(KEY, 0, [message("a")])
    remembered.add(KEY, 0, [message("a")])
    remembered.add(KEY, 5, [message("f")])
    assert remembered.read(KEY, 9) == [message("a")]


def test_what_was_not_used_for_longest_goes_first() -> None:
    """The bound holds over all conversations; one that is too long alone is not remembered at all."""
    remembered = Remembered(limit=3000)
    for name in ("a", "b"):
        remembered.add((name,), 0, [message("x" * 1000)])
    assert remembered.read(("a",), 1)
    remembered.add(("c",), 0, [message("x" * 1000)])
    assert [bool(remembered.read((name,), 1)) for name in ("a", "b", "c")] == [True, False, True]
    remembered.add(("d",), 0, [message("x" * 5000)])
    assert remembered.read(("d",), 1) == []
    remembered.add(("e",), 0, [message("x")])
    assert remembered.read(("e",), 1) == [message("x")]


async def test_only_what_is_new_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second model call of a run reads the messages behind those of the first."""
    said = [message(str(number)) for number in range(6)]
    asked: list[Any] = []

    async def ask(handle: Any, query: str, argument: dict[str, Any]) -> Any:
        asked.append(argument)
        return {"messages": said[argument["start"] :][: argument["limit"]]}

    monkeypatch.setattr(conversation, "_handle", lambda segment: None)
    monkeypatch.setattr(conversation, "ask", ask)
    remembered = Remembered()
    for count in (2, 4, 6):
        segment = Segment(workflow_id="turn-1", run_id="r", count=count)
        assert await environment().run(conversation.resolve, [segment], remembered) == said[:count]
    assert asked == [{"start": 0, "limit": 2}, {"start": 2, "limit": 2}, {"start": 4, "limit": 2}]
