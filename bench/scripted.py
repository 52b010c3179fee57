"""The agents that are measured: models that cost nothing, so that what is left is the machinery around them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, tool

from bench.pages import page

if TYPE_CHECKING:
    from turngate import Agent


class Scripted(BaseChatModel):
    """A chat model that looks at the conversation to see where it is, and so keeps nothing between calls."""

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        """Take any tools; they change nothing."""
        return self

    @property
    def _llm_type(self) -> str:
        return "scripted"

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self.answer(messages))])

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self.answer(messages))])

    def answer(self, messages: Sequence[BaseMessage]) -> AIMessage:
        """Say the next thing."""
        raise NotImplementedError


class Mailing(Scripted):
    """Send one mail, then say what the tool answered."""

    def answer(self, messages: Sequence[BaseMessage]) -> AIMessage:
        """Call the tool once."""
        if isinstance(messages[-1], ToolMessage):
            return AIMessage(messages[-1].text)
        return AIMessage("", tool_calls=[{"id": "c1", "name": "send_mail", "args": {"to": "a@x.test", "body": "hi"}}])


class Reading(Scripted):
    """Read as many pages as the first message says, `at_once` in each step."""

    at_once: int = 1

    def answer(self, messages: Sequence[BaseMessage]) -> AIMessage:
        """Read the next pages, or say that all are read."""
        wanted = int(messages[0].text)
        read = sum(isinstance(message, ToolMessage) for message in messages)
        if read >= wanted:
            return AIMessage("done")
        numbers = range(read, min(read + self.at_once, wanted))
        return AIMessage("", tool_calls=[{"id": f"c{n}", "name": "read_page", "args": {"n": n}} for n in numbers])


class Writing(Scripted):
    """Write as many pages as the first message says, each of 30 KB: just below what travels by reference anyway."""

    def answer(self, messages: Sequence[BaseMessage]) -> AIMessage:
        """Write the next page."""
        written = sum(isinstance(message, ToolMessage) for message in messages)
        if written >= int(messages[0].text):
            return AIMessage("done")
        args = {"n": written, "text": page(written, 30_000)}
        return AIMessage("", tool_calls=[{"id": f"c{written}", "name": "write_page", "args": args}])


@tool
async def send_mail(to: str, body: str) -> str:
    """Send a mail, and say when this began, in nanoseconds of the machine's monotonic clock."""
    return str(time.monotonic_ns())


@tool
async def read_page(n: int) -> str:
    """Read a page of 4 KB."""
    return page(n)


@tool
async def write_page(n: int, text: str) -> str:
    """Write a page."""
    return f"{len(text)} letters"


MAIL: list[BaseTool] = [send_mail]
PAGES: list[BaseTool] = [read_page]


def agents() -> list[Agent]:
    """Return the agents of the worker that is measured."""
    # Imported here, so that the processes of other sides hold none of it.
    from turngate import Agent

    gate = {"send_mail": True}
    return [
        Agent("gated", model=Mailing(), tools=MAIL, interrupt_on=gate),
        Agent("bare", model=Mailing(), tools=MAIL, interrupt_on=gate, timeline_timer=False),
        Agent("reader", model=Reading(), tools=PAGES, max_steps=5000),
        Agent("inline", model=Reading(), tools=PAGES, max_steps=5000, inline_limit=10**9),
        Agent("writer", model=Writing(), tools=[write_page]),
        Agent("parallel", model=Reading(at_once=100), tools=PAGES),
        Agent("careful", model=Reading(at_once=56), tools=PAGES, interrupt_on={"read_page": True}),
    ]
