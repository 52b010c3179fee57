"""How the calls of a step are driven, without a server."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any, cast

import pytest

from turngate.contracts import CallPlan, ToolSettings
from turngate.errors import RefusedError
from turngate.workflows import beginning, calls
from turngate.workflows.state import Call


def test_what_a_subagent_says_is_cut_like_every_result() -> None:
    """Its answer may be as long as a turn's result, four times what any other tool may give."""
    state = SimpleNamespace(settings=SimpleNamespace(edit_notice=None), tool_settings={})
    driven = calls.Calls(cast(Any, SimpleNamespace(state=state, ledger=None)))
    call = Call(plan=CallPlan(options=ToolSettings(max_result_bytes=100)))
    driven._finish_subagent(call, "x" * 1000, ok=True)
    assert call.result is not None
    assert len(call.result["content"]) <= 100
    assert "of 1000 bytes are missing" in call.result["content"]


@pytest.mark.parametrize(("size", "below", "fits"), [(800, False, True), (801, False, False), (960, True, True)])
def test_a_turn_of_a_thread_or_a_subagent_may_have_a_longer_id(size: int, below: bool, fits: bool) -> None:
    """It is that of the run above with something behind it, and that may have 800 bytes."""
    info = SimpleNamespace(cron_schedule=None, workflow_id="x" * size, parent=object() if below else None)
    with contextlib.nullcontext() if fits else pytest.raises(RefusedError, match="more than 800 bytes"):
        beginning._fit_to_start(cast(Any, info))


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
