"""The chat model of an agent, asked once: no retries of its own, and failures sorted into those worth a retry.

Retries belong to Temporal: they survive the worker, back off, and can be seen.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from functools import cache
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, InvalidToolCall, ToolCall
from langchain_core.messages.tool import invalid_tool_call, tool_call
from langchain_core.messages.utils import message_chunk_to_message
from langchain_core.tools import BaseTool
from temporalio.exceptions import ApplicationError

from turngate import usercode
from turngate.agent import Agent
from turngate.errors import ConfigError

_RETRYABLE_STATUS = (408, 409, 425, 429)
_OURS = (ConfigError, ImportError, NotImplementedError, TypeError, AssertionError)
"""Errors of the program, not of the service: they come again however often one tries."""


class ModelClient:
    """An agent's model with the agent's tools bound."""

    def __init__(self, agent: Agent, tools: Sequence[BaseTool]) -> None:
        model = chat_model(agent)
        self._agent = agent
        self._streams_always = getattr(model, "streaming", False) is True
        self._model = model.bind_tools(list(tools)) if tools else model

    async def answer(self, messages: Sequence[BaseMessage]) -> AIMessage:
        """Ask the model. Raises ApplicationError, retryable or not, with a readable reason."""
        if self._streams_always:
            # It would put its pieces together by itself, and complete broken arguments on the way.
            return [piece async for piece in self.stream(messages)][-1]
        try:
            return self._checked(await self._model.ainvoke(list(messages)))
        except Exception as error:
            raise model_failure(self._agent.key, error) from None

    async def stream(self, messages: Sequence[BaseMessage]) -> AsyncIterator[AIMessage]:
        """Ask the model and yield what has come so far, again and again; the last one is the whole answer."""
        whole: Any = None
        try:
            async for chunk in self._model.astream(list(messages)):
                whole = chunk if whole is None else whole + chunk
                yield whole
            yield self._checked(whole)
        except Exception as error:
            raise model_failure(self._agent.key, error) from None

    def _checked(self, answer: Any) -> AIMessage:
        if isinstance(answer, AIMessageChunk):
            answer = put_together(answer)
        if not isinstance(answer, AIMessage):
            raise TypeError(f"it returned {type(answer).__name__} in place of an AIMessage")
        return answer


def put_together(chunk: AIMessageChunk) -> AIMessage:
    """Return the message that was streamed, with its calls read strictly.

    LangChain completes arguments that broke off in the middle, and so a DELETE may lose its WHERE. Here such a call is
    unreadable, as it is when the answer comes in one piece.
    """
    readable: list[ToolCall] = []
    unreadable: list[InvalidToolCall] = []
    for call in chunk.tool_call_chunks:
        args = _read(call["args"])
        if args is None:
            unreadable.append(invalid_tool_call(name=call["name"], args=call["args"], id=call["id"]))
        else:
            readable.append(tool_call(name=call["name"] or "", args=args, id=call["id"]))
    message = message_chunk_to_message(chunk)
    assert isinstance(message, AIMessage), "the class of an AI chunk is derived from that of AI messages"
    return message.model_copy(update={"tool_calls": readable, "invalid_tool_calls": unreadable})


def _read(args: str | None) -> dict[str, Any] | None:
    try:
        found = json.loads(args, strict=False) if args else {}
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def chat_model(agent: Agent) -> Any:
    """Return the agent's chat model, with the retries of its client off."""
    try:
        model = _named(agent.model) if isinstance(agent.model, str) else agent.model
    except Exception as error:  # an unknown provider, a missing package, a missing key
        raise ApplicationError(
            f"the model {agent.model!r} of agent {agent.key!r} can't be built: {usercode.words_of(error)}",
            type="ModelFailed",
            non_retryable=True,
        ) from None
    return without_retries(model)


@cache
def _named(model: str) -> Any:
    """Build a model from a text once a worker: it keeps its connections open."""
    from langchain.chat_models import init_chat_model

    return init_chat_model(model)


def without_retries(model: Any) -> Any:
    """Return a copy of a chat model that tries once; the user's own object stays as it is."""
    if not isinstance(model, BaseChatModel) or "max_retries" not in type(model).model_fields:
        return model
    copied = model.model_copy(update={"max_retries": 0})
    _quiet_clients(copied)
    return copied


def _quiet_clients(model: BaseChatModel) -> None:
    """Replace the SDK clients that a model built with its own number of retries (OpenAI's and Anthropic's)."""
    quiet: dict[int, Any] = {}
    for name, value in list(vars(model).items()):
        if hasattr(value, "with_options") and hasattr(value, "max_retries"):
            quiet[id(value)] = value.with_options(max_retries=0)
            vars(model)[name] = quiet[id(value)]
    for name, value in list(vars(model).items()):
        if id(getattr(value, "_client", None)) in quiet:
            vars(model)[name] = type(value)(quiet[id(value._client)])


def model_failure(agent: str, error: Exception) -> ApplicationError:
    """Return the failure for what a model raised: retryable unless trying again can't help."""
    if isinstance(error, ApplicationError):
        return error
    status = _status_of(error)
    permanent = isinstance(error, _OURS) if status is None else not (status >= 500 or status in _RETRYABLE_STATUS)
    return ApplicationError(
        f"the model of agent {agent!r} failed: {usercode.words_of(error)}",
        type="ModelFailed",
        non_retryable=permanent,
        next_retry_delay=None if permanent else _asked_delay(error),
    )


def _status_of(error: Exception) -> int | None:
    response = getattr(error, "response", None)
    for holder in (error, response):
        for name in ("status_code", "http_status", "status"):
            status = getattr(holder, name, None)
            if isinstance(status, int) and not isinstance(status, bool) and 400 <= status < 600:
                return status
    return None


def _asked_delay(error: Exception) -> timedelta | None:
    """Return the time that the service asks us to wait (`Retry-After`), where it is a sensible one."""
    headers = getattr(getattr(error, "response", None), "headers", None)
    try:
        wait = float(headers["retry-after"]) if headers else 0.0
    except (KeyError, TypeError, ValueError):
        return None
    return timedelta(seconds=wait) if 0 < wait <= 600 else None
