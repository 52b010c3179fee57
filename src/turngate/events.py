"""What readers of a turn or a thread are told: events, and the cursors at which they go on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from turngate.contracts import Json
from turngate.errors import ConfigError

EventName = Literal[
    "token",
    "step_started",
    "step_ended",
    "tool_started",
    "tool_ended",
    "approval_requested",
    "approval_voted",
    "approval_resolved",
    "message",
    "turn_ended",
]

ROOM = 1_000_000
"""Events that may share one place in history: approvals, votes, messages and results of one workflow task."""


@dataclass(frozen=True)
class Event:
    """Something that happened in a turn, or in one of its subagents.

    `data` by type: token {step, text}; step_started {step}; step_ended {step, tool_calls}; tool_started {tool_call_id,
    name, args, number, turn_id of a subagent}; tool_ended {..., outcome, error, text}; approval_* the Approval; message
    {role, text, message}; turn_ended {status, output, reason}.

    `turn_id` and `agent` say where it happened, `path` by which calls: empty in the turn itself, in a subagent's the
    ids of the calls that lead to it. `cursor` is where to go on after this event: `events(offset=event.cursor)`.

    `offset` grows along the history of its turn and is the same for every reader. Tokens carry the offset of their
    step's beginning.
    """

    type: EventName
    offset: int
    data: Json = field(default_factory=dict)
    at: datetime | None = None
    turn_id: str = ""
    agent: str = ""
    path: tuple[str, ...] = ()
    cursor: str = ""

    def to_json(self) -> Json:
        """Return plain JSON."""
        return {
            "type": self.type,
            "turn_id": self.turn_id,
            "agent": self.agent,
            "path": list(self.path),
            "offset": self.offset,
            "cursor": self.cursor,
            "at": self.at.isoformat() if self.at else None,
            "data": self.data,
        }


# A cursor has the next offset of the turn that is followed, and of each of its open subagents: `7000002`, or
# `7000002,task-1:3000001`. Subagents that have ended are not in it, for they are told before the call's end is.


def write_cursor(positions: Mapping[str, int]) -> str:
    """Return the cursor for the next offsets of open turns; the name of the one that is followed is empty."""
    below = (f"{name}:{offset}" for name, offset in positions.items() if name)
    return ",".join([str(positions.get("", 0)), *below])


def read_cursor(cursor: int | str) -> dict[str, int]:
    """Return the next offset of each turn. Raises ConfigError for what is no cursor."""
    found: dict[str, int] = {}
    try:
        for part in str(cursor).split(","):
            name, _, offset = part.rpartition(":")
            found[name] = int(offset)
    except ValueError:
        raise ConfigError(f"offset={cursor!r} is no cursor: pass `event.cursor` of the last event seen") from None
    return found
