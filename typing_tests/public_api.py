"""Read by mypy, never run: what users write is typed, and typed as it should be."""

from __future__ import annotations

from typing import assert_type

from langchain_core.tools import tool
from temporalio.client import Client
from temporalio.worker import Worker

from turngate import (
    Agent,
    Allowlist,
    Approval,
    Deny,
    InterruptOnConfig,
    Paused,
    PolicyContext,
    Receipt,
    ToolOptions,
    TurngateClient,
    TurngatePlugin,
    TurnHandle,
    TurnResult,
    build_worker,
    current_call,
    interrupt,
)


@tool
def delete_orders(before: int) -> str:
    """Delete old orders."""
    answer = interrupt({"question": "Really?"})
    return f"{answer} {current_call().key}"


def careful(context: PolicyContext) -> bool | Deny:
    """Review what happens in production."""
    return Deny("not there") if context.args.get("before") == 0 else "prod" in context.agent_name


agent = Agent(
    "records",
    model="openai:gpt-5",
    tools=[delete_orders],
    interrupt_on={"delete_orders": InterruptOnConfig(allowed_decisions=["approve", "reject"])},
    policy=[Allowlist(["read_*"]), careful],
    tool_options={"delete_orders": ToolOptions(retry_safe=True)},
)


def worker(client: Client) -> Worker:
    """Build workers in both ways."""
    assert_type(Worker(client, task_queue="q", plugins=[TurngatePlugin([agent])]), Worker)
    return build_worker(client, [agent], max_cached_workflows=10)


async def use(client: Client) -> None:
    """Start, decide, wait."""
    turns = TurngateClient(client)
    turn = await turns.start_turn("records", "Delete the old orders.")
    assert_type(turn, TurnHandle)
    outcome = await turns.run_turn("records", "Delete the old orders.")
    assert_type(outcome, TurnResult | Paused)
    if isinstance(outcome, Paused):
        assert_type(outcome.approvals[0], Approval)
        assert_type(await turns.approve(outcome.approvals[0].id, reviewer="dba-1"), Receipt)
    assert_type(await turn.result(), TurnResult)
