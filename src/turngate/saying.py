"""What is said in a turn: each message of its conversation told once, at the place in history where it entered.

What the model says is in the result of its call. All else is in the input of the next model call, inline or as the
length that the conversation has by then, or in the result of the turn: what the turn began with, results of tools, what
a declined call is answered with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from temporalio.client import Client

from turngate import rpc
from turngate.contracts import Message, Segment, TurnResult, text_of
from turngate.errors import NoWorkerError, ServerError
from turngate.events import Event

QUERY_LIMIT = 2.0
"""Seconds to wait for a worker's answer; without one it is told after the next movement."""


@dataclass(frozen=True)
class _Owed:
    """Messages that are still to be told, up to `end` or to the last one, and the offset of the first."""

    start: int
    end: int | None
    offset: int
    at: datetime


class Said:
    """Follows the conversation of a turn."""

    def __init__(self, client: Client, turn_id: str) -> None:
        self._client = client
        self._turn_id = turn_id
        self._length = 0
        self._first_new: int | None = None
        self._owed: list[_Owed] = []
        self._start = 0
        self._known: list[Message] = []

    # --- What history says -----------------------------------------------------------------------------------------

    def began(self, text: str | None) -> None:
        """The turn was asked to do this."""
        if text is not None:
            self._first_new = 1
            self._know(0, [{"type": "human", "content": text}])

    def begins_again(self) -> None:
        """A reset tells the conversation from its beginning."""
        self._length = 0

    def forget(self) -> None:
        """What is owed was told before the reset."""
        self._owed.clear()

    def by_model(self) -> None:
        """The model has said something, which is told elsewhere."""
        self._length += 1

    def at_model_call(self, conversation: Sequence[Segment], step: int, offset: int, at: datetime) -> None:
        """The conversation as a model call is given it."""
        if not conversation:
            return
        own = conversation[-1]
        length = own.count if own.messages is None else len(own.messages)
        if step == 1:
            self._first_new = length
        if own.messages is not None:
            self._know(0, own.messages)
        self._owe(length, offset, at)

    def at_end(self, result: TurnResult | None, offset: int, at: datetime) -> None:
        """The turn has ended, with or without a result."""
        if result is None or self._first_new is None:
            self._owe(None, offset, at)
            return
        if result.messages is not None:
            self._know(self._first_new, result.messages)
        self._owe(self._first_new + result.new_messages, offset, at)

    def _owe(self, end: int | None, offset: int, at: datetime) -> None:
        if end is None or end > self._length:
            self._owed.append(_Owed(self._length, end, offset, at))
        self._length = self._length if end is None else end

    # --- What is told ----------------------------------------------------------------------------------------------

    @property
    def missing(self) -> list[int]:
        """The offsets at which something could not be told yet."""
        return [one.offset for one in self._owed]

    async def events(self) -> list[Event]:
        """Tell what is owed; what can't be had without a worker stays owed."""
        found: list[Event] = []
        owed, self._owed = self._owed, []
        for one in owed:
            messages = await self._part(one.start, one.end)
            if messages is None:
                self._owed.append(one)
                continue
            for place, message in enumerate(messages):
                data = {"role": str(message.get("type")), "text": text_of(message), "message": message}
                found.append(Event("message", one.offset + place, data, one.at))
        return found

    def _know(self, start: int, messages: Sequence[Message]) -> None:
        """Take in the messages from `start` to the last one."""
        if self._start <= start <= self._start + len(self._known):
            self._known = [*self._known[: start - self._start], *messages]
        else:
            self._start, self._known = start, list(messages)

    async def _part(self, start: int, end: int | None) -> list[Message] | None:
        """Return the messages from `start` to `end`, or to the last one; None where nobody answers."""
        if end is None or start < self._start or end > self._start + len(self._known):
            try:
                self._know(start, await self._read(start, end))
            except (NoWorkerError, ServerError):
                return None
        return self._known[start - self._start : None if end is None else end - self._start]

    async def _read(self, start: int, end: int | None) -> list[Message]:
        found: list[Message] = []
        async for page in rpc.paged(self._client, self._turn_id, "messages", start=start, limit=QUERY_LIMIT):
            found += page.get("messages", [])
            if end is not None and start + len(found) >= end:
                break
        return found
