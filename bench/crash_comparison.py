"""The same deaths on both sides, counted: Turngate beside LangChain's HumanInTheLoopMiddleware with SQLite.

    python -m bench.crash_comparison --repeat 10

prints the table and writes bench/crash_comparison.md. Needs `pip install langchain langgraph-checkpoint-sqlite`.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from bench.crash_moments import MOMENTS, Moment, Outcome
from bench.crash_page import AT_ONCE, SIDES, Cells, Try, good, page, said
from bench.crash_turngate import Place

try:
    from bench import crash_langchain
except ImportError as error:
    raise SystemExit(f"{error}: pip install langchain langgraph-checkpoint-sqlite") from None

OUT = Path(__file__).parent / "crash_comparison.md"


async def compare(repeat: int, moments: list[int]) -> Cells:
    """Go through all moments on all sides."""
    cells: Cells = {(row, side): [] for row in moments for side in range(len(SIDES))}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with Place.open(folder) as place:
            room = asyncio.Semaphore(AT_ONCE)
            await asyncio.gather(*(_one(cells, row, 0, place.play, room) for _ in range(repeat) for row in moments))
        alone = asyncio.Semaphore(1)
        for side, mode in enumerate(crash_langchain.MODES, start=1):
            play = partial(crash_langchain.play, mode=mode)
            await asyncio.gather(*(_one(cells, row, side, play, alone) for _ in range(repeat) for row in moments))
    return cells


async def _one(
    cells: Cells, row: int, side: int, play: Callable[[Moment, Path], Awaitable[Outcome]], room: asyncio.Semaphore
) -> None:
    async with room:
        with tempfile.TemporaryDirectory() as folder:
            before = time.monotonic()
            outcome = await play(MOMENTS[row], Path(folder))
            cells[row, side].append(Try(outcome, time.monotonic() - before))
    print(f"{row + 1:3} {SIDES[side]:36}{said(MOMENTS[row], outcome)}", flush=True)


def main() -> int:
    """Run from the command line."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--repeat", type=int, default=10)
    options.add_argument("--rows", type=int, nargs="*", help="only these rows of the table, and write nothing")
    options.add_argument("--out", type=Path, default=OUT)
    given = options.parse_args()
    logging.basicConfig(level=logging.ERROR)
    rows = [row - 1 for row in given.rows or range(1, len(MOMENTS) + 1)]
    cells = asyncio.run(compare(given.repeat, rows))
    text = page(cells, given.repeat)
    print(text)
    if not given.rows:
        given.out.write_text(text)
    return 0 if all(good(cells, row, 0) for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
