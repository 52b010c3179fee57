"""`make postgres`, or `python -m bench.postgres`: beside LangChain's middleware and its checkpointer for PostgreSQL.

Needs `apt-get install postgresql` and `pip install -r bench/postgres_requirements.txt`. Prints a table and writes
bench/postgres.json.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import cyclopts

from bench import command, growth, measures, throughput
from bench.command import CONSOLE
from bench.measures import Measure, paired
from bench.postgres_server import Postgres, postgres
from bench.stage import GATED, Handle, Process, Program, Stage, paused, stage
from bench.throughput import AT_ONCE, TURNS, Round

try:
    from bench import postgres_langchain
except ImportError as error:
    raise SystemExit(f"{error}: pip install -r bench/postgres_requirements.txt") from None

RESULTS = Path(__file__).parent / "postgres.json"
LANGCHAIN = "LangChain with PostgreSQL"
STEPS = (50, 100, 200)
# As it comes, and as its documentation in beta has it.
STATES = {"": "whole", ", delta channel there": "delta"}
# A saver does one thing at a time, also over a pool. One is how it is documented; more is the most that can be had.
SAVERS = {"": 1, f", {postgres_langchain.POOL} savers there": postgres_langchain.POOL}
RESUMED = replace(GATED, queue="resumed")
Part = Literal["size", "resume", "throughput"]
PARTS: tuple[Part, ...] = ("size", "resume", "throughput")
app = cyclopts.App(name="bench.postgres", help="Measure Turngate beside LangChain's agent with PostgreSQL.")


@app.default
def run(*parts: Part, quick: bool = False, out: Path = RESULTS) -> None:
    """Measure all parts, or those that are named.

    Parameters
    ----------
    parts
        size, resume, throughput
    quick
        Fewer repetitions: to see that everything works, not to learn a figure.
    out
        Where the results go, as JSON.
    """
    CONSOLE.print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    found = asyncio.run(_measured(parts or PARTS, quick))
    measures.show(found, CONSOLE, title=f"Turngate beside {LANGCHAIN}")
    measures.save(found, out)
    CONSOLE.print(f"load {os.getloadavg()[0]:.1f} at the end; written to {out}")


@dataclass(frozen=True)
class _Both:
    """Where it is measured: both servers, and LangChain's process."""

    stage: Stage
    database: Postgres
    langchain: Program


async def _measured(parts: tuple[Part, ...], quick: bool) -> list[Measure]:
    found: list[Measure] = []
    for part in PARTS:
        if part in parts:
            CONSOLE.print(f"measuring: {part} ...", style="dim")
            async with _both() as both:
                found += await _part(part, both, quick)
    return found


@asynccontextmanager
async def _both() -> AsyncIterator[_Both]:
    with postgres() as database:
        async with stage(GATED) as place, Program(postgres_langchain.__name__, database.url) as langchain:
            yield _Both(place, database, langchain)


async def _part(part: Part, both: _Both, quick: bool) -> list[Measure]:
    if part == "size":
        return await _size(both, STEPS[:2] if quick else STEPS)
    if part == "resume":
        return await _resume(both, 2 if quick else 15)
    return await _throughput(both, 1 if quick else 7)


# --- Bytes -----------------------------------------------------------------------------------------------------------


async def _size(both: _Both, counts: tuple[int, ...]) -> list[Measure]:
    """Run long turns without a question, and see what is kept of them."""
    found: list[Measure] = []
    ours = [(await growth.ours(both.stage.client, steps)).history / steps for steps in counts]
    grown = []
    for how, state in STATES.items():
        theirs = [json.loads(await both.langchain.ask("read", str(steps), state)) for steps in counts]
        grown.append(theirs[-1]["kept"] / counts[-1] / (theirs[0]["kept"] / counts[0]))
        for steps, here, there in zip(counts, ours, theirs, strict=True):
            note = (
                f"{_kb(here)} of history, {LANGCHAIN} {_kb(there['kept'] / steps)} in the columns; its tables grew by"
                f" {_kb(there['on_disk'] / steps)} on the disk, compressed, with TOAST and indexes"
            )
            name = f"bytes kept per step, {steps} steps of 4 KB{how}"
            found.append(Measure(name, f"x {LANGCHAIN}", ratio=here * steps / there["kept"], note=note))
    name = f"bytes kept per step, {counts[-1]} steps beside {counts[0]}"
    note = f"1 is linear; {LANGCHAIN} {grown[0]:.2f}, with the delta channel {grown[1]:.2f}"
    return [*found, Measure(name, "x", ratio=ours[-1] / ours[0], note=note)]


