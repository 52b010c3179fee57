"""A conversation that was handed in with open calls is put right."""

from __future__ import annotations

import pytest

from turngate.contracts import Message
from turngate.workflows.conversation import repair

CALL = {"name": "read", "args": {}, "id": "c1", "type": "tool_call"}


@pytest.mark.parametrize(
    ("asking", "answering"), [("ai", "tool"), ("AIMessageChunk", "ToolMessageChunk"), ("ai", "ToolMessageChunk")]
)
def test_streamed_messages_are_calls_and_answers_too(asking: str, answering: str) -> None:
    """Whoever streams keeps chunks; an answer among them must not be given twice."""
    said: list[Message] = [
        {"type": asking, "content": "", "tool_calls": [CALL]},
        {"type": answering, "content": "page 1", "tool_call_id": "c1"},
    ]
    assert repair(said) == (said, [])
    assert repair(said[1:])[0] == []
