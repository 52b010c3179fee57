"""The state of a turn as data, so that it can go over continue-as-new whole."""

from __future__ import annotations

import base64
import json
import zlib
from datetime import datetime
from typing import Any

from pydantic import Field, PrivateAttr
from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from turngate.contracts import (
        KIB,
        CallPlan,
        Json,
        Message,
        ParentRef,
        Recorded,
        Segment,
        StepSettings,
        ToolSettings,
        TurnRequest,
        TurnStart,
        json_size,
    )
    from turngate.errors import refuse
    from turngate.items import LedgerState

CARRIED_LIMIT = 1536 * KIB
"""Bytes of compressed state that one run hands to the next; the server takes 2 MB."""
UNPACKED_LIMIT = 256 * 1024 * KIB


class Call(Recorded):
    """One proposed call on its way from proposed to answered.

    `waits_for` is the open approval, `result` the tool message at the end; in between the call is ready to run.
    `name` and `args` are what will run: the model's, or a reviewer's.
    """

    number: int = 0
    plan: CallPlan = Field(default_factory=CallPlan)
    tool_call_id: str | None = None
    original_name: str = ""
    name: str = ""
    args: Json = Field(default_factory=dict)
    digest: str = ""
    edited: bool = False
    asked_name: str = ""
    """The tool that was put up when a reviewer changed it to another."""
    asked_plan: CallPlan | None = None
    """Under what the other tool was put up: the people who are asked about what comes of it."""
    reviewed: bool = False
    judged: bool = False
    """The policy has spoken about another tool that a reviewer put in: it may run when its batch does."""
    decision: str | None = None
    reviewer: str | None = None
    answers: list[Any] = Field(default_factory=list)
    approvals: list[str] = Field(default_factory=list)
    waits_for: str | None = None
    error: str | None = None
    ran: bool = False
    result: Message | None = None


class Step(Recorded):
    """The open step: its calls in the order in which their answers stand in the conversation."""

    calls: list[Call] = Field(default_factory=list)
    batch: int = 0


class Unsent(Recorded):
    """A notification that a run hands to the next one."""

    kind: str = ""
    approval_id: str = ""
    ordinal: int = 1
    notifier: str = ""


class TurnState(Recorded):
    """Everything a turn knows."""

    request: Json = Field(default_factory=dict)
    parent: ParentRef | None = None
    thread: Segment | None = None
    depth: int = 0
    started_at: datetime | None = None
    messages: list[Message] = Field(default_factory=list)
    size: int = 0
    first_new: int = 0
    steps: int = 0
    calls: int = 0
    batches: int = 0
    usage: dict[str, Any] = Field(default_factory=dict)
    repairs: list[str] = Field(default_factory=list)
    schemas: dict[str, Json] = Field(default_factory=dict)
    """The argument schema of every tool, where an edit may change the tool; recorded once a turn."""
    tool_settings: dict[str, ToolSettings] = Field(default_factory=dict)
    """How each of them is executed."""
    settings: StepSettings = Field(default_factory=StepSettings)
    step: Step | None = None
    step_began: datetime | None = None
    output: str | None = None
    output_problem: str | None = None
    output_refused: int = 0
    ledger: LedgerState = Field(default_factory=LedgerState)
    shown_status: str = "running"
    shown_waiting: list[str] = Field(default_factory=list)
    ending: str | None = None
    unsent: list[Unsent] = Field(default_factory=list)

    _asked: TurnRequest | None = PrivateAttr(default=None)

    def asked(self) -> TurnRequest:
        """Return the request that started the turn. Read once: it may hold a long conversation."""
        if self._asked is None:
            self._asked = TurnRequest.model_validate(self.request)
        return self._asked

    def say(self, *messages: Message) -> None:
        """Add messages to the conversation."""
        for message in messages:
            self.messages.append(message)
            self.size += json_size(message)


def pack(state: TurnState, start: TurnStart) -> Json:
    """Return the input of the next run. Raises ApplicationError where the state is too large to carry."""
    way_out = "start another turn, and keep results short (Agent(max_result_bytes=...))"
    packed = pack_json(state, "the turn's state", way_out)
    return start.model_copy(update={"carried": packed}).compact() | {"turngate": start.turngate}


def pack_json(state: Recorded, what: str, way_out: str) -> str:
    """Return a state compressed as text. Raises ApplicationError, with the way out, where it is too large to carry."""
    plain = json.dumps(state.compact(), separators=(",", ":")).encode()
    packed = base64.b85encode(zlib.compress(plain, 6)).decode("ascii")
    if len(packed) > CARRIED_LIMIT:
        raise ApplicationError(
            f"{what} has {len(packed)} bytes compressed, and one run can hand {CARRIED_LIMIT} to the next: {way_out}",
            type="StateTooLarge",
            non_retryable=True,
        )
    return packed


def unpack(carried: str) -> TurnState:
    """Return the state that the run before handed over. Raises RefusedError where it is none."""
    return TurnState.model_validate(unpack_json(carried))


def unpack_json(carried: Any) -> Any:
    """Return the JSON that was packed. Raises RefusedError for anything else."""
    try:
        # Bounded, or a small forged one could fill the worker's memory.
        unpacking = zlib.decompressobj()
        plain = unpacking.decompress(base64.b85decode(carried), UNPACKED_LIMIT)
        if not unpacking.eof:
            raise ValueError("it is cut off, or too large")
        return json.loads(plain)
    except (TypeError, ValueError, zlib.error) as error:
        raise refuse("malformed", f"this is no carried state: {error}") from None


def add_usage(total: dict[str, Any], more: Any) -> None:
    """Add one model call's usage to the turn's, number by number."""
    for key, value in (more or {}).items() if isinstance(more, dict) else ():
        if isinstance(value, dict):
            add_usage(total.setdefault(key, {}), value)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            total[key] = total.get(key, 0) + value
