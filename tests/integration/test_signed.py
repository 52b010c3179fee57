"""Signed decisions on the real server: by update, by signal, before the call exists, and at replay."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from langchain_core.tools import tool
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client

from turngate import Agent, InterruptOnConfig, TurngateClient, build_worker
from turngate.contracts import Json, digest_of
from turngate.devserver import DevServer
from turngate.errors import NotAReviewerError
from turngate.handles import TurnHandle
from turngate.testing import ScriptedModel, dev_server
from turngate.verifier import DecisionVerifier, claims_of, register, sign_decision

pytestmark = pytest.mark.server

SECRET = "a-secret-of-more-than-32-bytes-for-tests"
CALL: Json = {"tool_calls": [{"id": "c1", "name": "pay", "args": {"amount": 5}}]}


@tool
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@pytest.fixture(scope="module")
async def server() -> AsyncIterator[DevServer]:
    async with dev_server() as running:
        yield running


@pytest.fixture
async def temporal(server: DevServer) -> Client:
    return await server.client()


class WaitingModel(ScriptedModel):
    """Answers when it is told to."""

    def _next(self, messages: Any) -> Any:
        assert RELEASE.wait(30)
        return super()._next(messages)


RELEASE = threading.Event()


@contextlib.asynccontextmanager
async def working(
    temporal: Client, *script: object, model: type[ScriptedModel] = ScriptedModel, **options: Any
) -> AsyncIterator[TurngateClient]:
    """A worker with one agent, whose decisions must be signed."""
    name = f"agent-{uuid.uuid4()}"
    gate = InterruptOnConfig(**options.pop("gate", {}))
    agent = Agent(
        name,
        model=model(script or (CALL, {"text": "done"})),
        tools=[pay],
        interrupt_on={"pay": gate},
        verifier=DecisionVerifier({"k1": SECRET}),
        **options,
    )
    async with build_worker(temporal, [agent], task_queue=name):
        yield TurngateClient(temporal, name)


def signed(decision: Json, reviewer: str = "ann", **more: Any) -> Json:
    return sign_decision(
        decision, kid="k1", algorithm="HS256", reviewer=reviewer, **{"key": SECRET, "expires_in": "1h", **more}
    )


async def paused(client: TurngateClient) -> tuple[TurnHandle, Json]:
    """Start a turn and return the decision that its approval asks for, not signed yet."""
    found = await client.run_turn(client.task_queue, "go")
    approval = found.approvals[0]
    return found.turn, {"approval_id": approval.id, "digest": approval.digest, "type": "approve"}


async def signal(client: TurngateClient, turn: TurnHandle, decision: Json) -> None:
    await client.temporal.get_workflow_handle(turn.id).signal("decide", decision)


async def refusals(turn: TurnHandle, count: int) -> list[Any]:
    """Wait until so many signals were refused."""

    async def enough() -> list[Any]:
        found = list(await turn.refused())
        return found if len(found) >= count else []

    return await eventually(enough)


async def eventually(look: Callable[[], Awaitable[Any]]) -> Any:
    """Look until there is something."""
    async with asyncio.timeout(30):
        while True:
            if found := await look():
                return found
            await asyncio.sleep(0.05)


async def test_a_signed_update_decides(temporal: Client) -> None:
    """The reviewer of the record is the one of the token."""
    async with working(temporal) as client:
        turn, decision = await paused(client)
        await client.decide(signed(decision))
        result = await turn.result()
    assert result.approvals[0].resolution.reviewer == "ann"
    assert result.approvals[0].executed.outcome == "succeeded"


async def expired(decision: Json) -> Json:
    """Return the decision when its token has expired, which is told in whole seconds."""
    ends = claims_of(decision["token"])["exp"]
    async with asyncio.timeout(10):
        while time.time() < ends:
            await asyncio.sleep(0.05)
    return decision


async def test_bad_updates_are_refused_and_change_nothing(temporal: Client) -> None:
    """Unsigned, forged, altered and expired ones; none of them leaves an event in history."""
    async with working(temporal) as client:
        turn, decision = await paused(client)
        good = signed(decision)
        bad = [
            {**decision, "reviewer": "ann"},
            signed(decision, key="another-secret-of-more-than-32-bytes!!"),
            {**good, "reviewer": "bob"},
            {**good, "type": "reject"},
            {**good, "comment": "as discussed"},
            await expired(signed(decision, expires_in=0.5)),
        ]
        before = (await client.temporal.get_workflow_handle(turn.id).describe()).history_length
        for one in bad:
            with pytest.raises(NotAReviewerError) as caught:
                await client.decide(one)
            assert caught.value.refusals[0].path == ("token",)
        assert (await client.temporal.get_workflow_handle(turn.id).describe()).history_length == before
        assert len(await turn.pending()) == 1
        await client.decide(good)
        await turn.result()


async def test_a_signal_is_verified_by_an_activity(temporal: Client) -> None:
    """Bad ones are kept as refused, good ones decide, in the order in which they came."""
    async with working(temporal) as client:
        turn, decision = await paused(client)
        await signal(client, turn, decision)
        await signal(client, turn, signed(decision, key="another-secret-of-more-than-32-bytes!!", reviewer="eve"))
        await signal(client, turn, signed({**decision, "type": "reject", "message": "first"}))
        await signal(client, turn, signed(decision, reviewer="bob"))
        found = await refusals(turn, 2)
        result = await turn.result()
    assert [one.code for one in found[:2]] == ["not_a_reviewer", "not_a_reviewer"]
    assert [one.by for one in found[:2]] == [None, "eve"]
    assert result.approvals[0].resolution.message == "first"


async def test_a_list_is_verified_one_by_one(temporal: Client) -> None:
    """All or none: one unsigned decision refuses the list."""
    calls = [{"id": f"c{n}", "name": "pay", "args": {"amount": n}} for n in (1, 2)]
    async with working(temporal, {"tool_calls": calls}, {"text": "done"}, interrupt_mode="batched") as client:
        found = await client.run_turn(client.task_queue, "go")
        asked = [{"approval_id": one.id, "digest": one.digest, "type": "approve"} for one in found.approvals]
        with pytest.raises(NotAReviewerError) as caught:
            await client.decide({"decisions": [signed(asked[0]), {**asked[1], "reviewer": "ann"}]})
        assert [one.approval_id for one in caught.value.refusals] == [asked[1]["approval_id"]]
        ready = [signed(one) for one in asked]
        by_position = [{key: value for key, value in one.items() if key != "approval_id"} for one in ready]
        await found.turn.decide({"decisions": by_position})
        assert (await found.turn.result()).status == "completed"


async def test_roles_of_the_token_count(temporal: Client) -> None:
    """`role:cfo` needs no list of names on the agent: whoever signs says who has the role."""
    async with working(temporal, gate={"reviewers": ["role:cfo"]}) as client:
        turn, decision = await paused(client)
        with pytest.raises(NotAReviewerError, match="may not decide"):
            await client.decide(signed(decision, roles=["dba"]))
        await client.decide(signed(decision, roles=["cfo"]))
        assert (await turn.result()).approvals[0].resolution.reviewer == "ann"


async def test_nobody_lets_himself_in_by_reassigning(temporal: Client) -> None:
    """Handing an approval on is signed too, or a good signature of the wrong person would be enough."""
    async with working(temporal, gate={"reviewers": ["ann"]}) as client:
        turn, decision = await paused(client)
        with pytest.raises(NotAReviewerError, match="token"):
            await client.reassign(decision["approval_id"], ["eve"], reviewer="ann")
        proof = signed({**decision, "type": "reassign", "reviewers": ["bob"]})
        with pytest.raises(NotAReviewerError, match="another one than was signed"):
            await client.reassign(
                decision["approval_id"], ["eve"], **{key: proof[key] for key in ("reviewer", "digest", "token")}
            )
        await client.reassign(
            decision["approval_id"], ["bob"], **{key: proof[key] for key in ("reviewer", "digest", "token")}
        )
        await client.decide(signed(decision, reviewer="bob"))
        assert (await turn.result()).approvals[0].resolution.reviewer == "bob"


async def test_early_decisions_are_verified_before_they_count(temporal: Client) -> None:
    """Before the model's first answer it is not known that decisions must be signed: they are held, then verified."""
    RELEASE.clear()
    async with working(temporal, model=WaitingModel) as client:
        turn = await client.start_turn(client.task_queue, "go")
        run = await client.temporal.get_workflow_handle(turn.id).describe()
        early = {
            "approval_id": f"{turn.id}/{run.run_id[-6:]}-1",
            "digest": digest_of("pay", {"amount": 5}),
            "type": "approve",
        }
        await signal(client, turn, {**early, "reviewer": "eve"})
        await signal(client, turn, signed({**early, "type": "reject", "message": "early"}))
        await turn.status()
        RELEASE.set()
        result = await turn.result()
        refused = await turn.refused()
    assert result.approvals[0].resolution.message == "early"
    assert result.approvals[0].executed is None
    assert [one.by for one in refused] == ["eve"]


