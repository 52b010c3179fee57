"""`python -m bench.inbox`: a thousand turns wait, and somebody lists them.

Warm, they are in the worker's memory. Cold, the worker has just been started again, and replays each run to answer for
it. At a glance, nobody is asked but visibility. The processor time that the parts spend says which of them is the
bottleneck, also on a machine that has other things to do.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

import cyclopts
from temporalio.client import Client

from bench import command, measures
from bench.command import CONSOLE
from bench.measures import Measure, at_most
from bench.stage import GATED, Process, cpu_of, paused
from turngate import DevServer, TurngateClient
from turngate.inbox import Listing

RESULTS = Path(__file__).parent / "inbox.json"
AT_ONCE = 25
GOAL = 5.0
"""Seconds for a thousand, with nothing else running on two processors."""
VISIBLE = 60.0
"""Seconds after which visibility has to know of all turns."""
app = cyclopts.App(name="bench.inbox", help="List a thousand waiting approvals, warm and cold.")


@app.default
def run(*, turns: int = 1000, lists: int = 3, out: Path = RESULTS) -> None:
    """Measure.

    Parameters
    ----------
    turns
        How many turns wait at the same time.
    lists
        How often they are listed, warm and cold each.
    out
        Where the results go, as JSON.
    """
    found = asyncio.run(_measured(turns, lists))
    measures.show(found, CONSOLE, title="Inbox")
    measures.save(found, out)


@dataclass(frozen=True)
class _Look:
    """One look at the inbox: seconds to the first approval and to the last, and processor seconds of each part."""

    first: float
    all: float
    worker: float
    server: float
    client: float

    @property
    def note(self) -> str:
        """What it was spent on."""
        parts = ", ".join(f"{name} {getattr(self, name):.1f}" for name in ("server", "worker", "client"))
        return f"first after {self.first:.2f} s; processor seconds: {parts}"


async def _measured(turns: int, lists: int) -> list[Measure]:
    async with DevServer(ui=False) as server:
        temporal = await server.client()
        client = TurngateClient(temporal, "ours")
        looks: dict[str, list[_Look]] = {}
        async with Process("ours", server, cached=turns + 100) as worker:

            async def look(how: str, by: TurngateClient | None = None, *, details: bool = True) -> None:
                looks[how] = [
                    await _look(server, worker, by or _new(temporal), turns, details=details) for _ in range(lists)
                ]

            began = time.monotonic()
            await _pause(client, turns)
            passed = time.monotonic() - began
            await _visible(client, turns)
            await look("at a glance", details=False)
            await look("listed warm")
            # A client that has listed twice knows how long the histories were.
            for _ in range(2):
                await _look(server, worker, client, turns)
            await look("listed again by the same client", client)
        async with Process("ours", server, cached=turns + 100) as worker:
            await look("listed again by it, cold", client)
            await look("listed cold")
    return [
        Measure(f"{turns} turns started until all wait", "s", value=passed, note=f"{turns / passed:.0f} a second"),
        *(
            Measure(f"{how}, {n}", "s", value=look.all, goal=at_most(GOAL), note=look.note)
            for how, each in looks.items()
            for n, look in enumerate(each, 1)
        ),
    ]


def _new(temporal: Client) -> TurngateClient:
    """Return a client that has listed nothing yet."""
    return TurngateClient(temporal, "ours")


async def _pause(client: TurngateClient, turns: int) -> None:
    room = asyncio.Semaphore(AT_ONCE)

    async def one() -> None:
        async with room:
            await paused(await GATED.start(client.temporal))

    await asyncio.gather(*(one() for _ in range(turns)))


async def _visible(client: TurngateClient, turns: int) -> None:
    """Wait until the server lists them: it does so a moment later."""
    async with asyncio.timeout(VISIBLE):
        while True:
            if (await client.temporal.count_workflows("TurngateStatus = 'waiting'")).count >= turns:
                return
            await asyncio.sleep(0.1)


async def _look(
    server: DevServer, worker: Process, client: TurngateClient, turns: int, *, details: bool = True
) -> _Look:
    assert server.pid is not None
    before = worker.cpu, cpu_of(server.pid), time.process_time()
    began, first = time.monotonic(), 0.0
    inbox, found = client.pending(details=details), Listing()
    async for approval in inbox:
        first = first or time.monotonic() - began
        found.append(approval)
    passed = time.monotonic() - began
    after = worker.cpu, cpu_of(server.pid), time.process_time()
    if len(found) != turns or not all(bool(approval.args) is details for approval in found):
        raise RuntimeError(f"{len(found)} of {turns} are listed; {'; '.join(inbox.notes)}")
    spent = [end - start for end, start in zip(after, before, strict=True)]
    CONSOLE.print(f"{turns} listed in {passed:.1f} s", style="dim")
    return _Look(first, passed, *spent)


if __name__ == "__main__":
    command.main(app)
