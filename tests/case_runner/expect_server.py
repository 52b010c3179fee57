"""Expectations about what the server holds: histories, tasks, payloads, answers to queries."""

from __future__ import annotations

import json
import time
from typing import Any

from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowExecutionStatus

from tests.case_runner.facts import Facts
from tests.case_runner.matching import Problems, match
from tests.case_runner.tree import all_workflows, history, runs_of_chain
from tests.case_runner.world import World, bounded

Json = dict[str, Any]
_AT_ONCE = 5.0
# The server took new events into account, or somebody reset the run: no fault of the code that ran.
_HARMLESS = (
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND,
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW,
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_FORCE_CLOSE_COMMAND,
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_STICKY_TASK_QUEUE,
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_UPDATE,
)


async def server(facts: Facts, expected: Json) -> Problems:
    """See README: alive, task_failures, history, runs, activities, query_under, strict_json."""
    problems: Problems = []
    for key, wanted in expected.items():
        problems += await _CHECKS[key](facts, wanted)
    return problems


async def _alive(facts: Facts, wanted: bool) -> Problems:
    turn = await facts.latest_turn()
    if (await facts.world.describe(turn)).status is not WorkflowExecutionStatus.RUNNING:
        return ["server: the run has ended"]
    began = time.monotonic()
    await bounded(facts.world.temporal.get_workflow_handle(turn).query("status"), _AT_ONCE)
    took = time.monotonic() - began
    return [f"server: the run needed {took:.1f} s for an answer"] if took > _AT_ONCE else []


async def _task_failures(facts: Facts, wanted: int) -> Problems:
    found = await task_failures(facts.world, [await facts.latest_turn()])
    return [] if len(found) == wanted else [f"server: expected {wanted} failed tasks, found {found}"]


async def task_failures(world: World, workflow_ids: list[str]) -> list[str]:
    """Return what made workflow tasks of these runs fail."""
    found = []
    for workflow_id in workflow_ids:
        async for event in history(world, workflow_id):
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
                failed = event.workflow_task_failed_event_attributes
                if failed.cause not in _HARMLESS:
                    found.append(f"{workflow_id}: {failed.failure.message[:500] or failed.cause}")
    return found


async def _history(facts: Facts, wanted: Json) -> Problems:
    events = [event async for event in history(facts.world, await facts.latest_turn())]
    problems: Problems = []
    total = sum(event.ByteSize() for event in events)
    if total > wanted.get("max_bytes", total):
        problems.append(f"server: the history has {total} bytes, more than {wanted['max_bytes']}")
    if "growth" in wanted:
        growth = wanted["growth"]
        first, last = (_bytes_until(events, growth[key]) for key in ("from_step", "to_step"))
        if last > first * growth["max_ratio"]:
            problems.append(f"server: {first} bytes at step {growth['from_step']}, {last} at {growth['to_step']}")
    return problems


def _bytes_until(events: list[HistoryEvent], step: int) -> int:
    """Return the size of the history when the n-th model call was scheduled."""
    total = steps = 0
    for event in events:
        total += event.ByteSize()
        steps += _activity_type(event) == "call_model"
        if steps >= step:
            break
    return total


def _activity_type(event: HistoryEvent) -> str | None:
    if event.event_type != EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
        return None
    return str(event.activity_task_scheduled_event_attributes.activity_type.name)


async def _query_under(facts: Facts, wanted: dict[str, int]) -> Problems:
    problems: Problems = []
    for name, limit in wanted.items():
        largest = await _largest_page(facts, name)
        if largest > limit:
            problems.append(f"server: an answer to {name} has {largest} bytes, more than {limit}")
    return problems


async def _largest_page(facts: Facts, name: str) -> int:
    asked = facts.run.id if facts.run.is_thread else await facts.latest_turn()
    handle = facts.world.temporal.get_workflow_handle(asked)
    page: Json = await bounded(handle.query(name))
    largest = 0
    while True:
        largest = max(largest, len(json.dumps(page, ensure_ascii=False).encode()))
        following = page.get("next")
        if following is None:
            return largest
        page = await bounded(handle.query(name, {"start": following}))


async def _runs(facts: Facts, wanted: Json) -> Problems:
    chain = await runs_of_chain(facts.world, await facts.latest_turn())
    return (
        [f"server: expected at least {wanted['at_least']} runs, found 1"]
        if len(chain) < wanted.get("at_least", 0)
        else []
    )


async def _activities(facts: Facts, wanted: dict[str, int]) -> Problems:
    types = [_activity_type(event) async for event in history(facts.world, await facts.latest_turn())]
    return match(wanted, {name: types.count(name) for name in wanted}, "server.activities")


async def _strict_json(facts: Facts, wanted: bool) -> Problems:
    problems: Problems = []
    for workflow_id in await all_workflows(facts.world):
        async for event in history(facts.world, workflow_id):
            if wanted and any(_is_loose(payload) for payload in _payloads(event)):
                problems.append(f"server: event {event.event_id} of {workflow_id} holds NaN or Infinity")
    return problems


def _payloads(message: Message) -> list[Payload]:
    if isinstance(message, Payload):
        return [message]
    found: list[Payload] = []
    for descriptor, value in message.ListFields():
        if descriptor.message_type is None:
            continue
        if descriptor.message_type.GetOptions().map_entry:
            value = [one for one in value.values() if isinstance(one, Message)]
        for one in value if not isinstance(value, Message) else [value]:
            found += _payloads(one)
    return found


def _is_loose(payload: Payload) -> bool:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    if payload.metadata.get("encoding") not in (b"json/plain", b"json/protobuf"):
        return False
    try:
        json.loads(payload.data, parse_constant=refuse)
    except ValueError:
        return True
    return False


_CHECKS: dict[str, Any] = {
    "alive": _alive,
    "task_failures": _task_failures,
    "history": _history,
    "query_under": _query_under,
    "runs": _runs,
    "activities": _activities,
    "strict_json": _strict_json,
}