async def test_a_reset_verifies_again(temporal: Client) -> None:
    """After a reset to before the model's answer the server sends the decision once more: it is held and verified."""
    async with working(temporal, CALL, {"text": "done"}, CALL, {"text": "done again"}) as client:
        turn, decision = await paused(client)
        await client.decide(signed(decision))
        await turn.result()
        run = (await client.temporal.get_workflow_handle(turn.id).describe()).run_id
        await client.temporal.workflow_service.reset_workflow_execution(
            ResetWorkflowExecutionRequest(
                namespace=client.temporal.namespace,
                workflow_execution=WorkflowExecution(workflow_id=turn.id, run_id=run),
                workflow_task_finish_event_id=4,
                request_id=str(uuid.uuid4()),
            )
        )
        result = await turn.result()
        handle = client.temporal.get_workflow_handle(turn.id)
        names = [
            event.activity_task_scheduled_event_attributes.activity_type.name
            async for event in handle.fetch_history_events()
            if event.HasField("activity_task_scheduled_event_attributes")
        ]
    assert result.approvals[0].resolution.reviewer == "ann"
    assert names.count("verify_decision") == 1


async def test_replay_needs_no_key(temporal: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run goes on after its key was removed: what was verified once is not verified again at replay."""
    # Each decision meets a run that must be replayed first. The answer is waited for, however slow the machine.
    monkeypatch.setattr("turngate.sending.UPDATE_LIMIT", 30.0)
    name = f"agent-{uuid.uuid4()}"

    def worker(kid: str, *script: object) -> Any:
        agent = Agent(
            name,
            model=ScriptedModel(script),
            tools=[pay],
            interrupt_on={"pay": True},
            verifier=DecisionVerifier({kid: SECRET}),
        )
        return build_worker(temporal, [agent], task_queue=name, max_cached_workflows=0)

    client = TurngateClient(temporal, name)
    async with worker("k1", CALL, CALL):
        turn, decision = await paused(client)
        await client.decide(signed(decision))
        waiting = await eventually(turn.pending)
    async with worker("k2", {"text": "done"}):
        asked = {"approval_id": waiting[0].id, "digest": waiting[0].digest, "type": "reject"}
        with pytest.raises(NotAReviewerError, match="'k1', which is not known"):
            await client.decide(signed(asked))
        await client.decide(
            sign_decision(asked, key=SECRET, kid="k2", algorithm="HS256", reviewer="bob", expires_in=60)
        )
        result = await turn.result()
    assert [one.resolution.reviewer for one in result.approvals if one.resolution] == ["ann", "bob"]


class Unusable:
    """Stands where a worker's verifier has got lost."""

    def verify(self, decision: Json, now: object) -> None:
        raise RuntimeError("no keys")


async def test_without_a_verifier_nobody_decides(temporal: Client) -> None:
    """It fails closed, for updates and signals."""
    async with working(temporal) as client:
        turn, decision = await paused(client)
        register(client.task_queue, Unusable())
        with pytest.raises(NotAReviewerError, match="RuntimeError"):
            await client.decide(signed(decision))
        assert len(await turn.pending()) == 1
        await turn.stop()
        await turn.result()


async def test_a_turn_does_not_end_in_the_middle_of_a_signature(temporal: Client) -> None:
    """A stop that comes together with signed signals ends the turn; what was under way is told as refused."""
    async with working(temporal) as client:
        turn, decision = await paused(client)
        many = [signal(client, turn, signed(decision, reviewer=f"r{n}")) for n in range(5)]
        # The first signature may be good, and the turn at its end, before the last of these has been sent.
        await asyncio.gather(*many, turn.stop(), return_exceptions=True)
        result = await turn.result()
        handle = client.temporal.get_workflow_handle(turn.id)
        causes = {
            event.workflow_task_failed_event_attributes.cause
            async for event in handle.fetch_history_events()
            if event.HasField("workflow_task_failed_event_attributes")
        }
    # So the server says that something came while the turn was ending; the task is done once more.
    assert causes <= {WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND}
    assert result.status in ("stopped", "completed")
