"""Parts of the client that need no server."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from turngate import sending
from turngate.contracts import RESULT_LIMIT, Approval, ApprovalContext
from turngate.errors import MalformedError, TooLargeError
from turngate.inbox import Filter, in_order
from turngate.message_json import to_json, to_langchain
from turngate.starting import checked_id, turn_request
from turngate.waiting import Progress


def test_the_client_brings_no_langchain() -> None:
    """A web service that only decides should not have to load it."""
    code = "import turngate.client, sys; sys.exit('langchain_core' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_messages_travel_as_json_and_come_back_whole() -> None:
    """Class and all fields."""
    messages = [
        HumanMessage("hi", id="m1"),
        AIMessage("", tool_calls=[{"id": "c1", "name": "pay", "args": {"amount": 5}}]),
        ToolMessage("paid", tool_call_id="c1", status="success"),
    ]
    assert to_langchain(to_json(messages)) == messages


@pytest.mark.parametrize("message", ["hi", {"role": "user", "content": "hi"}, None])
def test_what_is_no_message_is_refused_with_its_place(message: object) -> None:
    """Before anything is sent."""
    with pytest.raises(MalformedError, match="message 1 is no message") as refused:
        to_json([HumanMessage("hi"), message])  # type: ignore[list-item]
    assert refused.value.refusals[0].path == ("messages", 1)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"agent": "a"}, "exactly one of"),
        ({"agent": "a", "input": "x", "messages": [{"type": "human", "content": "x"}]}, "exactly one of"),
        ({"agent": "", "input": "x"}, "agent"),
        ({"agent": "a", "input": 7}, "input"),
        ({"agent": "a", "input": "x", "context": []}, "context"),
        ({"agent": "a", "input": "half \ud83d"}, "Unicode"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_here(fields: dict[str, object], says: str) -> None:
    """Not by a run that fails."""
    with pytest.raises(MalformedError, match=says):
        turn_request(fields)


def test_a_request_of_more_than_a_mebibyte_is_refused_here() -> None:
    """The server would take it, and the run would have no room left."""
    with pytest.raises(TooLargeError, match="the request is too large"):
        turn_request({"agent": "a", "input": "x" * RESULT_LIMIT})


def test_a_request_holds_only_what_was_said() -> None:
    """Defaults stay out of history."""
    assert turn_request({"agent": "a", "input": "x", "context": None, "review_also": []}) == {
        "agent": "a",
        "input": "x",
    }


@pytest.mark.parametrize("turn_id", ["", "x" * 901])
def test_a_turn_id_that_temporal_would_refuse_is_refused_here(turn_id: str) -> None:
    """With its limit."""
    with pytest.raises(MalformedError, match="1 to 800 bytes"):
        checked_id(turn_id)


def test_a_filter_becomes_a_visibility_query_that_nobody_can_break_out_of() -> None:
    """Names come from people."""
    query = Filter(agent="it's", tool="pay").query()
    assert "TurngateAgent = 'it\\'s'" in query
    assert "(TurngateWaiting = 'tool:pay' OR TurngateWaiting = 'more')" in query
    assert "ExecutionStatus = 'Running'" in query


def test_a_filter_is_exact() -> None:
    """Visibility finds runs; a run that waits for two things has them both."""
    context = ApprovalContext(agent="shop", thread_id="th-1")
    approval = Approval(id="t/a-1", name="pay", tags=["money"], reviewers=["rev-1"], context=context)
    for accepted in (Filter(), Filter("shop", "pay", "money", "rev-1", "th-1")):
        assert accepted.accepts(approval)
    for other in (Filter(agent="x"), Filter(tool="x"), Filter(tag="x"), Filter(reviewer="x"), Filter(thread="x")):
        assert not other.accepts(approval)
    assert not Filter(reviewer="rev-1").accepts(Approval(name="pay"))


async def test_work_is_done_side_by_side_and_told_in_order() -> None:
    """At most so many at once."""
    running = most = 0

    async def work(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(10 - number):
            await asyncio.sleep(0)
        running -= 1
        return number

    assert [number async for number in in_order(range(10), work, 3)] == list(range(10))
    assert most == 3


def _event(event_id: int, kind: str, **attributes: object) -> HistoryEvent:
    event = HistoryEvent(event_id=event_id, event_type=EventType.Value(f"EVENT_TYPE_{kind}"))
    for name, value in attributes.items():
        setattr(getattr(event, f"{kind.lower()}_event_attributes"), name, value)
    return event


def _scheduled(event_id: int, activity: str) -> HistoryEvent:
    event = _event(event_id, "ACTIVITY_TASK_SCHEDULED")
    event.activity_task_scheduled_event_attributes.activity_type.name = activity
    return event


def test_a_run_is_quiet_when_no_task_waits_and_nothing_works() -> None:
    """The history alone says so."""
    run = Progress()
    assert not run.quiet
    run.feed([_event(1, "WORKFLOW_TASK_SCHEDULED"), _event(2, "WORKFLOW_TASK_COMPLETED"), _scheduled(3, "call_model")])
    assert not run.quiet
    run.feed([_event(4, "ACTIVITY_TASK_COMPLETED", scheduled_event_id=3), _event(5, "WORKFLOW_TASK_SCHEDULED")])
    assert not run.quiet
    run.feed([_event(6, "WORKFLOW_TASK_COMPLETED"), _scheduled(7, "notify")])
    assert run.quiet, "telling people does not count as work"
    run.feed([_event(8, "WORKFLOW_TASK_SCHEDULED"), _event(9, "WORKFLOW_TASK_TIMED_OUT")])
    assert not run.quiet, "a task that failed is tried again"


def test_a_closed_run_is_not_quiet() -> None:
    """It does not wait for anybody."""
    run = Progress()
    run.feed([_event(1, "WORKFLOW_TASK_COMPLETED"), _event(2, "WORKFLOW_EXECUTION_COMPLETED")])
    assert run.closed
    assert not run.quiet


async def test_an_update_that_no_worker_looked_at_is_sent_again() -> None:
    """The server rejects it so when a worker dies, or gives its task back, before the update had its turn."""
    calls = 0

    async def call() -> str:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise WorkflowUpdateFailedError(ApplicationError("not processed", type="UnprocessedUpdate"))
        return "applied"

    assert await sending.answered(call, "turn-1", 5.0) == "applied"
    assert calls == 2
