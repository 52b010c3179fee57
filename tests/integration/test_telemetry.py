"""Spans and metrics of turns, read from in-memory exporters: OpenTelemetry's for spans, Temporal's for metrics."""

from __future__ import annotations

import asyncio
import socket
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.tools import tool
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from temporalio.contrib.opentelemetry import TracingInterceptor
from temporalio.runtime import BufferedMetricUpdate, MetricBuffer, PrometheusConfig, Runtime, TelemetryConfig

from turngate import Agent, Approval, InterruptOnConfig, NotAReviewerError, Paused, TurngateClient, build_worker
from turngate.metrics import BUCKETS, report_waiting
from turngate.telemetry import TurnSpans
from turngate.testing import ScriptedModel

if TYPE_CHECKING:
    from turngate import DevServer, TurnResult
    from turngate.testing.fixtures import StartWorker

pytestmark = pytest.mark.server
pytest_plugins = ["turngate.testing.fixtures"]

SECRET = "4711-0815"


@tool
def pay(account: str, amount: int) -> str:
    """Pay an amount."""
    with trace.get_tracer("bank").start_as_current_span("transfer"):
        return f"paid {amount}"


def agent(**options: Any) -> Agent:
    """Return an agent that pays once, to an account that nobody is to see."""
    call = {"id": "call_1", "name": "pay", "args": {"account": SECRET, "amount": 5}}
    gate = InterruptOnConfig(reviewers=["lena", "otto"], secret_args=["account"])
    model = ScriptedModel([{"tool_calls": [call]}, "done"])
    return Agent("shop", tools=[pay], **{"model": model, "interrupt_on": {"pay": gate}, **options})


async def paused(client: TurngateClient) -> Approval:
    """Start a turn and return its approval."""
    found = await client.run_turn("shop", f"Pay to {SECRET}.")
    assert isinstance(found, Paused)
    return found.approvals[0]


async def finish(client: TurngateClient, approval: Approval) -> TurnResult:
    """Approve, and wait for the end."""
    await client.approve(approval.id, digest=approval.digest, reviewer="lena")
    return await client.turn(approval.context.turn_id).result()


# --- Spans -----------------------------------------------------------------------------------------------------------


@dataclass
class Traces:
    """What was exported."""

    provider: TracerProvider
    exporter: InMemorySpanExporter

    def all(self) -> list[ReadableSpan]:
        """All spans, in the order in which they ended."""
        return list(self.exporter.get_finished_spans())

    def named(self, start: str) -> list[ReadableSpan]:
        """Those whose names begin so."""
        return [span for span in self.all() if span.name.startswith(start)]

    def one(self, name: str) -> ReadableSpan:
        """The only span of this name."""
        [found] = [span for span in self.all() if span.name == name]
        return found

    def parent_of(self, span: ReadableSpan) -> str:
        """The name of the span around this one."""
        assert span.parent is not None, f"{span.name} has no parent"
        return next(one.name for one in self.all() if _id(one) == span.parent.span_id)


