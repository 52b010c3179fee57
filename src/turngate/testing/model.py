"""A chat model that answers from a script."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from pydantic import ConfigDict, Field, PrivateAttr
from temporalio import activity

from turngate.testing.journal import Journal
from turngate.testing.strict import check_conversation


class ScriptError(AssertionError):
    """The scripted model was asked for what its script doesn't have, or was given an impossible conversation."""


class ServiceUnavailable(Exception):
    """What a scripted model raises for an attempt that is to fail: like a provider's answer 503."""

    status_code = 503


@dataclass(frozen=True)
class Answer:
    """One entry of a script: the message, and how many attempts fail before it is given."""

    message: AIMessage
    fails: int = 0
    error: str = "service unavailable"

    @staticmethod
    def of(value: Answer | AIMessage | str | Mapping[str, Any]) -> Answer:
        """Read an answer from a text, an AIMessage, or a mapping with `text` and `tool_calls`."""
        if isinstance(value, Answer):
            return value
        if isinstance(value, AIMessage):
            return Answer(value)
        if isinstance(value, str):
            return Answer(AIMessage(value))
        return Answer(AIMessage(value.get("text", ""), tool_calls=list(value.get("tool_calls", ()))))


class ScriptedModel(BaseChatModel):
    """Answers from a script, one entry a call, and streams word by word when streamed.

    Every turn follows the script from its start; a retried attempt of one model call gets the same answer again.
    It is strict: a conversation that a provider would refuse raises ScriptError, and so does a call beyond the end.
    With a `journal` on a file its position survives a restart of the worker.

        model = ScriptedModel([{"tool_calls": [{"id": "c1", "name": "pay", "args": {"amount": 5}}]}, "done"])
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    answers: list[Answer] = Field(default_factory=list)
    journal: Journal = Field(default_factory=Journal)
    _kept: set[str] = PrivateAttr(default_factory=set)

    def __init__(self, answers: Sequence[Answer | AIMessage | str | Mapping[str, Any]] = (), **options: Any) -> None:
        super().__init__(answers=[Answer.of(answer) for answer in answers], **options)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(
        self, tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool], **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Take the tools as any chat model does."""
        return self.bind(tools=[getattr(tool, "name", tool) for tool in tools], **kwargs)

    def script(self) -> tuple[str, Sequence[Answer]]:
        """Return the name of the script that the present call follows, and the script."""
        return _turn(), self.answers

    def inputs(self, key: str | None = None) -> list[list[dict[str, Any]]]:
        """Return what the model was given at each answered call, as message JSON with the class under `class`."""
        known = {entry["hash"]: entry["value"] for entry in self.journal.read("message")}
        fields = {} if key is None else {"key": key}
        return [[known[one] for one in entry["messages"]] for entry in self.journal.read("answer", **fields)]

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._next(messages))])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for chunk in _chunks(self._next(messages)):
            if run_manager:
                run_manager.on_llm_new_token(str(chunk.content), chunk=ChatGenerationChunk(message=chunk))
            yield ChatGenerationChunk(message=chunk)

    def _next(self, messages: Sequence[BaseMessage]) -> AIMessage:
        key, script = self.script()
        if problems := check_conversation(messages):
            raise self._violation(f"the model was given an impossible conversation: {'; '.join(problems)}")
        with self.journal.lock:
            index, repeated = self._position(key)
            if index >= len(script):
                raise self._violation(f"the script of {key!r} has {len(script)} answers, and one more was asked for")
            answer = script[index]
            if self.journal.count("failed", key=key, index=index) < answer.fails:
                self.journal.write("failed", key=key, index=index)
                raise ServiceUnavailable(answer.error)
            if not repeated:
                self._record(key, index, messages)
        try:
            return answer.message.model_copy(deep=True)
        except RecursionError:  # arguments nested deeper than Python copies: let the agent see them
            return answer.message.model_copy()

    def _position(self, key: str) -> tuple[int, bool]:
        """Return the index of the next answer, and whether it is given again to a retried attempt."""
        call, attempt = _activity()
        given = self.journal.read("answer", key=key)
        again = [entry for entry in given if call and entry["call"] == call and entry["attempt"] != attempt]
        return (again[-1]["index"], True) if again else (len(given), False)

    def _record(self, key: str, index: int, messages: Sequence[BaseMessage]) -> None:
        call, attempt = _activity()
        hashes = [self._keep(message) for message in messages]
        self.journal.write("answer", key=key, index=index, call=call, attempt=attempt, messages=hashes, **self.notes())

    def notes(self) -> dict[str, Any]:
        """Return more fields for the journal's entry of an answer."""
        return {"turn": _turn()}

    def _keep(self, message: BaseMessage) -> str:
        """Write each distinct message once: a conversation is the same at every step but for its end."""
        value = {"class": type(message).__name__, **message.model_dump()}
        digest = hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
        if digest not in self._kept:
            self._kept.add(digest)
            self.journal.write("message", hash=digest, value=value)
        return digest

    def _violation(self, text: str) -> ScriptError:
        self.journal.write("violation", text=text, turn=_turn())
        return ScriptError(text)


def _turn() -> str:
    return str(activity.info().workflow_id) if activity.in_activity() else ""


def _activity() -> tuple[str, int]:
    """Return what identifies the model call over its attempts, and the attempt."""
    if not activity.in_activity():
        return "", 1
    info = activity.info()
    return f"{info.workflow_run_id}/{info.activity_id}", info.attempt


def _chunks(message: AIMessage) -> Iterator[AIMessageChunk]:
    """Cut a message into words and calls. Anything but plain text comes in one piece."""
    rest = {key: value for key, value in message.model_dump().items() if key in _WHOLE_FIELDS}
    if isinstance(message.content, str):
        words = message.content.split(" ")
        yield from (
            AIMessageChunk(content=word if i == 0 else f" {word}", id=message.id) for i, word in enumerate(words)
        )
        rest["content"] = ""
    calls = [*message.tool_calls, *message.invalid_tool_calls]
    chunks = [
        {"name": call["name"], "args": _as_text(call["args"]), "id": call["id"], "index": index}
        for index, call in enumerate(calls)
    ]
    yield AIMessageChunk(**rest, tool_call_chunks=chunks)


_WHOLE_FIELDS = {"content", "id", "name", "additional_kwargs", "response_metadata", "usage_metadata"}


def _as_text(args: Any) -> str:
    return args if isinstance(args, str) else json.dumps(args)
