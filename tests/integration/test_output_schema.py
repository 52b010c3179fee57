"""Agents whose final answer has a given shape: checked, asked for again, and beside gates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.tools import tool
from pydantic import BaseModel

from turngate import Agent, TurnFailedError
from turngate.testing import ScriptedModel, ScriptedReviewer

if TYPE_CHECKING:
    from turngate import TurngateClient, TurnResult
    from turngate.testing.fixtures import StartWorker

pytestmark = pytest.mark.server
pytest_plugins = ["turngate.testing.fixtures"]


class Receipt(BaseModel):
    """What the agent owes."""

    paid: int


@tool
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


CALL = {"tool_calls": [{"id": "c1", "name": "pay", "args": {"amount": 5}}]}
GOOD, BAD = '{"paid": 5}', '{"paid": "a lot"}'


def shop(*script: Any, **options: Any) -> Agent:
    """Return an agent with this script, whose payments wait."""
    settings = {"output_schema": Receipt, "interrupt_on": {"pay": True}, **options}
    return Agent("shop", model=ScriptedModel(script), tools=[pay], **settings)


async def run(client: TurngateClient) -> TurnResult:
    """Run a turn to its end; what waits is approved."""
    turn = await client.start_turn("shop", "Pay 5, please.")
    await client.wait(turn, on_approval=ScriptedReviewer({"type": "approve"}))
    return await turn.result()


async def test_answer_behind_a_gate_comes_back_as_an_object(
    turngate_client: TurngateClient, turngate_worker: StartWorker
) -> None:
    """The gate works as ever, and the client reads the answer with the same model."""
    await turngate_worker(shop(CALL, f"```json\n{GOOD}\n```"))
    result = await run(turngate_client)
    assert result.output_as(Receipt) == Receipt(paid=5)
    assert result.output == '{"paid":5}'
    assert result.approvals[0].status == "approved"


async def test_answer_that_does_not_fit_is_asked_for_again(
    turngate_client: TurngateClient, turngate_worker: StartWorker
) -> None:
    """The model reads what is wrong, may even use tools in between, and has two more tries."""
    agent = shop(BAD, CALL, "Paid 5.", GOOD)
    await turngate_worker(agent)
    result = await run(turngate_client)
    assert result.output_as(Receipt).paid == 5
    assert result.steps == 4
    told = [message["content"] for message in result.messages or [] if message["type"] == "human"]
    assert "paid: Input should be a valid integer" in told[0]
    assert "it is not JSON" in told[1]


async def test_third_answer_that_does_not_fit_fails_the_turn(
    turngate_client: TurngateClient, turngate_worker: StartWorker
) -> None:
    """A turn that completes always has what was asked for."""
    await turngate_worker(shop(BAD, BAD, BAD, GOOD))
    with pytest.raises(TurnFailedError, match=r"does not fit the output schema: paid: Input should be a valid integer"):
        await run(turngate_client)


async def test_steps_are_bounded_too(turngate_client: TurngateClient, turngate_worker: StartWorker) -> None:
    """`max_steps` ends the turn before the tries do."""
    await turngate_worker(shop(BAD, GOOD, max_steps=1))
    assert (await run(turngate_client)).status == "max_steps"
