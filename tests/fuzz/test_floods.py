"""Floods of junk during a pause: the run goes over into new ones, stays answerable, and keeps all that waits."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType

from tests.fuzz.arsenal import plain
from tests.fuzz.sending import Shot
from tests.fuzz.stage import Stage, Target, own_stage, stage
from tests.sizes import size
from turngate.testing import dev_server

pytestmark = [pytest.mark.server, pytest.mark.slow]

JUNK = Shot("junk", "signal", "decide", [plain({"nothing": 1})])
LARGE = Shot("1.9 MB", "signal", "decide", [Payload(metadata={"encoding": b"json/plain"}, data=b"x" * 1_900_000)])


async def refused(target: Target) -> int:
    """Ask how many signals the run has refused so far."""
    answer: dict[str, Any] = await target.handle.query("refused")
    return int(answer["count"])


async def until_refused(target: Target, count: int, seconds: float) -> None:
    """Wait until the run has seen so many."""
    async with asyncio.timeout(seconds):
        while await refused(target) < count:
            await asyncio.sleep(0.1)


async def chain_of(target: Target) -> int:
    """Count the runs that the turn has gone over into."""
    runs, run_id = 0, target.run_id
    while run_id:
        runs += 1
        handle = target.stage.client.get_workflow_handle(target.id, run_id=run_id)
        history = await handle.fetch_history()
        last = history.events[-1]
        moved = last.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW
        run_id = last.workflow_execution_continued_as_new_event_attributes.new_execution_run_id if moved else ""
    return runs


async def fire_all(flooded: Stage, workflow_id: str, number: int) -> None:
    """Send so many; what a busy server, or a run that goes over into the next, did not take is sent again."""
    async with asyncio.timeout(60):
        while number:
            answers = await flooded.fire(workflow_id, [JUNK] * number)
            number = sum(answer != "ok" for answer in answers)
            await asyncio.sleep(0.1 if number else 0)


async def test_thousands_of_junk_signals_during_a_pause() -> None:
    """In full as many as one run may get at all. They come at the worker's pace: a hundred, then it is waited for."""
    number = size(900, 10_000)
    suggest = size(400, 4096)
    async with own_stage(f"limit.historyCount.suggestContinueAsNew={suggest}") as flooded:
        target = await flooded.pause("pair")
        began = time.monotonic()
        for sent in range(100, number + 1, 100):
            await fire_all(flooded, target.id, 100)
            await until_refused(target, sent, 30)
            if sent % 1000 == 0:
                await target.check()
        print(f"{number} junk signals in {time.monotonic() - began:.0f} s, {await chain_of(target)} runs")
        assert await chain_of(target) > 1
        assert (await target.decide())["status"] == "completed"
        assert flooded.journal.count("paid") == 2


async def test_many_while_no_worker_runs() -> None:
    """A worker that comes back takes some hundreds a task: all in one might never fit into its time."""
    number = size(1000, 2000)
    async with dev_server() as server:
        async with stage(server) as gone:
            target = await gone.pause()
        await gone.fire(target.id, [JUNK] * number)
        async with gone.worker():
            await until_refused(target, number, 60)
            await target.check()
            assert (await target.decide())["status"] == "completed"


async def test_signals_of_two_megabytes_during_a_pause() -> None:
    """In full 75 MB, and a run may have 50: it has to go over into new ones in time."""
    number = size(12, 40)
    async with own_stage() as flooded:
        target = await flooded.pause()
        began = time.monotonic()
        for sent in range(1, number + 1):
            assert await flooded.fire(target.id, [LARGE]) == ["ok"]
            await until_refused(target, sent, 30)
        print(f"{number} signals of 1.9 MB in {time.monotonic() - began:.0f} s, {await chain_of(target)} runs")
        await target.check()
        assert await chain_of(target) > number // 8
        assert (await target.decide())["status"] == "completed"
        assert flooded.journal.count("paid") == 1


async def test_votes_and_deadlines_go_over() -> None:
    """What was recorded before the flood stands after it, to the second."""
    async with own_stage("limit.historyCount.suggestContinueAsNew=60") as flooded:
        target = await flooded.pause("quorum")
        first = target.approvals[0]
        await target.handle.execute_update(
            "decide", {"approval_id": first["id"], "type": "approve", "reviewer": "alice"}
        )
        target.approvals = (await target.handle.query("pending"))["approvals"]
        assert target.approvals[0]["quorum"] == {"required": 2, "received": 1}
        for sent in range(10, 101, 10):
            await flooded.fire(target.id, [JUNK] * 10)
            await until_refused(target, sent, 20)
            await target.check()
        assert await chain_of(target) > 1
        await target.handle.execute_update("decide", {"approval_id": first["id"], "type": "approve", "reviewer": "bob"})
        result = await target.handle.result()
        assert [vote["reviewer"] for vote in result["approvals"][0]["votes"]] == ["alice", "bob"]
        assert result["approvals"][0]["expires_at"] == first["expires_at"]
