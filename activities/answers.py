"""Bring a model's answer into the form that is recorded: strict JSON, with unreadable calls set apart."""

from __future__ import annotations

import json
from typing import Any

from langchain_core.messages import AIMessage

from turngate import texts
from turngate.activities.conversation import to_langchain
from turngate.contracts import KIB, CallPlan, Json, Message, Verdict
from turngate.plain import cleaned, problem_of

UNREADABLE_KEPT = 16 * KIB
"""Bytes kept of arguments that can't be read: enough for the model to see what it sent."""


def recorded(message: AIMessage) -> Message:
    """Return the message as it goes into history.

    Calls whose arguments are no strict JSON move from `tool_calls` to `invalid_tool_calls`, in front of those that
    were there. Raises ValueError for a message that could not be read back.
    """
    found: Json = message.model_dump(warnings=False)
    readable, moved = [], []
    for call in found.get("tool_calls") or []:
        problem = _problem(call)
        if problem is None:
            readable.append(call)
        else:
            moved.append({**call, "args": _as_ascii(call.get("args")), "error": problem})
    unreadable = [_unreadable(call) for call in [*moved, *(found.get("invalid_tool_calls") or [])]]
    result: Message = cleaned({**found, "tool_calls": readable, "invalid_tool_calls": unreadable})
    to_langchain([result])
    return result


def _problem(call: Json) -> str | None:
    name = call.get("name")
    if not isinstance(name, str) or not name or problem_of({"name": name}):
        return "it names no tool"
    return problem_of(call.get("args"))


def _unreadable(call: Json) -> Json:
    args, error = call.get("args"), call.get("error")
    return {
        "type": "invalid_tool_call",
        "name": _text(call.get("name")),
        "args": None
        if args is None
        else texts.cut(args if isinstance(args, str) else _as_ascii(args), UNREADABLE_KEPT),
        "id": _text(call.get("id")),
        "error": texts.cut(error, KIB) if isinstance(error, str) else None,
    }


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _as_ascii(args: Any) -> str:
    """Write arguments down so that every reader can, whatever they hold."""
    try:
        return json.dumps(args, default=str)
    except (TypeError, ValueError, RecursionError):
        return json.dumps(cleaned(args))


def unreadable_plan(position: int, call: Json) -> CallPlan:
    """Return the plan for an unreadable call: it never runs, and nobody is asked about it."""
    why = call.get("error") or "the arguments are no JSON object"
    return CallPlan(
        call=position,
        unreadable=True,
        verdict=Verdict.INVALID,
        message=texts.unreadable(call.get("name") or "", why),
    )
