"""Nothing that a client sends can hurt a paused run: a short look at each kind; `make fuzz` looks for longer."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.fuzz.campaign import attack_paused, attack_starts
from tests.fuzz.stage import Stage, own_stage
from tests.sizes import size

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
async def running() -> AsyncIterator[Stage]:
    """Run one server and worker for the module."""
    async with own_stage() as stage:
        yield stage


@pytest.mark.parametrize(("agent", "seed"), [("main", 1), ("main", 2), ("pair", 3), ("asker", 4)])
async def test_a_paused_run_takes_anything(running: Stage, agent: str, seed: int) -> None:
    """After each batch it answers at once and nothing has changed; then the good decision is applied."""
    result = await attack_paused(running, agent, seed, batches=4, size=20)
    assert result["status"] == "completed"


async def test_a_wrong_start_fails_with_a_reason(running: Stage) -> None:
    """No run that can't begin stays around and is tried again and again."""
    outcomes = await attack_starts(running, seed=5, count=size(12, 60))
    assert outcomes["failed"] > 2
    assert outcomes["waiting"] > 0
