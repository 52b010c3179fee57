"""The verdict on one call: what the rules say, and that whatever fails means review."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, tool

from tests.unit.fakes import FakeModel, make_agent, pay
from turngate.agent import Agent
from turngate.contracts import DECISIONS, DESCRIPTION_LIMIT, CallPlan, Verdict, digest_of
from turngate.interrupts import InterruptOnConfig
from turngate.judge import Scene, judge
from turngate.policy import ABSTAIN, Allowlist, Deny, Denylist, PolicyContext, Predicate
from turngate.tools import human_tool, interrupt

ARGS = {"to": "acme", "amount": 5}


async def plan(agent: Agent, name: str = "pay", args: dict[str, Any] | None = None, **scene: Any) -> CallPlan:
    call = {"name": name, "args": ARGS if args is None else args, "id": "c1", "type": "tool_call"}
    return await judge(agent, await agent.toolbox(), call, Scene(**scene))


async def test_interrupt_on_reads_as_in_langchain() -> None:
    agent = make_agent(interrupt_on={"pay": True, "read_table": False})
    gated = await plan(agent)
    assert gated.verdict is Verdict.REVIEW
    assert gated.allowed_decisions == list(DECISIONS)
    assert gated.digest == digest_of("pay", ARGS)
    assert (await plan(agent, "read_table", {"table": "t"})).verdict is Verdict.RUN
    assert (await plan(make_agent())).verdict is Verdict.RUN


@pytest.mark.parametrize("answer", [None, 0, "", "yes", 1, [], {}])
async def test_a_condition_that_answers_no_bool_means_review(answer: Any) -> None:
    gated = await plan(make_agent(interrupt_on={"pay": InterruptOnConfig(when=lambda request: answer)}))
    assert gated.verdict is Verdict.REVIEW
    assert gated.warnings


async def test_a_condition_that_raises_asks_or_hangs_means_review() -> None:
    def broken(_: Any) -> bool:
        raise KeyError("no such key")

    async def endless(_: Any) -> bool:
        await asyncio.Event().wait()
        return False

    def stuck(_: Any) -> bool:
        threading.Event().wait(5)
        return False

    async def called_off(_: Any) -> bool:
        raise asyncio.CancelledError

    for when, said in (
        (broken, "no such key"),
        (endless, "0.05"),
        (stuck, "0.05"),
        (interrupt, "no tool call"),
        (called_off, "cancelled from inside"),
    ):
        agent = make_agent(interrupt_on={"pay": InterruptOnConfig(when=when)}, policy_timeout=0.05)
        gated = await plan(agent)
        assert gated.verdict is Verdict.REVIEW
        assert said in gated.warnings[0]


async def test_a_condition_sees_what_langchain_shows() -> None:
    seen = []

    async def when(request: Any) -> bool:
        seen.append(request)
        request.tool_call["args"]["to"] = "evil"
        return True

    agent = make_agent(interrupt_on={"pay": InterruptOnConfig(when=when)})
    gated = await plan(agent, context={"tenant": "t9"}, messages=["m"])
    assert seen[0].tool_call["name"] == "pay"
    assert seen[0].tool is pay
    assert seen[0].state == {"messages": ["m"]}
    assert seen[0].runtime.context == {"tenant": "t9"}
    assert gated.digest == digest_of("pay", ARGS), "what a function changes is a copy"


async def test_descriptions_fixed_computed_in_both_forms_and_failing() -> None:
    def three(tool_call: Any, state: Any, runtime: Any) -> str:
        return f"{tool_call['name']} in {runtime.context['tenant']}, {len(state['messages'])}"

    async def one(tool_call: Any) -> str:
        return f"pay {tool_call['args']['amount']}?"

    def broken(tool_call: Any) -> str:
        raise ValueError("template missing")

    for given, expected in (("", ""), ("fixed", "fixed"), (three, "pay in t9, 0"), (one, "pay 5?")):
        config = InterruptOnConfig(description=given)
        gated = await plan(make_agent(interrupt_on={"pay": config}), context={"tenant": "t9"})
        assert (gated.description, gated.warnings) == (expected, [])
    for failing in (broken, lambda call: 7):
        config = InterruptOnConfig(description=failing)
        gated = await plan(make_agent(interrupt_on={"pay": config}, description_prefix="Waits"))
        assert gated.description.startswith("Waits: pay")
        assert gated.warnings


async def test_descriptions_are_cut_and_secrets_are_hidden() -> None:
    gated = await plan(make_agent(interrupt_on={"pay": InterruptOnConfig(description="€" * 4000)}))
    assert len(gated.description.encode()) <= DESCRIPTION_LIMIT
    gated = await plan(make_agent(interrupt_on={"pay": InterruptOnConfig(secret_args=["to"])}))
    assert "acme" not in gated.description
    assert gated.secret_args == ["to"]


async def test_lists_put_their_tags_on_the_approval() -> None:
    async def tags(context: PolicyContext) -> list[str]:
        return [f"tool:{context.tool_name}"]

    allow = make_agent(policy=Allowlist(["pay"], tags=["money"]))
    assert (await plan(allow)).tags == ["money"]
    assert (await plan(allow, "read_table", {"table": "t"})).verdict is Verdict.RUN
    deny = make_agent(policy=Denylist(["read_*"], tags=tags), default="review")
    assert (await plan(deny)).tags == ["tool:pay"]
    assert (await plan(deny, "read_table", {"table": "t"})).verdict is Verdict.RUN


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (ABSTAIN, Verdict.DENY),  # no opinion: the default of this agent
        (None, Verdict.REVIEW),  # a forgotten `return` must not open a gate
        (False, Verdict.RUN),
        ([], Verdict.RUN),
        (True, Verdict.REVIEW),
        (["high"], Verdict.REVIEW),
        (Deny("above the limit"), Verdict.DENY),
        (Deny(ValueError("above the limit")), Verdict.DENY),  # type: ignore[arg-type]
        (Deny("\ud800" + "above the limit" * 100_000), Verdict.DENY),  # no text for UTF-8, and too long to be recorded
        ("high", Verdict.REVIEW),
        (7, Verdict.REVIEW),
        ([7], Verdict.REVIEW),
    ],
)
async def test_what_a_policy_answers(answer: Any, verdict: Verdict) -> None:
    found = await plan(make_agent(policy=Predicate(lambda context: answer), default="deny"))
    assert found.verdict is verdict
    if isinstance(answer, Deny):
        assert "above the limit" in (found.message or "")
        assert len((found.message or "").encode()) < 20_000
    if answer in ("high", 7, [7]):
        assert found.warnings


async def test_of_several_policies_the_first_that_speaks_counts() -> None:
    asked = []

    def note(context: PolicyContext) -> Any:
        asked.append(context.tool_name)
        return ABSTAIN

    agent = make_agent(policy=[note, Allowlist(["pay"], tags=["a"]), lambda context: Deny()])
    assert (await plan(agent)).tags == ["a"]
    assert (await plan(agent, "read_table", {"table": "t"})).verdict is Verdict.DENY
    assert asked == ["pay", "read_table"]


async def test_a_policy_knows_the_call_and_the_turn() -> None:
    seen: list[PolicyContext] = []
    await plan(make_agent(policy=seen.append), step=3, thread_id="th", context={"tenant": "t9"}, requested_by="ann")
    context = seen[0]
    assert (context.tool_name, context.tool_description, context.args) == ("pay", "Pay an invoice.", ARGS)
    assert (context.agent_name, context.step, context.thread_id, context.context) == ("main", 3, "th", {"tenant": "t9"})


async def test_a_subagents_policy_can_only_be_stricter() -> None:
    def parent_with(policy: Any) -> Agent:
        return make_agent(
            policy=policy, default="run", subagents=[{"name": "w", "policy": lambda context: False}]
        ).subagents["w"]

    assert (await plan(parent_with(lambda context: True))).verdict is Verdict.REVIEW
    assert (await plan(parent_with(lambda context: Deny()))).verdict is Verdict.DENY
    assert (await plan(parent_with(None))).verdict is Verdict.RUN


async def test_a_subagents_condition_does_not_open_the_parents_gate() -> None:
    config = InterruptOnConfig(when=lambda request: False)
    parent = make_agent(interrupt_on={"pay": True}, subagents=[{"name": "w", "interrupt_on": {"pay": config}}])
    assert (await plan(parent.subagents["w"])).verdict is Verdict.REVIEW
    assert (await plan(make_agent(interrupt_on={"pay": config}))).verdict is Verdict.RUN


async def test_late_tools_are_reviewed_unless_something_is_said_about_them() -> None:
    async def late() -> list[BaseTool]:
        return [pay]

    def agent(**options: Any) -> Agent:
        return Agent("main", model=FakeModel(), tools=[late], **options)

    assert (await plan(agent())).verdict is Verdict.REVIEW
    assert (await plan(agent(default="deny"))).verdict is Verdict.DENY
    assert (await plan(agent(interrupt_on={"p*": False}))).verdict is Verdict.RUN
    assert (await plan(agent(policy=lambda context: False))).verdict is Verdict.RUN


async def test_a_caller_can_ask_for_more_review_never_for_less() -> None:
    agent = make_agent(interrupt_on={"pay": {"allowed_decisions": ["approve"]}})
    assert (await plan(agent, "read_table", {"table": "t"}, review_also=["read_*"])).verdict is Verdict.REVIEW
    assert (await plan(agent, review_also=["*"])).allowed_decisions == ["approve"]
    assert (await plan(make_agent(default="deny"), review_also=["*"])).verdict is Verdict.DENY
    # What the condition would let run goes to the people whom the entry names, and to nobody else.
    config = InterruptOnConfig(allowed_decisions=["approve"], reviewers=["ann"], when=lambda request: False)
    wished = await plan(make_agent(interrupt_on={"pay": config}), review_also=["pay"])
    assert (wished.verdict, wished.allowed_decisions, wished.reviewers) == (Verdict.REVIEW, ["approve"], ["ann"])


async def test_calls_that_make_no_sense_are_never_put_up() -> None:
    agent = make_agent(interrupt_on={"pay": InterruptOnConfig(when=lambda request: True)})
    unknown = await plan(agent, "pya")
    assert unknown.verdict is Verdict.INVALID
    assert "'pay', 'read_table'" in (unknown.message or "")
    missing = await plan(agent, args={})
    assert missing.verdict is Verdict.INVALID
    assert "to" in (missing.message or "")
    assert "amount" in (missing.message or "")
    large = await plan(agent, args={"to": "x" * 300_000, "amount": 1})
    assert "larger than allowed" in (large.message or "")
    assert (await plan(agent, args={"to": "a", "amount": "7"})).verdict is Verdict.REVIEW, "read leniently"


async def test_a_raw_schema_and_injected_arguments() -> None:
    raw = StructuredTool(
        name="raw",
        description="d",
        func=lambda **given: given,
        args_schema={"type": "object", "properties": {"n": {"type": "integer", "maximum": 3}}, "required": ["n"]},
    )

    @tool
    def refund(amount: int, config: RunnableConfig) -> str:
        """Give money back."""
        return "ok"

    agent = make_agent(raw, refund, default="review")
    box = await agent.toolbox()
    assert (await plan(agent, "raw", {"n": 9})).verdict is Verdict.INVALID
    assert (await plan(agent, "raw", {"n": 2, "other": 1})).verdict is Verdict.REVIEW, "it decides for itself"
    schema = box.schema("refund").schema or {}
    assert list(schema["properties"]) == ["amount"]
    assert schema["additionalProperties"] is False


async def test_a_schema_that_can_not_be_prepared_takes_edit_away() -> None:
    raw = StructuredTool(
        name="raw",
        description="d",
        func=lambda **given: given,
        args_schema={"type": "object", "properties": {"n": {"$ref": "https://x.test/schema.json"}}},
    )
    gated = await plan(make_agent(raw, default="review"), "raw", {"n": 1})
    assert gated.verdict is Verdict.REVIEW
    assert "edit" not in gated.allowed_decisions
    assert gated.warnings
    only = make_agent(raw, interrupt_on={"raw": {"allowed_decisions": ["edit"]}})
    assert (await plan(only, "raw", {"n": 1})).allowed_decisions == ["reject"], "somebody must be able to answer"


async def test_a_person_as_a_tool_is_always_asked_and_only_responds() -> None:
    ask = human_tool("ask_user", {"type": "object", "properties": {"question": {"type": "string"}}})
    for options in ({}, {"interrupt_on": {"ask_user": True}}, {"policy": lambda context: False}):
        gated = await plan(make_agent(ask, **options), "ask_user", {"question": "size?"})
        assert gated.verdict is Verdict.REVIEW
        assert gated.human
        assert gated.allowed_decisions == ["respond"]


async def test_a_task_names_its_subagent() -> None:
    agent = make_agent(subagents=[{"name": "worker", "description": "works", "tools": []}])
    args = {"description": "do it", "subagent_type": "worker"}
    assert (await plan(agent, "task", args)).subagent == "main/worker"
    wrong = await plan(agent, "task", {**args, "subagent_type": "wroker"})
    assert wrong.verdict is Verdict.INVALID
    assert "wroker" in (wrong.message or "")
    assert "'worker'" in (wrong.message or "")
    assert (await plan(agent, "task", {"description": "do it"})).verdict is Verdict.INVALID
