"""TurngatePlugin beside other plugins and a user's own parts: each does its work, none is replaced."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import langsmith
import pytest
from langchain_core.tools import tool
from opentelemetry import trace
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.client import (
    Client,
    Interceptor as ClientInterceptor,
    OutboundInterceptor,
    StartWorkflowInput,
    WorkflowHandle,
)
from temporalio.contrib.opentelemetry import OpenTelemetryPlugin, create_tracer_provider
from temporalio.converter import DataConverter, DefaultPayloadConverter, PayloadCodec
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    Interceptor as WorkerInterceptor,
    Worker,
)

from tests.integration.own_workflow import Mine, of_mine
from turngate import Agent, Paused, TurngateClient, TurngatePlugin
from turngate.telemetry import TurnSpans
from turngate.testing import ScriptedModel

if TYPE_CHECKING:
    from turngate import DevServer, TurnResult

pytestmark = pytest.mark.server
pytest_plugins = ["turngate.testing.fixtures"]

BOTH_ORDERS = pytest.mark.parametrize("ours_first", [True, False], ids=["ours-first", "ours-last"])


@tool
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


def shop() -> Agent:
    """Return an agent whose model pays once, which a person must allow."""
    call = {"id": "call_1", "name": "pay", "args": {"amount": 5}}
    return Agent("shop", model=ScriptedModel([{"tool_calls": [call]}, "done"]), tools=[pay], interrupt_on={"pay": True})


async def gated_turn(client: Client, queue: str, **options: Any) -> TurnResult:
    """Run a turn that one worker begins and another one, which has to replay it, ends; and a workflow of the user's."""
    turns = TurngateClient(client, queue)
    own = {"workflows": [Mine], "activities": [of_mine], **options}
    async with Worker(client, task_queue=queue, **own):
        paused = await turns.run_turn("shop", "Pay, please.")
        assert isinstance(paused, Paused)
        assert await client.execute_workflow(Mine.run, id=f"mine-{queue}", task_queue=queue) == "mine"
    async with Worker(client, task_queue=queue, **own):
        await turns.approve(paused.approvals[0].id, digest=paused.approvals[0].digest)
        return await paused.turn.result()


# --- OpenTelemetry ---------------------------------------------------------------------------------------------------


@BOTH_ORDERS
async def test_with_the_opentelemetry_plugin(
    turngate_server: DevServer, turngate_client: TurngateClient, monkeypatch: pytest.MonkeyPatch, ours_first: bool
) -> None:
    """Its spans and ours are one trace, and no span is made twice when another worker takes over."""
    exporter, provider = InMemorySpanExporter(), create_tracer_provider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    plugins = [TurngatePlugin([shop()]), OpenTelemetryPlugin(add_temporal_spans=True)]
    client = await turngate_server.client(plugins=plugins if ours_first else plugins[::-1])

    result = await gated_turn(client, turngate_client.task_queue, interceptors=[TurnSpans()])
    assert result.output == "done"
    spans = exporter.get_finished_spans()
    ours = [span for span in spans if span.instrumentation_scope and span.instrumentation_scope.name == "turngate"]
    assert sorted(span.name for span in ours) == ["approval pay", "step 1", "step 2", "tool pay", "turn shop"]
    [tool_activity] = [span for span in spans if span.name == "RunActivity:call_tool"]
    by_id = {span.context.span_id: span for span in spans if span.context}
    above = []
    while tool_activity.parent and (around := by_id.get(tool_activity.parent.span_id)):
        above.append(around.name)
        tool_activity = around
    assert above[:4] == ["StartActivity:call_tool", "tool pay", "step 1", "turn shop"]


# --- LangSmith -------------------------------------------------------------------------------------------------------


class LangSmithServer(ThreadingHTTPServer):
    """Stands for LangSmith on this machine: says yes, and keeps the names of the runs that are posted."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        self.runs: list[str] = []


class _Answering(BaseHTTPRequestHandler):
    server: LangSmithServer

    def do_POST(self) -> None:
        """Take a new run."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/runs":
            self.server.runs.append(body["name"])
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    do_PATCH = do_POST  # noqa: N815

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def langsmith_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LangSmithServer]:
    """Run the server, with tracing switched on."""
    monkeypatch.setattr("langsmith._internal._context._GLOBAL_TRACING_ENABLED", True)
    with LangSmithServer() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@BOTH_ORDERS
