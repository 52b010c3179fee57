"""What a paused turn takes of a worker's memory while it is in the cache."""

from __future__ import annotations

import asyncio

from bench.measures import Measure
from bench.stage import GATED, RAW, Side, Stage, paused

AT_ONCE = 25


async def measure(stage: Stage, turns: int) -> list[Measure]:
    """Let turns of each side pause, and look at the processes before and after."""
    raw, ours = [await _per_turn(stage, side, turns) for side in (RAW, GATED)]
    note = f"{ours / 1024:.0f} KiB, by hand {raw / 1024:.0f} KiB; {turns} turns of each"
    return [Measure("memory per cached paused turn", "x by hand", ratio=ours / raw, value=ours / 1024, note=note)]


async def _per_turn(stage: Stage, side: Side, turns: int) -> float:
    room = asyncio.Semaphore(AT_ONCE)

    async def pause() -> None:
        async with room:
            await paused(await side.start(stage.client))

    # The first ones fill pools that stay full.
    await asyncio.gather(*(pause() for _ in range(AT_ONCE)))
    before = stage.worker_of(side).memory
    await asyncio.gather(*(pause() for _ in range(turns)))
    return (stage.worker_of(side).memory - before) / turns
