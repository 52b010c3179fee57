"""Whole turns with `langchain-openai` over HTTP: what goes over OpenAI's wire, and what comes of its errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from langchain_core.tools import BaseTool, tool
from pydantic import SecretStr
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from tests.integration.openai_server import Fails, OpenAIServer, Says
from turngate import Agent, Paused, TurnFailedError, TurngateClient, TurnHandle, TurnResult, TurnStatus, build_worker
from turngate.testing import dev_server

pytestmark = pytest.mark.server

PAY = ("call_1", "pay", {"to": "Ada", "amount": 5})


@pytest.fixture(scope="module")
async def temporal() -> AsyncIterator[Client]:
    """A client of a server for the tests of this module."""
    async with dev_server() as server:
        yield await server.client()


class Bank:
    """The tools, and what ran."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, Any]] = []

    def tools(self) -> list[BaseTool]:
        @tool
        def pay(to: str, amount: int) -> str:
            """Pay somebody."""
            self.ran.append((to, amount))
            return f"paid {amount} to {to}"

        @tool
        def balance() -> str:
            """Look how much there is."""
            self.ran.append(("balance", None))
            return "100"

        return [pay, balance]


class Scene:
    """An agent with a real OpenAI client, a worker, and the server that it talks to."""

    def __init__(self, temporal: Client, queue: str, openai: OpenAIServer, bank: Bank) -> None:
        self.openai = openai
        self.bank = bank
        self.client = TurngateClient(temporal, queue)
        self.temporal = temporal

    async def pauses(self, **options: Any) -> Paused:
        paused = await self.client.run_turn("teller", "Pay Ada 5", **options)
        assert isinstance(paused, Paused)
        return paused

    async def ends(self, **options: Any) -> TurnResult:
        result = await self.client.run_turn("teller", "Pay Ada 5", **options)
        assert isinstance(result, TurnResult)
        return result

    async def attempts(self, turn: TurnHandle) -> list[int]:
        """Return the attempt in which each model call ended."""
        history = self.temporal.get_workflow_handle(turn.id).fetch_history_events()
        started = EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED
        return [e.activity_task_started_event_attributes.attempt async for e in history if e.event_type == started]


@asynccontextmanager
async def scene(temporal: Client, *script: Says | Fails, **options: Any) -> AsyncIterator[Scene]:
    """Build a scene, with options of the model; afterwards nothing that the wire would refuse may have been sent."""
    bank = Bank()
    with OpenAIServer(script) as openai:
        queue = f"wire-{openai.base_url}"
        # Imported here, and not by every process that collects the tests: it takes seconds.
        from langchain_openai import ChatOpenAI

        model = ChatOpenAI(model="gpt-5", base_url=openai.base_url, api_key=SecretStr("key"), **options)
        agent = Agent("teller", model=model, tools=bank.tools(), interrupt_on={"pay": True})
        async with build_worker(temporal, [agent], task_queue=queue):
            yield Scene(temporal, queue, openai, bank)
    assert openai.problems == []


async def test_a_gated_call_over_the_wire(temporal: Client) -> None:
    """Tools are declared, the call waits, and its result goes back under its id."""
    async with scene(temporal, Says("I pay.", (PAY,)), Says("Paid.")) as s:
        paused = await s.pauses()
        assert s.bank.ran == []
        [approval] = paused.approvals
        assert (approval.name, approval.args, approval.tool_call_id) == ("pay", {"to": "Ada", "amount": 5}, "call_1")
        await s.client.approve(approval.id)
        result = await paused.turn.result()
        assert (result.status, result.output) == (TurnStatus.COMPLETED, "Paid.")
        assert result.usage["total_tokens"] == 60
        assert s.bank.ran == [("Ada", 5)]
        assert [entry["function"]["name"] for entry in s.openai.requests[0]["tools"]] == ["pay", "balance"]
        user, assistant, answer = s.openai.sent(1)
        assert user == {"role": "user", "content": "Pay Ada 5"}
        assert [call["id"] for call in assistant["tool_calls"]] == ["call_1"]
        assert (answer["tool_call_id"], answer["content"]) == ("call_1", "paid 5 to Ada")


async def test_an_edit_leaves_the_models_own_call_on_the_wire(temporal: Client) -> None:
    """The provider gets its call back as it made it, and the notice of the edit in the result."""
    async with scene(temporal, Says(None, (PAY,)), Says("Paid.")) as s:
        paused = await s.pauses()
        await s.client.edit(paused.approvals[0].id, {"to": "Ada", "amount": 4})
        await paused.turn.result()
        assert s.bank.ran == [("Ada", 4)]
        _, assistant, answer = s.openai.sent(1)
        assert '"amount": 5' in assistant["tool_calls"][0]["function"]["arguments"]
        assert answer["content"].endswith("paid 4 to Ada")
        assert '"amount": 4' in answer["content"]


