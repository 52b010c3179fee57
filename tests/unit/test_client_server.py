"""The client against a real server and worker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import pytest
from langchain_core.messages import HumanMessage
from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import CancelledError

from tests.unit.conftest import PAY_5, RunShop, call, calls, pay
from turngate import attributes, recalling, sending
from turngate.agent import Agent
from turngate.client import Paused, TurngateClient, TurnHandle
from turngate.contracts import Approval, Json, TurnResult
from turngate.errors import (
    AlreadyDecidedError,
    BusyError,
    ClosedError,
    ConfigError,
    NoWorkerError,
    RefusedError,
    TurnAlreadyStartedError,
    TurnFailedError,
    UnknownApprovalError,
)
from turngate.events import Event
from turngate.handles import pending_of
from turngate.policy import Deny, PolicyContext
from turngate.testing import ScriptedModel, dev_server
from turngate.worker import build_worker

pytestmark = pytest.mark.server
T = TypeVar("T")
PATIENCE = 20.0


async def until(look: Callable[[], Awaitable[T]], good: Callable[[T], bool]) -> T:
    """Look again until it is good: visibility lags behind."""
    async with asyncio.timeout(PATIENCE):
        while not good(found := await look()):
            await asyncio.sleep(0.05)
    return found


async def paused(client: TurngateClient, agent: str = "shop", **options: object) -> Paused:
    """Start a turn and wait until people are wanted."""
    end = await client.run_turn(agent, "go", **options)
    assert isinstance(end, Paused)
    return end


# --- Turns ----------------------------------------------------------------------------------------------------------


async def test_a_turn_runs_until_people_are_wanted_and_then_to_its_end(shop: RunShop) -> None:
    """`run_turn` returns what waits, once nothing else runs."""
    both = calls(call("c1", "pay", to="acme", amount=5), call("r1", "read_table", table="t"))
    async with shop(both, "done") as client:
        waiting = await paused(client)
        assert [approval.tool_call_id for approval in waiting.approvals] == ["c1"]
        receipt = await client.approve(waiting.approvals[0].id, reviewer="rev-1")
        assert receipt.outcome == "applied"
        result = await waiting.turn.result()
    assert (result.status, result.output) == ("completed", "done")
    assert [message["type"] for message in result.messages or []] == ["ai", "tool", "tool", "ai"]
    assert result.approvals[0].votes[0].reviewer == "rev-1"


async def test_a_handler_is_asked_for_each_approval(shop: RunShop) -> None:
    """The in-process way, with handlers of both kinds."""
    script = (calls(call("c1", "pay", to="a", amount=5), call("c2", "pay", to="b", amount=6)), PAY_5, "done")
    answers: list[Json] = [
        {"type": "approve"},
        {"type": "reject", "message": "no"},
        {"type": "edit", "args": {"to": "c", "amount": 1}},
    ]
    seen: list[str | None] = []

    async def handler(approval: Approval) -> Json:
        seen.append(approval.tool_call_id)
        return answers[len(seen) - 1]

    async with shop(*script) as client:
        result = await client.run_turn("shop", "go", on_approval=handler)
        assert isinstance(result, TurnResult)
        assert seen == ["c1", "c2", "c1"]
        assert [approval.status for approval in result.approvals] == ["approved", "rejected", "edited"]
        left = await client.run_turn("shop", "go", on_approval=lambda approval: None)
        assert isinstance(left, Paused)
        assert len(left.approvals) == 2


async def test_an_id_is_used_once(shop: RunShop) -> None:
    """Also after the turn has ended; attaching goes on with what is there."""
    async with shop("done") as client:
        turn = await client.start_turn("shop", "go", turn_id="once")
        await turn.result()
        with pytest.raises(TurnAlreadyStartedError, match="'once' was started before"):
            await client.start_turn("shop", "go", turn_id="once")
        again = await client.start_turn("shop", "go", turn_id="once", on_existing="attach")
        assert (await again.result()).output == "done"


async def test_messages_may_be_langchains(shop: RunShop) -> None:
    """And come back as JSON."""
    async with shop("done") as client:
        turn = await client.start_turn(
            "shop", messages=[HumanMessage("hi"), {"type": "ai", "content": "hello"}, HumanMessage("go")]
        )
        await turn.result()
        types = [message["type"] for message in await turn.messages()]
    assert types == ["human", "ai", "human", "ai"]


async def test_a_turn_that_fails_says_why(shop: RunShop) -> None:
    """With the innermost reason."""
    async with shop() as client:
        turn = await client.start_turn("nobody", "go")
        with pytest.raises(TurnFailedError, match="nobody") as failed:
            await turn.result()
        assert failed.value.status == "failed"
        assert (await turn.status())["status"] == "failed"


async def test_a_terminated_turn_is_told_apart(shop: RunShop) -> None:
    """Its own code had no say in it."""
    async with shop(PAY_5) as client:
        turn = (await paused(client)).turn
        await client.temporal.get_workflow_handle(turn.id).terminate(reason="enough")
        with pytest.raises(TurnFailedError, match="enough") as failed:
            await turn.result()
        assert failed.value.status == "terminated"
        assert (await turn.status())["status"] == "terminated"


async def test_a_decision_can_travel_with_the_start(shop: RunShop) -> None:
    """Refused, the turn is started all the same."""
    async with shop(PAY_5) as client:
        decision = {"approval_id": "early/abcdef-1", "type": "approve"}
        with pytest.raises(UnknownApprovalError):
            await client.start_turn("shop", "go", turn_id="early", with_decision=decision)
        end = await client.wait(client.turn("early"))
        assert isinstance(end, Paused)


async def test_stopping_a_turn(shop: RunShop) -> None:
    """What waits is closed, and a late decision is told so."""
    async with shop(PAY_5) as client:
        waiting = await paused(client)
        assert await waiting.turn.stop("window closed") == {"status": "stopping"}
        assert (await waiting.turn.result()).status == "stopped"
        with pytest.raises(ClosedError):
            await waiting.turn.stop()
        with pytest.raises(ClosedError):
            await client.approve(waiting.approvals[0].id)


async def test_a_stop_that_comes_together_with_the_models_answer(shop: RunShop) -> None:
    """The answer is kept, and its calls are answered: the next turn of a thread goes on from there."""
    asked = asyncio.Event()

    async def until_the_worker_ends(request: object) -> bool:
        asked.set()
        await activity.wait_for_worker_shutdown()
        return True

    gate = {"allowed_decisions": ["approve", "reject"], "when": until_the_worker_ends}
    async with shop(PAY_5, interrupt_on={"pay": gate}) as client:
        turn = await client.start_turn("shop", "go")
        await asyncio.wait_for(asked.wait(), PATIENCE)
    # No worker is there to see which of the two came first.
    await client.temporal.get_workflow_handle(turn.id).signal("stop", {})
    async with shop():
        result = await asyncio.wait_for(turn.result(), PATIENCE)
    assert result.status == "stopped"
    assert [message["type"] for message in result.messages or []] == ["ai", "tool"]


async def test_a_turn_is_followed_over_a_reset(shop: RunShop) -> None:
    """Reset by an operator: the same turn goes on, waits again, and its events are not told twice."""
    async with shop(PAY_5, "done") as client:
        waiting = await paused(client)
        reading = asyncio.create_task(_collected(waiting.turn))
        result = asyncio.create_task(waiting.turn.result())
        await reset_to_first_answer(client, waiting.turn.id)
        again = await until(lambda: client.wait(waiting.turn), lambda end: isinstance(end, Paused))
        assert isinstance(again, Paused)
        assert again.approvals[0].id == waiting.approvals[0].id
        await client.approve(again.approvals[0].id)
        assert (await asyncio.wait_for(result, PATIENCE)).output == "done"
        events = await asyncio.wait_for(reading, PATIENCE)
    names = [event.type for event in events]
    assert names.count("turn_ended") == 1
    assert names.count("approval_requested") == 1
    assert [event.data["step"] for event in events if event.type == "step_ended"] == [1, 2]
    assert [event.data["role"] for event in events if event.type == "message"] == ["human", "ai", "tool", "ai"]


async def _collected(turn: TurnHandle) -> list[Event]:
    return [event async for event in turn.events()]


async def reset_to_first_answer(client: TurngateClient, turn_id: str) -> None:
    """Go back to the moment after the model's first answer."""
    handle = client.temporal.get_workflow_handle(turn_id)
    history = await handle.fetch_history()
    tasks = [event.event_id for event in history.events if event.HasField("workflow_task_completed_event_attributes")]
    await client.temporal.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=client.temporal.namespace,
            workflow_execution=WorkflowExecution(workflow_id=turn_id),
            workflow_task_finish_event_id=tasks[1],
            request_id=turn_id,
            reason="test",
        )
    )


