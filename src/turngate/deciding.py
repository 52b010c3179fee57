"""What becomes of the approvals of a turn: each change told once, at the workflow task in which it happened."""

from __future__ import annotations

import bisect
import contextlib
from collections.abc import Iterable
from datetime import datetime, timedelta

from temporalio.client import Client

from turngate import rpc
from turngate.contracts import Approval
from turngate.errors import NoWorkerError, ServerError
from turngate.events import ROOM, Event, EventName
from turngate.saying import QUERY_LIMIT

_CHANGES = 128
"""Places that an approval has within its task: it is requested, voted on at most 100 times, and resolved."""


class Decided:
    """Follows the approvals of a turn by query, made when its history has moved."""

    def __init__(self, client: Client, turn_id: str) -> None:
        self._client = client
        self._turn_id = turn_id
        self._tasks: list[tuple[datetime, int]] = []
        self._told: set[int] = set()
        self._unasked: int | None = None
        self._complete = False

    def task_started(self, at: datetime, position: int) -> None:
        """A workflow task has started: its time is that of all that happens in it."""
        self._tasks.append((at, position))

    @property
    def missing(self) -> list[int]:
        """The offset from which on nobody could be asked."""
        return [] if self._unasked is None else [self._unasked]

    async def events(self, since: int) -> list[Event]:
        """Ask, and tell what is new; without a worker what happened `since` is told after the next movement."""
        found: list[Event] = []
        if self._complete:
            return found
        self._unasked = since * ROOM if self._unasked is None else self._unasked
        with contextlib.suppress(NoWorkerError, ServerError):
            async for page in rpc.paged(self._client, self._turn_id, "approvals", limit=QUERY_LIMIT):
                found += self._compared([Approval.model_validate(entry) for entry in page.get("approvals", [])])
            self._unasked = None
        return found

    def at_end(self, approvals: Iterable[Approval], *, complete: bool) -> list[Event]:
        """Tell what the result of the turn says: no worker is needed any more if it is `complete`."""
        if complete:
            self._complete, self._unasked = True, None
        return self._compared(approvals)

    def _compared(self, approvals: Iterable[Approval]) -> list[Event]:
        """Each change has its moment in the record, so every reader gives it the same place in the history."""
        found: list[Event] = []
        for approval in approvals:
            number = number_of(approval.id)
            changes: list[tuple[EventName, datetime | None]] = [("approval_requested", approval.requested_at)]
            changes += [("approval_voted", vote.at) for vote in approval.votes]
            if approval.status != "pending":
                changes.append(("approval_resolved", approval.resolution.at if approval.resolution else None))
            for place, (name, moment) in enumerate(changes):
                key = number * _CHANGES + (_CHANGES - 1 if name == "approval_resolved" else place)
                position = self._place(moment)
                if position is not None and key not in self._told:
                    self._told.add(key)
                    found.append(Event(name, position * ROOM + key, approval.to_json(), moment))
        return found

    def _place(self, moment: datetime | None) -> int | None:
        """The workflow task in which it happened.

        None while the history read so far does not reach that moment: the answer to a query may be ahead of it.
        """
        if not self._tasks:
            return None
        if moment is None:
            return self._tasks[-1][1]
        grain = timedelta(milliseconds=1)
        if self._tasks[-1][0] < moment - grain:
            return None
        index = bisect.bisect_right(self._tasks, moment + grain, key=lambda task: task[0])
        return self._tasks[max(0, index - 1)][1]


def number_of(full_id: str) -> int:
    """Return the number at the end of an approval's or a subagent's id."""
    digits = full_id.rpartition("-")[2]
    return int(digits) if digits.isdigit() else 0
