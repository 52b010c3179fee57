"""A support desk: a conversation in which an agent looks things up, asks the customer, and pays money back.

    python examples/support_thread.py            you are the customer and the team lead; a script plays the model
    python examples/support_thread.py --yes      they decide by themselves
    python examples/support_thread.py --model openai:gpt-5

Three kinds of waiting in one thread: a refund over 50 euros is for the team lead, a question to the customer is for the
customer, and the research subagent may only export data when somebody agrees. Each message is a turn of its own. The
lead's decision is remembered for the thread, so that the second refund of the same kind needs nobody.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any

from langchain_core.tools import tool

from turngate import (
    Agent,
    Approval,
    DevServer,
    InterruptOnConfig,
    TurngateClient,
    build_worker,
    current_call,
    human_tool,
)
from turngate.testing import Answer, ScriptedModel

ORDERS = {
    4711: "espresso machine, 249 euros, delivered 3 days ago",
    4712: "coffee grinder, 89 euros, delivered 3 days ago",
}
HANDBOOK = "Goods that arrive broken are refunded in full within 30 days. Ask first whether a replacement will do."
LEADS = ["lena", "omar"]

paid: list[tuple[int, float, str]] = []
"""What was paid, with the idempotency key under which a bank would see it."""


# --- Tools ----------------------------------------------------------------------------------------------------------


@tool
def find_order(number: int) -> str:
    """Find an order by its number."""
    return ORDERS.get(number, "there is no such order")


@tool
def refund(order: int, amount: float) -> str:
    """Pay money back to the customer of an order."""
    paid.append((order, amount, current_call().key))
    return f"refunded {amount:.2f} euros for order {order}"


@tool
def read_handbook(topic: str) -> str:
    """Read what the handbook says about a topic."""
    return HANDBOOK


@tool
def export_cases(topic: str) -> str:
    """Export earlier cases, with the names of their customers."""
    return f"2 cases about {topic}: both were refunded"


ask_customer = human_tool("ask_customer", description="Ask the customer something, and wait for the answer.")


# --- Agents ---------------------------------------------------------------------------------------------------------


def large(request: Any) -> bool:
    """Whether a refund is for the team lead."""
    return bool(request.tool_call["args"]["amount"] > 50)


def support(model: Any, research_model: Any) -> Agent:
    """Build the support agent with its research subagent."""
    research = Agent(
        "research",
        model=research_model,
        description="Reads the handbook and earlier cases.",
        tools=[read_handbook, export_cases],
        interrupt_on={"export_cases": InterruptOnConfig(allowed_decisions=["approve", "reject"], tags=["privacy"])},
    )
    return Agent(
        "support",
        model=model,
        system_prompt="You help customers of a shop for coffee machines. Research before you decide, and be brief.",
        tools=[find_order, refund, ask_customer],
        subagents=[research],
        roles={"lead": LEADS},
        interrupt_on={
            "refund": InterruptOnConfig(
                when=large,
                allowed_decisions=["approve", "edit", "reject"],
                editable_args=["amount"],
                reviewers=["role:lead"],
                timeout="1d",
            ),
            "ask_customer": InterruptOnConfig(
                timeout="3d",
                on_timeout={"type": "respond", "message": "The customer did not answer."},
            ),
        },
    )


# --- People ---------------------------------------------------------------------------------------------------------

Decision = dict[str, Any] | None


def decide_by_itself(approval: Approval) -> Decision:
    """What customer and lead do with --yes. The lead's approval holds for the other refunds of the thread."""
    if approval.name == "ask_customer":
        return {"type": "respond", "message": "I would like my money back, please."}
    if approval.name == "export_cases":
        return {"type": "reject", "message": "Names of customers are none of our business here."}
    return {
        "type": "approve",
        "reviewer": LEADS[0],
        "comment": "seen the photos",
        "remember": {"scope": "thread", "match": "tool", "expires_in": "1h"},
    }