def _kb(size: float) -> str:
    return f"{size / 1000:.1f} KB"


# --- A fresh process -------------------------------------------------------------------------------------------------


async def _resume(both: _Both, times: int) -> list[Measure]:
    """Let turns wait, and resume each in a process of its own; the first of each side only warms up."""
    names = [f"resume-{number}" for number in range(times + 1)]
    async with Process("ours", both.stage.server, queue=RESUMED.queue):
        handles = [await RESUMED.start(both.stage.client) for _ in names]
        for handle in handles:
            await paused(handle)
    for name in names:
        await both.langchain.ask("pause", name)
    ours, theirs = [], []
    for handle, name in zip(handles, names, strict=True):
        ours.append(await _ours_resumed(both.stage, handle))
        theirs.append(await _theirs_resumed(both.database, name))
    ours, theirs = ours[1:], theirs[1:]
    note = (
        f"{statistics.median(ours):.2f} s, {LANGCHAIN} {statistics.median(theirs):.2f} s; {times} pairs; from the start"
        " of the process to the first line of the tool: interpreter, imports, agent, connection, state; the process"
        " that began the turn had stopped in order"
    )
    ratio = paired(ours, theirs)
    return [Measure("approve in a fresh process to tool start", f"x {LANGCHAIN}", ratio=ratio, note=note)]


async def _ours_resumed(stage: Stage, handle: Handle) -> float:
    """Start a worker and send the decision at the same moment."""
    worker, began = Process("ours", stage.server, queue=RESUMED.queue), time.monotonic_ns()
    await worker.launch()
    try:
        _, said = await asyncio.gather(RESUMED.decide(handle), RESUMED.said(handle))
    finally:
        await worker.stop()
    return (int(said) - began) / 1e9


async def _theirs_resumed(database: Postgres, thread: str) -> float:
    """Start a process that goes on with the thread: it is told the answer when it starts."""
    process = Program(postgres_langchain.__name__, database.url, "resume", thread)
    began = time.monotonic_ns()
    await process.launch()
    try:
        said = await process.line()
    finally:
        await process.stop()
    return (int(said) - began) / 1e9


# --- Throughput ------------------------------------------------------------------------------------------------------


async def _throughput(both: _Both, rounds: int) -> list[Measure]:
    """Let the sides run rounds in turn; the first round of each only warms up."""
    ours: list[Round] = []
    theirs: dict[str, list[Round]] = {how: [] for how in SAVERS}
    for _ in range(rounds + 1):
        ours.append(await throughput.one_round(both.stage, GATED))
        for how, savers in SAVERS.items():
            theirs[how].append(await _their_round(both, savers))
    return [
        one
        for how, found in theirs.items()
        for one in throughput.side_by_side(f"{throughput.NAME}{how}", ours[1:], found[1:], None, LANGCHAIN)
    ]


async def _their_round(both: _Both, savers: int) -> Round:
    worker, server = both.langchain.cpu, both.database.cpu
    passed = float(await both.langchain.ask("turns", str(TURNS), str(AT_ONCE), str(savers)))
    return Round(
        rate=TURNS / passed,
        worker=(both.langchain.cpu - worker) / TURNS * 1000,
        server=(both.database.cpu - server) / TURNS * 1000,
    )


if __name__ == "__main__":
    command.main(app)
