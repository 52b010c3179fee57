"""The yardstick: a hand-written minimal workflow that does what a gated turn does, and nothing more.

Model, one gated tool call, model. The conversation travels inside the activities' inputs, the decision is an update
or a signal, and there is no validation, no timer, no search attribute. A malformed signal wedges it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from temporalio import activity, workflow

LIMIT = timedelta(minutes=10)


@activity.defn
async def raw_model(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Answer as a model would: first a tool call, then a text."""
    if len(messages) > 1:
        return {"type": "ai", "content": "done"}
    call = {"id": "c1", "name": "send_mail", "args": {"to": "a@x.test", "body": "hi"}}
    return {"type": "ai", "content": "", "tool_calls": [call]}


@activity.defn
async def raw_tool(call: dict[str, Any]) -> str:
    """Run the tool."""
    return f"mail sent to {call['args']['to']}"


@workflow.defn
class RawTurn:
    """Model, wait for a decision, tool, model."""

    def __init__(self) -> None:
        self._decision: str | None = None
        self._waiting = False

    @workflow.run
    async def run(self, text: str) -> str:
        """Return the final text."""
        messages: list[dict[str, Any]] = [{"type": "human", "content": text}]
        while True:
            answer = await workflow.execute_activity(raw_model, messages, start_to_close_timeout=LIMIT)
            messages.append(answer)
            for call in answer.get("tool_calls", []):
                self._waiting = True
                await self._decided()
                result = await workflow.execute_activity(raw_tool, call, start_to_close_timeout=LIMIT)
                messages.append({"type": "tool", "content": result, "tool_call_id": call["id"]})
            if not answer.get("tool_calls"):
                return str(answer["content"])

    async def _decided(self) -> None:
        await workflow.wait_condition(lambda: self._decision is not None)

    @workflow.update
    def decide_by_update(self, decision: str) -> str:
        """Take the decision and say so."""
        self._decision = decision
        return "applied"

    @workflow.signal
    def decide_by_signal(self, decision: str) -> None:
        """Take the decision."""
        self._decision = decision

    @workflow.query
    def waiting(self) -> bool:
        """Say whether the call waits."""
        return self._waiting and self._decision is None
