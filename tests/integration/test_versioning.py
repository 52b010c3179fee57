"""Two builds of a worker at once, told apart by Temporal's Worker Versioning."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import get_args

import pytest
from langchain_core.tools import tool
from temporalio.api.workflowservice.v1 import SetWorkerDeploymentCurrentVersionRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

from turngate import Agent, DevServer, Paused, TurngateClient, TurnResult, build_worker
from turngate.testing import ScriptedModel, dev_server
from turngate.worker import Versioning

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
async def server() -> AsyncIterator[DevServer]:
    """Run one server for the module."""
    async with dev_server() as running:
        yield running


def build(client: Client, queue: str, model: ScriptedModel, build_id: str, versioning: Versioning) -> Worker:
    """Return a worker whose gated tool says which build it belongs to."""

    @tool
    def ship() -> str:
        """Ship it."""
        return f"shipped by {build_id}"

    main = Agent("main", model=model, tools=[ship], interrupt_on={"ship": True})
    return build_worker(client, [main], task_queue=queue, deployment=queue, build_id=build_id, versioning=versioning)


async def make_current(client: Client, deployment: str, build_id: str) -> None:
    """Send new runs to this build, as `temporal worker deployment set-current-version` does; once it has polled."""
    request = SetWorkerDeploymentCurrentVersionRequest(
        namespace=client.namespace, deployment_name=deployment, build_id=build_id
    )
    async with asyncio.timeout(30):
        while True:
            try:
                await client.workflow_service.set_worker_deployment_current_version(request)
                return
            except RPCError as error:
                if error.status not in (RPCStatusCode.NOT_FOUND, RPCStatusCode.FAILED_PRECONDITION):
                    raise
            await asyncio.sleep(0.05)


async def pause(turns: TurngateClient) -> Paused:
    """Start a turn that waits for a person."""
    paused = await turns.run_turn("main", "Ship it.")
    assert isinstance(paused, Paused)
    return paused


async def shipped(turns: TurngateClient, paused: Paused) -> str:
    """Approve, and return what the tool said."""
    await turns.approve(paused.approvals[0].id)
    result = await paused.turn.result()
    assert isinstance(result, TurnResult)
    [said] = [message["content"] for message in await paused.turn.messages() if message["type"] == "tool"]
    return str(said)


@pytest.mark.parametrize("versioning", get_args(Versioning))
async def test_a_call_waits_over_a_deploy(server: DevServer, versioning: Versioning) -> None:
    """Pinned turns end on the build they began with, others go over to the new one; new turns begin there."""
    client, queue = await server.client(), f"builds-{uuid.uuid4().hex[:8]}"
    turns = TurngateClient(client, task_queue=queue)
    # One for both builds: it keeps the place of each turn in its script.
    model = ScriptedModel([{"tool_calls": [{"id": "c1", "name": "ship", "args": {}}]}, "done"])
    async with build(client, queue, model, "b1", versioning):
        await make_current(client, queue, "b1")
        before = await pause(turns)
        async with build(client, queue, model, "b2", versioning):
            await make_current(client, queue, "b2")
            after = await pause(turns)
            assert await shipped(turns, before) == ("shipped by b1" if versioning == "pinned" else "shipped by b2")
            assert await shipped(turns, after) == "shipped by b2"
