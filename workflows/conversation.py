"""The conversation of a turn: plain message dicts, repaired at the door, handed out by value or by reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from turngate import texts
    from turngate.contracts import PAGE_LIMIT, Json, Message, Segment, json_size, text_of

_CALLS = ("tool_calls", "invalid_tool_calls")
_ANSWERS = ("tool", "ToolMessageChunk")
SAID_LIMIT = 20


def tool_message(call_id: str | None, name: str, content: Any, *, ok: bool) -> Message:
    """Build the answer to one call."""
    return {
        "type": "tool",
        "content": content,
        "tool_call_id": call_id or "",
        "name": name,
        "status": "success" if ok else "error",
    }


def repair(messages: Sequence[Message]) -> tuple[list[Message], list[str]]:
    """Give every call of a handed-in history its answer and drop answers to no call; say what was done."""
    fixed: list[Message] = []
    said = _Said()
    position = 0
    while position < len(messages):
        message = messages[position]
        position += 1
        if message.get("type") in _ANSWERS:
            said.dropped(message)
            continue
        fixed.append(message)
        calls = [call for field in _CALLS for call in message.get(field) or []]
        if message.get("type") not in ("ai", "AIMessageChunk") or not calls:
            continue
        answers: list[Message] = []
        while position < len(messages) and messages[position].get("type") in _ANSWERS:
            answers.append(messages[position])
            position += 1
        for call in calls:
            found = next((one for one in answers if one.get("tool_call_id") == (call.get("id") or "")), None)
            if found is not None:
                answers.remove(found)
            else:
                name = str(call.get("name") or "")
                found = tool_message(call.get("id"), name, texts.unanswered(name), ok=False)
                said.add(f"answered the open call {_quoted(call.get('id'))} of {_quoted(name)}")
            fixed.append(found)
        for one in answers:
            said.dropped(one)
    return fixed, said.lines


class _Said:
    """What was repaired, in at most 20 lines: a handed-in history of any length must not fill every status."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._more = 0

    def add(self, line: str) -> None:
        if len(self.lines) < SAID_LIMIT:
            self.lines.append(line)
            return
        self._more += 1
        self.lines[-1] = f"and {self._more + 1} more"

    def dropped(self, message: Message) -> None:
        self.add(f"dropped a tool result that answers no call ({_quoted(message.get('tool_call_id'))})")


def _quoted(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else text[:100] + "…"


def segments(messages: Sequence[Message], size: int, inline_limit: int, before: Segment | None) -> list[Segment]:
    """Say where the model's activity finds the conversation: inline while short, by reference above the limit."""
    parts = [before] if before and before.count else []
    if size <= inline_limit:
        return [*parts, Segment(messages=list(messages))]
    info = workflow.info()
    return [*parts, Segment(workflow_id=info.workflow_id, run_id=info.run_id, start=0, count=len(messages))]


class Sizes:
    """The bytes of the messages of a conversation, each measured once: every model call asks for all of them."""

    def __init__(self) -> None:
        self._known: list[int] = []

    def of(self, messages: Sequence[Message]) -> Sequence[int]:
        """Return the bytes of each message. What was said never changes, so only what is new is measured."""
        self._known += [json_size(message) for message in messages[len(self._known) :]]
        return self._known


def page(
    items: Sequence[Any],
    request: Any,
    *,
    show: Callable[[Any], Any] = lambda item: item,
    sizes: Sequence[int] | None = None,
    budget: int = PAGE_LIMIT - 16_384,
) -> tuple[list[Any], int, int | None]:
    """Return the items from `start`, at most `limit` and within the budget, and where the next page starts.

    Raises ApplicationError, which only fails the query, for a request that is none: a page from the wrong place looks
    like a right one.

    `show` is what is done to an item that gets onto the page; `sizes` are their bytes where they are known. A single
    item over the budget comes alone: no page is ever empty before the end.
    """
    start, limit = _bounds(request, len(items))
    found: list[Any] = []
    size = 0
    for number, item in enumerate(map(show, items[start : start + limit]), start):
        size += json_size(item) if sizes is None else sizes[number]
        if found and size > budget:
            break
        found.append(item)
    after = start + len(found)
    return found, start, after if after < min(len(items), start + limit) or after < len(items) else None


def _bounds(request: Any, total: int) -> tuple[int, int]:
    asked: Json = {} if request is None else request
    if not isinstance(asked, dict) or not asked.keys() <= {"start", "limit"}:
        raise _no_page(f"a page is asked for with {{'start': 0, 'limit': 50}}, not with {_quoted(request)}")
    return _whole(asked, "start", 0, least=0), _whole(asked, "limit", max(total, 1), least=1)


def _whole(asked: Json, name: str, default: int, *, least: int) -> int:
    value = asked.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise _no_page(f"{name!r} is a whole number from {least} on, not {_quoted(value)}")
    return value


def _no_page(problem: str) -> ApplicationError:
    return ApplicationError(problem, type="malformed", non_retryable=True)


def last_human_text(messages: Sequence[Message]) -> str | None:
    """Return the text of the last message of a person, if there is one."""
    return next((text_of(message) for message in reversed(messages) if message.get("type") == "human"), None)
