"""Sending past every client library: any payloads, under any name, to a run or to start one."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from temporalio.api.common.v1 import Header, Memo, Payload, Payloads, WorkflowExecution, WorkflowType
from temporalio.api.enums.v1 import UpdateWorkflowExecutionLifecycleStage
from temporalio.api.query.v1 import WorkflowQuery
from temporalio.api.sdk.v1 import UserMetadata
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.update.v1 import Input, Meta, Request, WaitPolicy
from temporalio.api.workflowservice.v1 import (
    QueryWorkflowRequest,
    SignalWorkflowExecutionRequest,
    StartWorkflowExecutionRequest,
    UpdateWorkflowExecutionRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError

Channel = Literal["signal", "update", "query", "start"]
_COMPLETED = UpdateWorkflowExecutionLifecycleStage.UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_COMPLETED
_LIMIT = timedelta(seconds=10)


@dataclass(frozen=True)
class Shot:
    """One message as it goes over the wire."""

    label: str
    channel: Channel
    name: str
    payloads: Sequence[Payload]
    headers: Mapping[str, Payload] = field(default_factory=dict)
    memo: Mapping[str, Payload] = field(default_factory=dict)
    summary: Payload | None = None
    cron: str = ""

    def __str__(self) -> str:
        return f"{self.label} as {self.channel} {self.name[:60]!r}"


async def send(client: Client, workflow_id: str, task_queue: str, shot: Shot) -> str:
    """Send the shot; return "ok", or the first words of the server's or the run's refusal."""
    sender = {"signal": _signal, "update": _update, "query": _query, "start": _start}[shot.channel]
    try:
        return await sender(client, workflow_id, task_queue, shot)
    except RPCError as error:
        return f"{error.status.name}: {error.message[:200]}"


async def _signal(client: Client, workflow_id: str, task_queue: str, shot: Shot) -> str:
    request = SignalWorkflowExecutionRequest(
        namespace=client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=workflow_id),
        signal_name=shot.name,
        input=Payloads(payloads=shot.payloads),
        request_id=uuid.uuid4().hex,
        header=Header(fields=shot.headers),
    )
    await client.workflow_service.signal_workflow_execution(request, timeout=_LIMIT)
    return "ok"


async def _update(client: Client, workflow_id: str, task_queue: str, shot: Shot) -> str:
    content = Input(name=shot.name, args=Payloads(payloads=shot.payloads), header=Header(fields=shot.headers))
    request = UpdateWorkflowExecutionRequest(
        namespace=client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=workflow_id),
        wait_policy=WaitPolicy(lifecycle_stage=_COMPLETED),
        request=Request(meta=Meta(update_id=uuid.uuid4().hex), input=content),
    )
    answer = await client.workflow_service.update_workflow_execution(request, timeout=_LIMIT)
    if not answer.HasField("outcome"):
        return "no outcome"
    return f"refused: {answer.outcome.failure.message[:200]}" if answer.outcome.HasField("failure") else "ok"


async def _query(client: Client, workflow_id: str, task_queue: str, shot: Shot) -> str:
    query = WorkflowQuery(
        query_type=shot.name, query_args=Payloads(payloads=shot.payloads), header=Header(fields=shot.headers)
    )
    execution = WorkflowExecution(workflow_id=workflow_id)
    request = QueryWorkflowRequest(namespace=client.namespace, execution=execution, query=query)
    await client.workflow_service.query_workflow(request, timeout=_LIMIT)
    return "ok"


async def _start(client: Client, workflow_id: str, task_queue: str, shot: Shot) -> str:
    options: dict[str, Any] = {"user_metadata": UserMetadata(summary=shot.summary)} if shot.summary else {}
    request = StartWorkflowExecutionRequest(
        namespace=client.namespace,
        workflow_id=workflow_id,
        workflow_type=WorkflowType(name=shot.name),
        task_queue=TaskQueue(name=task_queue),
        input=Payloads(payloads=shot.payloads),
        request_id=uuid.uuid4().hex,
        header=Header(fields=shot.headers),
        memo=Memo(fields=shot.memo),
        cron_schedule=shot.cron,
        **options,
    )
    await client.workflow_service.start_workflow_execution(request, timeout=_LIMIT)
    return "ok"
