"""The Temporal server is killed and comes back on the same file and port."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.crash.agents import Spec
from tests.crash.nursery import Nursery
from tests.crash.scene import Scene, call, holds, step, until
from turngate import DevServer, TurngateClient
from turngate.contracts import Outcome

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
async def mortal(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DevServer]:
    """A server that no other test needs."""
    async with DevServer(db=tmp_path_factory.mktemp("mortal") / "temporal.db", ui=False) as running:
        yield running


@pytest.fixture
async def stage(mortal: DevServer, nursery: Nursery, tmp_path: Path) -> AsyncIterator[Scene]:
    """A stage on the server that is killed."""
    queue = f"crash-{uuid.uuid4().hex[:8]}"
    scene = Scene(mortal.address, queue, TurngateClient(await mortal.client(), queue), nursery, Spec(str(tmp_path)))
    yield scene
    await scene.all_die()
    await scene.replay()


async def test_server_killed_while_people_decide(mortal: DevServer, stage: Scene) -> None:
    """What waits, what was decided, and a decision that no worker has seen yet are still there."""
    turn = await stage.start(step(*(call(f"c-{ref}", "pay", ref) for ref in "abc")), "done")
    a, b, c = await stage.waiting(turn, "a", "b", "c")
    await stage.client.reject(a.id, digest=a.digest, reviewer="ann")
    await stage.all_die()
    assert (await stage.client.approve(b.id, digest=b.digest, reviewer="ann")).outcome is Outcome.QUEUED

    mortal.kill()
    await mortal.start()
    await stage.worker()

    assert await stage.waiting(turn, "c") == [c]
    await stage.client.approve(c.id, digest=c.digest)
    result = await turn.result()
    assert [one.id for one in result.approvals] == [a.id, b.id, c.id]
    assert [one.status.value for one in result.approvals] == ["rejected", "approved", "approved"]
    assert stage.effects.all() == [("pay", "b", 1), ("pay", "c", 1)]


async def test_server_killed_while_a_tool_runs(mortal: DevServer, stage: Scene) -> None:
    """The tool ends while there is no server; its worker reports the result to the server that comes back."""
    stage.spec.options["tool_options"] = {"pay": {"heartbeat": "30s"}}
    stage.effects.trap("a", "hang")
    turn = await stage.start(step(call("c1", "pay", "a"), call("c2", "pay", "b")), "done")
    a, b = await stage.waiting(turn, "a", "b")
    await stage.client.approve(a.id, digest=a.digest)
    await holds(lambda: stage.effects.sprung("a"), "the call in hand")

    mortal.kill()
    stage.effects.release("a")
    await holds(lambda: stage.effects.happened("a"), "the effect")
    await mortal.start()

    await until(lambda: stage.executed(turn, a), "the report")
    await stage.client.approve(b.id, digest=b.digest)
    result = await turn.result()
    assert [one.executed.outcome for one in result.approvals if one.executed] == ["succeeded", "succeeded"]
    assert stage.effects.all() == [("pay", "a", 1), ("pay", "b", 1)]
    assert len(stage.workers) == 1
    assert stage.workers[0].alive
