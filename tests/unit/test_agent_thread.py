"""What a thread takes and tells, without a server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from turngate.contracts import PAGE_LIMIT, QUEUE_BYTES, QUEUE_LIMIT, TURNS_LISTED, Json, json_size
from turngate.errors import BusyError
from turngate.workflows.agent_thread import REQUESTS_KEPT, AgentThread, ThreadTurn


def thread(statuses: list[str], asked: Json | None = None) -> AgentThread:
    """A thread with these turns."""
    made = AgentThread()
    made.state.turns = [
        ThreadTurn(n=n, turn_id=f"{'t' * 500}/turn-{n}", status=status, asked=asked or {"message": "hi"})
        for n, status in enumerate(statuses, 1)
    ]
    return made


def ask(asked: AgentThread, **message: Any) -> None:
    """Ask whether it takes this message."""
    asked._may_send(_raw({"message": "hi", **message}))


class _Run:
    """A turn that has started and has just ended: it takes no signal."""

    def __init__(self) -> None:
        self.signals: list[tuple[str, Json]] = []

    async def signal(self, name: str, data: Json) -> None:
        self.signals.append((name, data))
        raise ApplicationError("there is no such run")


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0)


def _raw(data: Json) -> RawValue:
    return RawValue(Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(data).encode()))


@pytest.mark.parametrize("on_busy", ["queue", "stop"])
def test_queue_has_an_end(on_busy: str) -> None:
    """The message that is one too many is refused; those before it are not, whatever has ended."""
    ended = ["completed"] * 500
    ask(thread([*ended, "running", *["queued"] * (QUEUE_LIMIT - 1)]), on_busy=on_busy)
    with pytest.raises(BusyError, match=f"{QUEUE_LIMIT} messages wait already"):
        ask(thread([*ended, "running", *["queued"] * QUEUE_LIMIT]), on_busy=on_busy)


def test_long_messages_fill_it_sooner() -> None:
    """All that waits has to fit into what one run hands to the next. A single message always has room."""
    long = {"message": "x" * 200_000}
    ask(thread(["running"], long), **long)
    ask(thread(["running", "queued"], long), **long)
    with pytest.raises(BusyError, match=str(QUEUE_BYTES)):
        ask(thread(["running", "queued", "queued"], long), **long)


def test_messages_that_arrive_together_are_counted_together() -> None:
    """All of them are asked about before the first is taken."""
    nearly = thread(["running", *["queued"] * (QUEUE_LIMIT - 2)])
    ask(nearly)
    ask(nearly)
    with pytest.raises(BusyError):
        ask(nearly)
    idle = thread(["completed"])
    ask(idle, on_busy="refuse")
    with pytest.raises(BusyError, match="open turn"):
        ask(idle, on_busy="refuse")


async def test_a_turn_that_is_about_to_start_is_stopped_when_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop right behind its message comes before the turn has a run. The turns after that one go on."""
    monkeypatch.setattr(workflow, "wait_condition", _until)
    told = thread(["completed", "queued", "queued"])
    first, second = told.state.turns[1:]
    stopping = [asyncio.create_task(told.stop(_raw({"reason": "no"}))) for _ in range(2)]
    told._may_stop(_raw({}))
    first.status = "running"
    await asyncio.sleep(0)
    assert not any(task.done() for task in stopping)
    told._open = run = _Run()
    await stopping[0]
    assert run.signals == [("stop", {"reason": "no"})] * 2
    first.status, second.status, told._open = "completed", "running", None
    assert await stopping[1] == {"status": "stopping"}


async def test_a_message_sent_again_after_the_thread_went_over_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server forgets the ids of updates with each run; the thread remembers the last ones."""
    monkeypatch.setattr(workflow, "wait_condition", _until)
    monkeypatch.setattr(workflow, "info", lambda: SimpleNamespace(workflow_id="th"))
    monkeypatch.setattr(workflow, "current_update_info", lambda: SimpleNamespace(id=f"send-{number}"))
    taken = thread([])
    taken.begun = True
    for number in range(REQUESTS_KEPT + 1):
        assert (await taken.send(_raw({"message": "hi"})))["turn"] == number + 1
    ask(taken, on_busy="refuse")
    again = await taken.send(_raw({"message": "hi", "on_busy": "stop"}))
    assert again == {"turn": REQUESTS_KEPT + 1, "turn_id": f"th/turn-{REQUESTS_KEPT + 1}", "queued": True}
    assert len(taken.state.turns) == REQUESTS_KEPT + 1
    assert [turn.request for turn in taken.state.turns[:2]] == ["", "send-1"]


def test_status_of_a_long_thread_stays_short() -> None:
    """It has the last turns and how many there are; pages have all, each within the limit."""
    long = thread(["completed"] * 5000 + ["running"] + ["queued"] * 100)
    status = long.status()
    assert json_size(status) < PAGE_LIMIT
    assert (len(status["turns"]), status["turns_total"], status["queued"]) == (TURNS_LISTED, 5101, 100)
    assert (status["turns"][-1]["n"], status["open_turn"]) == (5101, f"{'t' * 500}/turn-5001")
    found: list[Json] = []
    start: int | None = 0
    while start is not None:
        page = long.turns({"start": start})
        assert json_size(page) < PAGE_LIMIT
        found += page["turns"]
        start = page["next"]
    assert [turn["n"] for turn in found] == list(range(1, 5102))


def test_what_comes_before_the_state_is_read_waits_for_it() -> None:
    """A `close` in the first task of a next run would be lost: the guard looks at this."""
    assert AgentThread().begun is False
