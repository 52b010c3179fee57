"""From the raw payload of `decide` to parsed decisions: the one place that knows every accepted spelling.

Nothing here knows an approval. What is wrong with the form is found here and is `malformed` (or `too_large`);
whether a decision fits its approval is the ledger's business.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NoReturn

from pydantic import Field, StringConstraints, ValidationError, field_validator

from turngate.contracts import DECISION_LIMIT, MAX_DECISION_VALUES, MAX_DECISIONS, MAX_DEPTH, Json, Strict, json_size
from turngate.durations import seconds
from turngate.errors import MalformedError, Refusal, RefusedError, refuse

ReviewerName = Annotated[str, StringConstraints(max_length=256)]
ApprovalId = Annotated[str, StringConstraints(min_length=1, max_length=2000)]


class EditedAction(Strict):
    """The call that runs instead: LangChain's edited action."""

    name: str
    args: Json


class Remember(Strict):
    """Make a rule of this decision. `expires_in` is in seconds, or a text like 1h."""

    scope: Literal["turn", "thread"]
    match: Literal["tool", "args"]
    expires_in: float | None = None
    apply_to_pending: bool = False

    @field_validator("expires_in", mode="before")
    @classmethod
    def _duration(cls, value: Any) -> Any:
        return None if value is None else seconds(value)


class _Base(Strict):
    approval_id: ApprovalId | None = None
    digest: Annotated[str, StringConstraints(max_length=64)] | None = None
    reviewer: ReviewerName | None = None
    comment: Annotated[str, StringConstraints(max_length=8192)] | None = None
    remember: Remember | None = None
    token: Annotated[str, StringConstraints(max_length=16_384)] | None = None


class Approve(_Base):
    """Run the call as it is."""

    type: Literal["approve"]


class Edit(_Base):
    """Run another call instead. `name` is None where the sender gave arguments alone (Warlock's form)."""

    type: Literal["edit"]
    edited_action: EditedAction | None = None
    args: Json | None = None


class Reject(_Base):
    """Don't run it."""

    type: Literal["reject"]
    message: str | None = None


class Respond(_Base):
    """Don't run it: this text is the result."""

    type: Literal["respond"]
    message: str


class Answer(_Base):
    """The answer to a question: any JSON value, null included."""

    null_means_null: ClassVar[frozenset[str]] = frozenset({"value"})
    type: Literal["answer"]
    value: Any = Field()


Decision = Approve | Edit | Reject | Respond | Answer
_TYPES: dict[str, type[Decision]] = {
    "approve": Approve,
    "edit": Edit,
    "reject": Reject,
    "respond": Respond,
    "answer": Answer,
}
_FOREIGN = {"editedAction": "edited_action", "reason": "message"}
"""Spellings of other systems: LangChain JS, Warlock."""


@dataclass(frozen=True)
class Entry:
    """One decision of a request: parsed, or the refusal that says why it is none."""

    approval_id: str | None
    decision: Decision | None
    refusal: Refusal | None = None
    sender: str | None = None


@dataclass(frozen=True)
class Submission:
    """All decisions of one request, in the order sent. `positional`: a list without ids."""

    entries: Sequence[Entry]
    positional: bool = False


def loads(data: bytes | str, limit: int = DECISION_LIMIT, values: int = MAX_DECISION_VALUES) -> Any:
    """Parse strict JSON: no NaN, no lone surrogates, no key twice, bounded depth, at most so many bytes and values.

    Raises MalformedError or TooLargeError.
    """
    if len(data) > limit:
        raise too_large(len(data))
    try:
        text = data.decode("utf-8") if isinstance(data, bytes) else data
        # Before parsing, which calls us for every object.
        if text.count("{") > values:
            raise _too_many_values(values)
        value = json.loads(text, parse_constant=no_constant, object_pairs_hook=_no_twins)
        value_ok(value, values)
        # `1e15` is four characters on the way in and eighteen on the way out.
        if len(data) > limit // 5 and (size := json_size(value)) > limit:
            raise too_large(size)
    except RefusedError:
        raise
    except RecursionError:
        raise refuse("malformed", f"the JSON is nested deeper than {MAX_DEPTH}") from None
    except ValueError as error:
        raise refuse("malformed", f"this is not JSON: {str(error)[:200]}") from None
    return value


