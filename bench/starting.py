"""How long it takes to begin: imports, the workflows in the SDK's sandbox, a worker's first task."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time

from bench.measures import Measure, at_most, paired
from bench.stage import GATED, RAW, Process, Side, Stage, paused

IMPORTED = (
    ("import turngate.client", "turngate.client", "temporalio.client"),
    ("import turngate.worker and agent", "turngate.worker, turngate.agent", "temporalio.worker, langchain_core.tools"),
)
# Processor time: the clock on the wall counts what others on this machine do.
_TIMED = "import time; began = time.process_time(); import {}; print(time.process_time() - began)"
_PREPARED = """
import asyncio, time
import pydantic, temporalio.worker
from temporalio import workflow
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner
from turngate import plugin

async def main():
    runner = plugin._with_passthrough(SandboxedWorkflowRunner())
    began = time.process_time()
    import turngate.workflows
    for each in (turngate.workflows.AgentTurn, turngate.workflows.AgentThread):
        runner.prepare_workflow(workflow._Definition.must_from_class(each))
    print(time.process_time() - began)

asyncio.run(main())
"""


def measure_imports(times: int) -> list[Measure]:
    """Import in fresh processes, ours beside what it stands on."""
    found = []
    for name, ours, theirs in IMPORTED:
        pairs = [(_seconds(_TIMED.format(ours)), _seconds(_TIMED.format(theirs))) for _ in range(times)]
        here, there = [one for one, _ in pairs], [other for _, other in pairs]
        note = f"{statistics.median(here):.2f} s; import {theirs}: {statistics.median(there):.2f} s"
        found.append(Measure(name, f"x import {theirs}", ratio=paired(here, there), note=note))
    return [*found, Measure("turngate.workflows, loaded and checked by the sandbox", "s",
                            value=sandbox_seconds(times), goal=at_most(0.3), note="processor time")]  # fmt: skip


def sandbox_seconds(times: int) -> float:
    """Return the seconds that a worker needs to load our workflows and to check them in the SDK's sandbox."""
    return statistics.median(_seconds(_PREPARED) for _ in range(times))


def _seconds(program: str) -> float:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    return float(done.stdout)


async def measure_workers(stage: Stage, times: int) -> list[Measure]:
    """Start a worker of each side for a turn that is waiting for one already."""
    found: dict[str, list[float]] = {"raw": [], "ours": []}
    for number in range(times):
        for side in (RAW, GATED):
            process = "raw" if side is RAW else "ours"
            found[process].append(await _first_task(stage, side, process, f"{process}-start-{number}"))
    note = (
        f"{statistics.median(found['ours']):.2f} s, by hand {statistics.median(found['raw']):.2f} s:"
        " from the start of the process to the answer of the first activity; by hand there is no langchain to import"
    )
    ratio = paired(found["ours"], found["raw"])
    return [Measure("worker start to first task", "x by hand", ratio=ratio, note=note)]


async def _first_task(stage: Stage, side: Side, process: str, queue: str) -> float:
    waiting = Side(side.name, queue, side._numbers)
    handle = await waiting.start(stage.client)
    worker = Process(process, stage.server, queue=queue)
    began = time.monotonic()
    await worker.launch()
    try:
        await asyncio.gather(worker.ready(), paused(handle))
        passed = time.monotonic() - began
        await side.decide(handle)
        await side.said(handle)
    finally:
        await worker.stop()
    return passed
