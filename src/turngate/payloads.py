"""What a client sends to `decide`, read just far enough to find the run that each decision belongs to.

Whether a decision makes sense is the run's business: here a payload is only made sure to be JSON of a bearable size,
sorted by run, and given the id that makes sending it twice harmless.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from turngate.contracts import DECISION_LIMIT, Json
from turngate.errors import Refusal, RefusedError, refuse


@dataclass(frozen=True)
class Batch:
    """The decisions of one request that belong to one run.

    `payload` is what travels. `decisions` has one entry each, with its approval id and reviewer inside; it is None
    where the decisions go by position (form 4) or can't be told apart here.
    """

    turn_id: str
    payload: Any
    decisions: tuple[Json, ...] | None

    @property
    def approval_ids(self) -> list[str]:
        """The approvals named, in the order sent."""
        return [decision["approval_id"] for decision in self.decisions or ()]

    def update_id(self) -> str:
        """Return the id of the update: the same for the same decisions, so that a repeat gets the first receipt back.

        Decisions by position get an id of their own each time: two batches of a turn may be answered alike.
        """
        if self.decisions is None:
            return f"decide-{uuid.uuid4().hex}"
        text = json.dumps(self.decisions, sort_keys=True, separators=(",", ":"))
        return f"decide-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def by_run(payload: Any) -> list[Batch]:
    """Sort the decisions of a payload (forms 1 to 3 of the contract) by the run that their ids name.

    Raises MalformedError for anything without ids, UnknownApprovalError for an id that names no run, TooLargeError.
    """
    payload = readable(payload)
    if isinstance(payload.get("decisions"), list) and payload.get("approval_id") is None:
        return _listed(payload)
    if payload.get("approval_id") is not None:
        return [Batch(turn_of(payload["approval_id"]), payload, (payload,))]
    if payload and all(isinstance(value, Mapping) for value in payload.values()):
        return _mapped(payload)
    raise refuse(
        "malformed",
        "this is no decision: send {'approval_id', 'type', ...}, {'decisions': [...]} or {'<approval id>': {...}}",
    )


def for_run(turn_id: str, payload: Any) -> Batch:
    """Address a payload of any form, decisions by position included, to one run."""
    payload = readable(payload)
    try:
        batches = by_run(payload)
    except RefusedError:
        return Batch(turn_id, payload, None)
    decisions = tuple(decision for batch in batches for decision in batch.decisions or ())
    return Batch(turn_id, payload, decisions)


def readable(payload: Any) -> Json:
    """Return the payload as a JSON object (some clients quote it), checked for size and content."""
    if isinstance(payload, str):
        payload = _unquoted(payload)
    if not isinstance(payload, Mapping):
        raise refuse("malformed", f"a decision is a JSON object, not {type(payload).__name__}")
    check_json(payload, "the request", DECISION_LIMIT)
    return dict(payload)


def check_json(value: Any, what: str, limit: int) -> None:
    """Raise MalformedError for what JSON can't hold, TooLargeError above `limit` bytes; both name `what`."""
    try:
        size = len(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode())
    except UnicodeEncodeError:
        raise refuse("malformed", f"{what} holds text that is no valid Unicode (half of a surrogate pair)") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise refuse("malformed", f"{what} can't be written as JSON: {error}") from None
    if size > limit:
        raise refuse("too_large", f"{what} is too large: {size} bytes, and {limit} bytes are the limit")


def _unquoted(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise refuse("malformed", f"the text is not JSON: {error}") from None


def turn_of(approval_id: Any) -> str:
    """Return the id of the run that an approval id names. Raises MalformedError, UnknownApprovalError."""
    if not isinstance(approval_id, str):
        raise refuse("malformed", f"'approval_id' is a text, not {approval_id!r}", "approval_id")
    turn_id, _, rest = approval_id.rpartition("/")
    if not turn_id or not rest:
        raise refuse(
            "unknown_approval",
            f"there is no approval {approval_id!r}: an approval id looks like '<turn id>/9d21aa-1'",
            approval_id=approval_id,
        )
    return turn_id


def _listed(payload: Json) -> list[Batch]:
    entries = payload["decisions"]
    reviewer = {"reviewer": payload["reviewer"]} if payload.get("reviewer") is not None else {}
    for index, entry in enumerate(entries):
        if not isinstance(entry, Mapping) or entry.get("approval_id") is None:
            raise refuse(
                "malformed",
                f"entry {index} of 'decisions' names no approval: add its 'approval_id'"
                " (a list without ids is sent through the turn: client.turn(id).decide(...))",
            )
    rest = {key: value for key, value in payload.items() if key != "decisions"}
    batches = [
        Batch(turn_id, {**rest, "decisions": group}, tuple({**reviewer, **entry} for entry in group))
        for turn_id, group in _grouped((entry["approval_id"], dict(entry)) for entry in entries).items()
    ]
    if not batches:
        raise refuse("malformed", "'decisions' is empty: nothing is decided", "decisions")
    return batches


def _mapped(payload: Json) -> list[Batch]:
    groups = _grouped((approval_id, (approval_id, dict(entry))) for approval_id, entry in payload.items())
    return [
        Batch(turn_id, dict(group), tuple({**entry, "approval_id": approval_id} for approval_id, entry in group))
        for turn_id, group in groups.items()
    ]


def _grouped(items: Iterable[tuple[str, Any]]) -> dict[str, list[Any]]:
    """Group by run, keeping the order; every id that names no run is reported."""
    groups: dict[str, list[Any]] = {}
    faults: list[Refusal] = []
    for approval_id, item in items:
        try:
            groups.setdefault(turn_of(approval_id), []).append(item)
        except RefusedError as error:
            faults += error.refusals
    if faults:
        raise RefusedError.of(faults)
    return groups
