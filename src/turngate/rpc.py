"""Calls to the Temporal server, with its errors said in our words.

A server error tells of RPC codes; whoever called wants to know whether the run is gone, has ended, or has no worker.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import timedelta

from temporalio.client import (
    Client,
    RPCTimeoutOrCancelledError,
    WorkflowExecution,
    WorkflowExecutionDescription,
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from turngate.contracts import Json
from turngate.errors import REFUSALS, NoWorkerError, Refusal, RefusedError, ServerError, TurngateError, refuse

QUERY_LIMIT = 15.0
"""Seconds to wait for the answer to a query: a worker that has to replay the run first needs under one."""
RPC_LIMIT = timedelta(seconds=10)

_UNREADABLE = ("Unknown payload encoding", "[TMPRL1105]", "[TMPRL1106]")
_UNSEARCHABLE = re.compile(r'[\x00-\x1f\x7f"\\]')
_NO_HANDLER = "expected but not found"
"""What the SDK's workers answer where a run of another type is asked. A thread keeps no approvals, and the id of its
turn looks like that of an approval in it."""
_NO_ANSWER = {RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED}


async def query(
    client: Client, turn_id: str, name: str, arg: Json | None = None, *, limit: float = QUERY_LIMIT
) -> Json:
    """Ask a run. Raises UnknownApprovalError for a run that does not exist, NoWorkerError where nobody answers."""
    handle = client.get_workflow_handle(turn_id)
    args = [] if arg is None else [arg]
    try:
        with explained(turn_id):
            # `rpc_timeout` alone bounds one attempt, and the SDK makes several.
            async with asyncio.timeout(limit):
                answer = await handle.query(name, args=args, rpc_timeout=timedelta(seconds=limit))
    except TimeoutError as error:
        raise no_worker(turn_id) from error
    return answer if isinstance(answer, dict) else {}


async def paged(
    client: Client, turn_id: str, name: str, *, start: int = 0, limit: float = QUERY_LIMIT
) -> AsyncIterator[Json]:
    """Ask a run page by page, for no answer is larger than 512 KiB."""
    position: int | None = start
    while position is not None:
        page = await query(client, turn_id, name, {"start": position}, limit=limit)
        yield page
        position = page.get("next")


async def described(client: Client, turn_id: str, *, run_id: str | None = None) -> WorkflowExecutionDescription:
    """Return what the server says of a run, the latest one of its id or this one."""
    with explained(turn_id):
        return await client.get_workflow_handle(turn_id, run_id=run_id).describe(rpc_timeout=RPC_LIMIT)


async def listed(client: Client, query: str) -> list[WorkflowExecution]:
    """Return the runs that a visibility query finds, the oldest first."""
    try:
        runs = [run async for run in client.list_workflows(query)]
    except RPCError as error:
        raise ServerError(f"the server can't list runs: {error.message}") from error
    return sorted(runs, key=lambda run: (run.start_time, run.id))


def equals(attribute: str, value: str) -> str | None:
    """Return the condition of a visibility query, or None for a value that only some servers find: look yourself.

    Where visibility is in an SQL database, a backslash, a double quote or a control character finds nothing, or the
    query fails. `CORP\\ann` is such a value.
    """
    if _UNSEARCHABLE.search(value):
        return None
    escaped = value.replace("'", "\\'")
    return f"{attribute} = '{escaped}'"


@contextmanager
def explained(turn_id: str) -> Iterator[None]:
    """Turn the server's errors about a run into ours."""
    try:
        with readable(turn_id):
            yield
    except RPCError as error:
        raise explain(error, turn_id) from error
    except RPCTimeoutOrCancelledError as error:
        reraise_cancellation()
        raise no_worker(turn_id) from error
    except WorkflowQueryFailedError as error:
        if _NO_HANDLER in error.message:
            raise _of_another_type(turn_id) from error
        raise ServerError(f"run {turn_id!r} does not answer: {error.message}") from error


@contextmanager
def readable(turn_id: str) -> Iterator[None]:
    """Say what is missing where an answer has come that this client's data converter can't read."""
    try:
        yield
    except (KeyError, RuntimeError) as error:
        # The SDK has no error of its own for the first, and only a number for the second.
        text = str(error.args[0]) if error.args else ""
        if not text.startswith(_UNREADABLE):
            raise
        raise ServerError(
            f"run {turn_id!r} has answered, but payloads are encrypted or kept elsewhere ({text.rstrip('.')}): give"
            " the data converter that its worker has (TURNGATE_DATA_CONVERTER, --data-converter)"
        ) from error


def explain(error: RPCError, turn_id: str) -> TurngateError:
    """Return our error for one of the server's."""
    if error.status is RPCStatusCode.NOT_FOUND:
        return _gone(error, turn_id)
    if error.status in _NO_ANSWER or "no poller" in error.message:
        return no_worker(turn_id)
    if "in failed state" in error.message:
        return ServerError(
            f"run {turn_id!r} can't go on: its workflow task fails. The Temporal UI shows why; a worker with the"
            " cause mended lets it go on by itself"
        )
    if error.status is RPCStatusCode.UNAVAILABLE:
        return ServerError(f"the Temporal server can't be reached: {error.message}")
    return ServerError(f"the Temporal server refused: {error.message}")


def no_worker(turn_id: str) -> NoWorkerError:
    """Return the error for a run that nobody works on."""
    return NoWorkerError(
        f"no worker answered for {turn_id!r}: start one that serves its task queue (`turngate worker`), then try again"
    )


def refusal(error: WorkflowUpdateFailedError, turn_id: str) -> TurngateError:
    """Return our error for a refused update: its first detail lists the refusals."""
    cause = error.cause
    if not isinstance(cause, ApplicationError):
        return ServerError(f"run {turn_id!r} failed to answer: {cause}")
    refusals = _refusals(cause)
    if refusals:
        return RefusedError.of(refusals)
    if cause.type == "AcceptedUpdateCompletedWorkflow":
        return refuse("closed", f"run {turn_id!r} ended before it could answer")
    if _NO_HANDLER in cause.message:
        return _of_another_type(turn_id)
    if cause.type in REFUSALS:
        return refuse(cause.type, cause.message)
    return ServerError(f"run {turn_id!r} does not take this request: {cause.message}")


def unprocessed(error: WorkflowUpdateFailedError) -> bool:
    """Whether the worker never looked at the update: it died, or gave its task back. Sent again it counts once."""
    return isinstance(error.cause, ApplicationError) and error.cause.type == "UnprocessedUpdate"


def reraise_cancellation() -> None:
    """Raise CancelledError when the caller's own task is being cancelled.

    The SDK answers a cancelled update with the same error as a timeout, which would swallow the cancellation.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _gone(error: RPCError, turn_id: str) -> RefusedError:
    if "already completed" in error.message:
        return refuse("closed", f"run {turn_id!r} has ended, so nothing was changed")
    return refuse("unknown_approval", f"there is no run {turn_id!r}: check the id and the namespace")


def _of_another_type(turn_id: str) -> RefusedError:
    return refuse(
        "unknown_approval", f"there is no such thing in run {turn_id!r}, which is of another type: check the id"
    )


def _refusals(cause: ApplicationError) -> list[Refusal]:
    details = cause.details[0] if cause.details else None
    entries = details.get("refusals") if isinstance(details, dict) else None
    return [Refusal.from_json(entry) for entry in entries or () if isinstance(entry, dict)]
