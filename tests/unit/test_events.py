"""Following turns, their subagents and threads, against a real server and worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from tests.unit.conftest import PAY_5, RunShop, call, calls, pay, read_table
from turngate.agent import Agent
from turngate.client import Paused, TurngateClient, TurnHandle
from turngate.contracts import Json
from turngate.devserver import DevServer
from turngate.errors import ConfigError, UnknownApprovalError
from turngate.events import Event
from turngate.policy import ABSTAIN, Deny
from turngate.testing import ScriptedModel, dev_server
from turngate.threads import ThreadHandle
from turngate.worker import build_worker

pytestmark = pytest.mark.server
PATIENCE = 20.0


async def paused(client: TurngateClient, **options: Any) -> Paused:
    """Start a turn and wait until people are wanted."""
    end = await client.run_turn("shop", "go", **options)
    assert isinstance(end, Paused)
    return end


# --- A turn -----------------------------------------------------------------------------------------------------------


async def collected(turn: TurnHandle, *, offset: int = 0) -> list[Event]:
    """All events of a turn that has ended or will."""
    return [event async for event in turn.events(offset=offset)]


def _short(events: list[Event]) -> list[str]:
    return [
        f"{event.type}:{event.data['tool_call_id']}" if event.data.get("tool_call_id") else event.type
        for event in events
    ]


async def test_events_tell_the_turn_live_and_again(shop: RunShop) -> None:
    """Every reader gets the same, at the same offsets; one that comes back goes on where it was."""
    both = calls(call("c1", "pay", to="acme", amount=5), call("r1", "read_table", table="t"), text="paying now")
    async with shop(both, "done") as client:
        waiting = await paused(client, stream=True)
        live = asyncio.create_task(collected(waiting.turn))
        await client.approve(waiting.approvals[0].id)
        events = await asyncio.wait_for(live, PATIENCE)
        replayed = await collected(waiting.turn)
    names = _short(events)
    began = ["message", "step_started", "token", "step_ended", "message", "approval_requested:c1"]
    assert names[: len(began)] == began
    for name in ("tool_started:r1", "tool_ended:r1", "approval_resolved:c1", "tool_started:c1", "tool_ended:c1"):
        assert names.count(name) == 1
    assert names.index("approval_resolved:c1") < names.index("tool_started:c1")
    assert names[-1] == "turn_ended"
    assert [event.offset for event in events] == [event.offset for event in replayed]
    assert [event.offset for event in events] == sorted(event.offset for event in events)
    middle = events[len(events) // 2].offset
    later = [event for event in events if event.offset > middle]
    assert [event.offset for event in replayed if event.offset > middle] == [event.offset for event in later]


async def test_every_message_is_told_once(shop: RunShop) -> None:
    """Also what a declined, denied, malformed or unknown call is answered with; a long conversation, too."""
    declined = calls(
        call("c1", "pay", to="acme", amount=5),
        call("d1", "read_table", table="denied"),
        call("u1", "no_such_tool"),
        call("m1", "pay", to="acme"),
        call("r1", "read_table", table="t"),
    )
    long = calls(call("r2", "read_table", table="t"), text="x" * 3000)
    for limit in (16384, 1000):
        options: Json = {"policy": lambda context: _denied(context.args), "inline_limit": limit}
        async with shop(declined, long, "done", **options) as client:
            given = [HumanMessage("hi"), {"type": "ai", "content": "hello"}, HumanMessage("go")]
            turn = await client.start_turn("shop", messages=given)
            waiting = await client.wait(turn)
            assert isinstance(waiting, Paused)
            live = asyncio.create_task(collected(turn))
            await client.reject(waiting.approvals[0].id, "not today")
            await turn.result()
            events = await asyncio.wait_for(live, PATIENCE)
            messages = await turn.messages()
            replayed = await collected(turn)
        assert len(messages) == 3 + 1 + 5 + 2 + 1
        assert _messages(events) == messages
        assert [event.offset for event in replayed] == [event.offset for event in events]


def _denied(args: Json) -> Any:
    return Deny("never") if args.get("table") == "denied" else ABSTAIN


def _messages(events: list[Event]) -> list[Json]:
    return [event.data["message"] for event in events if event.type == "message"]


async def test_events_go_on_over_continue_as_new() -> None:
    """A long turn has several runs; its conversation, by reference here, is told as one."""
    async with dev_server(dynamic_config=["limit.historyCount.suggestContinueAsNew=24"]) as server:
        temporal = await server.client()
        steps = [calls(call(f"r{n}", "read_table", table="t"), text=f"step {n}") for n in range(5)]
        agent = Agent("shop", model=ScriptedModel([*steps, "done"]), tools=[read_table], inline_limit=500)
        async with build_worker(temporal, [agent]):
            turn = await TurngateClient(temporal).start_turn("shop", "go")
            events = await asyncio.wait_for(collected(turn), PATIENCE)
            messages = await turn.messages()
            description = await temporal.get_workflow_handle(turn.id).describe()
        assert description.raw_info.first_run_id != description.run_id
        assert _messages(events) == messages
        last = events[len(events) // 2]
        rest = [event async for event in turn.events(offset=last.cursor)]
        assert _places(rest) == _places(events[len(events) // 2 + 1 :])


async def test_without_a_worker_the_record_of_an_ended_turn_is_enough(shop: RunShop) -> None:
    """Nothing needs to be asked of a turn that has completed."""
    async with shop(PAY_5, "done", inline_limit=0) as client:
        waiting = await paused(client)
        await client.reject(waiting.approvals[0].id)
        await waiting.turn.result()
        messages = await waiting.turn.messages()
    told = await collected(waiting.turn)
    assert _messages(told) == messages
    assert [event.type for event in told].count("approval_resolved") == 1


# --- Events of subagents ----------------------------------------------------------------------------------------------


def _task(call_id: str, to: str) -> Json:
    return call(call_id, "task", description="do it", subagent_type=to)


def _nested() -> Json:
    """An agent whose subagent `desk` has a subagent `clerk` that pays; and a subagent `page`, which only answers."""
    clerk = Agent("clerk", description="pays", model=ScriptedModel([PAY_5, "paid"]), tools=[pay])
    script = [calls(_task("k1", "clerk")), "desk done"]
    desk = Agent("desk", description="has a clerk", model=ScriptedModel(script), tools=[], subagents=[clerk])
    page = Agent("page", description="answers", model=ScriptedModel(["page done"]), tools=[])
    return {"subagents": [desk, page]}


async def test_events_of_subagents_come_along_and_again(shop: RunShop) -> None:
    """Nested ones too, live and afterwards, between the start and the end of their calls."""
    both = calls(_task("t1", "desk"), _task("t2", "page"))
    async with shop(both, "done", **_nested()) as client:
        waiting = await paused(client)
        live = asyncio.create_task(collected(waiting.turn))
        await client.approve(waiting.approvals[0].id)
        events = await asyncio.wait_for(live, PATIENCE)
        replayed = await collected(waiting.turn)
        alone = [event async for event in waiting.turn.events(subagents=False)]
    turn = waiting.turn.id
    names = [f"{'/'.join(event.path)}:{event.type}" for event in events]
    assert sorted(names) == sorted(f"{'/'.join(event.path)}:{event.type}" for event in replayed)
    assert {(event.path, event.turn_id, event.agent) for event in events} == {
        ((), turn, "shop"),
        (("t1",), f"{turn}/task-1", "shop/desk"),
        (("t1", "k1"), f"{turn}/task-1/task-1", "shop/desk/clerk"),
        (("t2",), f"{turn}/task-2", "shop/page"),
    }
    assert [name for name in names if name.startswith("t1/k1:approval")] == [
        "t1/k1:approval_requested",
        "t1/k1:approval_voted",
        "t1/k1:approval_resolved",
    ]
    assert names.index("t1/k1:turn_ended") < names.index("t1:tool_ended") < names.index("t1:turn_ended")
    assert names[-1] == ":turn_ended"
    assert [event.to_json()["data"] for event in alone] == [event.data for event in events if not event.path]
    # The turn has ended, so not even a worker is needed.
    for number, event in list(enumerate(replayed))[::4]:
        rest = [one async for one in waiting.turn.events(offset=event.cursor)]
        assert _places(rest) == _places(replayed[number + 1 :])


def _places(events: list[Event]) -> list[tuple[str, int]]:
    return sorted((event.turn_id, event.offset) for event in events)


async def test_a_number_goes_on_before_open_subagents(shop: RunShop) -> None:
    """It says nothing of them, so those that are open there are told whole; those that have ended are not."""
    steps = [calls(_task("t1", "page")), calls(_task("t2", "desk")), "done"]
    async with shop(*steps, **_nested()) as client:
        waiting = await paused(client)
        asked = [event async for event in _until(waiting.turn, "approval_requested")]
        last = max(event.offset for event in asked if not event.path)
        reader = waiting.turn.events(offset=last + 1)
        again = [await asyncio.wait_for(anext(reader), PATIENCE) for _ in range(3)]
    assert [(event.path, event.type) for event in again[:2]] == [(("t2",), "message"), (("t2",), "step_started")]


async def _until(turn: TurnHandle, kind: str) -> AsyncIterator[Event]:
    async for event in turn.events():
        yield event
        if event.type == kind:
            return


async def test_what_is_no_cursor_is_refused(shop: RunShop) -> None:
    """The error says what is one."""
    async with shop("done") as client:
        turn = await client.start_turn("shop", "go")
        with pytest.raises(ConfigError, match=r"event\.cursor"):
            await anext(turn.events(offset="yesterday"))


# --- Events of threads ------------------------------------------------------------------------------------------------


async def test_events_of_a_thread_go_on_turn_after_turn(shop: RunShop) -> None:
    """To its end, or until it is idle; resumed anywhere; what several readers read costs the thread nothing."""
    async with shop(PAY_5, "done") as client:
        thread = client.thread("told", "shop")
        first, second = await thread.send("one"), await thread.send("two")
        live = [asyncio.create_task(_told(thread)) for _ in range(3)]
        idle = asyncio.create_task(_told(thread, until="idle"))
        for sent in (first, second):
            waiting = await client.wait(await thread.started(sent))
            assert isinstance(waiting, Paused)
            await client.approve(waiting.approvals[0].id)
        told = await asyncio.wait_for(idle, PATIENCE)
        messages = await thread.messages()
        again = await asyncio.wait_for(_told(thread, until="idle"), PATIENCE)
        from_two = await asyncio.wait_for(_told(thread, offset=2, until="idle"), PATIENCE)
        for number, event in list(enumerate(again))[::4]:
            rest = await asyncio.wait_for(_told(thread, offset=event.cursor, until="idle"), PATIENCE)
            assert _places(rest) == _places(again[number + 1 :])
        await thread.close()
        readers = await asyncio.wait_for(asyncio.gather(*live), PATIENCE)
        history = await client.temporal.get_workflow_handle(thread.id).fetch_history()
    assert all(_places(one) == _places(told) for one in [*readers, again])
    assert _messages(told) == messages
    assert [event.turn_id for event in told if event.type == "turn_ended"] == ["told/turn-1", "told/turn-2"]
    assert {event.turn_id for event in from_two} == {"told/turn-2"}
    updates = [one for one in history.events if one.HasField("workflow_execution_update_accepted_event_attributes")]
    assert len(updates) == 3, "two messages and the end"


async def _told(thread: ThreadHandle, **options: Any) -> list[Event]:
    return [event async for event in thread.events(**options)]


async def test_events_of_a_run_that_does_not_exist(server: DevServer) -> None:
    """Said, not waited for."""
    client = TurngateClient(await server.client())
    with pytest.raises(UnknownApprovalError):
        await collected(client.turn("nowhere"))
