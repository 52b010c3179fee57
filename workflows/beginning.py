"""What a turn is started with: read strictly, so that a bad start fails at once and says why."""

from __future__ import annotations

from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from pydantic import ValidationError

    from turngate.contracts import MAX_VALUES, TurnRequest, TurnStart
    from turngate.errors import RefusedError, refuse
    from turngate.workflows import payloads
    from turngate.workflows.state import TurnState, unpack

INPUT_LIMIT = 2 * 1024 * 1024
ID_LIMIT = 800
"""Bytes of a turn's id. The server takes 1,000, and a child's id is its parent's with something behind it."""
CHILD_ID_LIMIT = 960
"""Bytes of the id of a subagent's turn, or of a thread's."""


def read_start(raw: Any) -> tuple[TurnStart, TurnState | None]:
    """Return how the turn starts, and the state of the run before where it goes on. Raises ApplicationError."""
    info = workflow.info()
    try:
        _fit_to_start(info)
        data = payloads.read(raw, INPUT_LIMIT, MAX_VALUES)
        if isinstance(data, dict) and "turngate" in data and (info.parent or info.continued_run_id):
            start = TurnStart.model_validate(data)
        else:
            start = TurnStart(request=TurnRequest.model_validate(data).model_dump(mode="json", exclude_defaults=True))
        if start.carried:
            return start, unpack(start.carried)
        TurnRequest.model_validate(start.request)
        return start, None
    except RefusedError as error:
        if info.continued_run_id:
            # Our own state can't be read: this worker lacks a key or a storage driver. Another one may have it.
            raise RuntimeError(f"the state of the run before can't be read: {error}") from None
        raise bad_request("turn", str(error)) from None
    except ValidationError as error:
        raise bad_request("turn", problems(error)) from None


def bad_request(what: str, why: str) -> ApplicationError:
    """Build the failure of a start that is none. The words are cut: they quote what was sent, and it may be long."""
    return ApplicationError(f"this is no request for a {what}: {why[:2000]}", type="BadRequest", non_retryable=True)


def _fit_to_start(info: workflow.Info) -> None:
    """Raise RefusedError for a start that no later step could repair."""
    if info.cron_schedule:
        raise refuse("malformed", "a turn runs once: start it from a schedule, without cron")
    limit = CHILD_ID_LIMIT if info.parent else ID_LIMIT
    if len(info.workflow_id.encode()) > limit:
        raise refuse("too_large", f"its id has more than {limit} bytes, which leaves no room for those of subagents")


def problems(error: ValidationError) -> str:
    """Say what is wrong with a request, field by field, the first five."""
    found = [
        f"{'.'.join(str(part)[:200] for part in one['loc']) or 'request'}: "
        + ("unknown field" if one["type"] == "extra_forbidden" else one["msg"])
        for one in error.errors(include_url=False, include_input=False)
    ]
    return "; ".join(found[:5])
