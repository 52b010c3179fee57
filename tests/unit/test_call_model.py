"""One model step: the answer is recorded as strict JSON, with one plan for each call it proposes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain_core.messages import AIMessage, SystemMessage
from temporalio.exceptions import ApplicationError

from tests.unit.fakes import FakeModel, calls, environment, make_agent, pay
from turngate import activities
from turngate.activities import conversation
from turngate.activities.model_client import without_retries
from turngate.agent import Agent, Registry
from turngate.contracts import MAX_DEPTH, ModelStep, Segment, ToolSettings, Verdict

HUMAN = {"type": "human", "content": "go"}


async def step(agent: Agent, messages: Any = (HUMAN,), /, **fields: Any) -> ModelStep:
    run = activities.build(Registry([agent]), search_attributes=lambda: True)[0]
    data = {"agent": "main", "conversation": [{"messages": list(messages)}], **fields}
    result = await environment().run(run, data)
    text = json.dumps(result, allow_nan=False)
    assert text.encode("utf-8")
    return ModelStep.model_validate(json.loads(text))


async def test_records_the_answer_its_plans_and_the_schemas_for_edits() -> None:
    model = FakeModel(answers=[calls(("pay", {"to": "a", "amount": 1}), ("read_table", {"table": "t"}))])
    found = await step(make_agent(model=model, interrupt_on={"pay": True}, system_prompt="be brief"))
    assert [plan.verdict for plan in found.plans] == [Verdict.REVIEW, Verdict.RUN]
    assert list(found.schemas) == ["pay"]
    assert found.settings.search_attributes is True
    assert found.message["tool_calls"][0]["args"] == {"to": "a", "amount": 1}
    assert model.seen[0][0] == SystemMessage("be brief")
    assert model.bound[0] is pay


async def test_every_class_and_field_reaches_the_model_as_it_was() -> None:
    messages: list[dict[str, Any]] = [
        {"type": "system", "content": "be brief", "id": "s1", "name": "rules"},
        {
            "type": "ai",
            "content": [{"type": "thinking", "thinking": "h", "signature": "s"}],
            "additional_kwargs": {"k": 1},
        },
        {"type": "chat", "content": "from the floor", "role": "moderator"},
        {"type": "tool", "content": [{"type": "text", "text": "r"}], "tool_call_id": "c", "artifact": {"rows": [1]}},
    ]
    model = FakeModel(answers=[AIMessage("done")])
    await step(make_agent(model=model), messages)
    assert [type(message).__name__ for message in model.seen[0]] == [
        "SystemMessage", "AIMessage", "ChatMessage", "ToolMessage",
    ]  # fmt: skip
    assert model.seen[0] == conversation.to_langchain(messages)
    again = [conversation.to_json(message) for message in model.seen[0]]
    assert conversation.to_langchain(again) == model.seen[0]


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else "x"


@pytest.mark.parametrize(
    "args",
    [
        {"amount": float("nan")},
        {"amount": float("inf")},
        {"to": "\ud800"},
        {"\ud800": 1},
        {5: "x"},
        {"to": nested(MAX_DEPTH)},
        {"to": {1, 2}},
        {"to": 1 << 20_000},
    ],
)
async def test_arguments_that_are_no_strict_json_make_the_call_unreadable(args: Any) -> None:
    asked: list[Any] = []
    answer = calls(("pay", {}), ("pay", {"to": "a", "amount": 1}))
    answer.tool_calls[0]["args"] = args
    agent = make_agent(model=FakeModel(answers=[answer]), policy=lambda context: bool(asked.append(context)))
    found = await step(agent)
    assert [call["id"] for call in found.message["tool_calls"]] == ["c2"]
    assert [call["id"] for call in found.message["invalid_tool_calls"]] == ["c1"]
    assert found.message["invalid_tool_calls"][0]["args"].isascii()
    assert [(plan.call, plan.unreadable, plan.verdict) for plan in found.plans] == [
        (0, False, Verdict.RUN),
        (0, True, Verdict.INVALID),
    ]
    assert "could not be read" in (found.plans[1].message or "")
    assert len(asked) == 1


async def test_what_the_provider_could_not_read_keeps_its_place_behind() -> None:
    invalid = {"type": "invalid_tool_call", "id": "c1", "name": "pay", "args": '{"to', "error": "unexpected end"}
    found = await step(make_agent(model=FakeModel(answers=[AIMessage("", invalid_tool_calls=[invalid])])))
    assert found.message["invalid_tool_calls"] == [invalid]
    assert "unexpected end" in (found.plans[0].message or "")


async def test_the_rest_of_the_message_is_made_strict_json_too() -> None:
    answer = AIMessage(
        "half \ud83d",
        response_metadata={"logprob": float("-inf"), "raw": b"\xff", 3: {1}},
        additional_kwargs={"obj": object()},
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
    )
    found = await step(make_agent(model=FakeModel(answers=[answer])))
    assert found.message["content"] == "half �"
    assert found.message["response_metadata"] == {"logprob": None, "raw": "/w==", "3": [1]}
    assert found.message["usage_metadata"]["total_tokens"] == 3


class ProviderError(Exception):
    """An error as the SDKs of providers raise it."""

    def __init__(self, status_code: int, headers: dict[str, str] | None = None) -> None:
        super().__init__(f"status {status_code}")
        self.status_code = status_code
        self.response = type("Response", (), {"headers": headers or {}})()


@pytest.mark.parametrize(
    ("error", "permanent"),
    [
        (ProviderError(429), False),
        (ProviderError(503), False),
        (ProviderError(408), False),
        (ProviderError(400), True),
        (ProviderError(401), True),
        (TimeoutError("slow"), False),
        (ConnectionError("gone"), False),
        (Exception("service unavailable"), False),
        (NotImplementedError("no tools"), True),
    ],
)
async def test_only_failures_that_may_pass_are_worth_a_retry(error: Exception, permanent: bool) -> None:
    with pytest.raises(ApplicationError) as failed:
        await step(make_agent(model=FakeModel(answers=[error])))
    assert failed.value.non_retryable is permanent
    assert failed.value.type == "ModelFailed"
    assert str(error) in failed.value.message


async def test_waits_as_long_as_the_service_asks() -> None:
    with pytest.raises(ApplicationError) as failed:
        await step(make_agent(model=FakeModel(answers=[ProviderError(429, {"retry-after": "7"})])))
    assert failed.value.next_retry_delay is not None
    assert failed.value.next_retry_delay.total_seconds() == 7


async def test_a_model_that_returns_no_ai_message_fails_clearly() -> None:
    class Odd:
        async def ainvoke(self, messages: Any) -> Any:
            return None

    with pytest.raises(ApplicationError, match="NoneType") as failed:
        await step(Agent("main", model=Odd()))
    assert failed.value.non_retryable


async def test_an_unknown_agent_fails_at_once_and_lists_the_known_ones() -> None:
    with pytest.raises(ApplicationError, match=r"'nobody'.*'main'") as failed:
        await step(make_agent(), agent="nobody")
    assert (failed.value.type, failed.value.non_retryable) == ("UnknownAgent", True)


async def test_an_answer_larger_than_the_server_takes_fails_at_once() -> None:
    for text in ("x" * 3_000_000, "🙂" * 200_000):
        with pytest.raises(ApplicationError, match="limit") as failed:
            await step(make_agent(model=FakeModel(answers=[AIMessage(text)])))
        assert (failed.value.type, failed.value.non_retryable) == ("ModelAnswerTooLarge", True)


async def test_schemas_of_all_tools_are_recorded_once_where_the_tool_may_change() -> None:
    def agent() -> Agent:
        return make_agent(model=FakeModel(answers=[calls(("pay", {"to": "a", "amount": 1}))]), allow_tool_change=True)

    assert list((await step(agent())).schemas) == ["pay", "read_table"]
    assert (await step(agent())).tool_settings == {"pay": ToolSettings(), "read_table": ToolSettings()}
    known = await step(agent(), schemas_known=True)
    assert (known.schemas, known.tool_settings) == ({}, {})
    late = make_agent(
        model=FakeModel(answers=[calls(("pay", {"to": "a", "amount": 1}))]), allow_tool_change=True, default="review"
    )
    gated = await step(late, schemas_known=True)
    assert list(gated.schemas) == list(gated.tool_settings) == ["pay"], "it is a target from now on"


async def test_tools_that_can_not_be_loaded_are_worth_a_retry() -> None:
    async def broken() -> Any:
        raise ConnectionError("no server")

    with pytest.raises(ApplicationError, match="no server") as failed:
        await step(Agent("main", model=FakeModel(), tools=broken))
    assert not failed.value.non_retryable


async def test_streaming_gives_the_same_answer_and_shows_the_text_on_the_way() -> None:
    beats: list[Any] = []
    env = environment()
    env.on_heartbeat = lambda *details: beats.append(details)
    agent = make_agent(model=FakeModel(answers=[AIMessage("three rows")]))
    run = activities.build(Registry([agent]))[0]
    data = {"agent": "main", "step": 2, "stream": True, "conversation": [{"messages": [HUMAN]}]}
    found = await env.run(run, data)
    assert (found["message"]["type"], found["message"]["content"]) == ("ai", "three rows")
    assert beats[-1] == () or {"step": 2, "text": "three rows"} in [beat[0] for beat in beats if beat]


def test_the_clients_own_retries_are_off_and_the_users_model_stays_as_it_is() -> None:
    model = FakeModel()
    quiet = without_retries(model)
    assert (quiet.max_retries, model.max_retries) == (0, 2)
    openai = pytest.importorskip("langchain_openai")
    chat = openai.ChatOpenAI(model="gpt-5", api_key="x", max_retries=4)
    quiet = without_retries(chat)
    assert (quiet.root_async_client.max_retries, quiet.async_client._client.max_retries) == (0, 0)
    assert (chat.root_async_client.max_retries, chat.max_retries) == (4, 4)


class FakeHandle:
    """Answers the query `messages` page by page, after some failures."""

    def __init__(self, failures: list[Exception]) -> None:
        self.id = "turn-1"
        self.failures = failures
        self.all = [{"type": "human", "content": str(n)} for n in range(7)]

    async def query(self, name: str, argument: dict[str, Any], **_: Any) -> Any:
        if self.failures:
            raise self.failures.pop(0)
        start = argument["start"]
        return {"messages": self.all[start : start + min(3, argument["limit"])], "start": start, "total": 7}


async def test_a_conversation_by_reference_is_read_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    from temporalio.service import RPCError, RPCStatusCode

    handle = FakeHandle([RPCError("no poller", RPCStatusCode.FAILED_PRECONDITION, b"")])
    monkeypatch.setattr(conversation, "_handle", lambda segment: handle)
    segments = [Segment(workflow_id="turn-1", start=1, count=5), Segment(messages=[HUMAN])]
    found = await environment().run(conversation.resolve, segments)
    assert [message["content"] for message in found] == ["1", "2", "3", "4", "5", "go"]
    handle.failures = [RPCError("not found", RPCStatusCode.NOT_FOUND, b"")]
    with pytest.raises(ApplicationError) as failed:
        await environment().run(conversation.resolve, segments)
    assert failed.value.non_retryable
    with pytest.raises(ApplicationError, match="has 7 of 9"):
        await environment().run(conversation.resolve, [Segment(workflow_id="turn-1", count=9)])
