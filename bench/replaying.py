"""How long a worker that has never seen a long turn needs to take it over."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable

from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from bench.measures import Measure, paired
from bench.raw_long import RawLongTurn
from bench.stage import Stage
from turngate import TurngatePlugin


async def measure(stage: Stage, steps: int, times: int) -> list[Measure]:
    """Record a long turn of each side, and replay both in turn."""
    ours = await _ours(stage, steps)
    raw = await _raw(stage, steps)
    pairs = [(await _seconds(_replay_ours, ours), await _seconds(_replay_raw, raw)) for _ in range(times)]
    here, there = [one for one, _ in pairs], [other for _, other in pairs]
    note = (
        f"{statistics.median(here):.2f} s for {len(ours.events)} events, by hand"
        f" {statistics.median(there):.2f} s for {len(raw.events)} events: processor time"
    )
    return [Measure(f"replay of {steps} steps", "x by hand", ratio=paired(here, there), note=note)]


async def _ours(stage: Stage, steps: int) -> WorkflowHistory:
    request = {"agent": "reader", "input": str(steps)}
    handle = await stage.client.start_workflow("AgentTurn", request, id="replayed", task_queue="ours")
    await handle.result()
    # Of a turn that went on as new this is the longest run.
    first = stage.client.get_workflow_handle(handle.id, run_id=handle.first_execution_run_id)
    return await first.fetch_history()


async def _raw(stage: Stage, steps: int) -> WorkflowHistory:
    asked = {"steps": steps, "by_value": False}
    handle = await stage.client.start_workflow("RawLongTurn", asked, id="replayed-raw", task_queue="raw")
    await handle.result()
    return await handle.fetch_history()


async def _seconds(replay: Callable[[WorkflowHistory], Awaitable[object]], history: WorkflowHistory) -> float:
    # The processor's time: the clock on the wall counts what others on this machine do.
    began = time.process_time()
    await replay(history)
    return time.process_time() - began


async def _replay_ours(history: WorkflowHistory) -> object:
    return await Replayer(workflows=[], plugins=[TurngatePlugin()]).replay_workflow(history)


async def _replay_raw(history: WorkflowHistory) -> object:
    return await Replayer(workflows=[RawLongTurn]).replay_workflow(history)
