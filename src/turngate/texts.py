"""What the model reads in place of a tool's result: what happened, who is behind it, what to do now."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

DESCRIPTION_PREFIX = "A tool call waits for your decision"
"""What the default description of a call begins with."""


def as_json(value: Any) -> str:
    """Return `value` as compact, readable JSON."""
    return json.dumps(value, ensure_ascii=False)


def _ended(text: str) -> str:
    """The text as a sentence of its own, with a full stop where it has no end."""
    return text if not text or text.rstrip()[-1:] in ".!?…:;)" else f"{text}."


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def rejected(name: str, call_id: str | None, message: str | None) -> str:
    """A person declined the call."""
    called = f" (call {call_id})" if call_id else ""
    reason = f" Their reason: {_ended(message)}" if message else ""
    return (
        f"A reviewer declined your call of '{name}'{called}, so it did not run.{reason}"
        " Do not repeat this call unless the user asks for it."
    )


def rejected_by_rule(name: str, by: str | None, message: str | None) -> str:
    """A remembered rejection answered the call."""
    maker = f" of {by}" if by else ""
    reason = f" The reason given then: {_ended(message)}" if message else ""
    return (
        f"Your call of '{name}' did not run: a remembered decision{maker} rejects such calls.{reason}"
        " Do not repeat this call unless the user asks for it."
    )


def expired(name: str, message: str | None) -> str:
    """The deadline passed without a decision."""
    more = f" {message}" if message else ""
    return (
        f"Nobody decided about your call of '{name}' in time, so it did not run. No person refused it;"
        f" the waiting time ran out.{more}"
    )


def cancelled(name: str) -> str:
    """The call was called off before it finished."""
    return f"Your call of '{name}' was called off before it finished. No person refused it."


def denied(name: str, reason: str | None) -> str:
    """The policy forbids the call; nobody was asked."""
    why = f" The rule says: {_ended(reason)}" if reason else ""
    return f"A rule forbids this call of '{name}', so it did not run. No person was asked.{why}"


def repeat_denied(name: str) -> str:
    """The same call was rejected before and is not put up again."""
    return (
        f"The same call of '{name}' was rejected before in this turn, so it was not put up again and did not run."
        " Do not repeat this call unless the user asks for it."
    )


def unreadable(name: str, why: str) -> str:
    """The call could not be read."""
    return (
        f"Your call of '{name}' could not be read ({why}), so it did not run."
        " Send the call again in full, with the arguments as one JSON object."
    )


def too_large(name: str, size: int, limit: int) -> str:
    """The arguments are over the budget."""
    return (
        f"The arguments of your call of '{name}' are larger than allowed ({size} bytes, the limit is {limit} bytes),"
        " so it did not run. Send less at once."
    )


def invalid_args(name: str, problems: Iterable[str]) -> str:
    """The arguments don't fit the tool."""
    return (
        f"The arguments of your call of '{name}' do not fit the tool, so it did not run: {'; '.join(problems)}."
        " Correct them and call it again."
    )


def unknown_tool(name: str, known: Iterable[str]) -> str:
    """There is no such tool."""
    names = _quoted(known)
    there = f"The tools are {names}." if names else "There are no tools."
    return f"There is no tool '{name}', so nothing ran. {there}"


def unknown_subagent(name: str, known: Iterable[str]) -> str:
    """There is no such subagent."""
    return f"There is no subagent '{name}', so nothing was started. The subagents are {_quoted(known)}."


def tool_error(name: str, error: str) -> str:
    """The tool raised."""
    return f"The tool '{name}' failed: {error}"


def unknown_outcome(name: str, message: str | None) -> str:
    """Nobody can know whether the call took effect, and a reviewer says to treat it as failed."""
    note = f" The reviewer says: {_ended(message)}" if message else ""
    return (
        f"It is not known whether your call of '{name}' took effect: it was interrupted while it ran."
        f" A reviewer decided to treat it as failed.{note}"
    )


def failed_and_declined(name: str, error: str, message: str | None) -> str:
    """The tool raised, people were asked, and a reviewer leaves it at that."""
    note = f" The reviewer says: {_ended(message)}" if message else ""
    return f"The tool '{name}' failed: {error}. A reviewer decided not to run it again.{note}"


def unanswered(name: str) -> str:
    """A handed-in history has no answer to this call."""
    return f"There is no result for the call of '{name}': the conversation was handed over before it was answered."


def output_wanted(schema: dict[str, Any]) -> str:
    """What the model is told about the shape of its final answer."""
    return (
        "When you are done, answer with JSON alone: no other words, no code fence. It must fit this JSON Schema:"
        f"\n{as_json(schema)}"
    )


def output_invalid(problem: str) -> str:
    """The final answer has not the shape that was asked for."""
    return (
        f"Your answer does not fit the JSON Schema that it must fit: {_ended(problem)} Answer again, with JSON alone."
    )


def edit_notice(first: str, name: str, args: dict[str, Any]) -> str:
    """The notice in front of an edited call's result."""
    return f"{first} Instead of your call, '{name}' was called with {as_json(args)}."


def with_notice(notice: str, content: Any) -> Any:
    """Put the notice in front of a result: of a text, or as a block of its own in front of blocks."""
    if isinstance(content, list):
        return [{"type": "text", "text": notice}, *content]
    return f"{notice}\n\n{content}" if content else notice


def default_description(prefix: str, name: str, args: dict[str, Any]) -> str:
    """What a reviewer reads where the agent gives no description of its own."""
    lines = [f"{prefix}: {name}"]
    lines += [f"  {key} = {as_json(value)}" for key, value in args.items()] or ["  (no arguments)"]
    return "\n".join(lines)


def cut(text: str, limit: int) -> str:
    """Cut `text` to `limit` bytes of UTF-8 with a mark that says how much is missing."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit:
        return text
    mark = f"\n[cut: {{missing}} of {len(raw)} bytes are missing]"
    keep = max(0, limit - len(mark) - 12)
    kept = raw[:keep].decode("utf-8", "ignore")
    return kept + mark.format(missing=len(raw) - len(kept.encode()))