async def test_parallel_calls_are_answered_in_their_order(temporal: Client) -> None:
    """The free call runs at once; the results stand in the order of the calls, however they came about."""
    calls = (PAY, ("call_2", "balance", {}), ("call_3", "pay", {"to": "Ben", "amount": 7}))
    async with scene(temporal, Says(None, calls), Says("Done.")) as s:
        paused = await s.pauses()
        assert s.bank.ran == [("balance", None)]
        first, third = paused.approvals
        await s.client.reject(third.id, "not Ben")
        await s.client.approve(first.id)
        assert (await paused.turn.result()).output == "Done."
        answers = s.openai.sent(1)[2:]
        assert [answer["tool_call_id"] for answer in answers] == ["call_1", "call_2", "call_3"]
        assert [answer["content"] for answer in answers[:2]] == ["paid 5 to Ada", "100"]
        assert "not Ben" in answers[2]["content"]


async def test_malformed_arguments_never_wait_and_never_run(temporal: Client) -> None:
    """The model reads that its call could not be read, under the call's id, and sends it again."""
    broken = ("call_0", "pay", '{"to": "Ada", "amou')
    async with scene(temporal, Says(None, (broken,)), Says(None, (PAY,)), Says("Paid.")) as s:
        paused = await s.pauses()
        assert [approval.tool_call_id for approval in paused.approvals] == ["call_1"]
        assert s.bank.ran == []
        *_, assistant, answer = s.openai.sent(1)
        assert assistant["tool_calls"][0]["function"]["arguments"] == broken[2]
        assert answer["tool_call_id"] == "call_0"
        assert "could not be read" in answer["content"]
        await s.client.approve(paused.approvals[0].id)
        assert (await paused.turn.result()).output == "Paid."


async def test_too_many_requests_is_tried_again_by_temporal_alone(temporal: Client) -> None:
    """429, then success: one request an attempt, for the OpenAI client's own retries are off."""
    busy = Fails(429, "slow down", {"Retry-After": "0.1"})
    async with scene(temporal, busy, Fails(503, "overloaded"), Says(None, (PAY,)), Says("Paid.")) as s:
        paused = await s.pauses()
        assert len(s.openai.requests) == 3
        await s.client.approve(paused.approvals[0].id)
        assert (await paused.turn.result()).output == "Paid."
        assert len(s.openai.requests) == 4
        assert await s.attempts(paused.turn) == [3, 1, 1]


async def test_a_refused_key_fails_the_turn_at_once(temporal: Client) -> None:
    """401 can't be helped by trying again; the provider's words reach whoever asks for the result."""
    async with scene(temporal, Fails(401, "Incorrect API key provided: key.")) as s:
        turn = await s.client.start_turn("teller", "Pay Ada 5")
        with pytest.raises(TurnFailedError, match="the model of agent 'teller' failed") as failed:
            await turn.result()
        assert "Incorrect API key provided" in failed.value.reason
        assert "Traceback" not in failed.value.reason
        assert len(s.openai.requests) == 1


async def test_a_refused_key_later_in_the_turn_keeps_what_was_done(temporal: Client) -> None:
    """The call that ran is not run again, and the record says so."""
    async with scene(temporal, Says(None, (PAY,)), Fails(401, "Incorrect API key provided: key.")) as s:
        paused = await s.pauses()
        await s.client.approve(paused.approvals[0].id)
        with pytest.raises(TurnFailedError, match="Incorrect API key"):
            await paused.turn.result()
        assert s.bank.ran == [("Ada", 5)]
        [approval] = await paused.turn.approvals()
        assert approval.executed is not None
        assert approval.executed.outcome == "succeeded"


async def test_a_streamed_turn_passes_the_same_gate(temporal: Client) -> None:
    """Pieces over the wire become one message: the same approval, the same conversation."""
    calls = (PAY, ("call_2", "balance", {}))
    async with scene(temporal, Says("I pay now.", calls), Says("All is paid.")) as s:
        paused = await s.pauses(stream=True)
        assert s.bank.ran == [("balance", None)]
        [approval] = paused.approvals
        assert approval.args == {"to": "Ada", "amount": 5}
        await s.client.approve(approval.id)
        result = await paused.turn.result()
        assert result.output.strip() == "All is paid."
        assert [request["stream"] for request in s.openai.requests] == [True, True]
        _, assistant, *answers = s.openai.sent(1)
        assert assistant["content"].strip() == "I pay now."
        assert [answer["content"] for answer in answers] == ["paid 5 to Ada", "100"]


@pytest.mark.parametrize(("turn", "model"), [({"stream": True}, {}), ({}, {"streaming": True})])
@pytest.mark.parametrize("arguments", ['{"to": "Ada", "amount": 5', '{"to": "Ada", "amount": 5}}', '["Ada", 5]'])
async def test_malformed_arguments_in_a_stream(
    temporal: Client, arguments: str, turn: dict[str, Any], model: dict[str, Any]
) -> None:
    """Half an object at the end of a stream is unreadable, and not a call with what had come so far."""
    script = Says(None, (("call_0", "pay", arguments),)), Says("I could not pay.")
    async with scene(temporal, *script, **model) as s:
        result = await s.ends(**turn)
        assert result.output.strip() == "I could not pay."
        assert s.bank.ran == []
        assert s.openai.requests[0]["stream"] is True
        assert "could not be read" in s.openai.sent(1)[-1]["content"]


async def test_an_empty_answer_ends_the_turn(temporal: Client) -> None:
    """A model that says nothing and calls nothing is done; that is no error."""
    async with scene(temporal, Says("")) as s:
        result = await s.ends()
        assert (result.status, result.output, result.steps) == (TurnStatus.COMPLETED, "", 1)
