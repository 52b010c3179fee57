"""One turn's history as events, at no cost to the run: no update slot, no event in its history, any number of readers.

Steps and tools come from the history, which the server holds open for us. Approvals, and messages too long to stand in
history, come from queries, made when the history has moved. Tokens are read from the heartbeats of the model call, so
they arrive about once a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from temporalio.api.common.v1 import Payloads
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client

from turngate import rpc
from turngate.contracts import TASK_TOOL, Json, ModelInput, ToolInput, TurnResult, text_of
from turngate.deciding import Decided, number_of
from turngate.errors import ServerError, TurngateError
from turngate.events import ROOM, Event, EventName
from turngate.saying import Said
from turngate.waiting import ACTIVITY_ENDS, CHILD_ENDS, CLOSES, pages

TOKEN_INTERVAL = 0.25
"""Seconds between two looks at a model call that streams."""
_E = EventType
_ENDS_ITSELF = {_E.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED, _E.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED}


async def first_run(client: Client, turn_id: str) -> str | None:
    """The run that a turn began with, so that what came before a continue-as-new is told as well."""
    description = await rpc.described(client, turn_id)
    first = description.raw_info.first_run_id
    if not first or first == description.run_id:
        return None
    try:
        await rpc.described(client, turn_id, run_id=first)
    except TurngateError:
        return None
    return first


async def open_subagents(client: Client, turn_id: str, offset: int) -> list[str]:
    """Return the subagents that were open at an offset of their parent."""
    base = last = 0
    found: dict[int, str] = {}
    async for page in pages(client, turn_id, run_id=await first_run(client, turn_id), wait=False):
        for event in page:
            if event.event_type == _E.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
                base = last
                found.clear()
            last = base + event.event_id
            if last * ROOM >= offset:
                return list(found.values())
            if event.event_type == _E.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_STARTED:
                began = event.child_workflow_execution_started_event_attributes
                found[began.initiated_event_id] = began.workflow_execution.workflow_id
            elif event.event_type in CHILD_ENDS:
                found.pop(getattr(event, CHILD_ENDS[event.event_type]).initiated_event_id, None)
    return list(found.values())


@dataclass
class _Call:
    """An activity or subagent that runs."""

    kind: str
    data: Json
    activity_id: str = ""
    streams: bool = False
    sent: str = ""


class TurnReader:
    """Turns history into events."""

    def __init__(self, client: Client, turn_id: str) -> None:
        self._client = client
        self._turn_id = turn_id
        self.agent = ""
        self._said = Said(client, turn_id)
        self._decided = Decided(client, turn_id)
        self._completed = 0
        self._calls: dict[int, _Call] = {}
        self._origins: set[str] = set()
        self._copied = False
        self._base = 0
        self._last = 0

    async def events(self) -> AsyncGenerator[Event]:
        """Yield the events of the turn until it has ended."""
        found: asyncio.Queue[list[HistoryEvent] | BaseException | None] = asyncio.Queue()
        task = asyncio.create_task(self._pump(found))
        try:
            while True:
                try:
                    page = await asyncio.wait_for(found.get(), TOKEN_INTERVAL if self._model_talks else None)
                except TimeoutError:
                    for event in await self._tokens():
                        yield event
                    continue
                if page is None:
                    return
                if isinstance(page, BaseException):
                    raise page
                for event in await self._read(page):
                    yield event
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @property
    def told(self) -> int | None:
        """The offset below which nothing is missing, where something is for want of a worker."""
        return min([*self._said.missing, *self._decided.missing], default=None)

    async def _pump(self, out: asyncio.Queue[list[HistoryEvent] | BaseException | None]) -> None:
        try:
            async for page in pages(self._client, self._turn_id, run_id=await first_run(self._client, self._turn_id)):
                out.put_nowait(page)
            out.put_nowait(None)
        except TurngateError as error:
            out.put_nowait(error)

    @property
    def _model_talks(self) -> bool:
        """Whether a model call runs whose words may be read while they come."""
        return any(call.streams for call in self._calls.values())

    async def _read(self, page: list[HistoryEvent]) -> list[Event]:
        """Return the events of a page of history, in their order."""
        found: list[Event] = []
        since = self._last
        for event in page:
            found += await self._events(event)
        if found or any(event.event_type == _E.EVENT_TYPE_WORKFLOW_TASK_COMPLETED for event in page):
            found += await self._decided.events(since)
        found += await self._said.events()
        return sorted(found, key=lambda event: event.offset)

    async def _tokens(self) -> list[Event]:
        """Read what the running model call has said so far from its last heartbeat."""
        try:
            description = await rpc.described(self._client, self._turn_id)
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
            await self._begin(event)
        self._last = self._base + event.event_id
        if not self._copied:
            return await self._told_by(event)
        # What a reset has copied was told before; what it left open goes on here.
        await self._told_by(event)
        self._said.forget()
        self._copied = not _is_reset(event)
        return []

    async def _told_by(self, event: HistoryEvent) -> list[Event]:
        kind = event.event_type
        if kind == _E.EVENT_TYPE_WORKFLOW_TASK_STARTED and not self._copied:
            self._decided.task_started(_time(event), self._last)
        elif kind == _E.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
            self._completed = self._last
        elif kind == _E.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            return await self._activity_started(event)
        elif kind == _E.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED:
            await self._subagent_wanted(event)
        elif kind == _E.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_STARTED:
            return self._subagent_started(event)
        elif kind in ACTIVITY_ENDS:
            return await self._activity_ended(event)
        elif kind in CHILD_ENDS:
            return self._subagent_ended(event)
        elif kind in CLOSES:
            return await self._closed(event)
        return []

    async def _begin(self, event: HistoryEvent) -> None:
        """A run begins: the first one, the next one of a long turn, or one by a reset, which begins all over."""
        self._base = self._last
        self._calls.clear()
        started = event.workflow_execution_started_event_attributes
        origin = started.original_execution_run_id
        self._copied = origin in self._origins
        self._origins.add(origin)
        if self._copied:
            self._said.begins_again()
        given = await self._decoded(started.input)
        asked = given.get("request", given) if isinstance(given, dict) else None
        if isinstance(asked, dict):
            self.agent = str(asked.get("agent") or self.agent)
            self._said.began(asked["input"] if isinstance(asked.get("input"), str) else None)

    async def _activity_started(self, event: HistoryEvent) -> list[Event]:
        scheduled = event.activity_task_scheduled_event_attributes
        name = scheduled.activity_type.name
        given = await self._decoded(scheduled.input)
        given = given if isinstance(given, dict) else {}
        if name == "call_model":
            step = ModelInput.model_validate(given)
            call = _Call("step", {"step": step.step}, scheduled.activity_id, streams=step.stream)
            self._said.at_model_call(step.conversation, step.step, self._task_end, _time(event))
        elif name == "call_tool" and not given.get("judge_only"):
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
        return [self._tool_ended(event, call, result, _tool_outcome(completed, result))]

    def _step_ended(self, event: HistoryEvent, call: _Call, result: Json, scheduled: int) -> Iterator[Event]:
        message = result.get("message") or {}
        text = text_of(message) if message else ""
        if call.streams:
            yield from self._spoken(call, scheduled, text)
        data = {**call.data, "tool_calls": message.get("tool_calls", []), "failed": not message}
        yield self._event("step_ended", event, data)
        if message:
            self._said.by_model()
            yield self._event("message", event, {"role": "ai", "text": text, "message": message}, 1)

    def _tool_ended(self, event: HistoryEvent, call: _Call, result: Json, outcome: str) -> Event:
        message = result.get("message")
        told = {"outcome": outcome, "error": result.get("error"), "text": text_of(message) if message else None}
        return self._event("tool_ended", event, {**call.data, **told})

    async def _subagent_wanted(self, event: HistoryEvent) -> None:
        initiated = event.start_child_workflow_execution_initiated_event_attributes
        given = await self._decoded(initiated.input)
        given = given if isinstance(given, dict) else {}
        asked = given.get("request") or {}
        data = {
            "tool_call_id": (given.get("parent") or {}).get("tool_call_id"),
            "name": TASK_TOOL,
            "args": {
                "description": asked.get("input", ""),
                "subagent_type": str(asked.get("agent", "")).rpartition("/")[2],
            },
            "number": number_of(initiated.workflow_id),
            "turn_id": initiated.workflow_id,
        }
        self._calls[event.event_id] = _Call("tool", data)

    def _subagent_started(self, event: HistoryEvent) -> list[Event]:
        """Only now can it be followed."""
        call = self._calls.get(event.child_workflow_execution_started_event_attributes.initiated_event_id)
        return [self._event("tool_started", event, call.data)] if call else []

    def _subagent_ended(self, event: HistoryEvent) -> list[Event]:
        call = self._calls.pop(getattr(event, CHILD_ENDS[event.event_type]).initiated_event_id, None)
        if call is None:
            return []
        completed = event.event_type == _E.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_COMPLETED
        return [self._tool_ended(event, call, {}, "succeeded" if completed else "failed")]

    async def _closed(self, event: HistoryEvent) -> list[Event]:
        kind, approvals = event.event_type, []
        if kind == _E.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED:
            result = await self._decoded(event.workflow_execution_completed_event_attributes.result)
            ended = TurnResult.model_validate(result if isinstance(result, dict) else {})
            data = {"status": ended.status.value, "output": ended.output}
            complete = not any(name.startswith("approvals") for name in ended.left_out)
            approvals = self._decided.at_end(ended.approvals, complete=complete)
            self._said.at_end(ended, self._task_end, _time(event))
        elif kind == _E.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED:
            failure = event.workflow_execution_failed_event_attributes.failure
            data = {"status": "failed", "reason": failure.message}
        elif kind == _E.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED:
            reason = event.workflow_execution_terminated_event_attributes.reason
            data = {"status": "terminated", "reason": reason}
        else:
            data = {"status": "cancelled" if kind == _E.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED else "timed_out"}
        if kind in _ENDS_ITSELF:
            self._said.at_end(None, self._task_end, _time(event))
        return [*approvals, self._event("turn_ended", event, data, ROOM - 1)]

    def _spoken(self, call: _Call, scheduled: int, text: str) -> list[Event]:
        """The new part of what the model says; nothing where a retry has begun anew and said less so far."""
        if not text.startswith(call.sent) or len(text) == len(call.sent):
            return []
        new, call.sent = text[len(call.sent) :], text
        offset = (self._base + scheduled) * ROOM
        return [Event("token", offset, {**call.data, "text": new}, datetime.now(UTC))]

    # --- Parts ---------------------------------------------------------------------------------------------------

    @property
    def _task_end(self) -> int:
        """The offset right behind the last workflow task, before all that it began: there its messages stand."""
        return self._completed * ROOM

    def _event(self, name: EventName, event: HistoryEvent, data: Json, place: int = 0) -> Event:
        return Event(name, self._last * ROOM + place, data, _time(event))

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


def _time(event: HistoryEvent) -> datetime:
    return event.event_time.ToDatetime(tzinfo=UTC)
