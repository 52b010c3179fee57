"""The fixtures that `turngate.testing` gives to other people's tests."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from langchain_core.tools import tool

from turngate import Agent, InterruptOnConfig, Paused
from turngate.testing import ScriptedModel, ScriptedReviewer, pass_time

if TYPE_CHECKING:
    from turngate import TurngateClient
    from turngate.testing.fixtures import StartProcess, StartWorker

pytestmark = pytest.mark.server
pytest_plugins = ["turngate.testing.fixtures"]


@tool
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


def shop() -> Agent:
    """Return an agent that pays once, which a person must allow within two days."""
    call = {"id": "c1", "name": "pay", "args": {"amount": 5}}
    gate = {"pay": InterruptOnConfig(timeout="2d")}
    return Agent("shop", model=ScriptedModel([{"tool_calls": [call]}, "done"]), tools=[pay], interrupt_on=gate)


async def test_worker_and_client_meet(turngate_client: TurngateClient, turngate_worker: StartWorker) -> None:
    """They share the test's own task queue, and a scripted reviewer answers."""
    worker = await turngate_worker(shop())
    assert worker.task_queue == turngate_client.task_queue
    reviewer = ScriptedReviewer({"type": "approve"})
    result = await turngate_client.run_turn("shop", "go", on_approval=reviewer)
    assert not isinstance(result, Paused)
    assert result.output == "done"
    assert reviewer.seen[0].args == {"amount": 5}


async def test_time_passes_on_the_server(turngate_client: TurngateClient, turngate_worker: StartWorker) -> None:
    """The server of the fixtures allows it."""
    await turngate_worker(shop())
    paused = await turngate_client.run_turn("shop", "go")
    assert isinstance(paused, Paused)
    await pass_time(turngate_client.temporal, [paused.turn.id], timedelta(days=2))
    assert (await paused.turn.result()).approvals[0].status == "expired"


async def test_killed_process_leaves_a_question(
    turngate_client: TurngateClient, turngate_worker_process: StartProcess, tmp_path: Path
) -> None:
    """A worker that is killed in the middle of a tool: the next one asks a person instead of guessing."""
    env = {"LOST_FOLDER": str(tmp_path)}
    process = await turngate_worker_process("tests.integration.lost_agents:main", env=env)
    turn = await turngate_client.start_turn("main", "go")
    async with asyncio.timeout(30):
        while not (tmp_path / "begun").exists():
            await asyncio.sleep(0.02)
    await process.kill()

    await turngate_worker_process("tests.integration.lost_agents:main", env=env)
    paused = await turngate_client.wait(turn)
    assert isinstance(paused, Paused)
    assert [approval.type for approval in paused.approvals] == ["recovery"]
    await turngate_client.respond(paused.approvals[0].id, "It was done.")
    assert (await turn.result()).output == "done"
