"""Sending past the product's client: Temporal payloads as a case wants them."""

from __future__ import annotations

import asyncio
import json
import uuid
from datetime import timedelta
from typing import Any

from temporalio.api.common.v1 import Payload, Payloads, WorkflowExecution, WorkflowType
from temporalio.api.enums.v1 import UpdateWorkflowExecutionLifecycleStage
from temporalio.api.query.v1 import WorkflowQuery
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.update.v1 import Input, Meta, Request, WaitPolicy
from temporalio.api.workflowservice.v1 import (
    QueryWorkflowRequest,
    SignalWorkflowExecutionRequest,
    StartWorkflowExecutionRequest,
    UpdateWorkflowExecutionRequest,
)
from temporalio.client import Client
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError

from tests.case_runner.outcome import Outcome, refusals_of
from tests.case_runner.templates import encode

Json = dict[str, Any]
_COMPLETED = UpdateWorkflowExecutionLifecycleStage.UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_COMPLETED
_LIMIT = timedelta(seconds=10)


def build_payload(spec: Json) -> Payload:
    """Return the payload that a case describes; its templates are filled in already."""
    metadata = {key: str(value).encode() for key, value in spec.get("metadata", {}).items()}
    if "json" in spec:
        return Payload(metadata={"encoding": b"json/plain", **metadata}, data=encode(spec["json"]))
    if "encoding" in spec:
        metadata["encoding"] = spec["encoding"].encode()
    data = bytes.fromhex(spec["hex"]) if "hex" in spec else spec.get("text", "").encode("utf-8", "surrogatepass")
    return Payload(metadata=metadata, data=data)


async def send_raw(
    client: Client, workflow_id: str, task_queue: str, channel: str, name: str, payloads: list[Payload]
) -> Outcome:
    """Send the payloads as they are, to a run or to start one."""
    arguments = Payloads(payloads=payloads)
    execution = WorkflowExecution(workflow_id=workflow_id)
    service, namespace = client.workflow_service, client.namespace
    if channel == "signal":
        await service.signal_workflow_execution(
            SignalWorkflowExecutionRequest(
                namespace=namespace,
                workflow_execution=execution,
                signal_name=name,
                input=arguments,
                request_id=_new_id(),
            ),
            timeout=_LIMIT,
        )
        return Outcome()
    if channel == "query":
        await service.query_workflow(
            QueryWorkflowRequest(
                namespace=namespace, execution=execution, query=WorkflowQuery(query_type=name, query_args=arguments)
            ),
            timeout=_LIMIT,
        )
        return Outcome()
    if channel == "start":
        await service.start_workflow_execution(
            StartWorkflowExecutionRequest(
                namespace=namespace,
                workflow_id=workflow_id,
                workflow_type=WorkflowType(name=name),
                task_queue=TaskQueue(name=task_queue),
                input=arguments,
                request_id=_new_id(),
            ),
            timeout=_LIMIT,
        )
        return Outcome()
    return await _update(client, execution, name, arguments)


async def _update(client: Client, execution: WorkflowExecution, name: str, arguments: Payloads) -> Outcome:
    request = UpdateWorkflowExecutionRequest(
        namespace=client.namespace,
        workflow_execution=execution,
        wait_policy=WaitPolicy(lifecycle_stage=_COMPLETED),
        request=Request(meta=Meta(update_id=_new_id()), input=Input(name=name, args=arguments)),
    )
    async with asyncio.timeout(20):
        while True:
            response = await client.workflow_service.update_workflow_execution(request, timeout=_LIMIT)
            if response.HasField("outcome"):
                break
    if response.outcome.HasField("failure"):
        failure = await DataConverter.default.decode_failure(response.outcome.failure)
        cause = failure if isinstance(failure, ApplicationError) else ApplicationError(str(failure), type="error")
        return Outcome(refusals=refusals_of(cause))
    (answer,) = response.outcome.success.payloads or [Payload(data=b"null")]
    return Outcome.of(json.loads(answer.data))


def _new_id() -> str:
    return uuid.uuid4().hex
