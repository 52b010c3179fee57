"""How the calls of a step are driven, without a server."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from turngate.workflows import calls
from turngate.workflows.state import Call


async def test_no_more_calls_at_once_than_the_server_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model may ask for thousands in one step; with 2,000 activities open the server fails the task for ever."""
    monkeypatch.setattr(calls, "AT_ONCE", 2)
    driven = calls.Calls(cast(Any, None))
    under_way: set[int] = set()
    order: list[int] = []

    async def run(call: Call) -> None:
        under_way.add(call.number)
        order.append(call.number)
        assert len(under_way) <= 2
        await asyncio.sleep(0)
        under_way.remove(call.number)

    monkeypatch.setattr(driven, "_run_now", run)
    await asyncio.gather(*(driven._run(Call(number=number)) for number in range(5)))
    assert order == [0, 1, 2, 3, 4]
    assert driven.quiet