def value_ok(value: Any, values: int = MAX_DECISION_VALUES) -> None:
    """Raise MalformedError for what JSON text can spell but UTF-8 or we can't hold; TooLargeError for too many values.

    Not recursive, and bounded in number as well: half a million empty objects fit into 2 MB and hold the worker for
    longer than the server's patience.
    """
    waiting: list[tuple[Any, int]] = [(value, 0)]
    seen = 0
    while waiting:
        value, depth = waiting.pop()
        seen += 1
        if depth > MAX_DEPTH:
            raise refuse("malformed", f"the JSON is nested deeper than {MAX_DEPTH}")
        if seen + len(waiting) > values:
            raise _too_many_values(values)
        if isinstance(value, list):
            waiting.extend((item, depth + 1) for item in value)
        elif isinstance(value, dict):
            for key in value:
                _scalar_ok(key)
            waiting.extend((item, depth + 1) for item in value.values())
        else:
            _scalar_ok(value)


def _scalar_ok(value: Any) -> None:
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise refuse("malformed", "a text holds half a character (a lone surrogate)") from None
    elif isinstance(value, float) and not math.isfinite(value):
        raise refuse("malformed", "NaN and Infinity are not JSON")


def _too_many_values(values: int) -> RefusedError:
    return refuse("too_large", f"the JSON holds more than {values} values")


def _few(entries: Sequence[Any] | Json) -> None:
    if len(entries) > MAX_DECISIONS:
        raise refuse("too_large", f"the request has {len(entries)} decisions; {MAX_DECISIONS} are the limit")


def too_large(size: int) -> RefusedError:
    """Build the refusal for a request over the budget."""
    return refuse("too_large", f"the decision has {size} bytes; the limit is {DECISION_LIMIT}")


def no_constant(name: str) -> NoReturn:
    """Refuse NaN and Infinity, which Python reads; for `json.loads`, as `parse_constant`."""
    raise ValueError(f"{name} is not JSON")


def _no_twins(pairs: list[tuple[str, Any]]) -> Json:
    result = dict(pairs)
    if len(result) != len(pairs):
        # In linear time: 20,000 keys counted against each other would hold the worker for good.
        seen: set[str] = set()
        twin = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise refuse("malformed", f"the field {twin[:200]!r} stands twice in one object")
    return result


def parse(payload: Any) -> Submission:
    """Read any documented form of a request. Raises MalformedError where it has none of them."""
    if isinstance(payload, str):
        payload = loads(payload)
    if not isinstance(payload, dict):
        raise refuse("malformed", f"a decision is a JSON object, not {_kind(payload)}. {_FORMS}")
    single = payload.get("type") is not None or payload.get("approval_id") is not None
    if "decisions" in payload and not (single and payload["decisions"] is None):
        return _list({key: value for key, value in payload.items() if value is not None or key == "decisions"})
    if "type" in payload or "approval_id" in payload:
        entry = _entry(payload, None)
        if entry.refusal is None and entry.approval_id is None:
            raise refuse("malformed", "'approval_id' is missing: say which call the decision is about", "approval_id")
        return Submission([entry])
    if payload and all(isinstance(value, dict) for value in payload.values()):
        return _map(payload)
    raise refuse("malformed", f"this is none of the forms of a decision. {_FORMS}")


_FORMS = (
    'Send {"approval_id": ..., "type": "approve" | "edit" | "reject" | "respond" | "answer", ...},'
    ' or {"decisions": [...]}, or {"<approval id>": {"type": ...}}.'
)


def sender_of(payload: Any) -> str | None:
    """Who says to have sent this, in whatever form: one name, beside the decisions or inside."""
    if isinstance(payload, str):
        try:
            payload = loads(payload)
        except RefusedError:
            return None
    if not isinstance(payload, dict):
        return None
    inside = payload.get("decisions")
    if not isinstance(inside, list):
        inside = [] if "type" in payload else list(payload.values())
    said = [entry["reviewer"] for entry in (payload, *inside) if isinstance(entry, dict) and entry.get("reviewer")]
    found = said[0] if said and said.count(said[0]) == len(said) else None
    return found[:256] if isinstance(found, str) else None


