"""Attacks on a stage: batch after batch against a paused run, and starts that should never have been sent."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from typing import Any

from tests.fuzz.arsenal import Arsenal
from tests.fuzz.sending import Shot, send
from tests.fuzz.stage import Hurt, Stage, outcome_of_start


async def attack_paused(stage: Stage, agent: str, seed: int, *, batches: int, size: int) -> dict[str, Any]:
    """Attack one paused run, then decide. Returns its result; raises Hurt, with the culprit where it can be found."""
    target = await stage.pause(agent)
    arsenal = Arsenal(seed, target.approvals[0])
    for _ in range(batches):
        shots = arsenal.shots(size)
        try:
            await target.attack(shots)
        except Hurt as hurt:
            raise Hurt(f"{hurt}; alone it was {await _culprit(stage, agent, shots)}") from None
    return await target.decide()


async def attack_starts(stage: Stage, *, seed: int, count: int) -> Counter[str]:
    """Start runs that can't be turns; returns how many failed, wait, or were refused by the server."""
    arsenal = Arsenal(seed, {"id": "nobody/000000-1", "digest": "0" * 16})
    return Counter(await asyncio.gather(*(_start(stage, arsenal.start()) for _ in range(count))))


async def _start(stage: Stage, shot: Shot) -> str:
    workflow_id = f"start-{uuid.uuid4().hex[:8]}"
    if await send(stage.client, workflow_id, stage.queue, shot) != "ok":
        return "refused"
    try:
        return await outcome_of_start(stage, workflow_id)
    except Hurt as hurt:
        raise Hurt(f"{hurt}, by {shot}") from None


async def _culprit(stage: Stage, agent: str, shots: list[Shot]) -> str:
    """Find the one shot that does it alone, each on a fresh run."""
    for shot in shots:
        target = await stage.pause(agent)
        try:
            await target.attack([shot])
        except Hurt:
            return str(shot)
        finally:
            await target.handle.terminate()
    return "none of them"
