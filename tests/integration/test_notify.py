"""Telling people, on the real server: once an event and notifier, and never in the way of a decision."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest
from langchain_core.tools import tool
from temporalio.client import Client, WorkflowHistory

from turngate import Agent, InterruptOnConfig, TurngateClient, build_worker
from turngate.contracts import Json
from turngate.devserver import DevServer
from turngate.errors import NotifierError
from turngate.handles import TurnHandle
from turngate.notifiers import Notification
from turngate.testing import ScriptedModel, dev_server, pass_time

pytestmark = pytest.mark.server


@tool
def pay(amount: int, note: str = "") -> str:
    """Pay."""
    return f"paid {amount}"


@tool
def dump(size: int) -> str:
    """Return a long text."""
    return "x" * size


@pytest.fixture(scope="module")
async def server() -> AsyncIterator[DevServer]:
    async with dev_server(time_skipping=True) as running:
        yield running


@pytest.fixture
async def temporal(server: DevServer) -> Client:
    return await server.client()


class People:
    """Notes what it is told. Before that it fails as often as told, or waits until it is let go."""

    def __init__(self, fails: int = 0, waits: bool = False) -> None:
        self.told: list[Notification] = []
        self.attempts = 0
        self.fails = fails
        self.free = asyncio.Event()
        if not waits:
            self.free.set()

    async def notify(self, notification: Notification) -> None:
        self.attempts += 1
        await self.free.wait()
        if self.attempts <= self.fails:
            raise NotifierError("not now")
        self.told.append(notification)

    @property
    def kinds(self) -> list[str]:
        return [one.kind for one in self.told]


def calls(*arguments: Json, name: str = "pay") -> Json:
    return {"tool_calls": [{"id": f"c{n}", "name": name, "args": args} for n, args in enumerate(arguments, 1)]}


@contextlib.asynccontextmanager
async def working(
    temporal: Client, notifiers: Mapping[str, People], *script: object, **gate: Any
) -> AsyncIterator[TurngateClient]:
    """A worker with one agent that names all of these notifiers."""
    name = f"agent-{uuid.uuid4()}"
    agent = Agent(
        name,
        model=ScriptedModel([*(script or (calls({"amount": 5}),)), {"text": "done"}]),
        tools=[pay, dump],
        interrupt_on={"pay": InterruptOnConfig(**gate)},
        notifiers=list(notifiers),
    )
    async with build_worker(temporal, [agent], task_queue=name, notifiers=notifiers):
        yield TurngateClient(temporal, name)


async def until(look: Callable[[], Any]) -> None:
    """Wait until it holds, for a while."""
    async with asyncio.timeout(30):
        while True:
            found = look()
            if await found if isinstance(found, Awaitable) else found:
                return
            await asyncio.sleep(0.05)


async def waiting(client: TurngateClient) -> TurnHandle:
    """Start a turn and wait until a call waits for a decision."""
    turn = await client.start_turn(client.task_queue, "go")
    await until(turn.pending)
    return turn


async def history(client: TurngateClient, turn: TurnHandle) -> WorkflowHistory:
    return await client.temporal.get_workflow_handle(turn.id).fetch_history()


async def test_people_are_told_what_waits_and_what_became_of_it(temporal: Client) -> None:
    """The approval in the message is the one that the query shows, and its ready reply works as it is."""
    ops = People()
    async with working(temporal, {"ops": ops}) as client:
        turn = await waiting(client)
        await until(lambda: ops.told)
        [approval] = await turn.pending()
        assert ops.told[0].approval.to_json() == approval.to_json()
        await client.decide(ops.told[0].reply)
        result = await turn.result()
    assert result.approvals[0].status == "rejected"
    assert ops.kinds == ["requested", "resolved"]
    assert [one.key for one in ops.told] == [f"{approval.id}/requested-1", f"{approval.id}/resolved-1"]
    assert ops.told[1].approval.status == "rejected"


async def test_each_notifier_is_told_once_whatever_the_others_do(temporal: Client) -> None:
    """When one fails and is tried again, the other does not hear the same again."""
    good, flaky = People(), People(fails=2)
    async with working(temporal, {"good": good, "flaky": flaky}) as client:
        turn = await waiting(client)
        await until(lambda: flaky.told)
        await turn.stop()
        await turn.result()
    assert (good.attempts, good.kinds) == (2, ["requested", "cancelled"])
    assert flaky.kinds[0] == "requested"
    assert flaky.attempts == len(flaky.told) + 2


async def test_a_notifier_that_fails_or_hangs_holds_up_no_decision(temporal: Client) -> None:
    """The turn ends as it would without them, and the status says how many have failed for good."""
    broken, slow = People(fails=10**6), People(waits=True)
    async with working(temporal, {"broken": broken, "slow": slow}) as client:
        turn = await waiting(client)
        await until(lambda: broken.attempts and slow.attempts)
        [approval] = await turn.pending()
        await client.approve(approval.id)
        result = await turn.result()
        slow.free.set()
    assert result.status == "completed"
    assert result.approvals[0].executed.outcome == "succeeded"


async def test_nobody_is_asked_about_what_was_decided_meanwhile(temporal: Client) -> None:
    """A request that could not be delivered is dropped once the call is settled; the outcome is told."""
    calls_two = calls({"amount": 1}, {"amount": 2})
    late = People(fails=10**6)
    async with working(temporal, {"late": late}, calls_two) as client:
        turn = await waiting(client)
        await until(lambda: late.attempts >= 2)
        first, second = await turn.pending()
        await client.approve(first.id)
        late.fails = 0
        await until(lambda: len(late.told) >= 2)
        await client.approve(second.id)
        await turn.result()
    about = {
        approval.id: [one.kind for one in late.told if one.approval.id == approval.id] for approval in (first, second)
    }
    assert "requested" not in about[first.id]
    assert about[second.id][:1] == ["requested"]


async def test_a_long_approval_travels_by_reference(temporal: Client) -> None:
    """History holds its arguments once, and people still get all of them."""
    ops = People()
    note = "long " * 20_000
    async with working(temporal, {"ops": ops}, calls({"amount": 5, "note": note})) as client:
        turn = await waiting(client)
        await until(lambda: ops.told)
        sent = [
            event.activity_task_scheduled_event_attributes
            for event in (await history(client, turn)).events
            if event.HasField("activity_task_scheduled_event_attributes")
        ]
        await turn.stop()
        await turn.result()
    [notify] = [one for one in sent if one.activity_type.name == "notify"]
    assert len(notify.input.payloads[0].data) < 1000
    assert ops.told[0].approval.args == {"amount": 5, "note": note}


async def test_many_approvals_at_once_are_told_in_turns(temporal: Client) -> None:
    """Raised by one step, for two notifiers, and one of these hangs: the other one tells of all of them."""
    many = [{"amount": n, "note": "n" * 1000} for n in range(40)]
    good, hangs = People(), People(waits=True)
    async with working(temporal, {"good": good, "hangs": hangs}, calls(*many)) as client:
        turn = await waiting(client)
        await until(lambda: len(good.told) == 40)
        assert hangs.attempts <= 16
        await turn.stop()
        await turn.result()
        hangs.free.set()
    asked = [told.key for told in good.told if told.kind == "requested"]
    assert len(set(asked)) == len(asked) == 40


async def test_secret_arguments_are_masked(temporal: Client) -> None:
    """What people are told goes through other companies' servers."""
    ops = People()
    async with working(
        temporal, {"ops": ops}, calls({"amount": 5, "note": "IBAN 123"}), secret_args=["note"]
    ) as client:
        turn = await waiting(client)
        await until(lambda: ops.told)
        await turn.stop()
        await turn.result()
    assert "IBAN 123" not in ops.told[0].model_dump_json()


