"""A worker is killed: while people think, while a tool runs, between a tool's end and its report."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from tests.crash.scene import Scene, call, holds, step, tool_results, until
from turngate.contracts import ApprovalType, Outcome

pytestmark = pytest.mark.server


async def test_killed_while_people_decide(scene: Scene) -> None:
    """The same approvals wait afterwards, and what was decided or half decided is kept."""
    scene.spec.gates["ship"] = {"allowed_decisions": ["approve", "reject"], "quorum": 2}
    calls = [call("c1", "pay", "a", 5), call("c2", "pay", "b"), call("c3", "ship", "c"), call("c4", "read", "d")]
    turn = await scene.start(step(*calls), "done")
    a, b, c = await scene.waiting(turn, "a", "b", "c")
    await scene.client.reject(b.id, "not this one", digest=b.digest, reviewer="ann")
    await scene.client.approve(c.id, digest=c.digest, reviewer="ann")
    before = await scene.waiting(turn, "a", "c")
    await holds(lambda: scene.effects.happened("d"), "the ungated call")

    await scene.all_die()
    await scene.worker()

    assert await scene.waiting(turn, "a", "c") == before
    await scene.client.approve(a.id, digest=a.digest, reviewer="ann")
    await scene.client.approve(c.id, digest=c.digest, reviewer="bob")
    result = await turn.result()
    assert scene.effects.all() == [("pay", "a", 5), ("read", "d", 1), ("ship", "c", 1)]
    assert [approval.id for approval in result.approvals] == [a.id, b.id, c.id]
    assert [vote.reviewer for vote in result.approvals[2].votes] == ["ann", "bob"]
    assert scene.model_calls() == 2


async def test_killed_while_a_tool_runs(scene: Scene) -> None:
    """The call in hand is put up again; what had finished, what was decided and what waits stay as they are."""
    scene.effects.trap("b", "hang")
    calls = [call("c1", "pay", "a"), call("c2", "pay", "b"), call("c3", "pay", "c"), call("c4", "read", "d")]
    turn = await scene.start(step(*calls), "done")
    a, b, c = await scene.waiting(turn, "a", "b", "c")
    await scene.client.decide({one.id: {"type": "approve", "reviewer": "ann"} for one in (a, b)})
    await holds(lambda: scene.effects.sprung("b") and len(scene.effects.all()) == 2, "the calls in hand")
    await until(lambda: scene.reported(turn, 2), "the reports of the finished calls")

    await scene.all_die()
    await scene.worker()

    recovery = await scene.recovery(turn, "b")
    assert await scene.waiting(turn, "b", "c") == [recovery, c]
    assert recovery.id not in (a.id, b.id, c.id)
    assert set(recovery.allowed_decisions) == {"approve", "respond", "reject"}
    assert "its worker was lost" in recovery.warnings[0]
    assert not scene.effects.happened("b")
    await scene.client.approve(recovery.id, digest=recovery.digest, reviewer="bob")
    await scene.client.reject(c.id, digest=c.digest)
    result = await turn.result()
    assert scene.effects.all() == [("pay", "a", 1), ("pay", "b", 1), ("read", "d", 1)]
    assert sorted(start.ref for start in scene.effects.starts()) == ["a", "b", "b", "d"]
    assert len({start.key for start in scene.effects.starts("b")}) == 1
    told = [(one.args["ref"], one.status.value) for one in result.approvals]
    assert told == [("a", "approved"), ("b", "approved"), ("c", "rejected"), ("b", "approved")]


async def test_killed_between_the_end_and_the_report(scene: Scene) -> None:
    """The effect is there and nobody knows it but the database: whoever looks says so, and nothing runs again."""
    scene.effects.trap("a", "die at report")
    turn = await scene.start(step(call("c1", "pay", "a", 7)), "done")
    (a,) = await scene.waiting(turn, "a")
    await scene.client.edit(a.id, {"ref": "a", "amount": 8}, digest=a.digest)
    await scene.workers[0].gone()
    await scene.worker()

    recovery = await scene.recovery(turn, "a")
    assert recovery.args == {"ref": "a", "amount": 8}
    assert scene.effects.happened("a")
    await scene.client.respond(recovery.id, "paid, see the bank's list", digest=recovery.digest)
    result = await turn.result()
    assert scene.effects.all() == [("pay", "a", 8)]
    assert len(scene.effects.starts()) == 1
    status, told = (await tool_results(turn))["c1"]
    assert (status, told.splitlines()[-1]) == ("success", "paid, see the bank's list")
    assert '"amount": 8' in told, "the model called for 7, and must know what ran"
    assert [one.executed.outcome if one.executed else None for one in result.approvals] == ["unknown", None]


async def test_killed_in_a_retry_safe_tool(scene: Scene) -> None:
    """A tool that may run twice does, with the same key, and nobody is asked."""
    scene.spec.options["tool_options"] = {"pay": {"retry_safe": True, "max_attempts": 3}}
    scene.effects.trap("a", "die before")
    scene.effects.trap("b", "die after")
    turn = await scene.start(step(call("c1", "pay", "a"), call("c2", "pay", "b")), "done")
    a, b = await scene.waiting(turn, "a", "b")
    for approval in (a, b):
        await scene.client.approve(approval.id, digest=approval.digest)
        await scene.workers[-1].gone()
        await scene.worker()
        await until(partial(scene.executed, turn, approval), "the second attempt")
    result = await turn.result()
    assert len(result.approvals) == 2
    assert scene.effects.all() == [("pay", "a", 1), ("pay", "b", 1), ("pay", "b", 1)]
    for ref in "ab":
        starts = scene.effects.starts(ref)
        assert [start.attempt for start in starts] == [1, 2]
        assert len({start.key for start in starts}) == 1


async def test_killed_with_half_a_batch_decided(scene: Scene) -> None:
    """Half the answers of a batch survive; nothing of it runs before the other half is there."""
    scene.spec.options["interrupt_mode"] = "batched"
    turn = await scene.start(step(call("c1", "pay", "a"), call("c2", "pay", "b"), call("c3", "read", "c")), "done")
    a, b = await scene.waiting(turn, "a", "b")
    await scene.client.approve(a.id, digest=a.digest, reviewer="ann")

    await scene.all_die()
    await scene.worker()

    assert await scene.waiting(turn, "b") == [b]
    assert scene.effects.starts() == []
    receipt = await scene.client.approve(a.id, digest=a.digest, reviewer="bob")
    assert receipt.outcome is Outcome.ALREADY_RESOLVED
    await scene.client.reject(b.id, digest=b.digest)
    await turn.result()
    assert scene.effects.all() == [("pay", "a", 1), ("read", "c", 1)]


async def test_killed_after_an_answer_to_a_tools_question(scene: Scene) -> None:
    """The answer is kept: the tool that is run again finds it without asking."""
    scene.effects.trap("a", "die before")
    turn = await scene.start(step(call("c1", "confirm", "a")), "done")
    (question,) = await scene.waiting(turn, "a")
    assert question.type is ApprovalType.QUESTION
    await scene.client.answer(question.id, "yes, sure")
    await scene.workers[0].gone()
    await scene.worker()

    recovery = await scene.recovery(turn, "a")
    await scene.client.approve(recovery.id, digest=recovery.digest)
    await turn.result()
    assert scene.effects.all() == [("confirm", "a", 1)]
    assert (await tool_results(turn))["c1"] == ("success", "confirm a 1 yes, sure")


async def test_killed_under_a_thread_with_a_subagent(scene: Scene) -> None:
    """Thread, turn and subagent come back together; the approval down there has the same id and path."""
    scene.spec.helper_script[:] = [step(call("h1", "pay", "a")), "paid"]
    task = {"id": "t1", "name": "task", "args": {"description": "pay a", "subagent_type": "helper"}}
    scene.spec.script[:] = [step(task), "done"]
    await scene.worker()
    thread = scene.client.thread(scene.queue, agent="clerk")
    sent = await thread.send("pay")
    turn = scene.client.turn(sent.turn_id)
    await until(turn.exists, "the start of the turn")
    (before,) = await scene.waiting(turn, "a")
    queued = await thread.send("and again")

    await scene.all_die()
    await scene.worker()

    assert await scene.waiting(turn, "a") == [before]
    await scene.client.approve(before.id, digest=before.digest)
    assert (await turn.result()).output == "done"
    later = scene.client.turn(queued.turn_id)
    await until(later.exists, "the start of the queued turn")
    (again,) = await scene.waiting(later, "a")
    assert again.id != before.id
    assert scene.effects.all() == [("pay", "a", 1)]
    await asyncio.wait_for(thread.stop(), 30)
