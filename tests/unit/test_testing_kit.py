"""The test kit: a strict model that answers from a script, and a journal that outlives its writer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage

from turngate.testing import (
    Answer,
    Journal,
    ScriptedModel,
    ScriptedReviewer,
    ScriptError,
    ServiceUnavailable,
    check_conversation,
)

CALLS = [{"name": "f", "args": {}, "id": "c1"}, {"name": "f", "args": {}, "id": "c2"}]
UNREADABLE = [{"name": "f", "args": "{", "id": "b1", "error": "cut off", "type": "invalid_tool_call"}]


def asked(**more: object) -> AIMessage:
    return AIMessage("", tool_calls=CALLS, **more)


def answer(call: str) -> ToolMessage:
    return ToolMessage("ok", tool_call_id=call)


@pytest.mark.parametrize(
    "conversation",
    [
        [SystemMessage("s"), HumanMessage("h"), AIMessage("a"), HumanMessage("h")],
        [HumanMessage("h"), asked(), answer("c1"), answer("c2"), AIMessage("a")],
        [asked(invalid_tool_calls=UNREADABLE), answer("c1"), answer("b1"), answer("c2")],
        [AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": None}] * 2), answer(""), answer("x")],
        [AIMessage("", tool_calls=[CALLS[0], CALLS[0]]), answer("c1"), answer("c1")],
    ],
)
def test_conversations_that_a_provider_takes(conversation: list[BaseMessage]) -> None:
    """Every call has its answer directly after it."""
    assert check_conversation(conversation) == []


@pytest.mark.parametrize(
    "conversation",
    [
        [asked(), answer("c1")],
        [asked(), answer("c2"), answer("c1")],
        [asked(), answer("c1"), answer("c1"), answer("c2")],
        [asked(), answer("c1"), HumanMessage("and?"), answer("c2")],
        [asked(), answer("c1"), answer("c2"), answer("c3")],
        [asked(invalid_tool_calls=UNREADABLE), answer("c1"), answer("c2")],
        [HumanMessage("h"), answer("c1")],
        [RemoveMessage(id="x")],
    ],
)
def test_conversations_that_a_provider_refuses(conversation: list[BaseMessage]) -> None:
    """Missing, doubled, misplaced and lonely answers, and what is no message."""
    assert check_conversation(conversation)


def test_the_model_follows_its_script_and_no_further() -> None:
    """One entry a call; beyond the end, and for an impossible conversation, it raises."""
    model = ScriptedModel([{"tool_calls": CALLS}, "done"])
    assert [call["id"] for call in model.invoke("go").tool_calls] == ["c1", "c2"]
    with pytest.raises(ScriptError, match="impossible"):
        model.invoke([HumanMessage("go"), asked()])
    assert model.invoke([HumanMessage("go"), asked(), answer("c1"), answer("c2")]).content == "done"
    with pytest.raises(ScriptError, match="one more"):
        model.invoke("go")
    assert [message["type"] for message in model.inputs()[1]] == ["human", "ai", "tool", "tool"]


def test_attempts_can_fail_before_the_answer() -> None:
    """As often as the script says; the error looks like a provider's 503."""
    model = ScriptedModel([Answer(AIMessage("hi"), fails=2, error="overloaded")])
    for _ in range(2):
        with pytest.raises(ServiceUnavailable, match="overloaded"):
            model.invoke("go")
    assert model.invoke("go").content == "hi"


def test_the_model_streams_word_by_word() -> None:
    """The parts add up to the message."""
    model = ScriptedModel([{"text": "one two three", "tool_calls": CALLS}])
    chunks = list(model.stream("go"))
    assert [chunk.content for chunk in chunks if chunk.content] == ["one", " two", " three"]
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert whole.content == "one two three"
    assert [(call["name"], call["id"]) for call in whole.tool_calls] == [("f", "c1"), ("f", "c2")]


def test_the_position_is_kept_over_a_restart(tmp_path: Path) -> None:
    """A new model on the same journal goes on where the old one was."""
    path = tmp_path / "journal.jsonl"
    assert ScriptedModel(["one", "two"], journal=Journal(path)).invoke("go").content == "one"
    assert ScriptedModel(["one", "two"], journal=Journal(path)).invoke("go").content == "two"


def test_a_journal_is_read_by_others_while_it_grows(tmp_path: Path) -> None:
    """A half-written last line is left for later."""
    path = tmp_path / "journal.jsonl"
    writer, reader = Journal(path), Journal(path)
    writer.write("a", n=1)
    assert reader.count("a") == 1
    with path.open("ab") as file:
        file.write(json.dumps({"kind": "a", "n": 2}).encode())
    assert reader.count("a") == 1
    with path.open("ab") as file:
        file.write(b"\n")
    assert [entry["n"] for entry in reader.read("a")] == [1, 2]
    assert reader.count("a", n=2) == 1


async def test_a_reviewer_gives_its_decisions_one_by_one() -> None:
    """And complains when there are more questions than answers."""
    from turngate.contracts import Approval

    reviewer = ScriptedReviewer({"type": "approve"})
    assert await reviewer(Approval(id="a/1")) == {"type": "approve"}
    with pytest.raises(AssertionError, match="a/2"):
        await reviewer(Approval(id="a/2"))
