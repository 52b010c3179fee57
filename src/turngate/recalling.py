"""What runs have answered, kept for as long as their histories stand still.

Whoever lists again and again asks for the same again and again. Nothing about an approval changes without an event in
the history of its run, and how long that is the server says by itself: without a worker, and for a small part of what
a query costs.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from temporalio.api.common.v1 import WorkflowExecution as Execution
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest
from temporalio.client import Client, WorkflowExecution
from temporalio.service import RPCError

from turngate import rpc
from turngate.contracts import Approval
from turngate.handles import pending_of

KEPT = 5000
"""Runs whose answers are kept; beyond that the ones listed longest ago are forgotten."""


@dataclass(frozen=True)
class _Answer:
    """What a run answered, and how many events it had before; None where nobody has looked."""

    length: int | None
    approvals: list[Approval]


class Recall:
    """The answers of runs to `pending`. Each caller gets copies."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, _Answer] = OrderedDict()

    async def pending(self, client: Client, run: WorkflowExecution, *, limit: float) -> tuple[list[Approval], bool]:
        """Return a run's open approvals, and whether it was asked for them. Raises as `pending_of` does.

        It is asked where something may have changed; a run that is listed for the first time, at once, for who lists
        once should pay for nothing more.
        """
        known = self._known.get(run.run_id)
        length = None if known is None else await _length(client, run)
        asked = known is None or length is None or length != known.length
        if known is None or asked:
            approvals, _children = await pending_of(client, run.id, limit=limit)
            known = _Answer(length, approvals)
        self._keep(run.run_id, known)
        return [approval.model_copy(deep=True) for approval in known.approvals], asked

    def _keep(self, run_id: str, answer: _Answer) -> None:
        self._known[run_id] = answer
        self._known.move_to_end(run_id)
        if len(self._known) > KEPT:
            self._known.popitem(last=False)


async def _length(client: Client, run: WorkflowExecution) -> int | None:
    """Return how many events a run has, or None where the server does not say."""
    request = DescribeWorkflowExecutionRequest(
        namespace=client.namespace, execution=Execution(workflow_id=run.id, run_id=run.run_id)
    )
    try:
        answer = await client.workflow_service.describe_workflow_execution(request, timeout=rpc.RPC_LIMIT)
    except RPCError:
        return None
    return answer.workflow_execution_info.history_length or None
