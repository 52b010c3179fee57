"""What can't be prevented from inside a run: how it shows, and that what the documentation says against it works."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import (
    ExternalStorage,
    StorageDriver,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
)

from tests.fuzz.sending import Shot
from tests.fuzz.stage import Stage, stage
from turngate.devserver import DevServer, find_binary
from turngate.testing import dev_server

pytestmark = [pytest.mark.server, pytest.mark.slow]

LARGE = Payload(metadata={"encoding": b"json/plain"}, data=b"x" * 1_900_000)
REFERENCE = Payload(
    metadata={"encoding": b"json/protobuf", "messageType": b"temporal.api.sdk.v1.ExternalStorageReference"},
    data=json.dumps({"driverName": "bucket", "claimData": {"key": "nothing"}}).encode(),
)
# The attribute is set after 5 failures, which take about a minute; a test need not wait for the other four.
SOON = "system.numConsecutiveWorkflowTaskProblemsToTriggerSearchAttribute=1"


class Bucket(StorageDriver):
    """Like the SDK's driver for S3: whatever the reason, what can't be read is an error that may pass."""

    def name(self) -> str:
        return "bucket"

    async def store(self, context: StorageDriverStoreContext, payloads: Sequence[Payload]) -> list[StorageDriverClaim]:
        raise NotImplementedError

    async def retrieve(
        self, context: StorageDriverRetrieveContext, claims: Sequence[StorageDriverClaim]
    ) -> list[Payload]:
        raise RuntimeError("retrieve failed [bucket=b, key=nothing]")


async def reset(server: DevServer, workflow_id: str) -> None:
    """Run the command of the documentation."""
    command = ["workflow", "reset", "--workflow-id", workflow_id, "--type", "LastWorkflowTask"]
    command += ["--reapply-exclude", "All", "--reason", "poison", "--address", server.address]
    process = await asyncio.create_subprocess_exec(
        find_binary(), *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()


async def until_reported(client: Client, workflow_id: str) -> None:
    """Wait until the list that the documentation gives shows the run."""
    async with asyncio.timeout(60):
        while True:
            async for found in client.list_workflows("TemporalReportedProblems IS NOT NULL"):
                if found.id == workflow_id:
                    return
            await asyncio.sleep(0.2)


async def test_a_reference_into_the_users_own_storage() -> None:
    """A driver that raises for a forged reference stalls the run, for it might be an outage; reset frees it."""
    storage = ExternalStorage(drivers=[Bucket()])
    async with dev_server(dynamic_config=[SOON]) as server:
        client = await server.client(data_converter=replace(pydantic_data_converter, external_storage=storage))
        async with stage(server, client=client) as attacked:
            target = await attacked.pause()
            await attacked.fire(target.id, [Shot("forged", "signal", "decide", [REFERENCE])])
            await until_reported(client, target.id)
            await reset(server, target.id)
            assert (await after_reset(attacked, target.id, target.approvals))["status"] == "completed"


async def test_a_flood_that_no_worker_could_take() -> None:
    """75 MB while no worker runs: the server terminates the run. Reset brings it back as it was, without the junk."""
    async with dev_server() as server:
        async with stage(server) as attacked:
            target = await attacked.pause()
        answers = [(await attacked.fire(target.id, [Shot("large", "signal", "decide", [LARGE])]))[0] for _ in range(40)]
        assert "exceeds limit" in next(answer for answer in answers if answer != "ok")
        assert (await target.handle.describe()).status is WorkflowExecutionStatus.TERMINATED
        await reset(server, target.id)
        async with attacked.worker():
            assert (await after_reset(attacked, target.id, target.approvals))["status"] == "completed"
        assert attacked.journal.count("paid") == 1


async def after_reset(attacked: Stage, workflow_id: str, approvals: list[dict[str, Any]]) -> dict[str, Any]:
    """The approval stands as before, and is approved."""
    handle = attacked.client.get_workflow_handle(workflow_id)
    async with asyncio.timeout(30):
        [found] = (await handle.query("pending"))["approvals"]
        assert found["id"] == approvals[0]["id"]
        assert found["digest"] == approvals[0]["digest"]
        await handle.execute_update("decide", {"approval_id": found["id"], "type": "approve"})
        result: dict[str, Any] = await handle.result()
        return result
