"""Telling people about approvals, beside the turn and never in its way."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from turngate.contracts import KIB, Json, json_size
    from turngate.items import Item, Notice
    from turngate.ledger import Ledger
    from turngate.workflows.measuring import Measuring
    from turngate.workflows.state import TurnState, Unsent

LAST_WAIT = timedelta(seconds=5)
"""How long the end of a run waits for its last notifications."""
FRESH = timedelta(seconds=30)
"""A notification that is under way for longer is being retried, and holds up nothing any more."""
PATIENCE = timedelta(minutes=15)
"""How long one notification is tried again; after that it comes too late to be of use."""
INLINE = 16 * KIB
"""Bytes of an approval that travels with its notification; a longer one is read from the run."""
AT_ONCE = 32
"""Notifications under way for all notifiers together: so many fit into one server task, which takes 4 MB."""
_ASKING = ("requested", "reminder", "escalated")


class Turn(Protocol):
    """What the announcer needs of the turn."""

    state: TurnState
    ledger: Ledger
    measuring: Measuring


class Announcer:
    """Starts one `notify` activity for each notice and notifier; what fails for good is counted, nothing else.

    One each, and not one for all: when one notifier fails, the others must not announce the same again.
    """

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._open: dict[asyncio.Task[None], tuple[Unsent, datetime]] = {}
        # Each notifier has its own queue, so that one that hangs keeps nobody else waiting.
        self._queues: dict[str, asyncio.Semaphore] = {}
        self.failed = 0

    @property
    def quiet(self) -> bool:
        """Whether nothing is under way but notifications that are being retried."""
        return not self.has_news and all(workflow.now() - since > FRESH for _, since in self._open.values())

    @property
    def has_news(self) -> bool:
        """Whether the ledger has notices that were not taken yet."""
        return bool(self._turn.ledger.notices)

    def announce(self) -> None:
        """Take the ledger's notices and send them on their way."""
        self._turn.measuring.turned_away()
        notices, self._turn.ledger.notices = self._turn.ledger.notices, []
        for notice in notices:
            self._turn.measuring.noticed(notice)
            if notice.kind not in _ASKING:
                self._stop_asking(notice.item)
            elif not notice.item.open:
                continue
            for notifier in self._turn.state.settings.notifiers:
                self._start(notice, notifier)

    def resume(self, unsent: Sequence[Unsent]) -> None:
        """Send what the run before could not."""
        for one in unsent:
            item = self._turn.ledger[one.approval_id]
            if item.open or one.kind not in _ASKING:
                self._start(Notice(one.kind, item, one.ordinal), one.notifier)

    @property
    def unsent(self) -> list[Unsent]:
        """What the next run has to send."""
        return [one for one, _ in self._open.values()]

    async def finish(self) -> None:
        """Give the last notifications of a run a moment."""
        self.announce()
        if self._open:
            with contextlib.suppress(TimeoutError):
                await workflow.wait_condition(lambda: not self._open, timeout=LAST_WAIT)

    def _start(self, notice: Notice, notifier: str) -> None:
        unsent = Unsent(
            kind=notice.kind, approval_id=notice.item.approval.id, ordinal=notice.ordinal, notifier=notifier
        )
        task = asyncio.create_task(self._send(notice, notifier))
        self._open[task] = (unsent, workflow.now())
        task.add_done_callback(lambda done: self._open.pop(done, None))

    def _queue(self, notifier: str) -> asyncio.Semaphore:
        if notifier not in self._queues:
            share = AT_ONCE // max(len(self._turn.state.settings.notifiers), 1)
            self._queues[notifier] = asyncio.Semaphore(max(share, 1))
        return self._queues[notifier]

    def _shown(self, item: Item) -> Json:
        """The approval; for a long one its place, so that history does not hold it again and again."""
        shown = self._turn.ledger.view(item).to_json()
        return shown if json_size(shown) <= INLINE else {"index": self._turn.ledger.items.index(item)}

    def _stop_asking(self, item: Item) -> None:
        """Nobody is asked for a decision any more that was taken while a notifier was down."""
        for task, (unsent, _) in list(self._open.items()):
            if unsent.approval_id == item.approval.id and unsent.kind in _ASKING:
                task.cancel()

    async def _send(self, notice: Notice, notifier: str) -> None:
        try:
            async with self._queue(notifier):
                await self._tell(notice, notifier)
        except ActivityError as error:
            self.failed += not is_cancelled_exception(error)

    async def _tell(self, notice: Notice, notifier: str) -> None:
        message: dict[str, Any] = {
            "key": notice.key,
            "kind": notice.kind,
            "notifier": notifier,
            "approval": self._shown(notice.item),
        }
        await workflow.execute_activity(
            "notify",
            message,
            start_to_close_timeout=timedelta(seconds=30),
            schedule_to_close_timeout=PATIENCE,
            retry_policy=RetryPolicy(maximum_interval=timedelta(minutes=1)),
            summary=f"{notice.kind}: {notice.item.approval.name}"[:200],
        )
