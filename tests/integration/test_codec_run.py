"""Whole turns with everything encrypted: what history shows, what a client without the key can do, how keys change."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from langchain_core.tools import tool
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowUpdateFailedError
from temporalio.common import RawValue
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Worker

from tests.fuzz.sending import Shot, send
from tests.fuzz.stage import until_a_task_failed
from turngate import Agent, DevServer, Paused, TurngateClient, build_worker
from turngate.codec import EncryptionCodec
from turngate.contracts import Approval
from turngate.testing import ScriptedModel, dev_server

pytestmark = pytest.mark.server

OLD, NEW = b"o" * 32, b"n" * 32
SECRET = "DE02 1203 0000 0000 2020 51"
FORGED = Payload(metadata={"encoding": b"binary/encrypted", "encryption-key-id": b"k1"}, data=b"x" * 100)
UNKNOWN_KEY = Payload(metadata={"encoding": b"binary/encrypted", "encryption-key-id": b"nobody"}, data=b"x" * 100)


@tool
def pay(account: str) -> str:
    """Pay to an account."""
    return f"paid to {account}"


def agent() -> Agent:
    """Return an agent whose arguments are nobody else's business."""
    call = {"id": "call_1", "name": "pay", "args": {"account": SECRET}}
    return Agent("main", model=ScriptedModel([{"tool_calls": [call]}, "done"]), tools=[pay], interrupt_on={"pay": True})


@pytest.fixture(scope="module")
async def server() -> AsyncIterator[DevServer]:
    """Run one server for the module."""
    async with dev_server() as running:
        yield running


async def client_with(server: DevServer, **keys: bytes) -> Client:
    """Connect a client that encrypts with the first key; without keys it has no codec."""
    codec = EncryptionCodec(keys) if keys else None
    return await server.client(data_converter=replace(pydantic_data_converter, payload_codec=codec))


def worker_with(client: Client, main: Agent) -> Worker:
    """Return a worker on a task queue of the agent's own."""
    return build_worker(client, [main], task_queue=queue_of(main))


def queue_of(main: Agent) -> str:
    """Return the same task queue for the same agent."""
    return f"codec-{id(main)}"


async def paused(client: Client, main: Agent) -> tuple[TurngateClient, Approval]:
    """Start a turn and return what waits in it."""
    turns = TurngateClient(client, task_queue=queue_of(main))
    found = await turns.run_turn("main", f"pay to {SECRET}", turn_id=f"turn-{uuid.uuid4().hex[:8]}")
    assert isinstance(found, Paused)
    return turns, found.approvals[0]


async def history_of(client: Client, approval: Approval) -> str:
    """Return all that the server keeps of the run, as text."""
    history = await client.get_workflow_handle(approval.context.turn_id).fetch_history()
    texts = [json.dumps(history.to_json_dict())]
    texts += [payload.data.decode("utf-8", "replace") for event in history.events for payload in payloads_in(event)]
    return "".join(texts)


def payloads_in(message: Any) -> list[Payload]:
    """Find every payload in a message of the server."""
    if isinstance(message, Payload):
        return [message]
    found: list[Payload] = []
    for _, value in message.ListFields():
        for part in value.values() if hasattr(value, "values") else value if hasattr(value, "append") else [value]:
            found += payloads_in(part) if hasattr(part, "ListFields") else []
    return found


async def test_the_server_sees_nothing_of_a_turn(server: DevServer) -> None:
    """Input, arguments, decision, result and the summaries in the UI are encrypted; the turn goes on as ever."""
    client, main = await client_with(server, k1=OLD), agent()
    async with worker_with(client, main):
        turns, approval = await paused(client, main)
        assert approval.args == {"account": SECRET}
        await turns.approve(approval.id, reviewer="alice", comment=f"yes, {SECRET}")
        result = await turns.turn(approval.context.turn_id).result()
    assert result.output == "done"
    assert result.approvals[0].votes[0].reviewer == "alice"
    kept = await history_of(client, approval)
    assert SECRET not in kept
    assert "alice" not in kept
    assert "binary/encrypted" in kept or "YmluYXJ5L2VuY3J5cHRlZA" in kept


