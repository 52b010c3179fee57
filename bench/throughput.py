"""Gated turns per second, fifty at a time."""

from __future__ import annotations

import asyncio
import statistics
import time
from dataclasses import dataclass

from bench.measures import Measure, at_least, paired
from bench.stage import BARE, GATED, RAW, Side, Stage, one_turn

AT_ONCE = 50
TURNS = 100


@dataclass(frozen=True)
class Round:
    """One round of one side: turns per second, and milliseconds of processor time per turn."""

    rate: float
    worker: float
    server: float


async def measure(stage: Stage, rounds: int) -> list[Measure]:
    """Let the sides run rounds in turn; the first round of each only warms up."""
    found: dict[str, list[Round]] = {side.name: [] for side in (RAW, GATED, BARE)}
    for _ in range(rounds + 1):
        for side in (RAW, GATED, BARE):
            found[side.name].append(await _round(stage, side))
    raw = found["raw"][1:]
    return [
        one
        for side, how in ((GATED, ""), (BARE, " (extras off)"))
        for one in _compared(f"turns per second, {AT_ONCE} at a time{how}", found[side.name][1:], raw)
    ]


async def _round(stage: Stage, side: Side) -> Round:
    room = asyncio.Semaphore(AT_ONCE)

    async def turn() -> None:
        async with room:
            await one_turn(stage.client, side)

    worker, server, began = stage.worker_of(side).cpu, stage.server_cpu, time.monotonic()
    await asyncio.gather(*(turn() for _ in range(TURNS)))
    passed = time.monotonic() - began
    return Round(
        rate=TURNS / passed,
        worker=(stage.worker_of(side).cpu - worker) / TURNS * 1000,
        server=(stage.server_cpu - server) / TURNS * 1000,
    )


def _compared(name: str, ours: list[Round], raw: list[Round]) -> list[Measure]:
    rate = paired([one.rate for one in ours], [one.rate for one in raw])
    note = (
        f"{statistics.median(one.rate for one in ours):.1f} a second,"
        f" by hand {statistics.median(one.rate for one in raw):.1f}; {len(raw)} pairs of {TURNS} turns"
    )
    measures = [Measure(name, "x by hand", ratio=rate, goal=at_least(0.95), note=note)]
    for what in ("worker", "server"):
        here, there = [getattr(one, what) for one in ours], [getattr(one, what) for one in raw]
        note = f"{statistics.median(here):.1f} ms, by hand {statistics.median(there):.1f} ms"
        measures.append(
            Measure(f"{name}: {what}'s processor time per turn", "x by hand", ratio=paired(here, there), note=note)
        )
    return measures
