"""Attending to a pause: the clock, and the outside's picture of the run."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Protocol

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from turngate.ledger import Ledger
    from turngate.workflows import details, surface
    from turngate.workflows.announcing import Announcer
    from turngate.workflows.state import TurnState

FOREVER = timedelta(days=3650)
"""The timer of a pause without a deadline: its summary is what the UI's first page shows of the pause."""


class Turn(Protocol):
    """What is attended to."""

    state: TurnState
    ledger: Ledger
    announcer: Announcer


class Attendant:
    """Runs beside the turn from its beginning to its end."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn

    async def attend(self) -> None:
        """Keep the clock and the outside's picture of the run: one timer, two search attributes, the details page."""
        timer: asyncio.Task[None] | None = None
        armed: tuple[Any, ...] = ()
        while True:
            self._turn.ledger.tick(workflow.now())
            self._turn.announcer.announce()
            pause = surface.pause_of(self._turn.ledger)
            self._show(pause)
            if timer is None or pause.face != armed:
                if timer:
                    timer.cancel()
                timer, armed = self._timer(pause), pause.face
            await workflow.wait_condition(
                lambda pause=pause, timer=timer: (  # type: ignore[misc]
                    surface.pause_of(self._turn.ledger) != pause
                    or self._turn.announcer.has_news
                    or (timer is not None and timer.done())
                )
            )
            if timer and timer.done():
                timer = None

    def _timer(self, pause: surface.Pause) -> asyncio.Task[None] | None:
        if pause.moment is not None:
            patience = max(pause.moment - workflow.now(), timedelta(milliseconds=1))
        elif pause.waiting and self._turn.state.settings.timeline_timer:
            patience = FOREVER
        else:
            return None
        return asyncio.create_task(workflow.sleep(patience, summary=pause.summary))

    def _show(self, pause: surface.Pause) -> None:
        state = self._turn.state
        if (pause.status, list(pause.waiting)) != (state.shown_status, state.shown_waiting):
            state.shown_status, state.shown_waiting = pause.status, list(pause.waiting)
            if state.settings.search_attributes or surface.known():
                request = state.asked()
                workflow.upsert_search_attributes(surface.upserts(pause, request.agent, request.thread_id))
        signed = state.settings.signed
        waiting = [
            details.Waiting(self._turn.ledger.view(item), item.plan, signed) for item in self._turn.ledger.waiting()
        ]
        workflow.set_current_details(
            details.page(waiting, self._turn.ledger.state.refused, namespace=workflow.info().namespace)
        )
