"""What crosses the wire between clients, workflow and activities.

What clients send is strict: an unknown field is refused. What we recorded ourselves is tolerant: unknown fields
are ignored and every field has a default, so that workers of two releases can share a run.
Times are ISO 8601 in UTC, durations are seconds. Messages are the plain JSON of LangChain's `AnyMessage` models.
"""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, model_validator

# --- Budgets, all below the limits of the Temporal server -------------------------------------------------------

KIB = 1024
DECISION_LIMIT = 256 * KIB
"""Bytes of one request to `decide`, of one call's arguments, of a tool's result and of a receipt."""
RESULT_LIMIT = 1024 * KIB
"""Bytes of a TurnResult and of one model step."""
PAGE_LIMIT = 512 * KIB
"""Bytes of one answer to a query."""
INLINE_LIMIT = 16 * KIB
"""A conversation up to this many bytes travels inside the activity's input, a longer one by reference."""
ARGS_INLINE_LIMIT = 32 * KIB
"""Arguments up to this many bytes travel inside the activity's input, longer ones by reference."""
DESCRIPTION_LIMIT = 4 * KIB
SEARCH_ATTRIBUTE_LIMIT = 2000
HELD_LIMIT = 64
QUEUE_LIMIT = 100
QUEUE_BYTES = 512 * KIB
"""Messages that may wait in a thread for its open turn to end, and their bytes together."""
TURNS_LISTED = 200
"""Turns in the status of a thread, the last ones; the query `turns` pages through all."""
REFUSED_KEPT = 20
MAX_DEPTH = 100
"""Nested deeper than this, JSON from outside is refused."""
MAX_VALUES = 50_000
"""With more values than this, the input of a run is refused: looking at each takes time that a server task has not."""
MAX_DECISION_VALUES = 20_000
MAX_DECISIONS = 1000
MAX_FIELDS = 100
"""Values and decisions of one request to `decide`, and the fields of any request."""
CONTEXT_LIMIT = 64 * KIB
"""Bytes of a request's context, metadata and `review_also` together: they travel with every call."""

TURN, THREAD = WORKFLOW_TYPES = ("AgentTurn", "AgentThread")
PROTOCOL = 1
DECISIONS: tuple[str, ...] = ("approve", "edit", "reject", "respond")
"""LangChain's four decisions, in LangChain's order."""
TASK_TOOL = "task"
EDIT_NOTICE = "A reviewer changed this call before it ran."
"""The first sentence of the notice in front of an edited call's result; what ran follows in any case."""

Json = dict[str, Any]
Message = dict[str, Any]
Value = TypeVar("Value")


