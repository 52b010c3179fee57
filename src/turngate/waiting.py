"""Waiting for a turn without asking it over and over: its history says when something happened.

The server holds a request for new history open until there is some. That costs the run nothing: no update slot, no
query, no event. A query is made only when the history shows something after which approvals may look different.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowExecutionStatus

from turngate import rpc

_E = EventType

_TASK_WAITS = {
    _E.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED,
    _E.EVENT_TYPE_WORKFLOW_TASK_FAILED,
    _E.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT,
}
ACTIVITY_ENDS = {
    _E.EVENT_TYPE_ACTIVITY_TASK_COMPLETED: "activity_task_completed_event_attributes",
    _E.EVENT_TYPE_ACTIVITY_TASK_FAILED: "activity_task_failed_event_attributes",
    _E.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT: "activity_task_timed_out_event_attributes",
    _E.EVENT_TYPE_ACTIVITY_TASK_CANCELED: "activity_task_canceled_event_attributes",
}
CHILD_ENDS = {
    _E.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_FAILED: "start_child_workflow_execution_failed_event_attributes",
    _E.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_COMPLETED: "child_workflow_execution_completed_event_attributes",
    _E.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_FAILED: "child_workflow_execution_failed_event_attributes",
    _E.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_CANCELED: "child_workflow_execution_canceled_event_attributes",
    _E.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_TIMED_OUT: "child_workflow_execution_timed_out_event_attributes",
    _E.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_TERMINATED: "child_workflow_execution_terminated_event_attributes",
}
CLOSES = {
    _E.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED,
    _E.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED,
    _E.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED,
    _E.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED,
    _E.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT,
}
_WORK = {"call_model", "call_tool", "read_new_messages"}
"""Activities that move the turn on. A notification on its way does not keep a turn from waiting."""


async def pages(
    client: Client, turn_id: str, *, run_id: str | None = None, wait: bool = True
) -> AsyncIterator[list[HistoryEvent]]:
    """Follow the history of a turn until it has closed: from the present run on, or from a given one.

    Without `wait` it ends with what there is.

    Goes on over continue-as-new and reset, the new run's history from its beginning. Events come as the server groups
    them, so that what one workflow task did is never seen half.
    """
    while True:
        following = None
        events = client.get_workflow_handle(turn_id, run_id=run_id).fetch_history_events(wait_new_event=wait)
        while True:
            with rpc.explained(turn_id):
                await events.fetch_next_page()
            page = list(events.current_page or ())
            if page:
                following = await _next_run(client, turn_id, page[-1])
                # What a reset breaks off has not ended: the end is not told.
                yield page if not following or _continues(page[-1]) else page[:-1]
            if events.next_page_token is None:
                break
        if not following:
            return
        run_id = following


async def _next_run(client: Client, turn_id: str, last: HistoryEvent) -> str | None:
    if _continues(last):
        return last.workflow_execution_continued_as_new_event_attributes.new_execution_run_id
    if last.event_type != _E.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED:
        return None
    return await successor(client, turn_id)


async def successor(client: Client, turn_id: str) -> str | None:
    """Return the run that a reset put in the place of a terminated one, or None where there is none."""
    description = await rpc.described(client, turn_id)
    return None if description.status is WorkflowExecutionStatus.TERMINATED else description.run_id


def _continues(event: HistoryEvent) -> bool:
    return event.event_type == _E.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW


@dataclass
class Progress:
    """What a run is busy with, as its history tells."""

    task_waits: bool = True
    working: set[int] = field(default_factory=set)
    children: dict[int, str] = field(default_factory=dict)
    started: set[str] = field(default_factory=set)
    closed: bool = False
    moved: bool = False
    """Something happened since the last look, after which approvals may be different."""

    @property
    def quiet(self) -> bool:
        """Nothing of this run itself runs or is about to."""
        return not self.task_waits and not self.working and not self.closed

    @property
    def idle(self) -> bool:
        """Quiet, and no child is open either."""
        return self.quiet and not self.children

    def feed(self, page: list[HistoryEvent]) -> None:
        """Take in new events."""
        for event in page:
            self._feed(event)
        self.moved = True

    def _feed(self, event: HistoryEvent) -> None:
        kind = event.event_type
        if event.event_id == 1:
            # A new run tells all that is open in it.
            self.working.clear()
            self.children.clear()
        if kind in _TASK_WAITS:
            self.task_waits = True
        elif kind == _E.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
            self.task_waits = False
        elif kind in CLOSES:
            self.closed = True
        elif kind in ACTIVITY_ENDS:
            self.working.discard(getattr(event, ACTIVITY_ENDS[kind]).scheduled_event_id)
        elif kind in CHILD_ENDS:
            self.children.pop(getattr(event, CHILD_ENDS[kind]).initiated_event_id, None)
        else:
            self._starts(event)

    def _starts(self, event: HistoryEvent) -> None:
        if event.event_type == _E.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            if event.activity_task_scheduled_event_attributes.activity_type.name in _WORK:
                self.working.add(event.event_id)
        elif event.event_type == _E.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED:
            initiated = event.start_child_workflow_execution_initiated_event_attributes
            self.children[event.event_id] = initiated.workflow_id
        elif event.event_type == _E.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_STARTED:
            started = event.child_workflow_execution_started_event_attributes
            self.started.add(started.workflow_execution.workflow_id)
        elif event.event_type == _E.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW:
            self.task_waits = True


class TurnWatch:
    """Follows a turn and its open subagents, and says when to look.

    Use it as an async context manager and iterate: each item says that something happened. The iteration ends when the
    turn has closed.
    """

    def __init__(self, client: Client, turn_id: str) -> None:
        self._client = client
        self._turn_id = turn_id
        self._runs: dict[str, Progress] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._news = asyncio.Event()

    async def __aenter__(self) -> TurnWatch:
        self._follow(self._turn_id)
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    @property
    def quiet(self) -> bool:
        """Nothing runs in the turn or in any of its open subagents: if something is open, it is with people."""
        return self._quiet(self._turn_id)

    def __aiter__(self) -> AsyncIterator[None]:
        return self._looks()

    async def _looks(self) -> AsyncIterator[None]:
        """Yield when a run has come to rest after something happened in it."""
        while True:
            self._check()
            if self._runs[self._turn_id].closed:
                return
            self._news.clear()
            moved = [run for run in self._runs.values() if run.moved and not run.task_waits]
            if not moved:
                await self._news.wait()
                continue
            for run in moved:
                run.moved = False
            yield

    def _quiet(self, turn_id: str) -> bool:
        run = self._runs.get(turn_id)
        return run is not None and run.quiet and all(self._quiet(child) for child in run.children.values())

    def _check(self) -> None:
        """Raise what went wrong while following the turn itself; a subagent's history may be gone already."""
        task = self._tasks[self._turn_id]
        if task.done() and not self._runs[self._turn_id].closed:
            task.result()
            self._runs[self._turn_id].closed = True

    def _follow(self, turn_id: str) -> None:
        run = self._runs[turn_id] = Progress()
        task = self._tasks[turn_id] = asyncio.create_task(self._read(turn_id, run))
        wake: Callable[[asyncio.Task[None]], None] = lambda _: self._news.set()  # noqa: E731
        task.add_done_callback(wake)

    async def _read(self, turn_id: str, run: Progress) -> None:
        async for page in pages(self._client, turn_id):
            run.feed(page)
            for child in set(run.children.values()) & run.started - self._tasks.keys():
                self._follow(child)
            self._news.set()
