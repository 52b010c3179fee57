"""Reading what comes from outside, so that nothing a client sends can fail a workflow task."""

from __future__ import annotations

from typing import Any

from temporalio import workflow
from temporalio.common import RawValue

with workflow.unsafe.imports_passed_through():
    from turngate.contracts import DECISION_LIMIT, MAX_DECISION_VALUES, Json
    from turngate.decisions import loads, value_ok
    from turngate.errors import RefusedError, refuse


def read(raw: Any, limit: int = DECISION_LIMIT, values: int = MAX_DECISION_VALUES) -> Any:
    """Return the JSON value of a raw payload. Raises RefusedError, and nothing else, for everything that is none."""
    if not isinstance(raw, RawValue):
        raise refuse("malformed", "send exactly one argument: a JSON object")
    payload = raw.payload
    encoding = payload.metadata.get("encoding", b"")[:100].decode("ascii", "replace")
    if encoding == "json/plain":
        return loads(payload.data, limit, values)
    if encoding in ("", "binary/null", "binary/plain", "binary/undecodable"):
        raise refuse(
            "malformed", f"the payload is no JSON (its encoding is {encoding or 'missing'!r}): send json/plain"
        )
    try:
        value = workflow.payload_converter().from_payload(payload)
        if isinstance(value, (dict, str)):
            value_ok(value, values)
            return value
    except RefusedError:
        raise
    except Exception as error:  # whatever a converter raises, it must not fail the task
        raise refuse(
            "malformed", f"the payload with encoding {encoding!r} can't be read: {type(error).__name__}"
        ) from None
    raise refuse("malformed", f"the payload with encoding {encoding!r} is no JSON object")


def fields(raw: Any, *names: str) -> Json:
    """Return the object of a request that has these fields at most, all of them texts. Raises RefusedError."""
    data = read(raw)
    if not isinstance(data, dict):
        raise refuse("malformed", f"send a JSON object with at most {', '.join(names)}")
    for key, value in data.items():
        if key not in names:
            raise refuse("malformed", f"unknown field {key[:200]!r}: known are {', '.join(names)}", key)
        if value is not None and not isinstance(value, str):
            raise refuse("malformed", f"{key!r} must be a text", key)
    return data