async def decide_in_the_terminal(approval: Approval) -> Decision:
    """Ask whoever sits here: as the customer, or as a lead."""
    print(f"\n  {approval.context.agent} asks: {approval.name} {json.dumps(approval.args)}")
    if approval.name == "ask_customer":
        return {"type": "respond", "message": await typed(f"  Customer, {approval.args['question']} ")}
    answer = await typed("  Lead, Enter approves, a number changes the amount, anything else is a reason to reject: ")
    decision: dict[str, Any] = {"reviewer": LEADS[0]}
    if not answer:
        return {**decision, "type": "approve"}
    if approval.name == "refund" and answer.replace(".", "", 1).isdigit():
        args = {**approval.args, "amount": float(answer)}
        return {**decision, "type": "edit", "edited_action": {"name": "refund", "args": args}}
    return {**decision, "type": "reject", "message": answer}


async def typed(prompt: str) -> str:
    """Read a line without stopping the worker."""
    return (await asyncio.to_thread(input, prompt)).strip()


# --- The script that plays the models ---------------------------------------------------------------------------------


def calls(*wanted: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """One answer of a model, with these calls."""
    listed = [{"id": f"{name}-{number}", "name": name, "args": args} for number, (name, args) in enumerate(wanted)]
    return {"tool_calls": listed}


RESEARCH = [
    calls(("read_handbook", {"topic": "broken goods"}), ("export_cases", {"topic": "broken espresso machines"})),
    "The handbook says: refunded in full within 30 days. Ask about a replacement first.",
]
TURNS = {
    "turn-1": [
        calls(
            ("find_order", {"number": 4711}),
            ("task", {"description": "What holds for goods that arrive broken?", "subagent_type": "research"}),
            ("ask_customer", {"question": "Would you rather have a replacement or your money back?"}),
        ),
        calls(("refund", {"order": 4711, "amount": 249.0})),
        "I am sorry about the machine. The 249 euros are on their way.",
    ],
    "turn-2": [
        calls(("find_order", {"number": 4712})),
        calls(("refund", {"order": 4712, "amount": 89.0})),
        "The 89 euros for the grinder are on their way, too.",
    ],
}
MESSAGES = ["My espresso machine, order 4711, came broken.", "So did the grinder, order 4712."]


class SupportScript(ScriptedModel):
    """One script for each turn of the thread."""

    def script(self) -> tuple[str, list[Answer]]:
        """Return the script of the present turn."""
        turn_id, _ = super().script()
        return turn_id, [Answer.of(answer) for answer in TURNS[turn_id.rpartition("/")[2]]]


# --- The conversation -------------------------------------------------------------------------------------------------


async def converse(client: TurngateClient, thread_id: str, messages: list[str], decide: Any) -> list[Approval]:
    """Send the messages, one turn each, with people deciding; return the record of all turns."""
    thread = client.thread(thread_id, agent="support")
    record: list[Approval] = []
    for message in messages:
        print(f"\ncustomer: {message}")
        turn = await thread.started(await thread.send(message, requested_by="customer"))
        await client.wait(turn, on_approval=decide)
        result = await turn.result()
        print(f"support:  {result.output}")
        record += await turn.record()
    return record


def describe(approval: Approval) -> str:
    """One line of the record."""
    settled = approval.resolution
    by = f" by {settled.reviewer or settled.by}" if settled else ""
    remembered = " (remembered)" if settled and settled.by == "rule" else ""
    return f"  {approval.context.agent}: {approval.name} {approval.status.value}{by}{remembered}"


async def main(model: str | None, yes: bool) -> None:
    """Run server, worker and conversation in one process."""
    agent = support(model or SupportScript(), model or ScriptedModel(RESEARCH))
    async with DevServer() as server:
        temporal = await server.client()
        async with build_worker(temporal, [agent]):
            print(f"Temporal's UI: {server.ui_url}")
            decide = decide_by_itself if yes else decide_in_the_terminal
            record = await converse(TurngateClient(temporal), "customer-17", MESSAGES, decide)
    print("\nWho decided what:")
    print("\n".join(map(describe, record)))
    print("\nPaid:", ", ".join(f"{amount:.2f} for order {order}" for order, amount, _ in paid) or "nothing")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", help="a model for init_chat_model, such as openai:gpt-5")
    options.add_argument("--yes", action="store_true", help="decide by itself")
    given = options.parse_args()
    asyncio.run(main(given.model, given.yes))
