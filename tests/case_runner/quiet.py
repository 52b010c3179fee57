"""Waiting until the runs of a case are quiet: ended, or nothing scheduled and no task open."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.service import RPCError

from tests.case_runner.world import CaseError, World

_NO_PROGRESS = 45.0
"""Seconds without any change after which a run that is not quiet is given up."""
_LOOKS = 2
"""A run must be found quiet this often in a row, without a new event: what one run tells another takes a moment."""
_FIRST_TASK_DONE = 4
"""Events of a run that has begun. The server lets a run that continued as new after less than a second wait."""


@dataclass
class _Look:
    """What one look at all open runs has found."""

    busy: list[str] = field(default_factory=list)
    events: dict[str, int] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)
    parents: set[str] = field(default_factory=set)
    """Open runs that wait for a child."""


async def settle(world: World) -> None:
    """Wait until every run of the case is quiet. Without a worker nothing moves, so there is nothing to wait for."""
    loop = asyncio.get_running_loop()
    last, quiet, moved_at, pause = _Look(), 0, loop.time(), 0.02
    while world.worker is not None:
        look = await look_at(world)
        if (look.events, sorted(look.busy)) != (last.events, sorted(last.busy)):
            moved_at, quiet = loop.time(), 0
        quiet = quiet + 1 if not look.busy else 0
        if quiet >= _LOOKS:
            return
        if loop.time() - moved_at > _NO_PROGRESS:
            raise CaseError(f"not quiet after {_NO_PROGRESS:.0f} s without a change: {'; '.join(look.busy)}")
        last = look
        await asyncio.sleep(pause)
        pause = min(pause * 1.3, 0.2)


async def look_at(world: World) -> _Look:
    """Look at the runs of the case and all below them once."""
    look = _Look()
    await asyncio.gather(*(_look_into(world, run.id, look) for run in world.runs.values()))
    return look


async def _look_into(world: World, workflow_id: str, look: _Look) -> None:
    try:
        description = await world.describe(workflow_id)
    except RPCError:
        return
    look.events[workflow_id] = description.history_length
    if description.status is WorkflowExecutionStatus.CONTINUED_AS_NEW:
        look.busy.append(f"{workflow_id} continues as new")
    if description.status is not WorkflowExecutionStatus.RUNNING:
        return
    look.open.append(workflow_id)
    look.busy += _busy_with(workflow_id, description)
    children = [child.workflow_id for child in description.raw_description.pending_children]
    if children:
        look.parents.add(workflow_id)
    await asyncio.gather(*(_look_into(world, child, look) for child in children))
    look.busy += [f"{child} has ended and {workflow_id} does not know" for child in children if child not in look.open]


def _busy_with(workflow_id: str, description: WorkflowExecutionDescription) -> list[str]:
    raw = description.raw_description
    if description.history_length < _FIRST_TASK_DONE:
        return [f"{workflow_id} has not begun"]
    busy = [
        f"{workflow_id} runs {activity.activity_type.name} (attempt {activity.attempt})"
        for activity in raw.pending_activities
        if not _gave_up(activity)
    ]
    if raw.HasField("pending_workflow_task"):
        busy.append(f"{workflow_id} has a task (attempt {raw.pending_workflow_task.attempt})")
    return busy


def _gave_up(activity: PendingActivityInfo) -> bool:
    """A notification that has failed may be tried again later; nobody waits for it."""
    return activity.activity_type.name == "notify" and activity.attempt > 1
