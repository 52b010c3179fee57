"""Build and run a worker for agents."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.service import RPCError
from temporalio.worker import Plugin, Worker, WorkerDeploymentConfig

from turngate.errors import ConfigError
from turngate.plugin import TurngatePlugin

if TYPE_CHECKING:
    from turngate.agent import Agent

logger = logging.getLogger(__name__)

DEFAULT_TASK_QUEUE = "turngate"
Versioning = Literal["auto_upgrade", "pinned"]

_RUN_BYTES = 200_000
"""What a cached run takes of a worker's memory (measured: 187 kB)."""
_CACHE_LIMITS = (100, 2000)
_LOOK_AGAIN = 0.1
_PATIENCE = timedelta(seconds=10)


def build_worker(
    client: Client,
    agents: Sequence[Agent],
    *,
    task_queue: str = DEFAULT_TASK_QUEUE,
    notifiers: Mapping[str, Any] | None = None,
    deployment: str | None = None,
    build_id: str | None = None,
    versioning: Versioning = "auto_upgrade",
    plugins: Sequence[Plugin] = (),
    **options: Any,
) -> Worker:
    """Build a Temporal worker that runs `agents`, with defaults that suit turns which wait for days.

    `options` go to `temporalio.worker.Worker` and beat our defaults; workflows, activities and interceptors among
    them are kept beside ours. With `deployment` and `build_id` the worker takes part in Worker Versioning:
    `auto_upgrade` moves a paused turn to the newest build (Turngate's workflow code is made for that), `pinned` keeps
    it on the build that started it, which then must stay up. Without them, the build is Turngate's version.

    The given client is never changed. Raises ConfigError for options that don't go together.
    """
    if any(isinstance(plugin, TurngatePlugin) for plugin in client.config()["plugins"]):
        raise ConfigError(
            "this client has a TurngatePlugin, which brings its own agents to every worker: use "
            "`temporalio.worker.Worker(client, task_queue=...)`, or a client without the plugin"
        )
    if not agents:
        raise ConfigError("a worker without agents has nothing to do: give at least one Agent")
    defaults = {**_DEFAULTS, "max_cached_workflows": cache_size(memory_limit())}
    if "deployment_config" not in options:
        defaults |= _versioned(deployment, build_id, versioning)
    return Worker(
        client,
        task_queue=task_queue,
        plugins=[*plugins, TurngatePlugin(agents, notifiers=notifiers)],
        **{**defaults, **options},
    )


async def run_worker(
    client: Client, agents: Sequence[Agent], *, on_polling: Callable[[], None] | None = None, **options: Any
) -> None:
    """Build a worker and run it until SIGTERM or SIGINT, then drain: tools that run get 30 s to finish.

    `on_polling` is called once the server has heard the worker ask for work. `options` as for `build_worker`.
    Only on the main thread, for signals. A second signal ends the process at once.
    """
    worker = build_worker(client, agents, **options)
    async with worker, _telling(worker, on_polling):
        logger.info("worker serves task queue %r of namespace %r", worker.task_queue, client.namespace)
        await _signalled()
        logger.info("worker drains; running tools have %s to finish", worker.config()["graceful_shutdown_timeout"])
    logger.info("worker stopped")


def cache_size(memory: int) -> int:
    """Return how many runs a worker keeps in memory: a quarter of `memory` bytes, at 200 kB a run.

    A run that was dropped is replayed when its decision comes, which costs tens of milliseconds.
    """
    low, high = _CACHE_LIMITS
    return max(low, min(high, memory // 4 // _RUN_BYTES))


def memory_limit() -> int:
    """Return the bytes of memory this process may use: the container's limit, or the machine's memory."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return machine
    return min(machine, int(limit)) if limit.isdigit() else machine


_DEFAULTS: Mapping[str, Any] = {
    # After a killed worker a decision waits this long for it; by default 10 s.
    "sticky_queue_schedule_to_start_timeout": timedelta(seconds=2),
    # A deploy lets running tools finish; what is cut off has an unknown outcome, and a person must look.
    "graceful_shutdown_timeout": timedelta(seconds=30),
    # A stop reaches a running tool with the answer to a heartbeat; the default sends one only every 24 s.
    "max_heartbeat_throttle_interval": timedelta(seconds=1),
    "default_heartbeat_throttle_interval": timedelta(seconds=1),
}


def _versioned(deployment: str | None, build_id: str | None, versioning: Versioning) -> dict[str, Any]:
    if deployment is None and build_id is None:
        # The SDK's default is a hash over all modules of the process, half a second of every start. History then says
        # which code ran a task: there is no other than Turngate's in the workflows.
        return {"build_id": f"turngate-{metadata.version('turngate')}"}
    if deployment is None or build_id is None:
        raise ConfigError("'deployment' and 'build_id' go together: give both, or neither")
    try:
        behavior = VersioningBehavior[versioning.upper()]
    except KeyError:
        raise ConfigError(f"versioning {versioning!r} is unknown: give 'auto_upgrade' or 'pinned'") from None
    version = WorkerDeploymentVersion(deployment_name=deployment, build_id=build_id)
    return {
        "deployment_config": WorkerDeploymentConfig(
            version=version, use_worker_versioning=True, default_versioning_behavior=behavior
        )
    }


@asynccontextmanager
async def _telling(worker: Worker, on_polling: Callable[[], None] | None) -> AsyncIterator[None]:
    """Tell, beside what is done meanwhile, when the worker polls."""

    async def tell(news: Callable[[], None]) -> None:
        while True:
            if await _polls(worker):
                return news()
            await asyncio.sleep(_LOOK_AGAIN)

    task = asyncio.create_task(tell(on_polling)) if on_polling is not None else None
    try:
        yield
    finally:
        if task is not None:
            task.cancel()


async def _polls(worker: Worker) -> bool:
    """Whether the server lists this worker among those that ask for workflow tasks. The SDK does not say it."""
    client = worker.client
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=worker.task_queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    try:
        answer = await client.workflow_service.describe_task_queue(request, timeout=_PATIENCE)
    except RPCError:
        return False
    identity = worker.config().get("identity") or client.identity
    return any(poller.identity == identity for poller in answer.pollers)


async def _signalled() -> None:
    """Wait for SIGTERM or SIGINT; afterwards both do again what they did before."""
    loop = asyncio.get_running_loop()
    arrived = asyncio.Event()
    signals = (signal.SIGTERM, signal.SIGINT)
    for each in signals:
        loop.add_signal_handler(each, arrived.set)
    try:
        await arrived.wait()
    finally:
        for each in signals:
            loop.remove_signal_handler(each)
