"""The scripted models of a case: whose script a call follows, and how far it has come."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage
from pydantic import Field, TypeAdapter
from temporalio import activity

from tests.case_runner.templates import expand
from turngate.testing import Answer, ScriptedModel

Json = dict[str, Any]
_MESSAGE: TypeAdapter[BaseMessage] = TypeAdapter(AnyMessage)
_THREAD_TURN = re.compile(r"/turn-[0-9]+$")


def read_script(entries: Sequence[Json]) -> list[Answer]:
    """Return the answers of a script as it stands in a case."""
    return [_answer(entry) for entry in expand(list(entries))]


def read_message(data: Json) -> BaseMessage:
    """Return the LangChain message of a JSON message."""
    return _MESSAGE.validate_python(data)


def _answer(entry: Json) -> Answer:
    if "message" in entry:
        message = read_message(entry["message"])
        assert isinstance(message, AIMessage), "a model answers with an AI message"
        return Answer(message)
    fails = entry.get("fails", {})
    calls = [{"type": "tool_call", **call} for call in entry.get("tool_calls", ())]
    unreadable = [{"type": "invalid_tool_call", **call} for call in entry.get("invalid_tool_calls", ())]
    message = AIMessage(entry.get("text", ""), tool_calls=calls, invalid_tool_calls=unreadable)
    return Answer(message, fails=fails.get("times", 0), error=fails.get("message", ""))


class CaseModel(ScriptedModel):
    """The model of one agent of a case.

    A run follows its agent's script from its start, or its own where the case has one for it. The turns of the threads
    share one script, in the order of their calls. Every run of a subagent follows the subagent's script.
    """

    agent: str = "main"
    subagent: bool = False
    prefix: str = ""
    more: dict[str, list[Answer]] = Field(default_factory=dict)

    def script(self) -> tuple[str, Sequence[Answer]]:
        """See the class."""
        turn = activity.info().workflow_id if activity.in_activity() else ""
        run = turn.removeprefix(self.prefix).split("/")[0]
        if self.subagent:
            return turn, self.answers
        answers = self.more.get(run, self.answers)
        if not _THREAD_TURN.search(turn):
            return turn, answers
        return f"thread {run}" if run in self.more else f"threads of {self.agent}", answers

    def notes(self) -> Json:
        """Return what the journal keeps of an answer, beside the messages."""
        return {**super().notes(), "agent": self.agent, "subagent": self.subagent}
