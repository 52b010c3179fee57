"""What the runs of a case hold, read through the product's client: approvals, turns, messages, histories."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.service import RPCError

from tests.case_runner.world import Run, World, bounded
from turngate.contracts import Approval

Json = dict[str, Any]


async def turn_ids(world: World, run: Run) -> list[str]:
    """Return the ids of the outermost turns of a run: itself, or the turns of the thread."""
    if not run.is_thread:
        return [run.id]
    status = await bounded(world.thread(run).status())
    return [turn["turn_id"] for turn in status["turns"] if await _exists(world, turn["turn_id"])]


async def _exists(world: World, workflow_id: str) -> bool:
    try:
        await world.describe(workflow_id)
    except RPCError:
        return False
    return True


async def approvals_of(world: World, run: Run) -> list[Approval]:
    """Return every approval that was raised in a run and below it."""
    found: list[Approval] = []
    for turn in await turn_ids(world, run):
        for each in [turn, *await descendants(world, turn)]:
            found += await bounded(world.turn(each).approvals())
    return found


async def pending_of(world: World, run: Run) -> list[Approval]:
    """Return what waits for people in a run and below it."""
    handle = world.thread(run) if run.is_thread else world.turn(run)
    return await bounded(handle.pending())


async def messages_of(world: World, run: Run) -> list[Json]:
    """Return the conversation of a run."""
    handle = world.thread(run) if run.is_thread else world.turn(run)
    messages = await bounded(handle.messages())
    return [message if isinstance(message, dict) else message.model_dump(mode="json") for message in messages]


async def descendants(world: World, turn: str) -> list[str]:
    """Return the ids of all turns below a turn, ended ones included; none where the case has no subagents."""
    agents = [world.given["agent"], *(more["agent"] for more in world.given.get("more_agents", {}).values())]
    if not any("subagents" in agent for agent in agents):
        return []
    children = [
        event.start_child_workflow_execution_initiated_event_attributes.workflow_id
        async for event in history(world, turn)
        if event.event_type == EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED
    ]
    children = [child for child in dict.fromkeys(children) if await _exists(world, child)]
    below = await asyncio.gather(*(descendants(world, child) for child in children))
    return [each for child, under in zip(children, below, strict=True) for each in [child, *under]]


async def all_workflows(world: World) -> list[str]:
    """Return the ids of all workflows of the case."""
    found: list[str] = []
    for run in world.runs.values():
        if not await _exists(world, run.id):
            continue
        turns = [turn.id async for turn in _children_of_thread(world, run)] if run.is_thread else []
        for each in [run.id, *turns]:
            found += [each, *await descendants(world, each)]
    return list(dict.fromkeys(found))


async def _children_of_thread(world: World, run: Run) -> AsyncIterator[Run]:
    async for event in history(world, run.id):
        if event.event_type == EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED:
            child = event.start_child_workflow_execution_initiated_event_attributes.workflow_id
            if await _exists(world, child):
                yield Run(child, child)


async def runs_of_chain(world: World, workflow_id: str) -> list[str]:
    """Return the ids of the executions that follow each other by continue-as-new, and the present one."""
    present = await world.describe(workflow_id)
    first = present.raw_description.workflow_execution_info.first_run_id or present.run_id
    chain: list[str] = []
    following: str | None = first
    while following:
        chain.append(following)
        handle = world.temporal.get_workflow_handle(workflow_id, run_id=following)
        following = None
        async for event in handle.fetch_history_events(page_size=1000):
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW:
                following = event.workflow_execution_continued_as_new_event_attributes.new_execution_run_id
    return chain if present.run_id in chain else [*chain, present.run_id]


async def history(world: World, workflow_id: str) -> AsyncIterator[HistoryEvent]:
    """Yield the events of all executions of a run."""
    for run_id in await runs_of_chain(world, workflow_id):
        handle = world.temporal.get_workflow_handle(workflow_id, run_id=run_id)
        async for event in handle.fetch_history_events(page_size=1000):
            yield event


async def numbered(world: World, run: Run, number: int) -> str:
    """Return the approval id with this number in a run, whether it was issued or not."""
    try:
        turn = (await turn_ids(world, run))[-1]
        description = await world.describe(turn)
    except (RPCError, IndexError):
        return f"{run.id}/000000-{number}"
    info = description.raw_description.workflow_execution_info
    return f"{turn}/{(info.first_run_id or description.run_id)[-6:]}-{number}"
