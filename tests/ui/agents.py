"""The agents of these tests: a clerk who makes four payments, and the one of the pictures in the docs."""

from __future__ import annotations

from typing import Any

from langchain_core.tools import tool

from turngate.agent import Agent
from turngate.testing import ScriptedModel


@tool
def pay(to: str, amount: int) -> str:
    """Pay an invoice."""
    return f"paid {amount} to {to}"


@tool
def execute_sql(query: str) -> str:
    """Run one SQL statement on the orders database."""
    return f"done: {query}"


@tool
def send_email(to: str, subject: str, body: str) -> str:
    """Send an e-mail to a customer."""
    return f"sent to {to}"


@tool
def count_orders(before: int) -> str:
    """Count the orders from before a year."""
    return f"1204 orders from before {before}"


def call(number: int, name: str, **args: Any) -> dict[str, Any]:
    """Return a tool call as the scripted model makes it."""
    return {"id": f"call_{number}", "name": name, "args": args}


PAYMENTS = [call(number, "pay", to="acme", amount=number) for number in (1, 2, 3, 4)]

clerk = Agent(
    "clerk", model=ScriptedModel([{"tool_calls": PAYMENTS}, "All done."]), tools=[pay], interrupt_on={"pay": True}
)

records = Agent(
    "records",
    model=ScriptedModel(
        [
            {"tool_calls": [call(1, "count_orders", before=2025)]},
            {
                "tool_calls": [
                    call(2, "execute_sql", query="DELETE FROM orders WHERE year < 2025"),
                    call(
                        3,
                        "send_email",
                        to="finance@example.com",
                        subject="Old orders removed",
                        body="Hello,\n\nthe 1,204 orders from before 2025 are gone.",
                    ),
                ]
            },
            "The orders from before 2025 are deleted, and finance knows.",
        ]
    ),
    tools=[count_orders, execute_sql, send_email],
    roles={"dba": ["dba-1", "dba-2"]},
    interrupt_on={
        "execute_sql": {
            "allowed_decisions": ["approve", "reject"],
            "reviewers": ["role:dba"],
            "tags": ["sql", "destructive"],
            "timeout": "1d",
        },
        "send_email": True,
    },
)
