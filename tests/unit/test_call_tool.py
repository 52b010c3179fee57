"""One tool call: it runs exactly as decided, and whatever comes of it is something the model can read."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, InjectedToolArg, InjectedToolCallId, StructuredTool, ToolException, tool
from pydantic import BaseModel, field_validator
from temporalio.exceptions import ApplicationError

from tests.unit.fakes import environment, make_agent, pay, read_table
from turngate import activities, texts
from turngate.activities import call_tool as call_tool_module
from turngate.agent import Agent, Registry
from turngate.contracts import ToolOutcome
from turngate.errors import TurngateError
from turngate.interrupts import InterruptOnConfig
from turngate.policy import Deny
from turngate.tools import Interrupted, answering, current_call, human_tool, interrupt


def activity_of(agent: Agent) -> Any:
    return activities.build(Registry([agent]))[1]


async def run(agent: Agent, name: str, args: dict[str, Any], /, *, attempt: int = 1, **fields: Any) -> ToolOutcome:
    data = {"agent": "main", "name": name, "args": args, "tool_call_id": "c1", "original_name": name, **fields}
    result = await environment(attempt=attempt).run(activity_of(agent), data)
    return ToolOutcome.model_validate(json.loads(json.dumps(result, allow_nan=False)))


async def test_runs_the_tool_and_returns_its_message() -> None:
    found = await run(make_agent(), "pay", {"to": "acme", "amount": 5})
    assert found.succeeded
    assert found.message is not None
    assert {key: found.message[key] for key in ("type", "content", "tool_call_id", "name", "status")} == {
        "type": "tool", "content": "paid 5 to acme", "tool_call_id": "c1", "name": "pay", "status": "success",
    }  # fmt: skip


async def content(result: Any, **fields: Any) -> Any:
    def give() -> Any:
        """Give something."""
        return result() if callable(result) else result

    found = await run(make_agent(tool(give)), "give", {}, **fields)
    assert found.succeeded
    return (found.message or {})["content"]


def counting() -> Iterator[int]:
    yield from (1, 2)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({"rows": [1, 2]}, '{"rows": [1, 2]}'),
        (None, "null"),
        ("", ""),
        ([], "[]"),
        ({1}, "[1]"),
        (b"\xff\xfe\x00", "//4A"),
        (b"text", "text"),
        (counting, "[1, 2]"),
        (lambda: map(int, "12"), "[1, 2]"),
        ({"a": 1}.items(), '[["a", 1]]'),
        (range(2), "[0, 1]"),
        ([{"type": "text", "text": "hi"}], [{"type": "text", "text": "hi"}]),
        ("half \ud800", "half �"),
    ],
)
async def test_results_of_every_kind_become_readable(result: Any, expected: Any) -> None:
    assert await content(result) == expected


async def test_a_coroutine_in_place_of_a_result_is_no_success() -> None:
    """Nothing of it has run, and the model must not take it for done."""

    async def pay_async() -> str:
        return "paid"

    def pay_() -> Any:
        """Pay."""
        return pay_async()

    found = await run(make_agent(tool(pay_)), "pay_", {})
    assert not found.succeeded
    assert "coroutine" in (found.error or "")


async def test_an_object_becomes_some_text() -> None:
    assert isinstance(await content(object()), str)


async def test_a_long_result_is_cut_with_a_mark() -> None:
    cut = await content("0123456789" * 300_000)
    assert len(cut.encode()) <= 262_144
    assert "of 3000000 bytes are missing" in cut
    assert await content("x" * 200_000) == "x" * 200_000
    blocks = [{"type": "text", "text": "y" * 300_000}, {"type": "image", "base64": "A" * 300_000}]
    assert len((await content(blocks)).encode()) <= 262_144


def test_the_mark_counts_what_is_missing_to_the_byte() -> None:
    """Also where the cut falls into the middle of a character."""
    for limit in range(100, 104):
        kept, mark = texts.cut("\N{EURO SIGN}" * 100, limit).split("\n")
        assert mark == f"[cut: {300 - len(kept.encode())} of 300 bytes are missing]"


async def test_a_long_result_is_cut_further_where_escaping_triples_it() -> None:
    cut = await content("🙂" * 500_000, options={"max_result_bytes": 2_000_000})
    assert len(json.dumps(cut)) < 2_000_000


async def test_artifacts_are_kept_if_they_are_json() -> None:
    def with_artifact(artifact: Any) -> BaseTool:
        return StructuredTool.from_function(
            lambda: ("text", artifact), name="give", description="d", response_format="content_and_artifact"
        )

    for artifact, kept in (({"rows": [1]}, True), (object(), False), ("x" * 300_000, False)):
        found = await run(make_agent(with_artifact(artifact)), "give", {})
        assert found.message is not None
        assert found.message["content"] == "text"
        assert (found.message["artifact"] == artifact) is kept
        assert kept or "left_out" in found.message["artifact"]


@tool
def failing(x: int) -> str:
    """Fail."""
    raise RuntimeError("boom")


async def test_a_tool_that_raises_gives_an_error_with_its_words() -> None:
    found = await run(make_agent(failing), "failing", {"x": 1})
    assert not found.succeeded
    assert "boom" in (found.error or "")
    assert (found.message or {})["status"] == "error"
    assert "boom" in (found.message or {})["content"]


async def test_only_a_retry_safe_tool_is_retried_and_not_beyond_its_attempts() -> None:
    options = {"retry_safe": True, "max_attempts": 3}
    with pytest.raises(ApplicationError, match="boom") as failed:
        await run(make_agent(failing), "failing", {"x": 1}, options=options)
    assert not failed.value.non_retryable
    last = await run(make_agent(failing), "failing", {"x": 1}, options=options, attempt=3)
    assert "boom" in (last.error or "")


async def test_leaving_the_program_is_an_error_of_the_tool() -> None:
    @tool
    def leave() -> str:
        """Leave."""
        raise SystemExit(3)

    @tool
    async def leave_async() -> str:
        """Leave."""
        raise SystemExit(3)

    @tool
    async def give_up() -> str:
        """Look like a cancelled activity."""
        raise asyncio.CancelledError

    for one in (leave, leave_async, give_up):
        found = await run(make_agent(one), one.name, {})
        assert not found.succeeded
        assert found.error


async def test_tool_exceptions_are_handled_as_in_langchain() -> None:
    def give() -> str:
        raise ToolException("no such row")

    handled = StructuredTool.from_function(give, name="give", description="d", handle_tool_error=True)
    found = await run(make_agent(handled), "give", {})
    assert (found.message or {})["content"] == "no such row"
    assert (found.succeeded, found.error) == (False, None)


class To(BaseModel):
    to: str

    @field_validator("to")
    @classmethod
    def _has_at_sign(cls, value: str) -> str:
        if "@" not in value:
            raise ValueError("no at sign in it")
        return value


async def test_the_tools_own_validator_speaks_when_it_runs() -> None:
    ran: list[str] = []
    send = StructuredTool.from_function(ran.append, name="send", description="d", args_schema=To)
    found = await run(make_agent(send), "send", {"to": "nowhere"}, edited=True)
    text = (found.message or {})["content"]
    assert "no at sign in it" in text
    assert "nowhere" in text
    assert (ran, found.ran, found.error) == ([], False, None)


async def test_an_edited_call_says_so_in_front_of_its_result() -> None:
    args = {"to": "b", "amount": 3}
    found = await run(make_agent(), "pay", args, edited=True, edit_notice="Changed.")
    text = (found.message or {})["content"]
    assert text.startswith("Changed.")
    assert '{"to": "b", "amount": 3}' in text
    assert text.endswith("paid 3 to b")
    plain = await run(make_agent(), "pay", args, edited=True, edit_notice=None)
    assert (plain.message or {})["content"] == "paid 3 to b"
    blocks = await content([{"type": "text", "text": "page"}], edited=True)
    assert [block["type"] for block in blocks] == ["text", "text"]
    error = await run(make_agent(failing), "failing", {"x": 1}, edited=True)
    assert "boom" in (error.message or {})["content"]
    assert "'failing' was called with" in (error.message or {})["content"]


async def test_an_edited_call_is_judged_before_it_runs() -> None:
    def policy(context: Any) -> Any:
        return Deny("too much") if context.args.get("amount", 0) > 100 else None

    agent = make_agent(policy=policy, interrupt_on={"read_table": InterruptOnConfig()})
    denied = await run(agent, "pay", {"to": "a", "amount": 500}, edited=True)
    assert (denied.ran, denied.succeeded) == (False, False)
    assert "too much" in (denied.message or {})["content"]

    other: dict[str, Any] = {"edited": True, "original_name": "pay"}
    review = await run(agent, "read_table", {"table": "t"}, **other)
    assert review.kind == "review"
    assert review.plan is not None
    assert list(review.schemas) == ["read_table"]
    assert (await run(agent, "read_table", {"table": "t"}, **other, reviewed=True)).succeeded
    assert (await run(agent, "read_table", {"table": "t"}, edited=True)).succeeded, "an edit of the same tool"
    wished = await run(make_agent(), "read_table", {"table": "t"}, **other, review_also=["read_*"])
    assert wished.kind == "review", "what the caller wants reviewed, too"
    unfit = await run(agent, "pay", {"to": "a"}, edited=True)
    assert "amount" in (unfit.message or {})["content"]


async def test_unknown_tools_agents_and_people_do_not_run() -> None:
    gone = await run(make_agent(), "send_mail", {})
    assert "'pay', 'read_table'" in (gone.message or {})["content"]
    assert not gone.ran
    assert not (await run(make_agent(), "pay", {}, agent="nobody")).ran
    assert not (await run(make_agent(human_tool("ask")), "ask", {"question": "x"})).ran


async def test_what_only_the_runtime_may_supply_is_not_taken_from_the_model() -> None:
    @tool
    def refund(amount: int, user: Annotated[str, InjectedToolArg] = "nobody") -> str:
        """Give money back."""
        return f"{amount} to {user}"

    found = await run(make_agent(refund), "refund", {"amount": 5, "user": "whoever I say"})
    assert (found.message or {})["content"] == "5 to nobody"


async def test_sync_and_async_tools_know_the_call_they_serve() -> None:
    seen: list[dict[str, Any]] = []

    @tool
    def sync_tool(config: RunnableConfig) -> str:
        """Look."""
        seen.append(current_call().as_dict())
        seen.append(config["configurable"]["turngate"])
        return str(config["configurable"]["thread_id"])

    @tool
    async def async_tool() -> str:
        """Look."""
        seen.append(current_call().as_dict())
        return "ok"

    agent = make_agent(sync_tool, async_tool)
    fields = {"key": "k", "decision": "edit", "reviewer": "ann", "thread_id": "th", "context": {"tenant": "t9"}}
    found = await run(agent, "sync_tool", {}, attempt=2, **fields)
    await run(agent, "async_tool", {}, attempt=2, **fields)
    assert (found.message or {})["content"] == "th"
    assert len(seen) == 3
    for one in seen:
        assert {**one, **fields, "attempt": 2} == one
    with pytest.raises(TurngateError):
        current_call()


async def test_a_question_pauses_the_call_and_its_answer_comes_back_to_it() -> None:
    @tool
    def wizard() -> str:
        """Ask twice."""
        try:
            return f"{interrupt({'q': 'name?'})}/{interrupt({'q': 'size?'})}"
        except Exception:
            return "swallowed"

    agent = make_agent(wizard)
    first = await run(agent, "wizard", {})
    assert (first.kind, first.question) == ("question", {"q": "name?"})
    second = await run(agent, "wizard", {}, answers=["north"])
    assert (second.kind, second.question) == ("question", {"q": "size?"})
    third = await run(agent, "wizard", {}, answers=["north", None])
    assert (third.message or {})["content"] == "north/None"

    with answering(["a", "b"]):
        assert wizard.invoke({}) == "a/b"
    with answering(["a"]), pytest.raises(Interrupted):
        wizard.invoke({})


async def test_a_question_may_be_asked_in_a_task_group() -> None:
    """The group hands it on in a group of errors; left to the SDK it would look like a lost call."""

    @tool
    async def wizard() -> str:
        """Ask beside other work."""

        async def ask() -> Any:
            return interrupt("name?")

        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0))
            asked = group.create_task(ask())
        return str(asked.result())

    agent = make_agent(wizard)
    first = await run(agent, "wizard", {})
    assert (first.kind, first.question) == ("question", "name?")
    assert ((await run(agent, "wizard", {}, answers=["north"])).message or {})["content"] == "north"


@pytest.mark.parametrize("error", [GeneratorExit, asyncio.CancelledError, type("Ended", (BaseException,), {})])
async def test_whatever_a_tool_raises_is_an_error_of_the_tool(error: type[BaseException]) -> None:
    """Also what is no Exception."""

    @tool
    def failing() -> str:
        """Fail."""
        raise error

    found = await run(make_agent(failing), "failing", {})
    assert not found.succeeded
    assert error.__name__ in (found.message or {})["content"]


async def test_calls_without_an_id_run_as_well() -> None:
    @tool
    def which(own_id: Annotated[str, InjectedToolCallId]) -> str:
        """Look."""
        return f"[{own_id}]"

    for given in ("", "c9"):
        found = await run(make_agent(which), "which", {}, tool_call_id=given)
        assert (found.message or {})["tool_call_id"] == given
        assert (found.message or {})["content"] == f"[{given}]"


async def cancelled(agent: Agent, name: str, started: asyncio.Event) -> Any:
    env = environment()
    data = {"agent": "main", "name": name, "args": {}, "tool_call_id": "c1"}
    task = asyncio.ensure_future(env.run(activity_of(agent), data))
    await asyncio.wait_for(started.wait(), 5)
    env.cancel()
    return await asyncio.wait_for(task, 5)


async def test_a_cancelled_call_is_told_and_may_end_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, started = asyncio.get_running_loop(), asyncio.Event()

    @tool
    def orderly() -> str:
        """Stop when told."""
        loop.call_soon_threadsafe(started.set)
        return f"stopped: {current_call().wait_cancelled(5)}"

    @tool
    async def tidy() -> str:
        """Clean up when cancelled."""
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return f"tidied: {current_call().cancelled}"
        return "never"

    found = await cancelled(make_agent(orderly), "orderly", started)
    assert found["message"]["content"] == "stopped: True"
    started.clear()
    found = await cancelled(make_agent(tidy), "tidy", started)
    assert found["message"]["content"] == "tidied: True"


async def test_a_call_that_does_not_end_when_told_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_tool_module, "CANCEL_GRACE", 0.05)
    loop, started, never = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    @tool
    def stubborn() -> str:
        """Hang."""
        loop.call_soon_threadsafe(started.set)
        never.wait(10)
        return "late"

    @tool
    async def plain() -> str:
        """Hang."""
        started.set()
        await asyncio.Event().wait()
        return "never"

    for one in (stubborn, plain):
        started.clear()
        with pytest.raises(asyncio.CancelledError):
            await cancelled(make_agent(one), one.name, started)
    never.set()


async def test_signs_of_life_are_sent_while_a_tool_runs() -> None:
    beats: list[Any] = []
    release = threading.Event()
    enough = asyncio.Event()

    @tool
    def slow() -> str:
        """Take time."""
        return str(release.wait(5))

    env = environment()

    def beat(*details: Any) -> None:
        beats.append(details)
        if len(beats) > 2:
            enough.set()

    env.on_heartbeat = beat
    data = {"agent": "main", "name": "slow", "args": {}, "options": {"heartbeat_s": 0.03}}
    task = asyncio.ensure_future(env.run(activity_of(make_agent(slow)), data))
    await asyncio.wait_for(enough.wait(), 5)
    release.set()
    assert ToolOutcome.model_validate(await task).succeeded


async def test_arguments_by_reference_come_from_the_own_run(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(query: str, argument: dict[str, Any]) -> dict[str, Any]:
        assert (query, argument) == ("call_args", {"number": 7})
        return {"name": "pay", "args": {"to": "acme", "amount": 9}}

    monkeypatch.setattr("turngate.activities.conversation.ask_own_run", ask)
    data = {"agent": "main", "name": "pay", "number": 7, "tool_call_id": "c1"}
    found = await environment().run(activity_of(make_agent()), data)
    assert found["message"]["content"] == "paid 9 to acme"


async def test_a_late_tool_that_can_not_be_loaded_did_not_run() -> None:
    async def broken() -> Any:
        raise ConnectionError("no server")

    found = await run(make_agent(read_table, broken), "pay", {})
    assert (found.ran, found.succeeded) == (False, False)
    assert "no server" in (found.message or {})["content"]
    assert (await run(make_agent(pay, broken), "pay", {"to": "a", "amount": 1})).succeeded
