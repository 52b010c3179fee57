"""The result of a turn, within what one server message may hold."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from turngate.contracts import RESULT_LIMIT, Approval, Json, TurnResult, TurnStatus, json_size, text_of
    from turngate.ledger import Ledger
    from turngate.workflows.state import TurnState
    from turngate.workflows.surface import clip


def turn_result(state: TurnState, ledger: Ledger, status: TurnStatus, now: datetime) -> TurnResult:
    """Build the result, within 1 MiB: the messages go first, then the long arguments of the approvals."""
    new = state.messages[state.first_new :]
    result = TurnResult(
        status=status,
        output=_output(state, new, status),
        messages=new,
        new_messages=len(new),
        approvals=[ledger.view(item) for item in ledger.items],
        usage=state.usage,
        steps=state.steps,
        repairs=state.repairs,
        rules=[rule for rule in ledger.rules(now) if rule.scope == "thread"],
    )
    return _within_budget(result)


def _output(state: TurnState, new: Sequence[Json], status: TurnStatus) -> str:
    if not new or status is not TurnStatus.COMPLETED:
        return _last_text(new)
    return text_of(new[-1]) if state.output is None else state.output


def _last_text(messages: Sequence[Json]) -> str:
    return next((text_of(one) for one in reversed(messages) if one.get("type") == "ai" and text_of(one)), "")


def _within_budget(result: TurnResult) -> TurnResult:
    if json_size(result.to_json()) <= RESULT_LIMIT:
        return result
    result = result.model_copy(update={"messages": None, "left_out": ["messages"]})
    if json_size(result.to_json()) <= RESULT_LIMIT:
        return result
    left_out = ["messages", "approvals.args"]
    approvals = [_shortened(approval) for approval in result.approvals]
    result = result.model_copy(update={"approvals": approvals, "left_out": left_out})
    if json_size(result.to_json()) <= RESULT_LIMIT:
        return result
    output = clip(result.output, RESULT_LIMIT // 4)
    return result.model_copy(
        update={"approvals": [], "output": output, "left_out": ["messages", "approvals", "output"]}
    )


def _shortened(approval: Approval) -> Approval:
    changes: dict[str, Any] = {}
    if json_size(approval.args) > 1024:
        changes["args"] = {}
    if approval.executed and json_size(approval.executed.args) > 1024:
        changes["executed"] = approval.executed.model_copy(update={"args": {}})
    if approval.resolution and json_size(approval.resolution.to_json()) > 1024:
        changes["resolution"] = approval.resolution.model_copy(
            update={"edited_action": None, "message": None, "value": None}
        )
    return approval.model_copy(update=changes)
