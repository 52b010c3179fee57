"""The yardstick for long turns: a hand-written loop of model and tool, with nothing around it.

With `by_value` the conversation travels inside every input of the model, as hand-written agents do it; without, the
model is only told how far the turn is: the least that a loop of this length can cost.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from temporalio import activity, workflow

with workflow.unsafe.imports_passed_through():
    from bench.pages import page

LIMIT = timedelta(minutes=10)


@activity.defn
async def raw_long_model(asked: dict[str, Any]) -> dict[str, Any]:
    """Ask for the next page, until there are no more."""
    if asked["step"] >= asked["steps"]:
        return {"type": "ai", "content": "done"}
    call = {"id": f"c{asked['step']}", "name": "read_page", "args": {"n": asked["step"]}}
    return {"type": "ai", "content": "", "tool_calls": [call]}


@activity.defn
async def raw_long_tool(call: dict[str, Any]) -> str:
    """Return a page of 4 KB."""
    return page(call["args"]["n"])


@workflow.defn
class RawLongTurn:
    """Model and tool, `steps` times."""

    @workflow.run
    async def run(self, asked: dict[str, Any]) -> str:
        """Return the final text."""
        messages: list[dict[str, Any]] = [{"type": "human", "content": "go"}]
        for step in range(asked["steps"] + 1):
            told = {"step": step, "steps": asked["steps"], "messages": messages if asked["by_value"] else []}
            answer = await workflow.execute_activity(raw_long_model, told, start_to_close_timeout=LIMIT)
            messages.append(answer)
            for call in answer.get("tool_calls", []):
                result = await workflow.execute_activity(raw_long_tool, call, start_to_close_timeout=LIMIT)
                messages.append({"type": "tool", "content": result, "tool_call_id": call["id"]})
        return str(messages[-1]["content"])
