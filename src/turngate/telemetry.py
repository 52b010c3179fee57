"""OpenTelemetry spans of turns: turn, step, approval and tool, each as long as the thing took.

    client = await TurngateClient.connect(interceptors=[TracingInterceptor()])
    worker = build_worker(client.temporal, agents, interceptors=[TurnSpans()])

A turn outlives workers, so no process can keep a span open for it. Each span is made when it is over, with the times
from history and with an id that follows from the run: another worker gives the parent the same one, and what is
recorded twice after a crash is the same span. Temporal's own `TracingInterceptor` (or `OpenTelemetryPlugin`) carries
the trace from the client into the workflow and on into activities; its spans of activities then hang on ours.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from typing import Any

from temporalio.worker import Interceptor, WorkflowInboundInterceptor, WorkflowInterceptorClassInput

from turngate.errors import ConfigError
from turngate.workflows.measuring import SPANS, Span

try:
    from opentelemetry import context as otel, trace
    from opentelemetry.sdk.trace import Tracer
    from opentelemetry.sdk.trace.id_generator import IdGenerator
except ImportError as error:
    raise ConfigError("spans need OpenTelemetry: run `pip install 'turngate[otel]'`") from error


logger = logging.getLogger(__name__)


class TurnSpans(Interceptor):
    """Record OpenTelemetry spans of turns. Give it to the worker's `interceptors`.

    `tracer_provider` is one of OpenTelemetry's SDK; by default the global one, also when that is set later. Spans have
    no arguments, messages or results in their attributes; they name tools, agents and who decided. Nothing is recorded
    at replay, and what fails here is logged and leaves the turn alone.
    """

    def __init__(self, tracer_provider: trace.TracerProvider | None = None) -> None:
        self._provider = tracer_provider

    def workflow_interceptor_class(
        self, input: WorkflowInterceptorClassInput
    ) -> type[WorkflowInboundInterceptor] | None:
        """Put the spans within reach of workflow code; intercept nothing."""
        input.unsafe_extern_functions[SPANS] = self._open
        return None

    def _open(self, run: str) -> _RunSpans:
        provider = self._provider or trace.get_tracer_provider()
        tracer = provider.get_tracer("turngate", version("turngate"))
        return _RunSpans(_with_our_ids(tracer), run, trace.get_current_span().get_span_context())


class _RunSpans:
    """The spans of one turn. `run` names it over all its runs."""

    def __init__(self, tracer: trace.Tracer, run: str, parent: trace.SpanContext) -> None:
        self._tracer = tracer
        self._run = run
        self._parent = parent if parent.is_valid else None
        self._trace_id = self._parent.trace_id if self._parent else _number(f"{run}/trace", 16)
        self._flags = self._parent.trace_flags if self._parent else _sampled(tracer, self._trace_id)

    def record(self, span: Span) -> None:
        """Make a finished span."""
        try:
            self._record(span)
        except Exception:  # an exporter must not fail a workflow task
            logger.warning("span %r was not recorded", span.name, exc_info=True)

    @contextmanager
    def inside(self, key: str) -> Iterator[None]:
        """Make the span the present one, for what carries the trace on."""
        token = otel.attach(trace.set_span_in_context(trace.NonRecordingSpan(self._context(key))))
        try:
            yield
        finally:
            # Not `otel.detach`: it logs where the run is dropped from the cache in another context.
            with suppress(ValueError):
                token.var.reset(token)

    def _record(self, span: Span) -> None:
        around = self._parent if span.parent is None else self._context(span.parent)
        context = otel.Context()
        if around is not None:
            context = trace.set_span_in_context(trace.NonRecordingSpan(around), context)
        chosen = _chosen.set((self._trace_id, self._id(span.key)))
        try:
            made = self._tracer.start_span(
                span.name, context, attributes=dict(span.attributes), start_time=_nanoseconds(span.start)
            )
        finally:
            _chosen.reset(chosen)
        if span.failure is not None:
            made.set_status(trace.Status(trace.StatusCode.ERROR, span.failure))
        made.end(_nanoseconds(span.end))

    def _context(self, key: str) -> trace.SpanContext:
        return trace.SpanContext(self._trace_id, self._id(key), is_remote=True, trace_flags=self._flags)

    def _id(self, key: str) -> int:
        return _number(f"{self._run}/{key}", 8)


# --- Ids that follow from the run ------------------------------------------------------------------------------------

_chosen: ContextVar[tuple[int, int] | None] = ContextVar("turngate_span_ids", default=None)


class _ChosenIds(IdGenerator):
    """Gives the ids that were chosen, and otherwise those of the generator it stands for."""

    def __init__(self, inner: IdGenerator) -> None:
        self._inner = inner

    def generate_trace_id(self) -> int:
        chosen = _chosen.get()
        return chosen[0] if chosen else self._inner.generate_trace_id()

    def generate_span_id(self) -> int:
        chosen = _chosen.get()
        return chosen[1] if chosen else self._inner.generate_span_id()


def _with_our_ids(tracer: Any) -> Any:
    """Let us choose the ids of a tracer, which is ours alone by its name. One that isn't the SDK's keeps its own."""
    tracer = getattr(tracer, "_tracer", tracer)  # Temporal's replay-safe tracers wrap one; we are replay-safe already
    if isinstance(tracer, Tracer) and not isinstance(tracer.id_generator, _ChosenIds):
        tracer.id_generator = _ChosenIds(tracer.id_generator)
    return tracer


def _sampled(tracer: trace.Tracer, trace_id: int) -> trace.TraceFlags:
    """Ask the sampler about a trace that begins with the turn: the first spans are made before their root is."""
    sampler = getattr(tracer, "sampler", None)
    if sampler is None or sampler.should_sample(otel.Context(), trace_id, "turn").decision.is_sampled():
        return trace.TraceFlags(trace.TraceFlags.SAMPLED)
    return trace.TraceFlags.get_default()


def _number(text: str, size: int) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:size], "big") or 1


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _nanoseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000
