"""What tool code may use: the call it serves, questions to people, people as tools.

@tool
def pay(to: str, amount: int) -> str:
    '''Pay an invoice.'''
    if turngate.interrupt({"question": f"really pay {amount} to {to}?"}) != "yes":
        return "not paid"
    return bank.pay(to, amount, idempotency_key=turngate.current_call().key)
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from langchain_core.tools import BaseTool
from langchain_core.utils.pydantic import is_basemodel_subclass

from turngate.contracts import TASK_TOOL, Json
from turngate.errors import ConfigError, TurngateError

_CALL: ContextVar[CurrentCall | None] = ContextVar("turngate_call", default=None)


@dataclass(frozen=True)
class CurrentCall:
    """The call that a running tool serves.

    `key` is the idempotency key: the same on every attempt, after a reset, an edit and a recovery; give it to the
    service you call. `decision` is how a reviewer decided (approve or edit; None where nobody was asked).
    `cancelled` turns True when the turn was stopped or the worker shuts down: a tool that looks can end in order.
    """

    key: str = ""
    name: str = ""
    agent: str = ""
    attempt: int = 1
    decision: str | None = None
    reviewer: str | None = None
    thread_id: str | None = None
    turn_id: str = ""
    step: int = 1
    number: int = 1
    tool_call_id: str = ""
    requested_by: str | None = None
    context: Json = field(default_factory=dict)
    metadata: Json = field(default_factory=dict)
    _answers: list[Any] = field(default_factory=list, repr=False)
    _asked: list[Any] = field(default_factory=list, repr=False)
    _stop: threading.Event = field(default_factory=threading.Event, repr=False)

    @property
    def cancelled(self) -> bool:
        """Whether the call was called off."""
        return self._stop.is_set()

    def wait_cancelled(self, timeout: float | None = None) -> bool:
        """Wait (in a sync tool) until the call is called off, at most `timeout` seconds; return whether it was."""
        return self._stop.wait(timeout)

    def cancel(self) -> None:
        """Call the call off: what Turngate does when a turn is stopped."""
        self._stop.set()

    def as_dict(self) -> dict[str, Any]:
        """Return the public fields, as they stand in `config["configurable"]["turngate"]`."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__ if not name.startswith("_")}


def current_call() -> CurrentCall:
    """Return the call that the running tool serves. Raises TurngateError outside of a tool."""
    call = _CALL.get()
    if call is None:
        raise TurngateError("no tool call is running here; in a test, use `with turngate.tools.answering([]):`")
    return call


@contextmanager
def serving(call: CurrentCall) -> Iterator[CurrentCall]:
    """Make `call` the current one for the code inside, and for the threads and tasks that it starts."""
    token = _CALL.set(call)
    try:
        yield call
    finally:
        _CALL.reset(token)


class Interrupted(BaseException):
    """A tool asked a question that has no answer yet: the call pauses.

    Not an Exception, so that a tool's own `except Exception` does not swallow the question.
    """

    def __init__(self, payload: Any) -> None:
        super().__init__("the tool asked a question and waits for the answer")
        self.payload = payload


def interrupt(payload: Any) -> Any:
    """Ask a person a question (any JSON) and return the answer (any JSON), as LangGraph's `interrupt`.

    The call pauses without holding a worker. With the answer the tool runs again from its start, and the same
    `interrupt()` returns the answer. So code before it runs again: keep it free of effects, or use the
    idempotency key of `current_call()`. Answers belong to questions by their order.
    """
    call = current_call()
    call._asked.append(payload)
    if len(call._asked) > len(call._answers):
        raise Interrupted(payload)
    return copy.deepcopy(call._answers[len(call._asked) - 1])


@contextmanager
def answering(answers: Iterable[Any], **fields: Any) -> Iterator[CurrentCall]:
    """Run a tool's code in a plain test: `interrupt()` gets these answers, `current_call()` has these fields.

    One question more than there are answers raises Interrupted.
    """
    with serving(CurrentCall(**fields, _answers=list(answers))) as call:
        yield call


class HumanTool(BaseTool):
    """A tool without code: a person gives its result."""

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        raise TurngateError(f"the tool {self.name!r} is a person: only a reviewer's response answers it")


_QUESTION: Json = {
    "type": "object",
    "properties": {"question": {"type": "string", "description": "What you want to know, in full."}},
    "required": ["question"],
    "additionalProperties": False,
}


def human_tool(name: str, args_schema: Any = None, *, description: str | None = None) -> BaseTool:
    """Return a tool that a person answers: only `respond` is possible, and no activity runs.

    `args_schema` is a pydantic model or a JSON Schema; without it the model sends one text `question`.
    """
    if not isinstance(name, str) or not name:
        raise ConfigError(f"human tool: {name!r} is not a name")
    if args_schema is not None and not (isinstance(args_schema, Mapping) or is_basemodel_subclass(args_schema)):
        raise ConfigError(f"human tool {name!r}: args_schema is neither a JSON Schema nor a pydantic model")
    schema = _QUESTION if args_schema is None else args_schema
    return HumanTool(
        name=name,
        description="Ask a person; the answer comes from them." if description is None else description,
        args_schema=dict(schema) if isinstance(schema, Mapping) else schema,
    )


class TaskTool(BaseTool):
    """The tool by which a model hands a task to a subagent; the workflow runs the subagent's turn."""

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        raise TurngateError("a subagent runs as a turn of its own, never inside a tool call")


def task_tool(subagents: Mapping[str, str]) -> BaseTool:
    """Return the `task` tool for subagents, given as name -> description."""
    listed = "\n".join(f"- {name}: {description}" for name, description in subagents.items())
    return TaskTool(
        name=TASK_TOOL,
        description=(
            "Give a task to a subagent. It works on its own, sees nothing of this conversation, and answers with one"
            f" text. The subagents are:\n{listed}"
        ),
        args_schema={
            "type": "object",
            "properties": {
                "description": {"type": "string", "description": "The whole task, with everything needed to do it."},
                "subagent_type": {
                    "type": "string",
                    "enum": list(subagents),
                    "description": "The name of the subagent.",
                },
            },
            "required": ["description", "subagent_type"],
            "additionalProperties": False,
        },
    )
