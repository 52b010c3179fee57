"""What a gated turn costs: history events, bytes of history, billable actions."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from bench.measures import Measure, at_most
from bench.stage import BARE, GATED, RAW, Handle, Side, Stage, one_turn, stage


@dataclass(frozen=True)
class Cost:
    """What one turn costs."""

    events: int
    size: int
    actions: int


async def measure(turns: int) -> list[Measure]:
    """Run a few turns of each side, alone on a server; once more where both extras are off."""
    async with stage(RAW, GATED) as place:
        raw, full = [await _cost(place, side, turns) for side in (RAW, GATED)]
    async with stage(RAW, BARE, search_attributes=False) as place:
        raw_too, bare = [await _cost(place, side, turns) for side in (RAW, BARE)]
    by_hand = f"by hand: {raw.events} events, {raw.size} bytes, {raw.actions} actions"
    off = "timeline_timer=False, in a namespace without the search attributes"
    return [
        Measure("history events per gated turn", "more than by hand", value=full.events - raw.events, goal=at_most(4),
                note=by_hand),
        Measure("history events per gated turn, extras off", "more than by hand", value=bare.events - raw_too.events,
                goal=at_most(0), note=off),
        Measure("billable actions per gated turn", "more than by hand", value=full.actions - raw.actions,
                goal=at_most(3), note="as the server itself counts them"),
        Measure("billable actions per gated turn, extras off", "more than by hand",
                value=bare.actions - raw_too.actions, goal=at_most(0), note=off),
        Measure("bytes of history per gated turn", "x by hand", ratio=full.size / raw.size, note=f"{full.size} bytes"),
        Measure("bytes of history per gated turn, extras off", "x by hand", ratio=bare.size / raw_too.size,
                note=f"{bare.size} bytes"),
    ]  # fmt: skip


async def _cost(stage: Stage, side: Side, turns: int) -> Cost:
    before = await stage.actions()
    handles = [await one_turn(stage.client, side) for _ in range(turns)]
    actions = (await stage.actions() - before) / turns
    if actions != round(actions):
        raise RuntimeError(f"the turns of {side.name!r} did not all cost the same: {actions} actions on the average")
    # A worker that is slow makes a task more than needed, now and then: the least is what a turn costs.
    counted = [await _events(handle) for handle in handles]
    sizes = [(await one.describe()).raw_description.workflow_execution_info.history_size_bytes for one in handles]
    return Cost(events=min(counted), size=round(statistics.median(sizes)), actions=round(actions))


async def _events(handle: Handle) -> int:
    return len([event async for event in handle.fetch_history_events()])
