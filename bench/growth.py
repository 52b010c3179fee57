"""How history grows with the steps of a turn, when each says 4 KB."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from temporalio.client import Client, WorkflowFailureError, WorkflowHandle

from bench.measures import Measure, at_most
from bench.stage import Handle, Stage
from turngate.contracts import json_size

STEPS = (50, 100, 200, 400)
LINEAR = 1.15
"""So much more per step than at the fewest steps still counts as linear."""


@dataclass(frozen=True)
class Size:
    """Bytes of history of a turn, over all of its runs; 0 where the server ended it."""

    steps: int
    history: int
    said: int = 0
    runs: int = 1


async def measure(stage: Stage, most: int) -> list[Measure]:
    """Run long turns both ways. The inline way is hand-written and stops where the server ends it."""
    counts = [steps for steps in STEPS if steps <= most]
    by_reference = [await ours(stage.client, steps) for steps in counts]
    inline = [await _inline(stage.client, steps) for steps in counts]
    found = list(_compared(by_reference, inline))
    first, last = by_reference[0], by_reference[-1]
    growth = (last.history / last.steps) / (first.history / first.steps)
    name = f"history bytes per step, {last.steps} steps beside {first.steps}"
    return [*found, Measure(name, "x", ratio=growth, goal=at_most(LINEAR), note="1 is linear")]


def _compared(by_reference: list[Size], inline: list[Size]) -> Iterator[Measure]:
    for here, there in zip(by_reference, inline, strict=True):
        other = f"{there.history / 1e6:.2f} MB" if there.history else "the server ended it"
        note = f"{here.history / 1e6:.2f} MB of history; inline, by hand: {other}"
        name = f"history bytes at {here.steps} steps of 4 KB"
        yield Measure(name, "x bytes said", ratio=here.history / here.said, goal=at_most(3), note=note)


async def ours(client: Client, steps: int) -> Size:
    """Run a long turn, and measure its histories."""
    request = {"agent": "reader", "input": str(steps)}
    handle = await client.start_workflow("AgentTurn", request, id=f"read-{steps}", task_queue="ours")
    await handle.result()
    history, runs = await _history(client, handle)
    return Size(steps, history, await _said(client, handle), runs)


async def _said(client: Client, handle: Handle) -> int:
    """Add up what model and tools said, as JSON: the conversation, with no copy of anything."""
    found, last = 0, client.get_workflow_handle(handle.id)
    position: int | None = 0
    while position is not None:
        page = await last.query("messages", {"start": position})
        found += sum(json_size(message) for message in page["messages"])
        position = page["next"]
    return found


async def _inline(client: Client, steps: int) -> Size:
    asked = {"steps": steps, "by_value": True}
    handle = await client.start_workflow("RawLongTurn", asked, id=f"inline-{steps}", task_queue="raw")
    try:
        await handle.result()
    except WorkflowFailureError:
        return Size(steps, 0)
    return Size(steps, (await _history(client, handle))[0])


async def _history(client: Client, handle: Handle) -> tuple[int, int]:
    """Add up the histories of a turn's runs, and count them."""
    found, runs, run_id = 0, 0, handle.first_execution_run_id
    while run_id:
        run: WorkflowHandle[object, object] = client.get_workflow_handle(handle.id, run_id=run_id)
        found += (await run.describe()).raw_description.workflow_execution_info.history_size_bytes
        runs, run_id = runs + 1, await _next_run(run)
    return found, runs


async def _next_run(run: WorkflowHandle[object, object]) -> str | None:
    last = None
    async for event in run.fetch_history_events():
        last = event
    assert last is not None, "a history is never empty"
    return last.workflow_execution_continued_as_new_event_attributes.new_execution_run_id or None