async def test_a_client_without_the_key_can_decide_in_plain_json(server: DevServer) -> None:
    """The command line, the UI and other languages send plain JSON; it is read, and the answer is encrypted."""
    client, main = await client_with(server, k1=OLD), agent()
    plain = await client_with(server)
    async with worker_with(client, main):
        for channel in ("signal", "update"):
            turns, approval = await paused(client, main)
            handle = plain.get_workflow_handle(approval.context.turn_id)
            decision = {"approval_id": approval.id, "type": "approve", "reviewer": channel}
            if channel == "signal":
                await handle.signal("decide", decision)
            else:
                answer = await handle.execute_update("decide", decision, result_type=RawValue)
                assert answer.payload.metadata["encoding"] == b"binary/encrypted"
            result = await turns.turn(approval.context.turn_id).result()
            assert [vote.reviewer for vote in result.approvals[0].votes] == [channel]


@pytest.mark.parametrize("payload", [FORGED, UNKNOWN_KEY], ids=["forged", "unknown key"])
async def test_what_cannot_be_decrypted_is_refused(server: DevServer, payload: Payload) -> None:
    """By update with an error, by signal with a recorded refusal; the run waits on, and is decided."""
    client, main = await client_with(server, k1=OLD), agent()
    async with worker_with(client, main):
        turns, approval = await paused(client, main)
        turn_id, queue = approval.context.turn_id, queue_of(main)
        answer = await send(client, turn_id, queue, Shot("undecodable", "update", "decide", [payload]))
        assert answer.startswith("refused:")
        await send(client, turn_id, queue, Shot("undecodable", "signal", "decide", [payload]))
        turn = turns.turn(turn_id)
        [refused] = await turn.refused()
        assert "binary/undecodable" in refused.message
        assert [waiting.id for waiting in await turn.pending()] == [approval.id]
        await turns.approve(approval.id)
        assert (await turn.result()).output == "done"


async def test_a_refusal_reaches_a_client_with_the_key(server: DevServer) -> None:
    """Errors cross the codec as well."""
    client, main = await client_with(server, k1=OLD), agent()
    async with worker_with(client, main):
        _, approval = await paused(client, main)
        handle = client.get_workflow_handle(approval.context.turn_id)
        with pytest.raises(WorkflowUpdateFailedError) as caught:
            await handle.execute_update("decide", {"approval_id": approval.id, "type": "allow"})
        assert "unknown type" in str(caught.value.cause)
        await handle.terminate()


async def test_keys_change_while_a_turn_is_paused(server: DevServer) -> None:
    """Add the new key everywhere, then use it everywhere: a run that was started with the old one goes on."""
    main = agent()
    before = await client_with(server, k1=OLD)
    async with worker_with(before, main):
        _, approval = await paused(before, main)
    added = await client_with(server, k1=OLD, k2=NEW)
    async with worker_with(added, main):
        moved = await client_with(server, k2=NEW, k1=OLD)
        turns = TurngateClient(moved, task_queue=queue_of(main))
        [waiting] = await turns.turn(approval.context.turn_id).pending()
        assert waiting.args == {"account": SECRET}
    async with worker_with(moved, main):
        await turns.approve(approval.id)
        assert (await turns.turn(approval.context.turn_id).result()).output == "done"
    payloads = [
        payload.metadata["encryption-key-id"]
        for event in (await moved.get_workflow_handle(approval.context.turn_id).fetch_history()).events
        for payload in payloads_in(event)
        if payload.metadata.get("encoding") == b"binary/encrypted"
    ]
    assert payloads[0] == b"k1"
    assert payloads[-1] == b"k2"


@pytest.mark.slow
async def test_a_worker_that_lacks_a_key_loses_nothing(server: DevServer) -> None:
    """It can't replay the run, and the run waits for one that can."""
    main = agent()
    good = await client_with(server, k1=OLD)
    async with worker_with(good, main):
        turns, approval = await paused(good, main)
    turn = turns.turn(approval.context.turn_id)
    async with worker_with(await client_with(server, k2=NEW), main):
        # Its history can't be read here, so the task fails and is tried again.
        handle = good.get_workflow_handle(turn.id)
        await handle.signal("decide", {"approval_id": approval.id, "type": "approve"})
        await until_a_task_failed(handle)
    async with worker_with(good, main):
        assert (await asyncio.wait_for(turn.result(), 60)).output == "done"
