"""`python -m bench.scale`: thousands of paused turns on one server and one worker, and one very long turn.

Shows that the worker's memory is bounded by its cache however many turns wait, and that each of them can be answered
after the worker was killed and started again.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cyclopts

from bench import command, growth, measures
from bench.command import CONSOLE
from bench.measures import Measure, at_most, percentile
from bench.stage import GATED, Handle, Process, paused
from turngate import DevServer

RESULTS = Path(__file__).parent / "scale.json"
AT_ONCE = 25
PER_CACHED_RUN = 300_000
"""Bytes that a cached run may take, all in all: its share of the worker's threads and buffers included."""
MIB = 1024 * 1024
app = cyclopts.App(name="bench.scale", help="Thousands of paused turns and one very long turn.")


@app.default
def run(*, turns: int = 5000, cached: int = 500, answered: int = 100, steps: int = 1000, out: Path = RESULTS) -> None:
    """Measure.

    Parameters
    ----------
    turns
        How many turns wait at the same time.
    cached
        How many of them the worker keeps in memory.
    answered
        How many of them, chosen at random, are decided after the worker was killed.
    steps
        Steps of the long turn, each with a result of 4 KB; 0 leaves it out.
    out
        Where the results go, as JSON.
    """
    found = asyncio.run(_measured(turns, cached, answered, steps))
    measures.show(found, CONSOLE, title="Scale")
    measures.save(found, out)


async def _measured(turns: int, cached: int, answered: int, steps: int) -> list[Measure]:
    found: list[Measure] = []
    if turns:
        async with DevServer(ui=False) as server:
            found += await _Crowd(server, turns, cached, answered).measure()
    if steps:
        async with DevServer(ui=False) as server:
            found += await _long(server, steps)
    return found


@dataclass(frozen=True)
class _Crowd:
    """Many turns that wait."""

    server: DevServer
    turns: int
    cached: int
    answered: int

    async def measure(self) -> list[Measure]:
        """Let them all pause, kill the worker, and decide some with a new one."""
        worker = Process("ours", self.server, cached=self.cached)
        await worker.launch()
        await worker.ready()
        began = time.monotonic()
        try:
            handles, memory = await self._pause(worker)
        finally:
            await worker.kill()
        passed = time.monotonic() - began
        async with Process("ours", self.server, cached=self.cached) as successor:
            waits = await self._decide(handles)
            after = successor.memory
        bound = (memory[0] + self.cached * PER_CACHED_RUN) / MIB
        grown = (memory[-1] - memory[len(memory) // 2]) / MIB
        return [
            Measure(f"worker's memory with {self.turns} paused turns, {self.cached} cached", "MiB",
                    value=max(memory) / MIB, goal=at_most(bound), note=f"{memory[0] / MIB:.0f} MiB before the first"),
            Measure("growth of it while the second half of them came", "MiB", value=grown, goal=at_most(bound / 4)),
            Measure("turns not answered after the worker was killed", "turns", value=float(self.answered - len(waits)),
                    goal=at_most(0), note=f"of {self.answered} chosen at random, decided one after the other"),
            Measure("decision to end of turn, run not in the cache, median", "ms", value=percentile(waits, 50),
                    note=f"p95 {percentile(waits, 95):.0f} ms; the new worker has {after / MIB:.0f} MiB then"),
            Measure("turns paused per second", "1/s", value=self.turns / passed),
        ]  # fmt: skip

    async def _pause(self, worker: Process) -> tuple[list[Handle], list[int]]:
        client = await self.server.client()
        room = asyncio.Semaphore(AT_ONCE)

        async def one() -> Handle:
            async with room:
                handle = await GATED.start(client)
                await paused(handle)
                return handle

        handles: list[Handle] = []
        memory = [worker.memory]
        while len(handles) < self.turns:
            handles += await asyncio.gather(*(one() for _ in range(min(250, self.turns - len(handles)))))
            memory.append(worker.memory)
            CONSOLE.print(f"{len(handles)} wait, worker {memory[-1] / MIB:.0f} MiB", style="dim")
        return handles, memory

    async def _decide(self, handles: Sequence[Handle]) -> list[float]:
        waits = []
        for handle in random.Random(0).sample(handles, self.answered):
            began = time.monotonic()
            await GATED.decide(handle)
            if await GATED.said(handle):
                waits.append((time.monotonic() - began) * 1000)
        return waits


async def _long(server: DevServer, steps: int) -> list[Measure]:
    client = await server.client()
    async with Process("ours", server) as worker:
        used, began = worker.cpu, time.monotonic()
        size = await growth.ours(client, steps)
        passed, used = time.monotonic() - began, worker.cpu - used
    note = f"{size.history / 1e6:.1f} MB of history in {size.runs} runs for {size.said / 1e6:.1f} MB said"
    return [
        Measure(f"history bytes at {steps} steps of 4 KB", "x bytes said", ratio=size.history / size.said,
                goal=at_most(3), note=note),
        Measure(f"{steps} steps", "s", value=passed, note=f"{used / steps * 1000:.0f} ms of processor time a step"),
    ]  # fmt: skip


if __name__ == "__main__":
    command.main(app)
