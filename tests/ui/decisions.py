"""The four decisions, and what they must lead to, whoever sends them and however."""

from __future__ import annotations

from typing import Any

from temporalio.api.sdk.v1 import WorkflowMetadata

from turngate.client import Paused
from turngate.contracts import Approval, TurnResult

Json = dict[str, Any]


def four_decisions(approvals: list[Approval]) -> list[Json]:
    """Approve, edit, reject and respond, in this order."""
    edited = {"name": "pay", "args": {"to": "acme", "amount": 20}}
    decisions: list[Json] = [
        {"type": "approve"},
        {"type": "edit", "edited_action": edited},
        {"type": "reject", "message": "not due yet"},
        {"type": "respond", "message": "paid by hand"},
    ]
    return [
        {"approval_id": approval.id, "digest": approval.digest, "reviewer": "rev-1", **decision}
        for approval, decision in zip(approvals, decisions, strict=True)
    ]


def check_four(result: TurnResult) -> None:
    """The record, the effects and the conversation after `four_decisions`."""
    approvals = result.approvals
    assert [approval.status for approval in approvals] == ["approved", "edited", "rejected", "responded"]
    assert [one.executed and one.executed.args["amount"] for one in approvals] == [1, 20, None, None]
    answers = [message["content"] for message in result.messages or () if message["type"] == "tool"]
    assert answers[0] == "paid 1 to acme"
    assert "paid 20 to acme" in answers[1]
    assert "not due yet" in answers[2]
    assert answers[3] == "paid by hand"
    assert result.output == "All done."


async def details_of(paused: Paused) -> str:
    """Return the markdown of the details page."""
    handle = paused.turn.client.get_workflow_handle(paused.turn.id)
    return str((await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)).current_details)


async def failed_tasks(paused: Paused) -> int:
    """Count the workflow tasks that failed: each stalls the run for a while."""
    history = await paused.turn.client.get_workflow_handle(paused.turn.id).fetch_history()
    return sum(event.HasField("workflow_task_failed_event_attributes") for event in history.events)