async def test_a_subagents_approvals_are_the_turns(shop: RunShop) -> None:
    """They are joined with their path, listed once over all runs, and part of the record."""
    worker = {
        "name": "worker",
        "description": "does it",
        "model": ScriptedModel([PAY_5, "sub done"]),
        "tools": [pay],
    }
    task = calls(call("t1", "task", description="pay", subagent_type="worker"))
    async with shop(task, "done", name="boss", subagents=[worker]) as client:
        waiting = await paused(client, "boss")
        (approval,) = waiting.approvals
        assert approval.context.path == ["t1", "c1"]
        assert approval.id.startswith(f"{waiting.turn.id}/")
        listing = await until(lambda: client.pending(agent=approval.context.agent), bool)
        assert [each.id for each in listing] == [approval.id]
        await client.approve(approval.id)
        assert (await waiting.turn.result()).output == "done"
        record = await until(waiting.turn.record, bool)
        assert [each.id for each in record] == [approval.id]


async def test_a_task_that_a_reviewer_changed_is_judged_too(shop: RunShop) -> None:
    """The rules bind reviewers: a subagent that they forbid does not start."""
    subs = [
        {"name": name, "description": "works", "model": ScriptedModel([f"{name} done"]), "tools": []}
        for name in ("worker", "admin")
    ]

    def policy(context: PolicyContext) -> Any:
        return Deny("not for you") if context.args.get("subagent_type") == "admin" else True

    tasks = calls(*(call(id_, "task", description="do", subagent_type="worker") for id_ in ("t1", "t2")))
    async with shop(tasks, "done", name="boss", subagents=subs, policy=policy) as client:
        waiting = await paused(client, "boss")
        first, second = waiting.approvals
        await client.edit(first.id, {"description": "do", "subagent_type": "admin"})
        await client.edit(second.id, {"description": "do more", "subagent_type": "worker"})
        answers = [message for message in (await waiting.turn.result()).messages or [] if message["type"] == "tool"]
        assert [answer["status"] for answer in answers] == ["error", "success"]
        assert "not for you" in answers[0]["content"]
        assert "worker done" in answers[1]["content"]


