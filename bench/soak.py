"""Many turns, three careless reviewers, and workers that are killed at random: `make soak`.

Every process is real: the server with its state in a file, the workers, which are killed with SIGKILL from outside and
by traps inside their tools, and the effects, rows of a SQLite database that would show everything that ran twice.
Ends with 0 only if the effects are exactly the approved calls, every decision in the record is one that somebody sent,
and every history can be replayed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.soak_agents import GATED, plan
from bench.soak_reviewer import Reviewer, Said
from bench.soak_verdict import Results, allowed_effects, replay, turn_of, wrong_records
from tests.crash.effects import Effects
from tests.crash.nursery import Nursery, Worker
from turngate import DevServer, TurngateClient
from turngate.errors import NoWorkerError, TurngateError

QUEUE = "soak"
OPEN_TURNS = 16
KEPT = Path("soak-histories")
"""Where histories are left that can't be replayed."""
WORKERS = 2
REVIEWERS = ("ann", "bob", "eve")
_KILL_EVERY = (6.0, 12.0)
_LOOK_EVERY = 1.0
_TRAPPED = 0.06
_TRAPS = ("die before", "die after", "die at report")


class Soak:
    """One run of the soak."""

    def __init__(self, turns: int, seed: int, folder: Path, server: DevServer, nursery: Nursery) -> None:
        self.turns, self.seed, self.folder, self.server, self.nursery = turns, seed, folder, server, nursery
        self.dice = random.Random(seed)
        self.effects = Effects(folder / "effects.db")
        self.said = Said()
        self.results: Results = {}
        self.failed: list[str] = []
        self.killed = 0
        self.died = 0
        self.workers: list[Worker] = []

    async def run(self, seconds: float) -> None:
        """Run all turns to their end, or raise TimeoutError."""
        starter = TurngateClient(await self.server.client(), QUEUE)
        turns = iter(range(self.turns))
        workers, reviewers = [self._keep_worker() for _ in range(WORKERS)], [self._review(name) for name in REVIEWERS]
        async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
            around = [group.create_task(one) for one in (*workers, *reviewers, self._kill_workers())]
            await asyncio.gather(*(self._run_turns(starter, turns) for _ in range(OPEN_TURNS)))
            for task in around:
                task.cancel()

    async def _run_turns(self, client: TurngateClient, turns: Iterator[int]) -> None:
        for number in turns:
            for call in (call for step in plan(self.seed, number) for call in step):
                if call["name"] in GATED and self.dice.random() < _TRAPPED:
                    self.effects.trap(call["args"]["ref"], self.dice.choice(_TRAPS))
            asked = json.dumps({"seed": self.seed, "turn": number})
            turn = await client.start_turn("clerk", asked, turn_id=f"soak-{number}")
            try:
                self.results[number] = await turn.result()
            except TurngateError as error:
                self.failed.append(f"{turn.id}: {error}")

    # --- Workers come and go -----------------------------------------------------------------------------------------

    async def _keep_worker(self) -> None:
        while True:
            worker = await self.nursery.worker(
                "bench.soak_agents:build", address=self.server.address, queue=QUEUE, folder=str(self.folder)
            )
            self.workers.append(worker)
            await worker.ended.wait()
            self.workers.remove(worker)
            self.died += 1

    async def _kill_workers(self) -> None:
        while True:
            await asyncio.sleep(self.dice.uniform(*_KILL_EVERY))
            # The last turns end in peace, or the time it takes would be a matter of luck.
            if self.workers and len(self.results) < self.turns * 0.95:
                await self.dice.choice(self.workers).kill()
                self.killed += 1

    # --- People ------------------------------------------------------------------------------------------------------

    async def _review(self, name: str) -> None:
        client = TurngateClient(await self.server.client(), QUEUE)
        reviewer = Reviewer(name, self.seed, client, self.effects, self.said)
        while True:
            with contextlib.suppress(NoWorkerError):
                await reviewer.round()
            await asyncio.sleep(_LOOK_EVERY)


def report(soak: Soak, replayed: Counter[str], seconds: float) -> bool:
    """Print the counts, and return whether all is as it should be."""
    said, statuses = soak.said, Counter[str]()
    for result in soak.results.values():
        statuses.update(f"{approval.type}: {approval.status}" for approval in result.approvals)
    allowed, happened = allowed_effects(soak.seed, soak.results), Counter(soak.effects.all())
    # Of a turn that was cut off by the limit it is not known yet what was allowed.
    effects = Counter({one: count for one, count in happened.items() if turn_of(one) in soak.results})
    wrong = wrong_records(soak.results, said.decisions)
    _table({
        "seconds": round(seconds),
        "turns completed": f"{len(soak.results)} of {soak.turns}",
        "turns failed": len(soak.failed),
        "workers killed from outside": soak.killed,
        "workers killed inside a tool": soak.died - soak.killed,
        "decisions sent": dict(said.sent),
        "what the client was told": dict(said.told),
        "junk sent, and the answer": dict(said.junk),
        "approvals": dict(statuses),
        "recoveries answered": dict(said.recoveries),
        "bodies started": len(soak.effects.starts()),
        "effects allowed": allowed.total(),
        "effects in the database": effects.total(),
        "effects of unfinished turns": (happened - effects).total(),
        "allowed, did not happen": (allowed - effects).total(),
        "happened, not allowed": (effects - allowed).total(),
        "records that nobody sent": len(wrong),
        **replayed,
    })  # fmt: skip
    _list("did not happen", list((allowed - effects).elements()))
    _list("not allowed", list((effects - allowed).elements()))
    _list("records", wrong)
    _list("failed", soak.failed)
    complete = len(soak.results) == soak.turns and not soak.failed
    return complete and allowed == effects and not wrong and not replayed["replays that went another way"]


def _table(rows: dict[str, Any]) -> None:
    for name, value in rows.items():
        text = ", ".join(f"{key} {count}" for key, count in sorted(value.items())) if isinstance(value, dict) else value
        print(f"{name:34}{text}")


def _list(title: str, lines: Sequence[Any]) -> None:
    for line in lines[:20]:
        print(f"{title}: {line}")


async def soak(turns: int, seed: int, limit: float) -> bool:
    """Run it and say whether it went well."""
    before = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with DevServer(db=folder / "temporal.db", ui=False) as server:
            async with Nursery("bench.soak_agents", "turngate.plugin", log=folder / "workers.log") as nursery:
                run = Soak(turns, seed, folder, server, nursery)
                try:
                    await run.run(limit)
                except TimeoutError:
                    run.failed.append(f"not at an end after {limit:.0f} s")
            seconds = time.monotonic() - before
            return report(run, await replay(await server.client(), QUEUE, KEPT), seconds)


def main() -> int:
    """Run from the command line."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--turns", type=int, default=300)
    options.add_argument("--seed", type=int, default=random.randrange(10_000))
    options.add_argument("--limit", type=float, default=420, help="seconds after which it counts as failed")
    given = options.parse_args()
    logging.basicConfig(level=logging.ERROR)  # that no worker answers is no news here
    print(f"soak: {given.turns} turns, seed {given.seed}", flush=True)
    good = asyncio.run(soak(given.turns, given.seed, given.limit))
    print("effects are exactly what was allowed" if good else "NOT as it should be")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
