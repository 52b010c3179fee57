"""From the decision to the tool, and to the end of the turn."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.measures import Goal, Measure, at_most, paired, percentile
from bench.stage import BARE, GATED, LANGCHAIN, RAW, SEEN, Side, Stage, paused

SIDES = (RAW, SEEN, GATED, BARE, LANGCHAIN)
COMPARED = {"": GATED, " (no timer)": BARE}
AS_SEEN = ", by hand as much to see"
WITH = ", both with LangChain"
AT_MOST = at_most(1.10)

IDLE = 0.05
"""Seconds of quiet before a decision: people don't decide at the moment at which they are asked."""


@dataclass(frozen=True)
class Wait:
    """Milliseconds from sending one decision."""

    to_tool: float
    to_end: float


async def measure(stage: Stage, pairs: int) -> list[Measure]:
    """Decide turns of all sides in turn, one at a time."""
    waits: dict[str, list[Wait]] = {side.name: [] for side in SIDES}
    used = {side.name: 0.0 for side in SIDES}
    for number in range(pairs):
        # Whoever comes first meets a machine that has rested: they take turns at it.
        for side in _rotated(SIDES, number):
            before = stage.worker_of(side).cpu
            waits[side.name].append(await _one(stage, side))
            used[side.name] += stage.worker_of(side).cpu - before
    found: list[Measure] = []
    for how, side in COMPARED.items():
        found += _compared(how, waits[side.name], waits["raw"], AT_MOST)
    found += _compared(AS_SEEN, waits["gated"], waits["seen"], AT_MOST)
    found += _compared(WITH, waits["gated"], waits["langchain"], None)
    return [*found, *_processor(used, pairs)]


async def _one(stage: Stage, side: Side) -> Wait:
    handle = await side.start(stage.client)
    await paused(handle)
    await asyncio.sleep(IDLE)
    sent = time.monotonic_ns()
    _, said = await asyncio.gather(side.decide(handle), side.said(handle))
    return Wait(to_tool=(int(said) - sent) / 1e6, to_end=(time.monotonic_ns() - sent) / 1e6)


def _rotated(sides: Sequence[Side], by: int) -> list[Side]:
    by %= len(sides)
    return [*sides[by:], *sides[:by]]


def _compared(how: str, ours: Sequence[Wait], raw: Sequence[Wait], goal: Goal | None) -> Iterator[Measure]:
    for what, field in (("tool start", "to_tool"), ("end of turn", "to_end")):
        here, there = ([getattr(one, field) for one in waits] for waits in (ours, raw))
        name = f"decision to {what}{how}"
        note = f"{statistics.median(here):.1f} ms, by hand {statistics.median(there):.1f} ms; {len(here)} pairs"
        yield Measure(f"{name}, median", "x by hand", ratio=paired(here, there), goal=goal, note=note)
        low, high = percentile(here, 95), percentile(there, 95)
        note = f"{low:.1f} ms, by hand {high:.1f} ms"
        yield Measure(f"{name}, p95", "x by hand", ratio=low / high, goal=goal, note=note)


def _processor(used: dict[str, float], pairs: int) -> Iterator[Measure]:
    for how, ours, raw in (*((how, side.name, "raw") for how, side in COMPARED.items()), (WITH, "gated", "langchain")):
        note = f"{used[ours] / pairs * 1000:.1f} ms, by hand {used[raw] / pairs * 1000:.1f} ms"
        name = f"worker's processor time per gated turn{how}"
        yield Measure(name, "x by hand", ratio=used[ours] / used[raw], note=note)