# --- Deciding -------------------------------------------------------------------------------------------------------


async def test_the_same_decision_again_brings_the_first_receipt_back(shop: RunShop) -> None:
    """Even after the run has ended; another one is told that it came too late."""
    async with shop(PAY_5, "done") as client:
        waiting = await paused(client)
        approval_id = waiting.approvals[0].id
        first = await client.approve(approval_id)
        await waiting.turn.result()
        assert await client.approve(approval_id) == first
        with pytest.raises(ClosedError):
            await client.reject(approval_id)


async def test_a_contradiction_says_who_decided_what(shop: RunShop) -> None:
    """The refusal has the run's own words and code."""
    async with shop(calls(call("c1", "pay", to="a", amount=5), call("c2", "pay", to="b", amount=6))) as client:
        first, _ = (await paused(client)).approvals
        await client.approve(first.id, reviewer="rev-1")
        with pytest.raises(AlreadyDecidedError, match="rev-1") as refused:
            await client.reject(first.id)
        assert refused.value.code == "already_decided_conflict"


async def test_one_request_may_speak_to_several_runs(shop: RunShop) -> None:
    """All or none holds within each; the error has the receipts of those that took their part."""
    async with shop(PAY_5, "done") as client:
        one, two = await paused(client), await paused(client)
        good, bad = one.approvals[0].id, two.approvals[0].id
        with pytest.raises(RefusedError) as refused:
            await client.decide({good: {"type": "approve"}, bad: {"type": "aprove"}})
        assert [refusal.approval_id for refusal in refused.value.refusals] == [bad]
        assert [receipt.approval_id for receipt in refused.value.receipts] == [good]
        assert [approval.id for approval in await two.turn.pending()] == [bad]


