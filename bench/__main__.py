"""`make bench`, or `python -m bench`: measure, print a table, write bench/results.json."""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Sequence
from pathlib import Path

import cyclopts

from bench import command, cost, growth, latency, measures, memory, replaying, starting, throughput
from bench.command import CONSOLE
from bench.measures import Measure
from bench.stage import GATED, RAW, Stage, stage

RESULTS = Path(__file__).parent / "results.json"
PARTS = ("imports", "cost", "latency", "throughput", "memory", "growth", "replay", "start")
SIDES = {"latency": latency.SIDES, "throughput": throughput.SIDES}
app = cyclopts.App(name="bench", help="Measure Turngate beside hand-written Temporal code.")


@app.default
def run(*parts: str, quick: bool = False, out: Path = RESULTS) -> None:
    """Measure all parts, or those that are named.

    Parameters
    ----------
    parts
        imports, cost, latency, throughput, memory, growth, replay, start
    quick
        Fewer repetitions: to see that everything works, not to learn a figure.
    out
        Where the results go, as JSON.
    """
    wanted = parts or PARTS
    if unknown := [part for part in wanted if part not in PARTS]:
        raise SystemExit(f"there is no part {unknown[0]!r}: there are {', '.join(PARTS)}")
    CONSOLE.print(f"Python {platform.python_version()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    found = asyncio.run(_measured(wanted, quick))
    measures.show(found, CONSOLE, title="Turngate beside hand-written Temporal code")
    measures.save(found, out)
    CONSOLE.print(f"load {os.getloadavg()[0]:.1f} at the end; written to {out}")


async def _measured(parts: Sequence[str], quick: bool) -> list[Measure]:
    found: list[Measure] = []
    for part in PARTS:
        if part not in parts:
            continue
        CONSOLE.print(f"measuring: {part} ...", style="dim")
        if part == "imports":
            found += starting.measure_imports(3 if quick else 7)
        elif part == "cost":
            found += await cost.measure(3 if quick else 7)
        else:
            # Each on a server of its own, so that what one part leaves behind does not slow the next.
            async with stage(*SIDES.get(part, (RAW, GATED))) as place:
                found += await _part(part, place, quick)
    return found


async def _part(part: str, place: Stage, quick: bool) -> list[Measure]:
    if part == "latency":
        return await latency.measure(place, 10 if quick else 100)
    if part == "throughput":
        return await throughput.measure(place, 1 if quick else 7)
    if part == "memory":
        return await memory.measure(place, 100 if quick else 500)
    if part == "growth":
        return await growth.measure(place, 100 if quick else 400)
    if part == "replay":
        return await replaying.measure(place, 50 if quick else 400, 3 if quick else 7)
    return await starting.measure_workers(place, 2 if quick else 7)


if __name__ == "__main__":
    command.main(app)
