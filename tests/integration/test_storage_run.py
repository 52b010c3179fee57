"""Turns whose large payloads lie outside the server: nothing is cut, and nothing from outside reaches the storage."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from langchain_core.tools import tool
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from tests.fuzz.sending import Shot, send
from tests.fuzz.stage import until_a_task_failed
from turngate import Agent, DevServer, Paused, TurngateClient, build_worker
from turngate.contracts import KIB
from turngate.storage import folder_storage
from turngate.testing import ScriptedModel, dev_server

pytestmark = pytest.mark.server

MIB = 1024 * KIB
LARGE = 3 * MIB
HEALED = 60.0
"""Seconds for a failed task to be tried again: the server waits 10 after some failures, and more each time."""
_METADATA = {"encoding": b"json/protobuf", "messageType": b"temporal.api.sdk.v1.ExternalStorageReference"}


@pytest.fixture(scope="module")
async def server() -> AsyncIterator[DevServer]:
    """Run one server for the module."""
    async with dev_server() as running:
        yield running


@pytest.fixture
async def client(server: DevServer, tmp_path: Path) -> Client:
    """Connect a client that keeps large payloads in a folder of the test's own."""
    storage = folder_storage(tmp_path / "payloads")
    return await server.client(data_converter=replace(pydantic_data_converter, external_storage=storage))


@tool
def report() -> str:
    """Return a long report."""
    return "r" * LARGE


def agent(**options: int) -> Agent:
    """Return an agent that asks for the report."""
    script = [{"tool_calls": [{"id": "call_1", "name": "report", "args": {}}]}, "done"]
    return Agent("main", model=ScriptedModel(script), tools=[report], interrupt_on={"report": True}, **options)


async def paused(client: Client, queue: str, text: str = "go") -> tuple[TurngateClient, Paused]:
    """Start a turn and return it once it is paused."""
    turns = TurngateClient(client, task_queue=queue)
    found = await turns.run_turn("main", text, turn_id=f"turn-{uuid.uuid4().hex[:8]}")
    assert isinstance(found, Paused)
    return turns, found


async def test_a_large_input_and_a_large_result_are_kept_whole(client: Client, tmp_path: Path) -> None:
    """The result is over what the server takes in one payload; history holds references to both."""
    main = agent(max_result_bytes=2 * LARGE)
    async with build_worker(client, [main], task_queue="whole"):
        turns, found = await paused(client, "whole", "g" * (MIB - 64 * KIB))
        await turns.approve(found.approvals[0].id)
        result = await found.turn.result()
        assert result.output == "done"
        messages = await found.turn.messages()
    assert [len(message["content"]) for message in messages if message["type"] == "tool"] == [LARGE]
    description = await client.get_workflow_handle(found.turn.id).describe()
    assert description.raw_description.workflow_execution_info.history_size_bytes < 100 * KIB
    assert sum(path.stat().st_size for path in (tmp_path / "payloads").rglob("*") if path.is_file()) > LARGE


@pytest.mark.parametrize(
    "data",
    [
        b'{"driverName": "turngate-folder", "claimData": {"sha256": "../../../etc/passwd"}}',
        b'{"driverName": "turngate-folder", "claimData": {"sha256": "' + b"0" * 64 + b'"}}',
        b'{"driverName": "s3", "claimData": {"bucket": "b", "key": "k"}}',
    ],
    ids=["a path", "no such payload", "another driver"],
)
@pytest.mark.parametrize("configured", [True, False], ids=["with storage", "without storage"])
async def test_a_forged_reference_is_refused(client: Client, server: DevServer, data: bytes, configured: bool) -> None:
    """The run says that it can't be read, waits on, and is decided."""
    used = client if configured else await server.client()
    queue = f"forged-{uuid.uuid4().hex[:8]}"
    forged = Payload(metadata=_METADATA, data=data)
    async with build_worker(used, [agent()], task_queue=queue):
        turns, found = await paused(used, queue)
        for channel in ("signal", "update"):
            await send(used, found.turn.id, queue, Shot("forged", channel, "decide", [forged]))
        [refused] = await found.turn.refused()
        assert "binary/undecodable" in refused.message
        await turns.approve(found.approvals[0].id)
        assert (await found.turn.result()).output == "done"


@pytest.mark.slow
async def test_storage_that_is_gone_for_a_while_loses_nothing(client: Client, tmp_path: Path) -> None:
    """The task is tried again until the folder is back."""
    folder, away, main = tmp_path / "payloads", tmp_path / "away", agent()
    async with build_worker(client, [main], task_queue="gone"):
        _, found = await paused(client, "gone", "g" * (MIB // 2))
    folder.rename(away)
    async with build_worker(client, [main], task_queue="gone"):
        handle = client.get_workflow_handle(found.turn.id)
        await handle.signal("decide", {"approval_id": found.approvals[0].id, "type": "reject"})
        await until_a_task_failed(handle)
        away.rename(folder)
        assert (await asyncio.wait_for(found.turn.result(), HEALED)).output == "done"
