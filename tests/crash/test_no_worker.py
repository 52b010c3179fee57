"""All workers are gone for a while, or one of two: what is decided meanwhile is neither lost nor done twice."""

from __future__ import annotations

import asyncio
import time

import pytest
from temporalio.api.enums.v1 import EventType

from tests.crash.scene import Scene, call, holds, step
from turngate import TurnHandle
from turngate.contracts import Outcome

pytestmark = pytest.mark.server


async def test_decisions_wait_for_a_worker(scene: Scene) -> None:
    """They are queued in the order they came: the first one counts, its repetitions do nothing, another is refused."""
    refs = ("a", "b", "c", "d")
    turn = await scene.start(step(*(call(f"c-{ref}", "pay", ref) for ref in refs)), "done")
    a, b, c, d = await scene.waiting(turn, *refs)
    await scene.all_die()

    receipts = await asyncio.gather(
        scene.client.approve(a.id, digest=a.digest, reviewer="ann"),
        scene.client.reject(b.id, "no", digest=b.digest, reviewer="ann"),
        scene.client.approve(c.id, digest="0" * 16, reviewer="ann"),
        scene.client.edit(d.id, {"ref": "d", "amount": 9}, digest=d.digest),
    )
    assert {receipt.outcome for receipt in receipts} == {Outcome.QUEUED}
    raw = scene.client.temporal.get_workflow_handle(turn.id)
    await raw.signal("decide", {"approval_id": a.id, "type": "approve", "reviewer": "bob"})
    await raw.signal("decide", {"approval_id": b.id, "type": "approve", "reviewer": "bob"})
    assert scene.effects.starts() == []
    await scene.worker()

    assert await scene.waiting(turn, "c") == [c]
    again = await scene.client.approve(a.id, digest=a.digest, reviewer="ann")
    assert again.outcome in (Outcome.APPLIED, Outcome.ALREADY_RESOLVED)
    codes = sorted(one.code for one in await turn.refused())
    assert codes[-1] == "digest_mismatch"
    assert "already_decided_conflict" in codes
    await scene.client.reject(c.id, digest=c.digest)
    result = await turn.result()
    assert scene.effects.all() == [("pay", "a", 1), ("pay", "d", 9)]
    assert [one.resolution.reviewer for one in result.approvals[:2] if one.resolution] == ["ann", "ann"]


async def test_other_worker_takes_over(scene: Scene) -> None:
    """The worker that holds the run in its cache dies; the other one goes on within seconds."""
    turn = await scene.start(step(call("c1", "pay", "a"), call("c2", "pay", "b")), "done")
    a, b = await scene.waiting(turn, "a", "b")
    await scene.worker()
    first, second = scene.workers
    await scene.client.reject(a.id, digest=a.digest)
    assert f"{first.pid}@" in (await _workers_of_tasks(scene, turn))[-1]

    await first.kill()
    before = time.monotonic()
    receipt = await scene.client.approve(b.id, digest=b.digest)
    await holds(lambda: scene.effects.happened("b"), "the approved call")
    # With the SDK's own setting the server would offer the task to the dead worker for ten seconds.
    assert time.monotonic() - before < 9
    assert receipt.outcome in (Outcome.APPLIED, Outcome.QUEUED)
    await turn.result()
    assert f"{second.pid}@" in (await _workers_of_tasks(scene, turn))[-1]
    assert scene.effects.all() == [("pay", "b", 1)]


async def _workers_of_tasks(scene: Scene, turn: TurnHandle) -> list[str]:
    """The identity (pid@host) of the worker that did each workflow task."""
    completed = await scene.history(turn, EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED)
    return [event.workflow_task_completed_event_attributes.identity for event in completed]
