"""Fixtures for pytest, with pytest-asyncio: a server for the session, and for each test a client and its workers.

    pytest_plugins = ["turngate.testing.fixtures"]

    async def test_it_pays(turngate_client, turngate_worker):
        await turngate_worker(my_agent)
        result = await turngate_client.run_turn("shop", "go", on_approval=ScriptedReviewer({"type": "approve"}))

Each test has a task queue of its own, so tests may run side by side on the one server.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any, Protocol

import pytest_asyncio
from temporalio.worker import Worker

from turngate.agent import Agent
from turngate.client import TurngateClient
from turngate.devserver import DevServer
from turngate.testing.processes import WorkerProcess
from turngate.testing.server import dev_server
from turngate.worker import build_worker

_DRAIN = timedelta(seconds=1)


class StartWorker(Protocol):
    """What `turngate_worker` is: starts a worker in this process, `options` as for `build_worker`."""

    def __call__(self, *agents: Agent, **options: Any) -> Awaitable[Worker]: ...


class StartProcess(Protocol):
    """What `turngate_worker_process` is: starts a worker process for agents named as `module:attribute`."""

    def __call__(self, *references: str, env: Mapping[str, str] | None = None) -> Awaitable[WorkerProcess]: ...


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def turngate_server() -> AsyncIterator[DevServer]:
    """One real server in memory for the whole session, on a free port; `pass_time` works on it."""
    async with dev_server(time_skipping=True) as server:
        yield server


@pytest_asyncio.fixture
async def turngate_client(turngate_server: DevServer) -> TurngateClient:
    """A client whose turns go to a task queue of this test's own."""
    return TurngateClient(await turngate_server.client(), task_queue=f"test-{uuid.uuid4().hex[:12]}")


@pytest_asyncio.fixture
async def turngate_worker(turngate_client: TurngateClient) -> AsyncIterator[StartWorker]:
    """A function that runs agents until the test ends: `worker = await turngate_worker(agent, ...)`."""
    async with AsyncExitStack() as running:

        async def start(*agents: Agent, **options: Any) -> Worker:
            # A tool that hangs must not hold up the end of its test for the usual 30 s.
            settings = {"graceful_shutdown_timeout": _DRAIN, **options}
            client, queue = turngate_client.temporal, turngate_client.task_queue
            return await running.enter_async_context(build_worker(client, agents, task_queue=queue, **settings))

        yield start


@pytest_asyncio.fixture
async def turngate_worker_process(
    turngate_server: DevServer, turngate_client: TurngateClient
) -> AsyncIterator[StartProcess]:
    """A function that runs agents in a process of its own, for tests that kill it.

        process = await turngate_worker_process("my_tests.agents:shop")
        await process.kill()

    What is left is ended with the test.
    """
    async with AsyncExitStack() as running:

        async def start(*references: str, env: Mapping[str, str] | None = None) -> WorkerProcess:
            arguments = (turngate_server.address, turngate_client.task_queue, *references)
            process = WorkerProcess("turngate.testing.worker", *arguments, env=env)
            return await running.enter_async_context(process)

        yield start
