"""`temporal workflow reset`: the run goes back to an earlier point, and the server sends what came later again."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from temporalio.api.enums.v1 import EventType

from tests.crash.scene import Scene, call, holds, step, until
from turngate import Approval, TurnHandle
from turngate.contracts import ApprovalStatus
from turngate.devserver import find_binary
from turngate.errors import UnknownApprovalError

pytestmark = pytest.mark.server

_PAY_A_AND_B = step(call("c1", "pay", "a"), call("c2", "pay", "b"))
_PAY_C = step(call("c3", "pay", "c"))


async def test_reset_to_before_a_decision_applies_it_again(scene: Scene) -> None:
    """Signals and updates are sent again; a call that had finished before that point does not run again."""
    turn = await scene.start(_PAY_A_AND_B, _PAY_C, "done", "done again")
    before = await _decide_all(scene, turn)

    await _reset(scene, turn, after_activities=3)

    result = await turn.result()
    assert result.output == "done again"
    assert [one.id for one in result.approvals] == before
    assert [one.status.value for one in result.approvals] == ["approved", "rejected", "approved"]
    assert [start.ref for start in scene.effects.starts()] == ["a", "c", "c"]
    assert len({start.key for start in scene.effects.starts("c")}) == 1


async def test_reset_that_leaves_decisions_out(scene: Scene) -> None:
    """With --reapply-exclude the same call waits again under the same id, and can be decided otherwise."""
    turn = await scene.start(_PAY_A_AND_B, _PAY_C, "done", "done again")
    before = await _decide_all(scene, turn)

    await _reset(scene, turn, "--reapply-exclude", "All", after_activities=3)

    (c,) = await scene.waiting(turn, "c")
    assert c.id == before[2]
    await scene.client.reject(c.id, digest=c.digest)
    result = await turn.result()
    assert [one.status.value for one in result.approvals] == ["approved", "rejected", "rejected"]
    assert [start.ref for start in scene.effects.starts()] == ["a", "c"]


async def test_reset_to_before_the_first_decisions(scene: Scene) -> None:
    """A decision about a call that the model makes later is held, and applied when the same call comes."""
    turn = await scene.start(_PAY_A_AND_B, _PAY_C, "done", _PAY_C, "done again")
    before = await _decide_all(scene, turn)

    await _reset(scene, turn, after_activities=1)

    result = await turn.result()
    assert result.output == "done again"
    assert [one.id for one in result.approvals] == before
    assert [one.status.value for one in result.approvals] == ["approved", "rejected", "approved"]
    assert [start.ref for start in scene.effects.starts()] == ["a", "c", "a", "c"]
    assert len({start.key for start in scene.effects.starts()}) == 2


async def test_reset_that_leaves_signals_out(scene: Scene) -> None:
    """What came as an update counts again, what came as a signal does not."""
    turn = await scene.start(_PAY_A_AND_B, _PAY_C, "done", _PAY_C, "done again")
    before = await _decide_all(scene, turn)

    await _reset(scene, turn, "--reapply-exclude", "Signal", after_activities=1)

    (a,) = await scene.waiting(turn, "a")
    assert a.id == before[0]
    await scene.client.approve(a.id, digest=a.digest)
    result = await turn.result()
    assert [one.status.value for one in result.approvals] == ["approved", "rejected", "approved"]
    assert [start.ref for start in scene.effects.starts()] == ["a", "c", "a", "c"]


async def test_reset_to_before_the_models_answer(scene: Scene) -> None:
    """The model answers anew: only a decision with the digest of the very same call counts for it."""
    first = step(call("c1", "pay", "a"), call("c2", "pay", "b"), call("c3", "pay", "c"))
    other = step(call("c1", "pay", "a"), call("c2", "pay", "b"), call("c3", "pay", "c", 1000))
    turn = await scene.start(first, "done", other, "done again")
    a, b, c = await scene.waiting(turn, "a", "b", "c")
    raw = scene.client.temporal.get_workflow_handle(turn.id)
    await scene.client.approve(a.id, digest=a.digest)
    await raw.signal("decide", {"approval_id": b.id, "type": "approve"})
    await raw.signal("decide", {"approval_id": c.id, "type": "approve", "digest": c.digest})
    await turn.result()

    await _reset(scene, turn, after_activities=0)

    again_b, again_c = await scene.waiting(turn, "b", "c")
    assert (again_b.id, again_c.id) == (b.id, c.id)
    assert again_b.digest == b.digest
    assert sorted(one.code for one in await turn.refused()) == ["digest_mismatch", "unknown_approval"]
    record = await turn.approvals()
    assert record[0].status is ApprovalStatus.APPROVED
    await holds(lambda: len(scene.effects.starts("a")) == 2, "the call whose decision was held")
    await scene.client.decide({one.id: {"type": "reject", "digest": one.digest} for one in (again_b, again_c)})
    await turn.result()
    assert sorted(start.ref for start in scene.effects.starts()) == ["a", "a", "b", "c"]


async def test_reset_while_a_subagent_waits(scene: Scene) -> None:
    """The subagent of the run before is ended: nobody waits for it. The one that takes its place asks anew."""
    task = {"id": "t1", "name": "task", "args": {"description": "pay a", "subagent_type": "helper"}}
    scene.spec = replace(scene.spec, helper_script=[_PAY_C, _PAY_C, "helped"])
    turn = await scene.start(step(task), "done")
    (before,) = await scene.waiting(turn, "c")

    await _reset(scene, turn, after_activities=1)

    async def raised_anew() -> Approval | None:
        return next((one for one in await turn.pending() if one.id != before.id), None)

    after = await until(raised_anew, "the approval of the new subagent")
    with pytest.raises(UnknownApprovalError):
        await scene.client.approve(before.id)
    await scene.client.approve(after.id)
    assert (await turn.result()).output == "done"
    assert [start.ref for start in scene.effects.starts()] == ["c"]


async def _decide_all(scene: Scene, turn: TurnHandle) -> list[str]:
    """Approve a by signal, reject b by update, approve c by update; return the ids after the end of the turn."""
    a, b = await scene.waiting(turn, "a", "b")
    raw = scene.client.temporal.get_workflow_handle(turn.id)
    await raw.signal("decide", {"approval_id": a.id, "type": "approve", "digest": a.digest})
    await scene.client.reject(b.id, digest=b.digest)
    (c,) = await scene.waiting(turn, "c")
    await scene.client.approve(c.id, digest=c.digest)
    await turn.result()
    return [a.id, b.id, c.id]


async def _reset(scene: Scene, turn: TurnHandle, *options: str, after_activities: int) -> None:
    """Go back to the first workflow task after so many activities had reported, as `temporal` does it."""
    event = await _task_after(scene, turn, after_activities)
    process = await asyncio.create_subprocess_exec(
        find_binary(), "workflow", "reset", "--address", scene.address, "--workflow-id", turn.id,
        "--event-id", str(event), "--reason", "a test wants it", *options,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0, said.decode()


async def _task_after(scene: Scene, turn: TurnHandle, activities: int) -> int:
    seen = 0
    async for event in scene.client.temporal.get_workflow_handle(turn.id).fetch_history_events():
        seen += event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED and seen == activities:
            return event.event_id
    raise AssertionError(f"no workflow task follows {activities} activities")
