"""What a gated turn costs: history events, bytes of history, billable actions."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass

from temporalio.api.enums.v1 import EventType

from bench.measures import Measure, at_most
from bench.stage import BARE, GATED, RAW, Handle, Side, Stage, one_turn

UPSERTED = EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES


@dataclass(frozen=True)
class Cost:
    """What one turn costs; `upserts` are the events of the search attributes, each of which is an action too."""

    events: int
    upserts: int
    size: int
    actions: int


async def measure(stage: Stage, turns: int) -> list[Measure]:
    """Run a few turns of each side, alone on the server."""
    raw, full, bare = [await _cost(stage, side, turns) for side in (RAW, GATED, BARE)]
    by_hand = f"by hand: {raw.events} events, {raw.size} bytes, {raw.actions} actions"
    # The other extra is off where the namespace has no search attributes: what `bare` has left is what they cost.
    off = "with timeline_timer=False, and less the upserts, which a namespace without the search attributes has not"
    return [
        Measure("history events per gated turn", "more than by hand", value=full.events - raw.events, goal=at_most(4),
                note=by_hand),
        Measure("history events per gated turn, both extras off", "more than by hand",
                value=bare.events - bare.upserts - raw.events, goal=at_most(0), note=off),
        Measure("billable actions per gated turn", "more than by hand", value=full.actions - raw.actions,
                goal=at_most(3), note="as the server itself counts them"),
        Measure("billable actions per gated turn, both extras off", "more than by hand",
                value=bare.actions - bare.upserts - raw.actions, goal=at_most(0), note=off),
        Measure("bytes of history per gated turn", "x by hand", ratio=full.size / raw.size,
                note=f"{full.size} bytes; {bare.size} with timeline_timer=False"),
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
    least = min(counted, key=lambda found: found.total())
    return Cost(
        events=least.total(), upserts=least[UPSERTED], size=round(statistics.median(sizes)), actions=round(actions)
    )


async def _events(handle: Handle) -> Counter[int]:
    return Counter([event.event_type async for event in handle.fetch_history_events()])
