"""What the gate costs in history, counted on the real server against a hand-written workflow that does the same."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from langchain_core.tools import tool
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Worker

from bench.raw_temporal import RawTurn, raw_model, raw_tool
from turngate import Agent, TurngateClient, build_worker
from turngate.testing import ScriptedModel, dev_server

RUNS = 5
CALL = {"tool_calls": [{"id": "c1", "name": "send_mail", "args": {"to": "a@x.test", "body": "hi"}}]}


@tool
def send_mail(to: str, body: str) -> str:
    """Send a mail."""
    return f"mail sent to {to}"


def an_agent(name: str, **options: Any) -> Agent:
    script = [CALL, {"text": "done"}]
    return Agent(name, model=ScriptedModel(script), tools=[send_mail], interrupt_on={"send_mail": True}, **options)


async def events_of(handle: WorkflowHandle[Any, Any]) -> Counter[int]:
    return Counter([event.event_type async for event in handle.fetch_history_events()])


async def raw_turn(client: Client, number: int) -> Counter[int]:
    handle = await client.start_workflow(RawTurn.run, "go", id=f"raw-{number}", task_queue="raw")
    while not await handle.query(RawTurn.waiting):
        await asyncio.sleep(0)
    await handle.execute_update(RawTurn.decide_by_update, "approve")
    await handle.result()
    return await events_of(handle)


async def gated_turn(client: Client, agent: str) -> Counter[int]:
    turns = TurngateClient(client, task_queue="ours")
    paused = await turns.run_turn(agent, "go")
    await turns.approve(paused.approvals[0].id)
    await paused.turn.result()
    return await events_of(client.get_workflow_handle(paused.turn.id))


@pytest.mark.server
async def test_a_gated_turn_costs_at_most_four_events_more_than_by_hand() -> None:
    """One timer (started, cancelled) and two upserts; none of them with the extras off; no activity more."""
    async with dev_server() as server:
        client = await server.client()
        agents = [an_agent("full"), an_agent("bare", timeline_timer=False)]
        raw = Worker(client, task_queue="raw", workflows=[RawTurn], activities=[raw_model, raw_tool])
        async with raw, build_worker(client, agents, task_queue="ours"):
            by_hand = min([await raw_turn(client, n) for n in range(RUNS)], key=lambda found: found.total())
            full = min([await gated_turn(client, "full") for _ in range(RUNS)], key=lambda found: found.total())
            bare = min([await gated_turn(client, "bare") for _ in range(RUNS)], key=lambda found: found.total())
    upserts = EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES
    scheduled = EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
    print(f"events: by hand {by_hand.total()}, gated {full.total()}, without the timer {bare.total()}")
    assert full.total() <= by_hand.total() + 4
    assert full[upserts] == 2
    assert bare.total() - bare[upserts] <= by_hand.total()
    assert full[scheduled] == by_hand[scheduled]
