"""Following a turn live, at no cost to the run: no update slot, no event in its history, any number of readers.

Steps and tools come from the history, which the server holds open for us. Approvals come from a query, made when the
history has moved. Tokens are read from the heartbeats of the model call, so they arrive about once a second.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from temporalio.api.common.v1 import Payloads
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client

from turngate import rpc
from turngate.contracts import Approval, Json, ModelInput, ToolInput, TurnResult, text_of
from turngate.errors import NoWorkerError, ServerError, TurngateError
from turngate.waiting import ACTIVITY_ENDS, CHILD_ENDS, CLOSES, pages

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

TOKEN_INTERVAL = 0.25
"""Seconds between two looks at a model call that streams."""
_QUERY_LIMIT = 2.0
_ROOM = 1_000_000
"""Events that may share one place in history: approvals, votes and results of one workflow task."""

_E = EventType


@dataclass(frozen=True)
class Event:
    """Something that happened in a turn.

    `data` by type: token {step, text}; step_started {step}; step_ended {step, tool_calls}; tool_started {tool_call_id,
    name, args, turn_id of a subagent}; tool_ended {..., outcome, error}; approval_* the Approval; message {role, text,
    message}; turn_ended {status, output, reason}.

    `offset` grows along the history and is the same for every reader: go on at `offset + 1` after a broken connection.
    Tokens carry the offset of their step's beginning.
    """

    type: EventName
    offset: int
    data: Json = field(default_factory=dict)
    at: datetime | None = None

    def to_json(self) -> Json:
        """Return plain JSON."""
        return {
            "type": self.type,
            "offset": self.offset,
            "at": self.at.isoformat() if self.at else None,
            "data": self.data,
        }


async def stream(client: Client, turn_id: str, *, offset: int = 0) -> AsyncIterator[Event]:
    """Yield the events of a turn from `offset` on until it has ended."""
    reader = _Reader(client, turn_id)
    pages_: asyncio.Queue[list[HistoryEvent] | BaseException | None] = asyncio.Queue()
    task = asyncio.create_task(_pump(client, turn_id, pages_))
    try:
        while True:
            try:
                page = await asyncio.wait_for(pages_.get(), TOKEN_INTERVAL if reader.model_talks else None)
            except TimeoutError:
                for event in await reader.tokens():
                    yield event
                continue
            if page is None:
                return
            if isinstance(page, BaseException):
                raise page
            for event in await reader.read(page):
                if event.offset >= offset:
                    yield event
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _pump(client: Client, turn_id: str, out: asyncio.Queue[list[HistoryEvent] | BaseException | None]) -> None:
    try:
        async for page in pages(client, turn_id, run_id=await _first_run(client, turn_id)):
            out.put_nowait(page)
        out.put_nowait(None)
    except TurngateError as error:
        out.put_nowait(error)


async def _first_run(client: Client, turn_id: str) -> str | None:
    """The run that a turn began with, so that what came before a continue-as-new is told as well."""
    with rpc.explained(turn_id):
        description = await client.get_workflow_handle(turn_id).describe(rpc_timeout=rpc.RPC_LIMIT)
    first = description.raw_info.first_run_id
    if not first or first == description.run_id:
        return None
    try:
        with rpc.explained(turn_id):
            await client.get_workflow_handle(turn_id, run_id=first).describe(rpc_timeout=rpc.RPC_LIMIT)
    except TurngateError:
        return None
    return first


@dataclass
class _Call:
    """An activity or subagent that runs."""

    kind: str
    data: Json
    activity_id: str = ""
    streams: bool = False
    sent: str = ""


class _Reader:
    """Turns history into events."""

    def __init__(self, client: Client, turn_id: str) -> None:
        self._client = client
        self._turn_id = turn_id
        self._calls: dict[int, _Call] = {}
        self._tasks: list[tuple[datetime, int]] = []
        self._told: set[int] = set()
        self._origins: set[str] = set()
        self._copied = False
        self._base = 0
        self._last = 0

    @property
    def model_talks(self) -> bool:
        """Whether a model call runs whose words may be read while they come."""
        return any(call.streams for call in self._calls.values())

    async def read(self, page: list[HistoryEvent]) -> list[Event]:
        """Return the events of a page of history, in their order."""
        found: list[Event] = []
        for event in page:
            found += await self._events(event)
        if any(event.event_type == _E.EVENT_TYPE_WORKFLOW_TASK_COMPLETED for event in page) or found:
            found += await self._approvals()
        return sorted(found, key=lambda event: event.offset)

    async def tokens(self) -> list[Event]:
        """Read what the running model call has said so far from its last heartbeat."""
        handle = self._client.get_workflow_handle(self._turn_id)
        try:
            with rpc.explained(self._turn_id):
                description = await handle.describe(rpc_timeout=rpc.RPC_LIMIT)
        except ServerError:
            return []
        beats = {one.activity_id: one.heartbeat_details for one in description.raw_description.pending_activities}
        found: list[Event] = []
        for scheduled, call in self._calls.items():
            if call.streams and call.activity_id in beats:
                details = await self._decoded(beats[call.activity_id])
                text = details.get("text") if isinstance(details, dict) else None
                found += self._spoken(call, scheduled, text if isinstance(text, str) else "")
        return found

    # --- One event of history ------------------------------------------------------------------------------------

    async def _events(self, event: HistoryEvent) -> list[Event]:
        kind = event.event_type
        if kind == _E.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
            self._begin(event)
        self._last = self._base + event.event_id
        if self._copied:
            self._copied = not _is_reset(event)
            return []
        if kind == _E.EVENT_TYPE_WORKFLOW_TASK_STARTED:
            self._tasks.append((_time(event), self._last))
        elif kind == _E.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            return await self._activity_started(event)
        elif kind == _E.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED:
            return await self._subagent_started(event)
        elif kind in ACTIVITY_ENDS:
            return await self._activity_ended(event)
        elif kind in CHILD_ENDS:
            return await self._subagent_ended(event)
        elif kind in CLOSES:
            return await self._closed(event)
        return []

    def _begin(self, event: HistoryEvent) -> None:
        """A run begins. What a reset has copied into it was told before."""
        self._base = self._last
        self._calls.clear()
        origin = event.workflow_execution_started_event_attributes.original_execution_run_id
        self._copied = origin in self._origins
        self._origins.add(origin)

    async def _activity_started(self, event: HistoryEvent) -> list[Event]:
        scheduled = event.activity_task_scheduled_event_attributes
        name = scheduled.activity_type.name
        given = await self._decoded(scheduled.input)
        given = given if isinstance(given, dict) else {}
        if name == "call_model":
            step = ModelInput.model_validate(given)
            call = _Call("step", {"step": step.step}, scheduled.activity_id, streams=step.stream)
        elif name == "call_tool":
            asked = ToolInput.model_validate(given)
            data = {"tool_call_id": asked.tool_call_id, "name": asked.name, "args": asked.args, "number": asked.number}
            call = _Call("tool", data, scheduled.activity_id)
        else:
            return []
        self._calls[event.event_id] = call
        return [self._event("step_started" if call.kind == "step" else "tool_started", event, call.data)]

    async def _activity_ended(self, event: HistoryEvent) -> list[Event]:
        ended = getattr(event, ACTIVITY_ENDS[event.event_type])
        call = self._calls.pop(ended.scheduled_event_id, None)
        if call is None:
            return []
        completed = event.event_type == _E.EVENT_TYPE_ACTIVITY_TASK_COMPLETED
        result = await self._decoded(ended.result) if completed else None
        result = result if isinstance(result, dict) else {}
        if call.kind == "step":
            return list(self._step_ended(event, call, result, ended.scheduled_event_id))
        return list(self._tool_ended(event, call, result, _tool_outcome(completed, result)))

    def _step_ended(self, event: HistoryEvent, call: _Call, result: Json, scheduled: int) -> Iterator[Event]:
        message = result.get("message") or {}
        text = text_of(message) if message else ""
        if call.streams:
            yield from self._spoken(call, scheduled, text)
        data = {**call.data, "tool_calls": message.get("tool_calls", []), "failed": not message}
        yield self._event("step_ended", event, data)
        if message:
            yield self._event("message", event, {"role": "ai", "text": text, "message": message}, 1)

    def _tool_ended(self, event: HistoryEvent, call: _Call, result: Json, outcome: str) -> Iterator[Event]:
        yield self._event("tool_ended", event, {**call.data, "outcome": outcome, "error": result.get("error")})
        message = result.get("message")
        if message:
            yield self._event("message", event, {"role": "tool", "text": text_of(message), "message": message}, 1)

    async def _subagent_started(self, event: HistoryEvent) -> list[Event]:
        initiated = event.start_child_workflow_execution_initiated_event_attributes
        given = await self._decoded(initiated.input)
        parent = given.get("parent") if isinstance(given, dict) else None
        call_id = (parent or {}).get("tool_call_id")
        data = {"tool_call_id": call_id, "name": "task", "turn_id": initiated.workflow_id}
        call = self._calls[event.event_id] = _Call("tool", data)
        return [self._event("tool_started", event, call.data)]

    async def _subagent_ended(self, event: HistoryEvent) -> list[Event]:
        call = self._calls.pop(getattr(event, CHILD_ENDS[event.event_type]).initiated_event_id, None)
        if call is None:
            return []
        completed = event.event_type == _E.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_COMPLETED
        return list(self._tool_ended(event, call, {}, "succeeded" if completed else "failed"))

    async def _closed(self, event: HistoryEvent) -> list[Event]:
        kind, approvals = event.event_type, []
        if kind == _E.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED:
            result = await self._decoded(event.workflow_execution_completed_event_attributes.result)
            ended = TurnResult.model_validate(result if isinstance(result, dict) else {})
            data = {"status": ended.status.value, "output": ended.output}
            # Here no worker is needed to tell how the last approvals were settled.
            approvals = self._compared(ended.approvals)
        elif kind == _E.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED:
            failure = event.workflow_execution_failed_event_attributes.failure
            data = {"status": "failed", "reason": failure.message}
        elif kind == _E.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED:
            reason = event.workflow_execution_terminated_event_attributes.reason
            data = {"status": "terminated", "reason": reason}
        else:
            data = {"status": "cancelled" if kind == _E.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED else "timed_out"}
        return [*approvals, self._event("turn_ended", event, data, _ROOM - 1)]

    def _spoken(self, call: _Call, scheduled: int, text: str) -> list[Event]:
        """The new part of what the model says; nothing where a retry has begun anew and said less so far."""
        if not text.startswith(call.sent) or len(text) == len(call.sent):
            return []
        new, call.sent = text[len(call.sent) :], text
        offset = (self._base + scheduled) * _ROOM
        return [Event("token", offset, {**call.data, "text": new}, datetime.now(UTC))]

    # --- Approvals -----------------------------------------------------------------------------------------------

    async def _approvals(self) -> list[Event]:
        """Ask for the approvals and tell what is new; without a worker it is told after the next movement."""
        found: list[Event] = []
        with contextlib.suppress(NoWorkerError, ServerError):
            async for page in rpc.paged(self._client, self._turn_id, "approvals", limit=_QUERY_LIMIT):
                found += self._compared([Approval.model_validate(entry) for entry in page.get("approvals", [])])
        return found

    def _compared(self, approvals: Iterable[Approval]) -> list[Event]:
        """Each change has its moment in the record, so every reader gives it the same place in the history."""
        found: list[Event] = []
        for approval in approvals:
            number = _number(approval)
            changes: list[tuple[EventName, datetime | None]] = [("approval_requested", approval.requested_at)]
            changes += [("approval_voted", vote.at) for vote in approval.votes]
            if approval.status != "pending":
                changes.append(("approval_resolved", approval.resolution.at if approval.resolution else None))
            for place, (name, moment) in enumerate(changes):
                key = number * 100 + (99 if name == "approval_resolved" else place)
                position = self._place(moment)
                if position is not None and key not in self._told:
                    self._told.add(key)
                    found.append(Event(name, position * _ROOM + key, approval.to_json(), moment))
        return found

    def _place(self, moment: datetime | None) -> int | None:
        """The workflow task in which it happened: workflow time is the time at which a task started.

        None while the history read so far does not reach that moment: the answer to a query may be ahead of it.
        """
        if moment is None:
            return self._last
        grain = timedelta(milliseconds=1)
        if not self._tasks or self._tasks[-1][0] < moment - grain:
            return None
        index = bisect.bisect_right(self._tasks, (moment + grain, self._last))
        return self._tasks[max(0, index - 1)][1]

    # --- Parts ---------------------------------------------------------------------------------------------------

    def _event(self, name: EventName, event: HistoryEvent, data: Json, place: int = 0) -> Event:
        return Event(name, self._last * _ROOM + place, data, _time(event))

    async def _decoded(self, payloads: Payloads) -> Any:
        """Return the only payload, or None where it can't be read here (a codec or a storage that we don't have)."""
        if not payloads.payloads:
            return None
        try:
            return (await self._client.data_converter.decode(payloads.payloads))[0]
        except Exception:  # whatever a foreign codec raises: an event without details beats no event
            return None


def _is_reset(event: HistoryEvent) -> bool:
    failed = event.workflow_task_failed_event_attributes
    return (
        event.event_type == _E.EVENT_TYPE_WORKFLOW_TASK_FAILED
        and failed.cause == WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW
    )


def _tool_outcome(completed: bool, result: Json) -> str:
    if not completed:
        return "unknown"
    kind = result.get("kind", "result")
    if kind != "result":
        return str(kind)
    return "succeeded" if result.get("succeeded", True) else "failed"


def _number(approval: Approval) -> int:
    digits = approval.id.rpartition("-")[2]
    return int(digits) if digits.isdigit() else 0


def _time(event: HistoryEvent) -> datetime:
    return event.event_time.ToDatetime(tzinfo=UTC)
