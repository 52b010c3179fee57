"""The worker to deploy: `python worker.py --agents myapp.agents:main`.

The server's address, namespace, TLS and API key come from Temporal's own settings (temporal.toml, TEMPORAL_...).
On SIGTERM it takes no new work and gives running tools 30 seconds to finish.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable
from typing import Annotated, Any

from cyclopts import App, Parameter
from temporalio.client import Client
from temporalio.runtime import PrometheusConfig, Runtime, TelemetryConfig

from turngate.connect import connect
from turngate.errors import TurngateError
from turngate.leaving import leave
from turngate.loading import load_agents, load_data_converter, load_notifiers
from turngate.metrics import BUCKETS, report_waiting
from turngate.worker import DEFAULT_TASK_QUEUE, Versioning, run_worker

app = App(name="worker.py", help=__doc__, help_format="plaintext", version_flags=[])


@app.default
async def main(
    *,
    agents: Annotated[list[str], Parameter(env_var="TURNGATE_AGENTS", negative=())],
    task_queue: Annotated[str, Parameter(env_var="TURNGATE_TASK_QUEUE")] = DEFAULT_TASK_QUEUE,
    address: str | None = None,
    namespace: str | None = None,
    profile: str | None = None,
    data_converter: Annotated[str | None, Parameter(env_var="TURNGATE_DATA_CONVERTER")] = None,
    notifiers: Annotated[str | None, Parameter(env_var="TURNGATE_NOTIFIERS")] = None,
    deployment: Annotated[str | None, Parameter(env_var="TURNGATE_DEPLOYMENT")] = None,
    build_id: Annotated[str | None, Parameter(env_var="TURNGATE_BUILD_ID")] = None,
    versioning: Annotated[Versioning, Parameter(env_var="TURNGATE_VERSIONING")] = "auto_upgrade",
    max_cached_workflows: int | None = None,
    max_concurrent_activities: int | None = None,
    metrics: Annotated[str | None, Parameter(env_var="TURNGATE_METRICS")] = None,
    tracing: Annotated[bool, Parameter(env_var="TURNGATE_TRACING", negative=())] = False,
    log_level: Annotated[str, Parameter(env_var="TURNGATE_LOG_LEVEL")] = "INFO",
) -> None:
    """Run agents until SIGTERM.

    Parameters
    ----------
    agents
        module:attribute of an Agent, a list of agents, or a function that returns either; may stand several times.
    task_queue
        The task queue to serve.
    address
        host:port of the Temporal server, instead of the one in Temporal's settings.
    namespace
        The namespace, instead of the one in Temporal's settings.
    profile
        The profile of temporal.toml.
    data_converter
        module:attribute of a DataConverter, for payload encryption or external storage.
    notifiers
        module:attribute of the mapping from the names that agents use to notifiers.
    deployment
        The deployment's name, for Worker Versioning; with --build-id.
    build_id
        This build, for Worker Versioning; with --deployment.
    versioning
        Whether paused turns move to the newest build (auto_upgrade) or stay on theirs (pinned).
    max_cached_workflows
        Runs kept in memory, about 200 kB each; by default a quarter of the memory, at most 2000.
    max_concurrent_activities
        Model and tool calls that run at once; by default 100.
    metrics
        host:port where Prometheus finds the metrics, Temporal's and Turngate's.
    tracing
        Record OpenTelemetry spans, with the tracer provider that `opentelemetry-instrument` sets up.
    log_level
        Lines to log: DEBUG, INFO, WARNING or ERROR.
    """
    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    loaded = load_agents(agents)
    limits = {"max_cached_workflows": max_cached_workflows, "max_concurrent_activities": max_concurrent_activities}
    told = load_notifiers(notifiers)
    client = await connect(
        address=address,
        namespace=namespace,
        profile=profile,
        data_converter=load_data_converter(data_converter),
        **_given({"runtime": _runtime(metrics) if metrics else None}),
    )
    running = run_worker(
        client,
        loaded,
        task_queue=task_queue,
        notifiers=told,
        deployment=deployment,
        build_id=build_id,
        versioning=versioning,
        interceptors=_tracing() if tracing else [],
        **_given(limits),
    )
    await (_reporting(client, running) if metrics else running)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _runtime(metrics: str) -> Runtime:
    exporter = PrometheusConfig(bind_address=metrics, histogram_bucket_overrides=BUCKETS)
    return Runtime(telemetry=TelemetryConfig(metrics=exporter))


async def _reporting(client: Client, running: Awaitable[None]) -> None:
    """Report what waits for as long as the worker runs."""
    reporting = asyncio.create_task(report_waiting(client))
    try:
        await running
    finally:
        reporting.cancel()


def _tracing() -> list[Any]:
    # Here, because they need the extra `otel`.
    from temporalio.contrib.opentelemetry import TracingInterceptor

    from turngate.telemetry import TurnSpans

    return [TracingInterceptor(), TurnSpans()]


def run() -> int:
    """Run the program and return its exit code."""
    try:
        asyncio.run(app.run_async())
    except TurngateError as error:
        print(f"worker.py: {error}", file=sys.stderr)
        return 1
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0
    return 0


if __name__ == "__main__":
    leave(run())
