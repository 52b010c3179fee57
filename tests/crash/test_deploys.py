"""The agent's code changes while a call waits: what was recorded with the call counts, not what the code says now."""

from __future__ import annotations

import pytest

from tests.crash.scene import Scene, call, step, tool_results

pytestmark = pytest.mark.server


async def test_new_code_while_calls_wait(scene: Scene) -> None:
    """Prompt, tools, gate and predicate change: the same approvals wait, and a rejected call does not run."""
    calls = [call("c1", "pay", "a"), call("c2", "ship", "b"), call("c3", "read", "c"), call("c4", "ship", "d")]
    later = step(call("c5", "ship", "e"), call("c6", "read", "f"))
    scene.spec.options["system_prompt"] = "Be careful."
    scene.spec.gates["read"] = {"when": True}
    turn = await scene.start(step(*calls), later, "done")
    before = await scene.waiting(turn, "a", "b", "c", "d")
    await scene.workers[0].stop()

    await scene.worker(tools=["ship", "read"], gates={"read": {"when": False}}, options={"system_prompt": "Be quick."})

    assert await scene.waiting(turn, "a", "b", "c", "d") == before
    a, b, c, d = before
    await scene.client.decide({one.id: {"type": "approve", "digest": one.digest} for one in (a, d)})
    await scene.client.decide({one.id: {"type": "reject", "digest": one.digest} for one in (b, c)})
    result = await turn.result()
    assert scene.effects.all() == [("read", "f", 1), ("ship", "d", 1), ("ship", "e", 1)]
    assert [one.id for one in result.approvals] == [one.id for one in before]
    told = await tool_results(turn)
    assert {call_id: status for call_id, (status, _) in told.items()} == {
        "c1": "error", "c2": "error", "c3": "error", "c4": "success", "c5": "success", "c6": "success",
    }  # fmt: skip
    assert "pay" in told["c1"][1]
    prompts = [messages[0]["content"] for messages in scene.model_inputs()]
    assert prompts == ["Be careful.", "Be quick.", "Be quick."]


async def test_old_and_new_code_side_by_side(scene: Scene) -> None:
    """During a rolling deploy both builds serve one run: what waits is the same, whichever of them looks."""
    turn = await scene.start(step(call("c1", "pay", "a"), call("c2", "ship", "b")), "done")
    before = await scene.waiting(turn, "a", "b")
    await scene.worker(gates={"ship": True})
    await scene.workers[0].kill()
    assert await scene.waiting(turn, "a", "b") == before
    a, b = before
    await scene.worker(gates={"pay": True, "ship": {"when": False}})
    await scene.client.approve(b.id, digest=b.digest)
    await scene.client.reject(a.id, digest=a.digest)
    await turn.result()
    assert scene.effects.all() == [("ship", "b", 1)]
