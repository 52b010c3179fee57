"""Telling people about approvals, beside the turn and never in its way."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from typing import Any, Protocol

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from turngate.contracts import ApprovalStatus
    from turngate.ledger import Ledger, Notice
    from turngate.workflows.state import TurnState

LAST_WAIT = timedelta(seconds=5)
"""How long the end of a turn waits for its last notifications."""


class Turn(Protocol):
    """What the announcer needs of the turn."""

    state: TurnState
    ledger: Ledger


class Announcer:
    """Starts one `notify` activity a notice; a failing notifier is counted, nothing else."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._open: set[asyncio.Task[None]] = set()
        self.failed = 0

    @property
    def quiet(self) -> bool:
        """Whether no notification is under way."""
        return not self._open and not self.has_news

    @property
    def has_news(self) -> bool:
        """Whether the ledger has notices that were not taken yet."""
        return bool(self._turn.ledger.notices)

    def announce(self) -> None:
        """Take the ledger's notices and send them on their way."""
        notices, self._turn.ledger.notices = self._turn.ledger.notices, []
        if not self._turn.state.settings.notifiers:
            return
        for notice in notices:
            stale = notice.kind == "requested" and notice.item.approval.status is not ApprovalStatus.PENDING
            if not stale:
                task = asyncio.create_task(self._send(notice))
                self._open.add(task)
                task.add_done_callback(self._open.discard)

    async def _send(self, notice: Notice) -> None:
        message: dict[str, Any] = {
            "key": notice.key,
            "kind": notice.kind,
            "notifiers": self._turn.state.settings.notifiers,
            "approval": self._turn.ledger.view(notice.item).to_json(),
        }
        try:
            await workflow.execute_activity(
                "notify",
                message,
                start_to_close_timeout=timedelta(seconds=30),
                retry_policy=RetryPolicy(maximum_attempts=5),
                summary=f"{notice.kind}: {notice.item.approval.name}"[:200],
            )
        except ActivityError:
            self.failed += 1

    async def settled(self) -> None:
        """Wait for all notifications; each is bounded by its own retries."""
        await workflow.wait_condition(lambda: self.quiet)

    async def finish(self) -> None:
        """Give the last notifications of a turn a moment."""
        self.announce()
        if self._open:
            with contextlib.suppress(TimeoutError):
                await workflow.wait_condition(lambda: not self._open, timeout=LAST_WAIT)