def _list(payload: Json) -> Submission:
    for key in payload:
        if key not in ("decisions", "reviewer"):
            raise refuse("malformed", f"unknown field {key[:200]!r} beside 'decisions'", key)
    items = payload["decisions"]
    if not isinstance(items, list) or not items:
        raise refuse("malformed", "'decisions' must be a list with at least one decision", "decisions")
    _few(items)
    shared = payload.get("reviewer")
    if shared is not None and (not isinstance(shared, str) or len(shared) > 256):
        raise refuse("malformed", "'reviewer' must be a text of at most 256 characters", "reviewer")
    entries = [_entry(item, shared) for item in items]
    named = [isinstance(item, dict) and item.get("approval_id") is not None for item in items]
    if any(named) and not all(named):
        raise refuse("malformed", "some decisions have an 'approval_id' and some have none", "decisions")
    _not_twice(entries)
    return Submission(entries, positional=not any(named))


def _map(payload: Json) -> Submission:
    _few(payload)
    entries = []
    for approval_id, item in payload.items():
        if item.get("approval_id") is not None:
            raise refuse("malformed", "the id stands as the key already", "approval_id", approval_id=approval_id)
        entries.append(_entry({**item, "approval_id": approval_id}, None))
    return Submission(entries)


def _not_twice(entries: list[Entry]) -> None:
    seen: set[str] = set()
    for entry in entries:
        if entry.approval_id in seen:
            raise refuse("malformed", f"approval {entry.approval_id!r} is named twice", "decisions")
        if entry.approval_id:
            seen.add(entry.approval_id)


def _entry(item: Any, shared_reviewer: str | None) -> Entry:
    if not isinstance(item, dict):
        return Entry(None, None, Refusal("malformed", f"a decision is a JSON object, not {_kind(item)}"))
    approval_id = item.get("approval_id")
    known = approval_id if isinstance(approval_id, str) and 0 < len(approval_id) <= 2000 else None
    sender = item.get("reviewer", shared_reviewer)
    sender = sender[:256] if isinstance(sender, str) else None
    try:
        return Entry(known, _decision(item, shared_reviewer), sender=sender)
    except MalformedError as error:
        found = error.refusals[0]
        return Entry(known, None, Refusal(found.code, found.message, found.path, known), sender)


def _decision(item: Json, shared_reviewer: str | None) -> Decision:
    data = _normalised(item)
    if shared_reviewer is not None:
        if data.get("reviewer") is not None:
            raise refuse("malformed", "'reviewer' stands both beside 'decisions' and inside", "reviewer")
        data["reviewer"] = shared_reviewer
    kind = data.get("type")
    if kind is None:
        raise refuse("malformed", "'type' is missing: approve, edit, reject, respond or answer", "type")
    if not isinstance(kind, str) or kind not in _TYPES:
        raise refuse("malformed", f"unknown type {_short(kind)}: use approve, edit, reject, respond or answer", "type")
    try:
        decision = _TYPES[kind].model_validate(data)
    except ValidationError as error:
        raise _first_problem(error) from None
    if isinstance(decision, Edit) and (decision.edited_action is None) == (decision.args is None):
        if decision.args is not None:
            raise refuse("malformed", "both 'edited_action' and 'args' are given: send one of them", "args")
        raise refuse("malformed", "'edited_action' is missing: an edit says what runs instead", "edited_action")
    return decision


def _normalised(item: Json) -> Json:
    data = dict(item)
    for foreign, ours in _FOREIGN.items():
        if foreign == "reason" and data.get("type") != "reject":
            continue
        if foreign in data and data[foreign] is None:
            del data[foreign]  # null counts as absent
        elif foreign in data:
            if data.get(ours) is not None:
                raise refuse("malformed", f"both {ours!r} and {foreign!r} are given: send one of them", foreign)
            data[ours] = data.pop(foreign)
    return data


def _first_problem(error: ValidationError) -> RefusedError:
    problem = error.errors(include_url=False, include_input=False)[0]
    path = tuple(part for part in problem["loc"] if isinstance(part, (str, int)))
    where = ".".join(str(part)[:100] for part in path) or "the decision"
    what = "unknown field" if problem["type"] == "extra_forbidden" else problem["msg"][:200].lower()
    return refuse("malformed", f"{where}: {what}", *path)


def _kind(value: Any) -> str:
    names = {"NoneType": "null", "list": "a list", "str": "a text", "int": "a number", "float": "a number"}
    return names.get(type(value).__name__, type(value).__name__)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else text[:100] + "..."
