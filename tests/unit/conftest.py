"""What the tests of the client and the command line share: a server, and a shop that pays only when told to."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

import pytest
from langchain_core.tools import tool

from turngate.agent import Agent
from turngate.client import TurngateClient
from turngate.devserver import DevServer
from turngate.testing import ScriptedModel, dev_server
from turngate.worker import build_worker

Script = list[object]
RunShop = Callable[..., AbstractAsyncContextManager[TurngateClient]]


@tool
def pay(to: str, amount: int) -> str:
    """Pay somebody."""
    return f"paid {amount} to {to}"


@tool
def read_table(table: str) -> str:
    """Read a table."""
    return f"3 rows of {table}"


def call(call_id: str, name: str, **args: object) -> dict[str, object]:
    """One tool call of a script."""
    return {"id": call_id, "name": name, "args": args}


def calls(*tool_calls: dict[str, object], text: str = "") -> dict[str, object]:
    """One answer of a script that calls tools."""
    return {"text": text, "tool_calls": list(tool_calls)}


PAY_5 = calls(call("c1", "pay", to="acme", amount=5))


@pytest.fixture(scope="session")
async def server() -> AsyncIterator[DevServer]:
    """One development server for all tests of this folder."""
    async with dev_server() as running:
        yield running


@pytest.fixture
def shop(server: DevServer, request: pytest.FixtureRequest) -> RunShop:
    """Run an agent with this script on a task queue of its own; gives a client for as long as its worker runs."""
    queue = request.node.name

    @contextlib.asynccontextmanager
    async def run(*script: object, name: str = "shop", **options: object) -> AsyncIterator[TurngateClient]:
        temporal = await server.client()
        settings: dict[str, object] = {"interrupt_on": {"pay": True}, "tools": [pay, read_table], **options}
        agent = Agent(name, model=ScriptedModel(script), **settings)
        async with build_worker(temporal, [agent], task_queue=queue):
            yield TurngateClient(temporal, queue)

    return run
