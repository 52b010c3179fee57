"""What the soak shows: what was allowed, what happened, and whether every history can be replayed."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Replayer

from bench.soak_agents import GATED, plan
from turngate import Approval, TurngatePlugin, TurnResult
from turngate.contracts import ApprovalStatus, ApprovalType

Json = dict[str, Any]
Effect = tuple[str, str, int]
Results = dict[int, TurnResult]


def allowed_effects(seed: int, results: Results) -> Counter[Effect]:
    """Return what should have happened: the calls without a gate, and what the records say was allowed."""
    allowed: Counter[Effect] = Counter()
    for number, result in results.items():
        for call in (call for step in plan(seed, number) for call in step if call["name"] not in GATED):
            allowed[call["name"], call["args"]["ref"], call["args"]["amount"]] += 1
        for approval in result.approvals:
            if approval.type is ApprovalType.TOOL and (args := _allowed_args(approval)):
                allowed[approval.name, args["ref"], args["amount"]] += 1
    return allowed


def turn_of(effect: Effect) -> int:
    """Return the number of the turn that an effect belongs to."""
    return int(effect[1].partition("-")[0])


def _allowed_args(approval: Approval) -> Json | None:
    if approval.status is ApprovalStatus.APPROVED:
        return approval.args
    resolution = approval.resolution
    if approval.status is ApprovalStatus.EDITED and resolution and resolution.edited_action:
        args: Json = resolution.edited_action["args"]
        return args
    return None


def wrong_records(results: Results, decisions: dict[str, list[Json]]) -> list[str]:
    """Return the settled approvals whose decision nobody sent, and those that never were settled."""
    wrong = []
    for approval in (approval for result in results.values() for approval in result.approvals):
        sent = decisions.get(approval.id, [])
        settled = approval.resolution
        if settled is None:
            wrong.append(f"{approval.id} was not decided: {approval.status}")
        elif not any(each["type"] == settled.type and each["reviewer"] == settled.reviewer for each in sent):
            wrong.append(f"{approval.id}: nobody sent the {settled.type} of {settled.reviewer}")
    return wrong


async def replay(temporal: Client, task_queue: str, kept: Path) -> Counter[str]:
    """Replay every history; return how many there were, and the failed workflow tasks in them by cause.

    Histories whose replay goes another way are kept in a folder.
    """
    found: Counter[str] = Counter()
    all_of_them: dict[str, WorkflowHistory] = {}

    async def histories() -> AsyncIterator[WorkflowHistory]:
        async for history in temporal.list_workflows(f"TaskQueue = '{task_queue}'").map_histories():
            found["histories replayed"] += 1
            all_of_them[history.run_id] = history
            for event in history.events:
                if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
                    found[f"failed task: {event.workflow_task_failed_event_attributes.failure.message[:50]}"] += 1
            yield history

    replayer = Replayer(workflows=[], plugins=[TurngatePlugin()], data_converter=temporal.data_converter)
    failures = await replayer.replay_workflows(histories(), raise_on_replay_failure=False)
    found["replays that went another way"] = len(failures.replay_failures)
    for run_id, error in failures.replay_failures.items():
        print(f"went another way: {_keep(all_of_them[run_id], kept)}: {str(error)[:300]}")
    return found


def _keep(history: WorkflowHistory, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{history.workflow_id}.json"
    path.write_text(history.to_json())
    return path