class Strict(BaseModel):
    """Sent by clients: unknown fields are refused, null counts as absent."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    null_means_null: ClassVar[frozenset[str]] = frozenset()
    """Fields where null is a value and not an absence."""

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        if len(data) > MAX_FIELDS:
            # Saying for each of 20,000 that it is unknown takes seconds.
            raise ValueError(f"{len(data)} fields, and no request has more than {MAX_FIELDS}")
        return {key: value for key, value in data.items() if value is not None or key in cls.null_means_null}


class Recorded(BaseModel):
    """Recorded by ourselves: unknown fields are ignored, every field has a default."""

    model_config = ConfigDict(extra="ignore")

    def to_json(self) -> Json:
        """Return plain JSON without null fields: the form that people and clients see."""
        return self.model_dump(mode="json", exclude_none=True)

    def compact(self) -> Json:
        """Return plain JSON without the fields that hold their default: the form that history holds.

        Read back it is the same object, as long as no default ever changes: a test freezes them.
        """
        return self.model_dump(mode="json", exclude_defaults=True)


# --- Starting a turn -------------------------------------------------------------------------------------------


class TurnRequest(Strict):
    """What a client asks for. Exactly one of `input` (a user's text) and `messages` is given.

    `review_also` holds names or patterns of tools to review in this turn as well: a caller can tighten the gate,
    never loosen it. `context` is JSON for policy and tools. `stream` opts in to token events.
    """

    agent: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    input: str | None = None
    messages: list[Message] | None = None
    thread_id: Annotated[str, StringConstraints(min_length=1, max_length=500)] | None = None
    context: Json = Field(default_factory=dict)
    requested_by: Annotated[str, StringConstraints(max_length=256)] | None = None
    review_also: list[str] = Field(default_factory=list)
    metadata: Json = Field(default_factory=dict)
    stream: bool = False

    @model_validator(mode="after")
    def _something_to_do(self) -> TurnRequest:
        if (self.input is None) == (self.messages is None):
            raise ValueError("give exactly one of 'input' (a text) and 'messages' (a list)")
        if self.messages is not None and not self.messages:
            raise ValueError("'messages' is empty: give at least one message, or 'input'")
        for number, message in enumerate(self.messages or ()):
            _calls_are_lists(number, message)
        return self

    @model_validator(mode="after")
    def _travels_light(self) -> TurnRequest:
        _light(self.context, self.metadata, self.review_also)
        return self


def _calls_are_lists(number: int, message: Message) -> None:
    """The shape that answering open calls relies on; everything else of a message is the model step's to judge."""
    for key in ("tool_calls", "invalid_tool_calls"):
        calls = message.get(key)
        if calls is not None and not (isinstance(calls, list) and all(isinstance(call, dict) for call in calls)):
            raise ValueError(f"message {number}: '{key}' is not a list of calls")


def _light(*parts: Any) -> None:
    size = sum(json_size(part) for part in parts)
    if size > CONTEXT_LIMIT:
        raise ValueError(
            f"'context', 'metadata' and 'review_also' have {size} bytes, and {CONTEXT_LIMIT} are the limit:"
            " they travel with every call, so put large things where tools can fetch them"
        )


class ThreadRequest(Strict):
    """How a thread is set up: its agent, and what every turn of it gets."""

    agent: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    on_busy: Literal["queue", "refuse", "stop"] = "queue"
    context: Json = Field(default_factory=dict)
    metadata: Json = Field(default_factory=dict)
    search_attributes: bool = False
    """The sender found the search attributes registered, so turns may be started with them."""

    @model_validator(mode="after")
    def _travels_light(self) -> ThreadRequest:
        _light(self.context, self.metadata)
        return self


class ThreadMessage(Strict):
    """One message to a thread. `on_busy` overrides the thread's: queue, refuse, or stop the open turn."""

    message: str
    on_busy: Literal["queue", "refuse", "stop"] | None = None
    context: Json = Field(default_factory=dict)
    requested_by: Annotated[str, StringConstraints(max_length=256)] | None = None
    review_also: list[str] = Field(default_factory=list)
    stream: bool = False

    @model_validator(mode="after")
    def _travels_light(self) -> ThreadMessage:
        _light(self.context, self.review_also)
        return self


class ParentRef(Recorded):
    """Where a subagent's turn hangs: the parent turn, the call that started it and the path of call ids."""

    turn_id: str = ""
    tool_call_id: str = ""
    path: list[str] = Field(default_factory=list)


class Segment(Recorded):
    """A part of a conversation: `messages` inline, or `count` messages from `start` of a workflow's query."""

    messages: list[Message] | None = None
    workflow_id: str = ""
    run_id: str = ""
    start: int = 0
    count: int = 0


# --- One model step ---------------------------------------------------------------------------------------------


class Verdict(StrEnum):
    RUN = "run"
    REVIEW = "review"
    DENY = "deny"
    INVALID = "invalid"


class ToolSettings(Recorded):
    """How one call is executed; seconds and bytes."""

    max_attempts: int = 1
    retry_safe: bool = False
    start_to_close_s: float = 600.0
    heartbeat_s: float = 30.0
    task_queue: str | None = None
    return_direct: bool = False
    on_tool_error: Literal["message", "fail", "ask"] = "message"
    max_result_bytes: int = DECISION_LIMIT


class CallPlan(Recorded):
    """The policy's verdict on one proposed call, and all that is needed later to raise, check and run it.

    `call` is the position in `message.tool_calls`; with `unreadable` it is the position in `invalid_tool_calls`.
    `message` is the finished text for the model where the verdict is deny or invalid.
    """

    call: int = 0
    unreadable: bool = False
    verdict: Verdict = Verdict.REVIEW
    digest: str = ""
    message: str | None = None
    tool_description: str = ""
    description: str = ""
    allowed_decisions: list[str] = Field(default_factory=lambda: list(DECISIONS))
    tags: list[str] = Field(default_factory=list)
    warnings: list[str] = Field(default_factory=list)
    editable_args: list[str] | None = None
    secret_args: list[str] = Field(default_factory=list)
    reviewers: list[str] = Field(default_factory=list)
    quorum: int = 1
    allow_self_approval: bool = True
    allow_remember: bool = True
    timeout_s: float | None = None
    on_timeout: Json | None = None
    remind_every_s: float | None = None
    escalate_after_s: float | None = None
    escalate_to: list[str] = Field(default_factory=list)
    repeat_rejected: Literal["ask", "deny"] = "ask"
    max_rejections: int = 5
    subagent: str | None = None
    judge_edits: bool = False
    """The rules are asked about a changed task before its subagent starts: no `call_tool` does it."""
    human: bool = False
    options: ToolSettings = Field(default_factory=ToolSettings)


class StepSettings(Recorded):
    """The agent's options that change what the workflow does; recorded with every step."""

    interrupt_mode: Literal["per_call", "batched"] = "per_call"
    allow_tool_change: bool = False
    edit_notice: str | None = EDIT_NOTICE
    max_steps: int = 50
    max_tokens: int | None = None
    max_duration_s: float | None = None
    roles: dict[str, list[str]] = Field(default_factory=dict)
    admins: list[str] = Field(default_factory=list)
    notifiers: list[str] = Field(default_factory=list)
    search_attributes: bool = False
    timeline_timer: bool = True
    inline_limit: int = INLINE_LIMIT
    signed: bool = False


class ModelStep(Recorded):
    """What `call_model` returns: the AI message and one plan per call. Recorded in history; this is the authority.

    `schemas` has the prepared argument schema (JSON Schema) of each tool that may be edited to: those of the gated
    calls, and of all tools where the tool may change; then `tool_settings` says how each of those is executed.
    """

    protocol: int = PROTOCOL
    message: Message = Field(default_factory=dict)
    plans: list[CallPlan] = Field(default_factory=list)
    schemas: dict[str, Json] = Field(default_factory=dict)
    tool_settings: dict[str, ToolSettings] = Field(default_factory=dict)
    settings: StepSettings = Field(default_factory=StepSettings)
    output: str | None = None
    """The JSON of a final answer that fits the agent's output schema."""
    output_problem: str | None = None
    """What is wrong with a final answer that does not fit it."""


class ModelInput(Recorded):
    """The input of `call_model`. `step` counts from 1; `conversation` may hold references."""

    agent: str = ""
    turn_id: str = ""
    thread_id: str | None = None
    step: int = 1
    conversation: list[Segment] = Field(default_factory=list)
    context: Json = Field(default_factory=dict)
    requested_by: str | None = None
    review_also: list[str] = Field(default_factory=list)
    metadata: Json = Field(default_factory=dict)
    stream: bool = False
    depth: int = 0
    schemas_known: bool = False
    """The schemas of all tools are recorded already in this turn (they are recorded once)."""


class ToolInput(Recorded):
    """The input of `call_tool`: one call, exactly as decided.

    Where `args` is None, they, `answers`, `context`, `metadata` and `review_also` travel by reference: the query
    `call_args` of the activity's own run with `number` has them.
    """

    agent: str = ""
    turn_id: str = ""
    thread_id: str | None = None
    step: int = 1
    number: int = 1
    key: str = ""
    tool_call_id: str = ""
    name: str = ""
    args: Json | None = None
    edited: bool = False
    original_name: str = ""
    """The tool that the last reviewer saw: for another one the policy may want a review of its own."""
    reviewed: bool = False
    """The edited call itself was put up and approved, so the policy's `review` is not asked again."""
    judge_only: bool = False
    """Only let the policy speak about the edited call: it runs later, when the whole batch is decided."""
    decision: str | None = None
    reviewer: str | None = None
    answers: list[Any] = Field(default_factory=list)
    edit_notice: str | None = EDIT_NOTICE
    context: Json = Field(default_factory=dict)
    requested_by: str | None = None
    metadata: Json = Field(default_factory=dict)
    review_also: list[str] = Field(default_factory=list)
    depth: int = 0
    options: ToolSettings = Field(default_factory=ToolSettings)


class ToolOutcome(Recorded):
    """What `call_tool` returns.

    kind `result`: `message` is the finished tool message and `succeeded` says how it went (`error` holds the tool's
    own words where it raised). kind `question`: the tool asked `question`. kind `review`: an edited call needs a
    decision of its own, `plan` and `schemas` say how. kind `cleared`: the policy lets an edited call run.
    """

    kind: Literal["result", "question", "review", "cleared"] = "result"
    message: Message | None = None
    succeeded: bool = True
    error: str | None = None
    ran: bool = True
    question: Any = None
    plan: CallPlan | None = None
    schemas: dict[str, Json] = Field(default_factory=dict)


# --- Approvals --------------------------------------------------------------------------------------------------


class ApprovalType(StrEnum):
    """What is asked: may this call run, a question of a tool, or what to do about a call with unknown outcome."""

    TOOL = "tool_approval"
    QUESTION = "question"
    RECOVERY = "recovery"


class ApprovalStatus(StrEnum):
    """Where an approval stands; everything but pending is final."""

    PENDING = "pending"
    APPROVED = "approved"
    EDITED = "edited"
    REJECTED = "rejected"
    RESPONDED = "responded"
    ANSWERED = "answered"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class Quorum(Recorded):
    """How many people have to agree, and how many have."""

    required: int = 1
    received: int = 0


class Proposal(Recorded):
    """An edit that waits for the votes of a quorum; a vote carries its digest."""

    args: Json = Field(default_factory=dict)
    name: str = ""
    digest: str = ""
    by: str | None = None


class Vote(Recorded):
    """One person's answer to an approval."""

    reviewer: str | None = None
    type: str = ""
    comment: str | None = None
    at: datetime | None = None


class Reassignment(Recorded):
    """Who handed the approval to whom."""

    by: str | None = None
    to: list[str] = Field(default_factory=list)
    at: datetime | None = None


class Resolution(Recorded):
    """How an approval was settled. `by` is reviewer, deadline, rule or stop."""

    type: str = ""
    by: Literal["reviewer", "deadline", "rule", "stop"] = "reviewer"
    edited_action: Json | None = None
    message: str | None = None
    value: Any = None
    reviewer: str | None = None
    comment: str | None = None
    rule_id: str | None = None
    at: datetime | None = None


class Executed(Recorded):
    """What ran in the end. `outcome` is succeeded, failed or unknown."""

    name: str = ""
    args: Json = Field(default_factory=dict)
    outcome: Literal["succeeded", "failed", "unknown"] = "unknown"
    at: datetime | None = None


class ApprovalContext(Recorded):
    """Where an approval comes from: agent, thread, turn, step, and who asked for what."""

    agent: str = ""
    thread_id: str | None = None
    turn_id: str = ""
    run_id: str = ""
    step: int = 1
    original_input: str | None = None
    requested_by: str | None = None
    parent_call: str | None = None
    """Id of the call in the parent turn that started this subagent's turn."""
    path: list[str] = Field(default_factory=list)
    """Call ids from the outermost turn down to this one."""


class Approval(Recorded):
    """The one object that query, inbox, notification, command line and UI all show."""

    id: str = ""
    type: ApprovalType = ApprovalType.TOOL
    digest: str = ""
    tool_call_id: str | None = None
    name: str = ""
    args: Json = Field(default_factory=dict)
    tool_description: str = ""
    description: str = ""
    question: Any = None
    tags: list[str] = Field(default_factory=list)
    warnings: list[str] = Field(default_factory=list)
    repeat_of: str | None = None
    allowed_decisions: list[str] = Field(default_factory=list)
    response_schema: Json = Field(default_factory=dict)
    requested_at: datetime | None = None
    expires_at: datetime | None = None
    reviewers: list[str] = Field(default_factory=list)
    quorum: Quorum = Field(default_factory=Quorum)
    proposal: Proposal | None = None
    context: ApprovalContext = Field(default_factory=ApprovalContext)
    status: ApprovalStatus = ApprovalStatus.PENDING
    reassigned: list[Reassignment] = Field(default_factory=list)
    votes: list[Vote] = Field(default_factory=list)
    resolution: Resolution | None = None
    executed: Executed | None = None


class Rule(Recorded):
    """A remembered decision. `match` is tool (any arguments) or args (the digest of the call)."""

    id: str = ""
    scope: Literal["turn", "thread"] = "turn"
    match: Literal["tool", "args"] = "args"
    tool: str = ""
    digest: str | None = None
    type: Literal["approve", "reject"] = "approve"
    message: str | None = None
    by: str | None = None
    at: datetime | None = None
    expires_at: datetime | None = None


class Outcome(StrEnum):
    """What became of a decision that was not refused."""

    APPLIED = "applied"
    ALREADY_RESOLVED = "already_resolved"
    VOTE_RECORDED = "vote_recorded"
    HELD = "held"
    QUEUED = "queued"


class Receipt(Recorded):
    """What the sender of one decision is told."""

    approval_id: str = ""
    outcome: Outcome = Outcome.APPLIED
    status: ApprovalStatus | None = None
    resolution: Resolution | None = None
    expires_at: datetime | None = None


class Refused(Recorded):
    """A refused signal, as the query `refused` shows it."""

    code: str = "malformed"
    message: str = ""
    path: list[str | int] = Field(default_factory=list)
    approval_id: str | None = None
    by: str | None = None
    signal: str = "decide"
    at: datetime | None = None


# --- The end of a turn -----------------------------------------------------------------------------------------


class TurnStatus(StrEnum):
    """How a turn ended."""

    COMPLETED = "completed"
    MAX_STEPS = "max_steps"
    STOPPED = "stopped"
    REJECTED_TOO_OFTEN = "rejected_too_often"
    OVER_BUDGET = "over_budget"


class TurnResult(Recorded):
    """How a turn ended: at most 1 MiB. `messages` (the new ones) is None where they are too long to come along:
    then `left_out` says so and the `messages` query has them."""

    status: TurnStatus = TurnStatus.COMPLETED
    output: str = ""
    messages: list[Message] | None = None
    new_messages: int = 0
    approvals: list[Approval] = Field(default_factory=list)
    usage: dict[str, Any] = Field(default_factory=dict)
    steps: int = 0
    left_out: list[str] = Field(default_factory=list)
    repairs: list[str] = Field(default_factory=list)
    rules: list[Rule] = Field(default_factory=list)
    """Rules of scope thread that were made in this turn; the thread keeps them."""

    def output_as(self, kind: type[Value]) -> Value:
        """Return the output as an object: for agents with an `output_schema`, given the same model.

        Raises pydantic's ValidationError where it does not fit, as after a turn that was stopped.
        """
        return TypeAdapter(kind).validate_json(self.output)


# --- What only workflows send to workflows -----------------------------------------------------------------------


class TurnStart(Recorded):
    """The input of a turn that a workflow starts: a subagent's, a thread's, or the next run of the same turn."""

    turngate: int = PROTOCOL
    request: Json = Field(default_factory=dict)
    parent: ParentRef | None = None
    thread: Segment | None = None
    rules: list[Rule] = Field(default_factory=list)
    depth: int = 0
    carried: str | None = None
    """Compressed state of the run before."""


# --- Helpers that both sides share -----------------------------------------------------------------------------


def digest_of(name: str, args: Json) -> str:
    """Return the digest of a call: the first 16 hex digits of SHA-256 over its canonical JSON.

    Raises ValueError for what JSON or UTF-8 can't hold (NaN, lone surrogates); callers clean first.
    """
    text = json.dumps([name, args], sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]


def json_size(value: Any) -> int:
    """Return the bytes of `value` as compact JSON in UTF-8."""
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass"))


def text_of(message: Message) -> str:
    """Return the text of a message, with the text blocks of block content joined."""
    content = message.get("content", "")
    if isinstance(content, str):
        return content
    parts = [block if isinstance(block, str) else block.get("text", "") for block in content or []]
    return "".join(part for part in parts if isinstance(part, str))
