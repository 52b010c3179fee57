"""Gated turns per second, fifty at a time."""

from __future__ import annotations

import asyncio
import statistics
import time
from dataclasses import dataclass

from bench.measures import Goal, Measure, at_least, paired
from bench.stage import BARE, GATED, LANGCHAIN, RAW, SEEN, Side, Stage, one_turn

SIDES = (RAW, SEEN, GATED, BARE, LANGCHAIN)
AS_SEEN = ", by hand as much to see"
WITH = ", both with LangChain"
AT_LEAST = at_least(0.95)

AT_ONCE = 50
TURNS = 100
NAME = f"turns per second, {AT_ONCE} at a time"


@dataclass(frozen=True)
class Round:
    """One round of one side: turns per second, and milliseconds of processor time per turn."""

    rate: float
    worker: float
    server: float


async def measure(stage: Stage, rounds: int) -> list[Measure]:
    """Let the sides run rounds in turn; the first round of each only warms up."""
    found: dict[str, list[Round]] = {side.name: [] for side in SIDES}
    for _ in range(rounds + 1):
        for side in SIDES:
            found[side.name].append(await one_round(stage, side))
    compared = (
        ("", GATED, RAW, AT_LEAST),
        (" (no timer)", BARE, RAW, AT_LEAST),
        (AS_SEEN, GATED, SEEN, AT_LEAST),
        (WITH, GATED, LANGCHAIN, None),
    )
    return [
        one
        for how, ours, raw, goal in compared
        for one in side_by_side(f"{NAME}{how}", found[ours.name][1:], found[raw.name][1:], goal)
    ]


async def one_round(stage: Stage, side: Side) -> Round:
    """Run the turns of one round."""
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


def side_by_side(
    name: str, ours: list[Round], raw: list[Round], goal: Goal | None, beside: str = "by hand"
) -> list[Measure]:
    """Compare the rounds of two sides."""
    rate = paired([one.rate for one in ours], [one.rate for one in raw])
    note = (
        f"{statistics.median(one.rate for one in ours):.1f} a second,"
        f" {beside} {statistics.median(one.rate for one in raw):.1f}; {len(raw)} pairs of {TURNS} turns"
    )
    measures = [Measure(name, f"x {beside}", ratio=rate, goal=goal, note=note)]
    for what in ("worker", "server"):
        here, there = [getattr(one, what) for one in ours], [getattr(one, what) for one in raw]
        note = f"{statistics.median(here):.1f} ms, {beside} {statistics.median(there):.1f} ms"
        measures.append(
            Measure(f"{name}: {what}'s processor time per turn", f"x {beside}", ratio=paired(here, there), note=note)
        )
    return measures
