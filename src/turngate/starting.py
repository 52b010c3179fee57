"""Starting a turn: the request, checked before it leaves, and what the UI shows of it from the first second."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any

from pydantic import ValidationError
from temporalio.client import Client, WithStartWorkflowOperation
from temporalio.common import (
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError

from turngate import attributes, rpc
from turngate.contracts import RESULT_LIMIT, TURN, Json, TurnRequest
from turngate.errors import Refusal, RefusedError, ServerError
from turngate.payloads import Batch, check_json
from turngate.sending import UPDATE_LIMIT, NoAnswer, answered, send

_SUMMARY_LIMIT = 160
_DETAILS_LIMIT = 2000
_ID_LIMIT = 800
"""Temporal takes 1,000 bytes; a subagent's turn adds its own part to its parent's id."""


def turn_request(fields: Json) -> Json:
    """Check what a caller wants to start and return it as JSON. Raises MalformedError, TooLargeError."""
    given = {key: value for key, value in fields.items() if value is not None}
    check_json(given, "the request", RESULT_LIMIT)
    try:
        request = TurnRequest.model_validate(given)
    except ValidationError as error:
        raise RefusedError.of([_problem(problem) for problem in error.errors()]) from None
    return request.model_dump(mode="json", exclude_none=True, exclude_defaults=True)


def checked_id(turn_id: str) -> str:
    """Return a workflow id that Temporal will take. Raises MalformedError."""
    size = len(turn_id.encode("utf-8", "replace"))
    if not turn_id or size > _ID_LIMIT:
        raise RefusedError.of([Refusal("malformed", f"a turn id has 1 to {_ID_LIMIT} bytes, not {size}", ("turn_id",))])
    return turn_id


async def start(client: Client, turn_id: str, request: Json, *, task_queue: str, indexed: bool) -> bool:
    """Start a turn. Returns False where one with this id was started before, which is left alone."""
    try:
        with rpc.explained(turn_id):
            await client.start_workflow(
                TURN,
                request,
                id=turn_id,
                task_queue=task_queue,
                **_options(request, indexed),
                rpc_timeout=rpc.RPC_LIMIT,
            )
    except WorkflowAlreadyStartedError:
        return False
    return True


async def start_with_decision(
    client: Client, turn_id: str, request: Json, batch: Batch, *, task_queue: str, indexed: bool, attach: bool
) -> bool:
    """Start a turn with a decision in the same request. Returns False where the id is in use.

    A refused decision raises RefusedError: the turn is started all the same. Where no worker answers, the turn is
    started and the decision left with the server.
    """
    policy = WorkflowIDConflictPolicy.USE_EXISTING if attach else WorkflowIDConflictPolicy.FAIL

    def call() -> Awaitable[Any]:
        operation: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
            TURN, request, id=turn_id, task_queue=task_queue, id_conflict_policy=policy, **_options(request, indexed)
        )
        return client.execute_update_with_start_workflow(
            "decide", batch.payload, id=update_id, start_workflow_operation=operation
        )

    update_id = batch.update_id()
    try:
        await answered(call, turn_id, UPDATE_LIMIT)
    except WorkflowAlreadyStartedError:
        return False
    except NoAnswer:
        await start(client, turn_id, request, task_queue=task_queue, indexed=indexed)
        await send(client, batch)
    return True


async def has_attributes(client: Client) -> bool:
    """Whether the namespace has Turngate's search attributes. Where it does not say, they are not used."""
    try:
        return not await attributes.missing(client)
    except (ServerError, RPCError):
        return False


def search_attributes(agent: str, thread_id: str | None) -> TypedSearchAttributes:
    """Return what a new turn is found by, so that setting it costs no event later."""
    pairs = [
        SearchAttributePair(attributes.STATUS, "running"),
        SearchAttributePair(attributes.AGENT, agent_value(agent)),
    ]
    if thread_id is not None:
        pairs.append(SearchAttributePair(attributes.THREAD, thread_value(thread_id)))
    return TypedSearchAttributes(pairs)


def _options(request: Json, indexed: bool) -> dict[str, Any]:
    agent, thread_id = request["agent"], request.get("thread_id")
    return {
        "id_reuse_policy": WorkflowIDReusePolicy.REJECT_DUPLICATE,
        "static_summary": _one_line(f"{agent}: {_wanted(request)}", _SUMMARY_LIMIT),
        "static_details": _details(request),
        "search_attributes": search_attributes(agent, thread_id) if indexed else None,
    }


def _details(request: Json) -> str:
    """Markdown for the UI, which shows it even when no worker runs."""
    rows = {"Agent": request["agent"], "Thread": request.get("thread_id"), "Requested by": request.get("requested_by")}
    lines = [f"* {name}: `{_one_line(str(value), 200)}`" for name, value in rows.items() if value]
    text = _wanted(request)[:_DETAILS_LIMIT].replace("```", "'''")
    return "\n".join([*lines, "", "```text", text, "```"])


def _wanted(request: Json) -> str:
    if "input" in request:
        return str(request["input"])
    return f"{len(request['messages'])} messages handed over"


def _one_line(text: str, limit: int) -> str:
    line = " ".join(text.replace("`", "'").split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def agent_value(agent: str) -> str:
    """Return an agent's name as the search attribute holds it: cut, for a long value would terminate the run."""
    return _clip(agent, 500)


def thread_value(thread_id: str) -> str:
    """Return a thread's id as the search attribute holds it."""
    return _clip(thread_id, 1000)


def waiting_value(kind: str, name: str) -> str:
    """Return one entry of what a run waits for, as the search attribute holds it."""
    return _clip(f"{kind}:{name}", 200)


def _clip(text: str, limit: int) -> str:
    raw = text.encode("utf-8", "replace")
    return text if len(raw) <= limit else raw[: limit - 3].decode("utf-8", "ignore") + "…"


def _problem(problem: Any) -> Refusal:
    path: Sequence[str | int] = problem["loc"]
    where = ".".join(str(part) for part in path)
    text = problem["msg"].removeprefix("Value error, ")
    return Refusal("malformed", f"{where}: {text}" if where else text, tuple(path))