async def test_decisions_by_position_reach_each_batch(shop: RunShop) -> None:
    """Two batches answered alike are two answers."""
    async with shop(PAY_5, PAY_5, "done", interrupt_mode="batched") as client:
        waiting = await paused(client)
        await waiting.turn.decide({"decisions": [{"type": "approve"}]})
        second = await client.wait(waiting.turn)
        assert isinstance(second, Paused)
        await second.turn.decide({"decisions": [{"type": "approve"}]})
        assert (await second.turn.result()).output == "done"


async def test_unknown_runs_and_foreign_workflows_are_said_to_be_so(shop: RunShop) -> None:
    """Nothing hangs."""
    async with shop() as client:
        with pytest.raises(UnknownApprovalError, match="no run 'nowhere'"):
            await client.approve("nowhere/abcdef-1")
        with pytest.raises(UnknownApprovalError):
            await client.turn("nowhere").result()
        with pytest.raises(UnknownApprovalError):
            await client.turn("nowhere").status()


async def test_without_a_worker_a_decision_is_queued_and_counts_later(
    shop: RunShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settled when a worker comes back, and only once."""
    monkeypatch.setattr(sending, "UPDATE_LIMIT", 0.5)
    async with shop(PAY_5, "done") as client:
        waiting = await paused(client)
    approval_id = waiting.approvals[0].id
    assert (await client.approve(approval_id)).outcome == "queued"
    async with shop("done"):
        result = await waiting.turn.result()
        assert result.output == "done"
        assert len(result.approvals[0].votes) == 1
    with pytest.raises(ClosedError):
        await client.reject(approval_id)


async def test_a_cancelled_sender_does_not_send_a_signal_after_all(
    shop: RunShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK reports a cancellation as if the time were up."""
    async with shop(PAY_5) as client:
        waiting = await paused(client)
    sent: list[str] = []
    monkeypatch.setattr(sending, "_queue", lambda *args: sent.append("signal"))
    task = asyncio.create_task(client.approve(waiting.approvals[0].id))
    await until(lambda: _in_flight(client, waiting.turn.id), bool)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sent == []


async def _in_flight(client: TurngateClient, turn_id: str) -> bool:
    """Give the update time to be on its way: one round trip to the server."""
    return (await client.temporal.get_workflow_handle(turn_id).describe()).run_id != ""


async def test_what_has_no_signal_says_that_no_worker_answered(shop: RunShop, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what to do."""
    monkeypatch.setattr(sending, "REQUEST_LIMIT", 0.5)
    async with shop(PAY_5) as client:
        waiting = await paused(client)
    with pytest.raises(NoWorkerError, match="turngate worker"):
        await waiting.turn.stop()


# --- Over all runs --------------------------------------------------------------------------------------------------


def _ids(approvals: list[Approval]) -> list[str | None]:
    return [approval.tool_call_id for approval in approvals]


async def test_the_inbox_lists_all_runs_and_filters_exactly(shop: RunShop) -> None:
    """The oldest run first, then as each run raised them."""
    gate = {
        "pay": {"allowed_decisions": ["approve", "reject"], "tags": ["money"], "reviewers": ["rev-1", r"CORP\ann"]},
        "read_table": True,
    }
    script = calls(call("c1", "pay", to="a", amount=5), call("c2", "read_table", table="t"))
    async with shop(script, name="inbox-shop", interrupt_on=gate) as client:
        await paused(client, "inbox-shop", thread_id="inbox-thread")
        await paused(client, "inbox-shop")

        async def listed(**filters: str) -> list[Approval]:
            return await client.pending(agent="inbox-shop", **filters)

        assert _ids(await until(listed, lambda found: len(found) == 4)) == ["c1", "c2", "c1", "c2"]
        assert _ids(await listed(tool="read_table")) == ["c2", "c2"]
        assert _ids(await listed(tag="money")) == ["c1", "c1"]
        assert _ids(await listed(reviewer="rev-1")) == ["c1", "c1"]
        # Visibility in an SQL database finds none of these by itself.
        assert _ids(await listed(reviewer=r"CORP\ann")) == ["c1", "c1"]
        assert _ids(await listed(thread="inbox-thread")) == ["c1", "c2"]
        assert _ids(await listed(tool="no_such_tool")) == []
        first = await client.pending(agent="inbox-shop", limit=3)
        assert (_ids(first), first.notes) == (["c1", "c2", "c1"], ["the first 3 are listed; up to 1 more turns wait"])
        reports = await client.decide_many(await listed(tag="money"), {"type": "reject", "reviewer": "rev-1"})
        assert [report.receipt.outcome for report in reports if report.receipt] == ["applied", "applied"]
        again = await client.decide_many(
            [await client.approval(reports[0].approval_id)], {"type": "approve", "reviewer": "rev-1"}
        )
        assert isinstance(again[0].error, AlreadyDecidedError)
        assert [status for _, status in await client.stop_agent("inbox-shop")] == ["stopping"] * 2


async def test_new_approvals_are_watched(shop: RunShop) -> None:
    """Each is told once."""
    async with shop(PAY_5, name="watched") as client:
        watching = client.watch_pending(interval=0.05, agent="watched")
        first = await paused(client, "watched")
        seen = [await asyncio.wait_for(anext(watching), PATIENCE)]
        second = await paused(client, "watched")
        seen.append(await asyncio.wait_for(anext(watching), PATIENCE))
    assert [approval.id for approval in seen] == [first.approvals[0].id, second.approvals[0].id]


async def test_who_lists_again_asks_only_turns_that_have_gone_on(
    shop: RunShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose answers are then new ones; what a caller does to his list is his affair."""
    asked: list[str] = []

    async def asking(client: Client, turn_id: str, *, limit: float) -> tuple[list[Approval], list[str]]:
        asked.append(turn_id)
        return await pending_of(client, turn_id, limit=limit)

    monkeypatch.setattr(recalling, "pending_of", asking)
    async with shop(calls(*(call(f"c{n}", "pay", to="a", amount=n) for n in (1, 2))), "done", name="again") as client:
        turn = (await paused(client, "again")).turn
        listed = await until(lambda: client.pending(agent="again"), bool)
        asked.clear()
        for _ in range(3):
            listed[0].args.clear()
            listed = await client.pending(agent="again")
            assert [approval.args.get("amount") for approval in listed] == [1, 2]
        assert asked == [turn.id]
        await client.approve(listed[0].id)
        assert _ids(await client.pending(agent="again")) == ["c2"]


async def test_without_a_worker_the_inbox_lists_what_the_server_knows(
    shop: RunShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And says that details need one."""
    async with shop(PAY_5, name="lonely") as client:
        waiting = await paused(client, "lonely")
        await until(lambda: client.pending(agent="lonely"), bool)
    (glance,) = await client.pending(agent="lonely", tool="pay", details=False)
    assert (glance.name, glance.context.turn_id, glance.warnings) == ("pay", waiting.turn.id, [])
    with pytest.raises(ConfigError, match="expires_before"):
        client.pending(expires_before=datetime.now(UTC), details=False)
    (found,) = await client.pending(agent="lonely", tool="pay")
    assert (found.name, found.context.turn_id) == ("pay", waiting.turn.id)
    assert "details need a worker" in found.warnings[0]


async def test_without_search_attributes_everything_works_and_the_inbox_says_so() -> None:
    """Slower: every running turn is asked."""
    from tests.unit.conftest import pay
    from turngate.testing import ScriptedModel

    async with dev_server(search_attributes=False) as server:
        temporal = await server.client()
        agent = Agent("shop", model=ScriptedModel([PAY_5, "done"]), tools=[pay], interrupt_on={"pay": True})
        async with build_worker(temporal, [agent]):
            client = TurngateClient(temporal)
            waiting = await paused(client)
            listing = await client.pending(agent="shop", tool="pay")
            assert [approval.id for approval in listing] == [waiting.approvals[0].id]
            assert "turngate setup" in listing.notes[0]
            assert await client.pending(agent="other") == []
            assert await client.stop_agent("other") == []
            await attributes.register(temporal)
            found = await until(lambda: client.pending(agent="shop", tool="pay"), lambda found: not found.notes)
            assert [approval.id for approval in found] == [waiting.approvals[0].id], "it began before the registration"
            assert [status for _, status in await client.stop_agent("shop")] == ["stopping"]


# --- Threads --------------------------------------------------------------------------------------------------------


async def test_a_thread_takes_one_message_after_the_other(shop: RunShop) -> None:
    """A message sent meanwhile waits, is refused, or the thread is closed."""
    async with shop(PAY_5, "done") as client:
        thread = client.thread("thread-1", "shop")
        first = await thread.send("pay acme 5")
        assert (first.turn, first.turn_id, first.queued) == (1, "thread-1/turn-1", False)
        turn = await thread.started(first)
        waiting = await client.wait(turn)
        assert isinstance(waiting, Paused)
        assert [approval.id for approval in await thread.pending()] == [waiting.approvals[0].id]
        with pytest.raises(BusyError):
            await thread.send("hello?", "refuse")
        second = await client.thread("thread-1").send("and then?")
        assert second.queued
        await client.reject(waiting.approvals[0].id)
        assert isinstance(await client.wait(await thread.started(second)), Paused)
        assert [entry["status"] for entry in (await thread.status())["turns"]] == ["completed", "running"]
        await thread.stop()
        await thread.close()
        await client.temporal.get_workflow_handle("thread-1").result()
        with pytest.raises(ClosedError):
            await thread.send("too late")


async def test_a_cancelled_thread_ends_with_its_turn(shop: RunShop) -> None:
    """It does not go on with the next message, which `temporal workflow cancel` would never reach."""
    async with shop(PAY_5, "done") as client:
        thread = client.thread("thread-3", "shop")
        turn = await thread.started(await thread.send("pay acme 5"))
        await thread.send("and then?")
        await client.wait(turn)
        run = client.temporal.get_workflow_handle("thread-3")
        await run.cancel()
        with pytest.raises(WorkflowFailureError) as ended:
            await run.result()
        assert isinstance(ended.value.cause, CancelledError)
        assert (await turn.status())["status"] == "cancelled"
        assert [entry["status"] for entry in await thread.turns()] == ["cancelled", "queued"]


async def test_a_message_sent_again_with_its_id_counts_once(shop: RunShop) -> None:
    """After a broken connection nobody knows whether it arrived."""
    async with shop("done") as client:
        thread = client.thread("thread-2", "shop")
        assert await thread.send("hi", message_id="m-1") == await thread.send("hi", message_id="m-1")


async def test_a_thread_that_does_not_exist_wants_an_agent(shop: RunShop) -> None:
    """The error says how."""
    async with shop() as client:
        with pytest.raises(ConfigError, match="agent="):
            await client.thread("no-such-thread").send("hi")