def _id(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> Iterator[Traces]:
    """Collect spans in memory, those of tools too."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield Traces(provider, exporter)
    provider.shutdown()


@pytest.fixture
async def traced_client(turngate_server: DevServer, turngate_client: TurngateClient, traces: Traces) -> TurngateClient:
    """A client that carries traces."""
    tracing = TracingInterceptor(traces.provider.get_tracer("temporal"))
    return TurngateClient(await turngate_server.client(interceptors=[tracing]), turngate_client.task_queue)


async def test_spans_nest_and_say_who_decided(traced_client: TurngateClient, traces: Traces) -> None:
    """Turn, steps, approval and tool in one trace that begins with the client; the tool's own spans hang in it."""
    queue = traced_client.task_queue
    async with build_worker(traced_client.temporal, [agent()], task_queue=queue, interceptors=[TurnSpans()]):
        result = await finish(traced_client, await paused(traced_client))
    assert result.output == "done"

    turn, approval = traces.one("turn shop"), traces.one("approval pay")
    assert traces.parent_of(turn) == "StartWorkflow:AgentTurn"
    assert [traces.parent_of(step) for step in traces.named("step ")] == ["turn shop", "turn shop"]
    assert traces.parent_of(approval) == traces.parent_of(traces.one("tool pay")) == "step 1"
    assert traces.parent_of(traces.one("transfer")) == "RunActivity:call_tool"
    starts = traces.named("StartActivity:")
    assert [traces.parent_of(start) for start in starts] == ["step 1", "tool pay", "step 2"]

    assert approval.attributes is not None
    decided = {key: approval.attributes[f"turngate.{key}"] for key in ("by", "reviewer", "outcome", "type")}
    assert decided == {"by": "reviewer", "reviewer": "lena", "outcome": "approved", "type": "tool_approval"}
    assert result.approvals[0].resolution is not None
    asked, settled = result.approvals[0].requested_at, result.approvals[0].resolution.at
    assert asked is not None
    assert settled is not None
    assert (approval.start_time, approval.end_time) == (pytest.approx(_ns(asked)), pytest.approx(_ns(settled)))
    assert turn.start_time is not None
    assert approval.start_time is not None
    assert turn.start_time < approval.start_time


def _ns(moment: Any) -> float:
    return float(moment.timestamp() * 1e9)


async def test_spans_hold_nothing_that_was_said(traced_client: TurngateClient, traces: Traces) -> None:
    """No argument, message or result; secret arguments least of all."""
    queue = traced_client.task_queue
    async with build_worker(traced_client.temporal, [agent()], task_queue=queue, interceptors=[TurnSpans()]):
        await finish(traced_client, await paused(traced_client))
    assert not [span.name for span in traces.all() if SECRET in span.to_json() or "paid 5" in span.to_json()]


async def test_another_worker_records_nothing_twice(traced_client: TurngateClient, traces: Traces) -> None:
    """The second worker replays the first one's part in silence, and its spans find their parents."""
    shop, queue, options = [agent()], traced_client.task_queue, {"interceptors": [TurnSpans()]}
    async with build_worker(traced_client.temporal, shop, task_queue=queue, **options):
        approval = await paused(traced_client)
    async with build_worker(traced_client.temporal, shop, task_queue=queue, max_cached_workflows=0, **options):
        await finish(traced_client, approval)
    names = [span.name for span in traces.all() if span.instrumentation_scope.name == "turngate"]
    assert sorted(names) == ["approval pay", "step 1", "step 2", "tool pay", "turn shop"]
    assert traces.parent_of(traces.one("approval pay")) == "step 1"


async def test_without_tracing_a_turn_is_a_trace_of_its_own(
    turngate_client: TurngateClient, turngate_worker: StartWorker, traces: Traces
) -> None:
    """Nobody has begun a trace: the turn begins one, and its failure is marked."""

    @tool("pay")
    def broken(account: str, amount: int) -> str:
        """Pay an amount."""
        raise RuntimeError(f"no such account: {account}")

    gated = agent(on_tool_error="fail")
    await turngate_worker(
        Agent("shop", model=gated.model, tools=[broken], on_tool_error="fail"),
        interceptors=[TurnSpans(traces.provider)],
    )
    turn = await turngate_client.start_turn("shop", "go")
    with pytest.raises(Exception, match="no such account"):
        await turn.result()
    root = traces.one("turn shop")
    assert root.parent is None
    assert root.status.description == "ToolFailed"
    assert traces.one("tool pay").status.description == "failed"
    assert {span.context.trace_id for span in traces.all() if span.context} == {root.context.trace_id}  # type: ignore[union-attr]
    assert not [span.name for span in traces.all() if SECRET in span.to_json()]


# --- Metrics ---------------------------------------------------------------------------------------------------------


class Metrics:
    """What Temporal's meter was told, from its buffer in memory."""

    def __init__(self) -> None:
        self._buffer = MetricBuffer(10_000)
        self.runtime = Runtime(telemetry=TelemetryConfig(metrics=self._buffer))
        self.seen: list[BufferedMetricUpdate] = []

    async def values(self, name: str, labels: dict[str, str]) -> list[float]:
        """Wait for updates of a metric with these labels among others, and return their values."""
        async with asyncio.timeout(20):
            while not (found := self._values(name, labels)):
                await asyncio.sleep(0.05)
        return found

    def _values(self, name: str, labels: dict[str, str]) -> list[float]:
        self.seen += self._buffer.retrieve_updates()
        return [one.value for one in self.seen if one.metric.name == name and labels.items() <= one.attributes.items()]


@pytest.fixture(scope="module")
def metrics() -> Metrics:
    """A Temporal runtime that keeps its metrics."""
    return Metrics()


@pytest.fixture
async def measured(turngate_server: DevServer, turngate_client: TurngateClient, metrics: Metrics) -> TurngateClient:
    """A client of that runtime."""
    metrics.seen.clear()
    return TurngateClient(await turngate_server.client(runtime=metrics.runtime), turngate_client.task_queue)


async def test_metrics_of_a_pause(measured: TurngateClient, metrics: Metrics) -> None:
    """How many were asked, how long people took and how it ended, by tool; refusals by code, of updates and signals."""
    async with build_worker(measured.temporal, [agent()], task_queue=measured.task_queue):
        approval = await paused(measured)
        with pytest.raises(NotAReviewerError):
            await measured.approve(approval.id, reviewer="mallory")
        handle = measured.temporal.get_workflow_handle(approval.context.turn_id)
        await handle.signal("decide", {"approval_id": "nobody/123456-1", "type": "approve"})
        await finish(measured, approval)

    labels = {"agent": "shop", "tool": "pay", "type": "tool_approval"}
    [seconds] = await metrics.values("turngate_decision_seconds", {**labels, "outcome": "approved", "by": "reviewer"})
    assert 0 < seconds < 60
    assert await metrics.values("turngate_approvals_requested", labels) == [1]
    assert await metrics.values("turngate_refusals", {"code": "not_a_reviewer", "via": "update"}) == [1]
    assert await metrics.values("turngate_refusals", {"code": "unknown_approval", "via": "signal"}) == [1]
    assert not [one for one in metrics.seen if SECRET in str(one.attributes) or "lena" in str(one.attributes)]


async def test_metrics_of_an_early_decision(measured: TurngateClient, metrics: Metrics) -> None:
    """A decision that comes before its call, and then does not fit it, is counted once the call is there."""
    call = {"name": "pay", "args": {"account": SECRET, "amount": 5}}
    model = ScriptedModel([{"tool_calls": [{"id": f"call_{number}", **call}]} for number in (1, 2)])
    async with build_worker(measured.temporal, [agent(model=model)], task_queue=measured.task_queue):
        first = await paused(measured)
        turn = measured.turn(first.context.turn_id)
        early = {"approval_id": f"{first.id.rpartition('-')[0]}-2", "digest": "0" * 16, "type": "approve"}
        await measured.temporal.get_workflow_handle(turn.id).signal("decide", {**early, "reviewer": "lena"})
        await measured.approve(first.id, digest=first.digest, reviewer="lena")
        assert await metrics.values("turngate_refusals", {"code": "digest_mismatch", "via": "held"}) == [1]
        await turn.stop()


async def test_metrics_of_a_recovery(measured: TurngateClient, metrics: Metrics) -> None:
    """A call that was interrupted is counted, and the question about it is an approval of its own."""

    @tool("pay")
    async def slow(account: str, amount: int) -> str:
        """Pay an amount."""
        await asyncio.Event().wait()
        return "never"

    shop = Agent("shop", model=agent().model, tools=[slow], tool_options={"pay": {"start_to_close": "0.5s"}})
    async with build_worker(measured.temporal, [shop], task_queue=measured.task_queue):
        approval = await paused(measured)
        assert approval.type == "recovery"
        await measured.respond(approval.id, "It was paid.")
        await measured.turn(approval.context.turn_id).result()

    labels = {"agent": "shop", "tool": "pay"}
    assert await metrics.values("turngate_recoveries", {**labels, "cause": "interrupted"}) == [1]
    settled = {**labels, "type": "recovery", "outcome": "responded", "by": "reviewer"}
    assert len(await metrics.values("turngate_decision_seconds", settled)) == 1


async def test_waiting_turns_are_a_gauge(measured: TurngateClient, metrics: Metrics) -> None:
    """What waits right now comes from the server, so it is right whatever became of the workers."""
    name = f"shop-{measured.task_queue}"
    shop = Agent(name, model=agent().model, tools=[pay], interrupt_on={"pay": True})
    labels = {"agent": name, "tool": "pay"}
    reporting = asyncio.create_task(report_waiting(measured.temporal, interval=0.05))
    async with build_worker(measured.temporal, [shop], task_queue=measured.task_queue):
        found = await measured.run_turn(name, "go")
        assert isinstance(found, Paused)
        assert (await metrics.values("turngate_turns_waiting", labels))[-1] == 1
        await measured.approve(found.approvals[0].id)
        async with asyncio.timeout(20):
            while (await metrics.values("turngate_turns_waiting", labels))[-1] != 0:
                await asyncio.sleep(0.05)
    reporting.cancel()


async def test_prometheus_gets_them_in_bounds_that_fit(
    turngate_server: DevServer, turngate_client: TurngateClient
) -> None:
    """The names and labels that a dashboard asks for, and bounds for hours and days."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    exporter = PrometheusConfig(bind_address=address, histogram_bucket_overrides=BUCKETS)
    runtime = Runtime(telemetry=TelemetryConfig(metrics=exporter))
    client = TurngateClient(await turngate_server.client(runtime=runtime), turngate_client.task_queue)
    async with build_worker(client.temporal, [agent()], task_queue=client.task_queue):
        await finish(client, await paused(client))
    answer = await asyncio.to_thread(urllib.request.urlopen, f"http://{address}/metrics")
    lines = answer.read().decode().splitlines()
    [asked] = [line for line in lines if line.startswith("turngate_approvals_requested{")]
    assert asked.endswith("} 1")
    assert 'tool="pay"' in asked
    bounds = [line for line in lines if line.startswith("turngate_decision_seconds_bucket{")]
    assert [line for line in bounds if 'le="86400"' in line and 'outcome="approved"' in line and line.endswith(" 1")]