async def test_reminders_escalation_and_the_deadline_are_told(temporal: Client) -> None:
    """Each once, with a key of its own; after the deadline nothing more is asked."""
    ops = People()
    gate = {
        "timeout": "5h",
        "remind_every": "2h",
        "escalate_after": "3h",
        "escalate_to": ["boss"],
        "reviewers": ["ann"],
    }
    async with working(temporal, {"ops": ops}, **gate) as client:
        turn = await waiting(client)
        await until(lambda: ops.kinds == ["requested"])
        for kind, hours in (("reminder", 2), ("escalated", 1), ("reminder", 1), ("expired", 1)):
            await pass_time(temporal, [turn.id], timedelta(hours=hours, seconds=1))
            await until(lambda kind=kind: ops.kinds[-1] == kind)
        await turn.result()
    assert ops.kinds == ["requested", "reminder", "escalated", "reminder", "expired"]
    assert len({one.key for one in ops.told}) == 5
    assert ops.told[2].approval.reviewers == ["ann", "boss"]
    assert [bool(one.replies) for one in ops.told] == [True, True, True, True, False]


async def test_what_could_not_be_told_goes_over_to_the_next_run() -> None:
    """A run that continues as new does not lose the notifications that are still being tried."""
    async with dev_server(dynamic_config=["limit.historyCount.suggestContinueAsNew=12"]) as small:
        ops = People(fails=10**6)
        steps = [calls({"amount": 1}), calls({"size": 1}, name="dump")]
        async with working(await small.client(), {"ops": ops}, *steps, calls({"amount": 2})) as client:
            turn = await waiting(client)
            [approval] = await turn.pending()
            await client.approve(approval.id)
            await until(turn.pending)
            first = client.temporal.get_workflow_handle(turn.id)
            description = await first.describe()
            ops.fails = 0
            await until(lambda: len(ops.told) >= 2)
            await turn.stop()
            await turn.result()
    assert description.raw_description.workflow_execution_info.first_run_id != description.run_id
    assert f"{approval.id}/resolved-1" in [told.key for told in ops.told]
    assert len({told.key for told in ops.told}) == len(ops.told)


async def test_a_thread_reads_the_messages_that_were_too_long_for_the_result(temporal: Client) -> None:
    """A turn's result holds 1 MiB; what is over is read page by page, and nothing is lost."""
    name = f"agent-{uuid.uuid4()}"
    script = [calls({"size": 200_000}, name="dump") for _ in range(7)]
    agent = Agent(name, model=ScriptedModel([*script, {"text": "done"}]), tools=[dump])
    async with build_worker(temporal, [agent], task_queue=name):
        thread = TurngateClient(temporal, name).thread(f"thread-{uuid.uuid4()}", name)
        sent = await thread.send("go")

        async def ended() -> bool:
            return bool((await thread.status())["turns"][0]["status"] == "completed")

        await until(ended)
        result = await TurngateClient(temporal, name).turn(sent.turn_id).result()
        events = [event async for event in temporal.get_workflow_handle(thread.id).fetch_history_events()]
        assert (await thread.status())["messages"] == 1 + result.new_messages
        messages = await thread.messages()
    assert any("read_new_messages" in str(event) for event in events)
    assert [one["type"] for one in messages[:3]] == ["human", "ai", "tool"]
    assert sum(len(one["content"]) for one in messages if one["type"] == "tool") == 7 * 200_000
