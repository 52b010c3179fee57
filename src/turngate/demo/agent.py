"""The agent: reading is free, writing a file and changing rows wait for a person."""

from __future__ import annotations

from functools import partial
from typing import Any

from turngate.agent import Agent
from turngate.demo.script import ScriptedRecordsModel
from turngate.demo.tools import Desk, build_tools, describe_file, describe_statement, is_select
from turngate.interrupts import InterruptOnConfig

NAME = "records"
TASK = "Archive the orders before 2025, then delete them."
PATIENCE = "1h"
"""A call that nobody decides in this time is rejected."""


def build_agent(desk: Desk, model: str | None) -> Agent:
    """Build the agent that works in `desk`; without a model's name it has the scripted one."""
    return Agent(
        NAME,
        model=model or ScriptedRecordsModel(),
        tools=build_tools(desk),
        system_prompt=(
            "You look after the table `orders` of a shop, in a SQLite database. Look before you change anything,"
            " propose one change at a time, and end with a short summary of what was done."
        ),
        interrupt_on={
            "read_data": False,
            "write_file": InterruptOnConfig(description=partial(describe_file, desk), timeout=PATIENCE),
            "execute_sql": InterruptOnConfig(
                allowed_decisions=["approve", "reject"],
                when=_changes_something,
                description=partial(describe_statement, desk),
                timeout=PATIENCE,
            ),
        },
    )


def _changes_something(request: Any) -> bool:
    return not is_select(request.tool_call["args"]["query"])
