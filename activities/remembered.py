"""What a worker has read of the conversations that travel by reference, so that it reads only what is new.

Every model call of a long turn needs the whole conversation, which stands in the run that keeps it. Read anew each
time, 200 steps of 4 KB cost the server 90 MB of answers to queries, and took twice as long.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence

from turngate.contracts import Message

LIMIT = 64 * 1024 * 1024
"""Characters that are remembered, over all turns of a worker; what was not used for longest goes first."""

Key = tuple[str, ...]


class Remembered:
    """The beginnings of conversations, by a key under which a conversation only ever grows.

    Kept as text: what a model's code does to the messages that it is given must not be in those of the next call.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._size = 0
        self._kept: OrderedDict[Key, list[str]] = OrderedDict()

    def read(self, key: Key, count: int) -> list[Message]:
        """Return what is known of the first `count` messages."""
        kept = self._kept.get(key, [])
        if kept:
            self._kept.move_to_end(key)
        found: list[Message] = json.loads(f"[{','.join(kept[:count])}]")
        return found

    def add(self, key: Key, start: int, messages: Sequence[Message]) -> None:
        """Remember the messages from `start` on, where what is before them is known."""
        kept = self._kept.setdefault(key, [])
        if len(kept) != start:
            return
        new = [json.dumps(message, ensure_ascii=False) for message in messages]
        kept += new
        self._size += sum(map(len, new))
        while self._size > self._limit:
            _, dropped = self._kept.popitem(last=False)
            self._size -= sum(map(len, dropped))
