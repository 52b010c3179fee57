"""Many calls in one step, many steps in one turn: on the real server, against its real limits.

Kept short; `make full` makes the long turn as long as it should bear, and `python -m bench.scale` does the same with
thousands of paused turns.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client

from bench.pages import page
from bench.scripted import agents
from bench.starting import sandbox_seconds
from tests.sizes import size
from turngate import DevServer, Paused, TurngateClient, TurnResult, build_worker
from turngate.contracts import json_size
from turngate.testing import dev_server

STEPS = size(60, 1000)


@pytest.fixture(scope="module")
async def server() -> AsyncIterator[DevServer]:
    """Run one server for the module."""
    async with dev_server() as running:
        yield running


@asynccontextmanager
async def worker(server: DevServer) -> AsyncIterator[TurngateClient]:
    """Run a worker with the agents of the bench, and return the client of its turns."""
    client, queue = await server.client(), f"scale-{uuid.uuid4().hex[:8]}"
    async with build_worker(client, agents(), task_queue=queue):
        yield TurngateClient(client, task_queue=queue)


async def history_of(client: Client, turn_id: str) -> list[HistoryEvent]:
    """Return the events of all runs of a turn, the latest first, and see that no server task failed."""
    events: list[HistoryEvent] = []
    run_id: str | None = None
    while run_id != "":
        handle = client.get_workflow_handle(turn_id, run_id=run_id)
        run = [event async for event in handle.fetch_history_events()]
        events += run
        run_id = run[0].workflow_execution_started_event_attributes.continued_execution_run_id
    assert not [event for event in events if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED]
    return events


def scheduled(events: list[HistoryEvent]) -> Counter[str]:
    """Count the activities by name."""
    found = (event.activity_task_scheduled_event_attributes.activity_type.name for event in events)
    return Counter(name for name in found if name)


def answers(result: TurnResult) -> list[str]:
    """Return the tool results of the turn, in their order."""
    return [message["content"] for message in result.messages or () if message["type"] == "tool"]


@pytest.mark.server
async def test_56_gated_calls_of_one_step(server: DevServer) -> None:
    """All wait, some are decided by themselves and the rest by one request; each runs once, answered in call order."""
    async with worker(server) as client:
        found = await client.run_turn("careful", "56")
        assert isinstance(found, Paused)
        ids = [approval.id for approval in found.approvals]
        for approval_id in reversed(ids[:6]):
            await client.approve(approval_id)
        await client.decide({"decisions": [{"approval_id": one, "type": "approve"} for one in ids[6:]]})
        result = await found.turn.result()
        assert answers(result) == [page(number) for number in range(56)]
        assert [one.id for one in result.approvals] == ids
        events = await history_of(client.temporal, found.turn.id)
        assert scheduled(events) == {"call_model": 2, "call_tool": 56}


@pytest.mark.server
async def test_100_parallel_calls(server: DevServer) -> None:
    """All start at once; their 400 KB of results reach the model in call order."""
    async with worker(server) as client:
        result = await client.run_turn("parallel", "100")
        assert isinstance(result, TurnResult)
        assert (result.status, result.steps) == ("completed", 2)
        assert answers(result) == [page(number) for number in range(100)]


@pytest.mark.server
@pytest.mark.slow
async def test_a_turn_of_many_steps(server: DevServer) -> None:
    """History holds what was said, once, and grows with it; the result says where the rest is."""
    async with worker(server) as client:
        turn = await client.start_turn("reader", str(STEPS))
        result = await turn.result()
        assert (result.status, result.steps, result.new_messages) == ("completed", STEPS + 1, 2 * STEPS + 1)
        said = await turn.messages()
        assert len(said) == 2 * STEPS + 2
        events = await history_of(client.temporal, turn.id)
        assert scheduled(events) == {"call_model": STEPS + 1, "call_tool": STEPS}
        size, bytes_said = sum(event.ByteSize() for event in events), json_size(said)
        print(f"{STEPS} steps: {size} bytes of history for {bytes_said} bytes said")
        assert size <= 3 * bytes_said


@pytest.mark.server
async def test_arguments_travel_by_reference_only_where_one_task_holds_too_many(server: DevServer) -> None:
    """What earlier steps had in their arguments takes no room of a later one's: each query costs time and money."""
    async with worker(server) as client:
        turn = await client.start_turn("writer", "24")
        assert (await turn.result()).status == "completed"
        inputs = [
            event.activity_task_scheduled_event_attributes.input.payloads[0].data
            for event in await history_of(client.temporal, turn.id)
            if event.activity_task_scheduled_event_attributes.activity_type.name == "call_tool"
        ]
        assert len(inputs) == 24
        assert all(b'"args"' in data for data in inputs)


@pytest.mark.slow
def test_workflows_load_quickly() -> None:
    """Every start of a worker loads and checks them."""
    seconds = sandbox_seconds(2)
    print(f"turngate.workflows: {seconds:.3f} s of processor time to load and to be checked by the SDK")
    assert seconds < 0.3
