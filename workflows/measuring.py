"""What a turn tells about itself: metrics through Temporal's own meter, spans through what `turngate.telemetry` put in.

Nothing here is a part of the turn. It adds no command and is silent at replay, so no history depends on it; and
nothing that a user, a model or a tool said goes into it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol

from temporalio import workflow
from temporalio.exceptions import is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from turngate.contracts import Approval, ApprovalType
    from turngate.errors import RefusedError
    from turngate.items import Notice
    from turngate.ledger import Ledger
    from turngate.workflows.state import Call, TurnState

SPANS = "turngate.spans"
"""The name of the function that `turngate.telemetry` puts within reach of workflow code."""
REQUESTED = "turngate_approvals_requested"
DECISION_SECONDS = "turngate_decision_seconds"
REFUSALS = "turngate_refusals"
RECOVERIES = "turngate_recoveries"

Attributes = Mapping[str, Any]


@dataclass(frozen=True)
class Span:
    """Something that took time. `parent` is the key of the span around it; None hangs it where the turn was started."""

    key: str
    name: str
    start: datetime
    end: datetime
    parent: str | None
    attributes: Attributes = field(default_factory=dict)
    failure: str | None = None


class Spans(Protocol):
    """Where the spans of one turn go."""

    def record(self, span: Span) -> None:
        """Take a finished span."""
        ...

    def inside(self, key: str) -> AbstractContextManager[None]:
        """Make a span, which is recorded later, the parent of what is started in this block."""
        ...


class _NoSpans:
    def record(self, span: Span) -> None:
        """Nobody wants it."""

    def inside(self, key: str) -> AbstractContextManager[None]:
        return nullcontext()


class Turn(Protocol):
    """What is measured."""

    state: TurnState
    ledger: Ledger


class Measuring:
    """Measures one turn, from the places where things happen to it."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._spans: Spans = _NoSpans()
        self._requested: set[str] = set()

    def begin(self) -> None:
        """Find out where spans go, and what they hang on. Called where the run's own context is the present one."""
        open_spans: Callable[[str], Spans] | None = workflow.extern_functions().get(SPANS)
        if open_spans is not None:
            self._spans = open_spans(self._turn.ledger.state.prefix)

    def end(self, failure: str | None = None) -> None:
        """The turn has ended, and with it what was open of it. `failure` is the type of the error that ended it."""
        state = self._turn.state
        self.end_step(failure)
        self._record(
            Span(
                "turn",
                f"turn {self._agent}",
                state.started_at or workflow.now(),
                workflow.now(),
                None,
                {
                    "gen_ai.operation.name": "invoke_agent",
                    "gen_ai.agent.name": self._agent,
                    "turngate.turn": workflow.info().workflow_id,
                    "turngate.thread": state.asked().thread_id,
                    "turngate.status": state.ending,
                    "turngate.steps": state.steps,
                    **_tokens(state.usage),
                },
                failure,
            )
        )

    # --- Steps and tools -----------------------------------------------------------------------------------------

    def model_call(self) -> AbstractContextManager[None]:
        """Begin a step, and put its model call inside."""
        self._turn.state.step_began = workflow.now()
        return self._spans.inside(self._step)

    def end_step(self, failure: str | None = None) -> None:
        """The open step has ended; nothing where none is open."""
        state = self._turn.state
        began, state.step_began = state.step_began, None
        if began is not None:
            attributes = {"gen_ai.agent.name": self._agent, "turngate.step": state.steps}
            self._record(
                Span(self._step, f"step {state.steps}", began, workflow.now(), "turn", attributes, failure),
            )

    @contextmanager
    def tool(self, call: Call) -> Iterator[None]:
        """Measure one run of a call."""
        # A call that asked a question, or whose outcome is unknown, may run again.
        key, began = f"call-{call.number}-{len(call.approvals)}", workflow.now()
        step, name, decided = self._step, call.name, call.decision
        outcome = ""
        with self._spans.inside(key):
            try:
                yield
            except Exception as error:
                outcome = "cancelled" if is_cancelled_exception(error) else "failed"
                raise
            finally:
                # A run that leaves the worker's cache is torn down outside of any workflow: nothing has ended then.
                if workflow.in_workflow():
                    outcome = outcome or self._outcome(call)
                    attributes = {
                        "gen_ai.operation.name": "execute_tool",
                        "gen_ai.tool.name": name,
                        "gen_ai.tool.call.id": call.tool_call_id,
                        "gen_ai.agent.name": self._agent,
                        "turngate.call": call.number,
                        "turngate.decision": decided,
                        "turngate.reviewer": call.reviewer,
                        "turngate.outcome": outcome,
                    }
                    failure = outcome if outcome in ("failed", "unknown") else None
                    self._record(Span(key, f"tool {name}", began, workflow.now(), step, attributes, failure))

    def _outcome(self, call: Call) -> str:
        if call.waits_for:
            kind = self._turn.ledger[call.waits_for].approval.type
            return {ApprovalType.QUESTION: "question", ApprovalType.TOOL: "review"}.get(
                kind, "unknown" if call.error is None else "failed"
            )
        if call.result is None:
            return "cancelled"
        return "succeeded" if call.result.get("status") == "success" else "failed"

    # --- Approvals -----------------------------------------------------------------------------------------------

    def noticed(self, notice: Notice) -> None:
        """Measure what the ledger gives notice of."""
        approval = notice.item.approval
        if notice.kind == "requested" and notice.ordinal == 1:
            self._count_request(approval)
        elif approval.resolution is not None and notice.kind in ("resolved", "expired", "cancelled"):
            self._settled(approval)

    def turned_away(self) -> None:
        """Count the refusals of decisions that came before their calls did."""
        errors, self._turn.ledger.turned_away = self._turn.ledger.turned_away, []
        for error in errors:
            refused(error, "held")

    def recovery(self, call: Call) -> None:
        """Count a call of which a person must say what became of it."""
        cause = "interrupted" if call.error is None else "error"
        _count(RECOVERIES, {"agent": self._agent, "tool": call.name, "cause": cause})

    def _count_request(self, approval: Approval) -> None:
        self._requested.add(approval.id)
        _count(REQUESTED, {"agent": self._agent, "tool": approval.name, "type": str(approval.type)})

    def _settled(self, approval: Approval) -> None:
        resolution, asked = approval.resolution, approval.requested_at
        assert resolution is not None, "a settled approval has a resolution"
        settled = resolution.at or workflow.now()
        asked = asked or settled
        if asked == settled and approval.id not in self._requested:
            self._count_request(approval)  # settled as it was raised, by a rule or a decision that came early
        labels = {"agent": self._agent, "tool": approval.name, "type": str(approval.type)}
        labels |= {"outcome": str(approval.status), "by": resolution.by}
        meter = workflow.metric_meter()
        meter.create_histogram_float(
            DECISION_SECONDS, "Time from the request of an approval to the end of its wait.", "s"
        ).record((settled - asked).total_seconds(), labels)
        number = approval.id.rpartition("-")[2]
        attributes = {
            "gen_ai.tool.name": approval.name,
            "gen_ai.tool.call.id": approval.tool_call_id,
            "gen_ai.agent.name": self._agent,
            "turngate.approval": approval.id,
            "turngate.type": str(approval.type),
            "turngate.outcome": str(approval.status),
            "turngate.by": resolution.by,
            "turngate.reviewer": resolution.reviewer,
            "turngate.votes": len(approval.votes),
        }
        step = f"step-{approval.context.step}"
        self._record(Span(f"approval-{number}", f"approval {approval.name}", asked, settled, step, attributes))

    # --- Parts ---------------------------------------------------------------------------------------------------

    @property
    def _agent(self) -> str:
        return self._turn.state.asked().agent

    @property
    def _step(self) -> str:
        return f"step-{self._turn.state.steps}"

    def _record(self, span: Span) -> None:
        # Also silent while a run is dropped from the cache, which the SDK counts as replay.
        if not workflow.unsafe.is_replaying():
            known = {name: value for name, value in span.attributes.items() if value not in ("", None)}
            self._spans.record(replace(span, attributes=known))


def refused(error: RefusedError, via: str) -> None:
    """Count refusals by code. `via` is signal, update, or held for a decision that had waited for its call."""
    for refusal in error.refusals:
        _count(REFUSALS, {"code": refusal.code, "via": via})


_DESCRIPTIONS = {
    REQUESTED: "Approvals that were asked for.",
    REFUSALS: "Decisions and other requests that were refused.",
    RECOVERIES: "Calls whose outcome a person must clear up.",
}


def _count(name: str, labels: Attributes) -> None:
    workflow.metric_meter().create_counter(name, _DESCRIPTIONS[name]).add(1, labels)


def _tokens(usage: Mapping[str, Any]) -> Attributes:
    counts = {"gen_ai.usage.input_tokens": "input_tokens", "gen_ai.usage.output_tokens": "output_tokens"}
    return {name: usage[key] for name, key in counts.items() if isinstance(usage.get(key), (int, float))}