async def test_with_the_langsmith_plugin(
    turngate_server: DevServer, turngate_client: TurngateClient, langsmith_server: LangSmithServer, ours_first: bool
) -> None:
    """Its runs of models and tools are sent, once each; nothing leaves this machine.

    Skipped where the package is missing: temporalio-langsmith 0.1 asks for langsmith below 0.13 and today's
    langchain-core for 0.14, so that the two can't be installed together by the rules; forced, they work.
    """
    plugin = pytest.importorskip("temporalio.langsmith", reason="temporalio-langsmith is not installed")
    address = f"http://127.0.0.1:{langsmith_server.server_address[1]}"
    tracing = langsmith.Client(address, api_key="none", auto_batch_tracing=False, info={})
    plugins = [TurngatePlugin([shop()]), plugin.LangSmithPlugin(client=tracing, add_temporal_runs=True)]
    client = await turngate_server.client(plugins=plugins if ours_first else plugins[::-1])

    result = await gated_turn(client, turngate_client.task_queue)
    assert result.output == "done"
    counts = Counter(langsmith_server.runs)
    expected = {"RunWorkflow:AgentTurn": 1, "RunActivity:call_model": 2, "ScriptedModel": 2, "RunActivity:call_tool": 1}
    assert {name: counts[name] for name in expected} == expected


# --- A user's own parts ----------------------------------------------------------------------------------------------


class OwnConverter(DefaultPayloadConverter):
    """A user's own payload converter."""


class OwnCodec(PayloadCodec):
    """A user's own codec."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Wrap each payload."""
        return [Payload(metadata={"encoding": b"binary/own"}, data=each.SerializeToString()) for each in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Unwrap each payload."""
        return [Payload.FromString(each.data) for each in payloads]


class OwnInterceptor(ClientInterceptor, WorkerInterceptor):
    """A user's own interceptor of starts and activities."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        """Notice what is started."""
        return _NoticingStarts(next, self.seen)

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Notice which activities run."""
        return _NoticingActivities(next, self.seen)


class _NoticingStarts(OutboundInterceptor):
    def __init__(self, next: OutboundInterceptor, seen: list[str]) -> None:
        super().__init__(next)
        self._seen = seen

    async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:
        self._seen.append(f"start {input.workflow}")
        return await super().start_workflow(input)


class _NoticingActivities(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, seen: list[str]) -> None:
        super().__init__(next)
        self._seen = seen

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        self._seen.append(f"run {activity.info().activity_type}")
        return await super().execute_activity(input)


async def test_with_a_users_own_converter_codec_and_interceptors(
    turngate_server: DevServer, turngate_client: TurngateClient
) -> None:
    """They are used for everything, ours included; the client that the user holds has exactly what they gave it."""
    converter = DataConverter(payload_converter_class=OwnConverter, payload_codec=OwnCodec())
    interceptor = OwnInterceptor()
    client = await turngate_server.client(
        data_converter=converter, interceptors=[interceptor], plugins=[TurngatePlugin([shop()])]
    )
    held = client.config(active_config=True)
    assert held["data_converter"] is converter
    assert list(held["interceptors"]) == [interceptor]

    queue = turngate_client.task_queue
    result = await gated_turn(client, queue)
    assert result.output == "done"
    assert interceptor.seen == [
        "start AgentTurn",
        "run call_model",
        "start Mine",
        "run of_mine",
        "run call_tool",
        "run call_model",
    ]
    [turn_id] = [result.approvals[0].context.turn_id]
    history = await client.get_workflow_handle(turn_id).fetch_history()
    started = history.events[0].workflow_execution_started_event_attributes
    assert {payload.metadata["encoding"] for payload in started.input.payloads} == {b"binary/own"}
    assert client.config(active_config=True) == held


async def test_a_worker_keeps_what_it_was_given(turngate_server: DevServer, turngate_client: TurngateClient) -> None:
    """Workflows, activities and interceptors of the worker stay, and its converter still is the user's underneath."""
    converter = DataConverter(payload_converter_class=OwnConverter, payload_codec=OwnCodec())
    client = await turngate_server.client(data_converter=converter)
    interceptor = OwnInterceptor()
    worker = Worker(
        client,
        task_queue=turngate_client.task_queue,
        workflows=[Mine],
        activities=[of_mine],
        interceptors=[interceptor],
        plugins=[TurngatePlugin([shop()])],
    )
    config = worker.config(active_config=True)
    assert [each.__name__ for each in config["workflows"]] == ["Mine", "AgentTurn", "AgentThread"]
    assert config["activities"][0] is of_mine
    assert interceptor in config["interceptors"]
    used = config["client"].data_converter
    assert issubclass(used.payload_converter_class, OwnConverter)
    assert client.data_converter is converter
