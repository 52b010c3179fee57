"""Small stand-ins for the unit tests of agents and activities."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, tool
from pydantic import Field
from temporalio.testing import ActivityEnvironment

from turngate.agent import Agent


class FakeModel(BaseChatModel):
    """Gives its answers one after the other; an exception among them is raised. Notes what it was given."""

    answers: list[Any] = Field(default_factory=list)
    seen: list[list[BaseMessage]] = Field(default_factory=list)
    bound: list[Any] = Field(default_factory=list)
    max_retries: int = 2

    @property
    def _llm_type(self) -> str:
        return "fake"

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Any:
        self.bound.extend(tools)
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.seen.append(messages)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return ChatResult(generations=[ChatGeneration(message=answer)])


def calls(*proposed: tuple[str, dict[str, Any]]) -> AIMessage:
    """Return an AI message with these calls, of ids c1, c2 and so on."""
    listed = [
        {"name": name, "args": args, "id": f"c{n}", "type": "tool_call"} for n, (name, args) in enumerate(proposed, 1)
    ]
    return AIMessage("", tool_calls=listed)


@tool
def pay(to: str, amount: int) -> str:
    """Pay an invoice."""
    return f"paid {amount} to {to}"


@tool
def read_table(table: str) -> str:
    """Read a table."""
    return f"3 rows of {table}"


def make_agent(*tools: BaseTool | Callable[..., Any], model: Any = None, **options: Any) -> Agent:
    """Build an agent named main, by default with the tools pay and read_table."""
    return Agent("main", model=model or FakeModel(), tools=tools or (pay, read_table), **options)


def environment(**info: Any) -> ActivityEnvironment:
    """Return an activity environment with this info."""
    env = ActivityEnvironment()
    env.info = dataclasses.replace(env.info, heartbeat_timeout=timedelta(seconds=30), **info)
    return env
