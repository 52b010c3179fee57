"""Real Temporal servers for tests, and time that passes on demand."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from datetime import timedelta

from temporalio.client import Client, WorkflowHandle
from temporalio.testing import TimeSkipper, TimeSkippingConfig

from turngate.devserver import TIME_SKIPPING, DevServer

_PATIENCE = 30.0


@contextlib.asynccontextmanager
async def dev_server(
    *, search_attributes: bool = True, time_skipping: bool = False, dynamic_config: Iterable[str] = ()
) -> AsyncIterator[DevServer]:
    """Run a development server in memory, without its UI.

    `time_skipping` allows `pass_time`; `dynamic_config` holds entries `key=value` of Temporal's dynamic configuration.
    """
    arguments = [*TIME_SKIPPING] if time_skipping else []
    for entry in dynamic_config:
        arguments += ["--dynamic-config-value", entry]
    async with DevServer(ui=False, extra_args=arguments, search_attributes=search_attributes) as server:
        yield server


async def pass_time(client: Client, workflow_ids: Iterable[str], duration: timedelta) -> None:
    """Let `duration` pass in these open runs, each of which has its own clock, and wait until it has passed.

    Needs a server with `time_skipping`. Time never skips by itself, or a turn that waits for a person would jump
    to its deadline. Returns early for a run that ends meanwhile, or that no worker serves at its next timer.
    Time does not pass in a run that waits for a child: name the child instead. Raises TimeoutError for such a run.
    """
    skipper = TimeSkipper(client, config=TimeSkippingConfig(disable_propagation=True))
    handles = [client.get_workflow_handle(workflow_id) for workflow_id in workflow_ids]
    await asyncio.gather(*(_pass_in(skipper, handle, duration) for handle in handles))


async def _pass_in(skipper: TimeSkipper, handle: WorkflowHandle[object, object], duration: timedelta) -> None:
    skipping = asyncio.ensure_future(skipper.fast_forward(handle, duration))
    waiting = asyncio.ensure_future(_stalled(handle))
    done, open_ = await asyncio.wait({skipping, waiting}, timeout=_PATIENCE, return_when=asyncio.FIRST_COMPLETED)
    for task in open_:
        task.cancel()
    if not done:
        raise TimeoutError(f"time did not pass in {handle.id!r} within {_PATIENCE:.0f} s")
    for task in done:
        task.result()


async def _stalled(handle: WorkflowHandle[object, object]) -> None:
    """Return once the run's task has waited for a worker for a while: the clock stands still until one comes."""
    seen = 0
    while seen < 20:
        description = (await handle.describe()).raw_description
        waits = description.HasField("pending_workflow_task") and not description.pending_workflow_task.attempt > 1
        unserved = waits and not description.pending_workflow_task.HasField("started_time")
        seen = seen + 1 if unserved else 0
        await asyncio.sleep(0.05)
