"""An agent that makes no sense is refused when it is built; a subagent is never looser than its parent by accident."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from langchain_core.tools import BaseTool, tool

from tests.unit.fakes import FakeModel, make_agent, pay, read_table
from turngate.agent import Agent, Registry, ToolOptions
from turngate.errors import ConfigError
from turngate.interrupts import InterruptOnConfig
from turngate.policy import Allowlist, Denylist, Predicate
from turngate.tools import human_tool

REVIEWED = {"allowed_decisions": ["approve", "reject"]}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"interrupt_on": {"pay": {"allowed_decisions": []}}}, ["pay", "allowed_decisions"]),
        ({"interrupt_on": {"pay": {"description": "x"}}}, ["pay", "allowed_decisions"]),
        ({"interrupt_on": {"pay": {"allowed_decisions": ["aprove"]}}}, ["pay", "aprove", "approve"]),
        ({"interrupt_on": {"pay": {**REVIEWED, "wen": print}}}, ["pay", "wen", "when"]),
        ({"interrupt_on": {"pay": {**REVIEWED, "when": "always"}}}, ["pay", "when", "always"]),
        ({"interrupt_on": {"pay": 1}}, ["pay", "1"]),
        ({"interrupt_on": {1: True}}, ["interrupt_on", "1"]),
        ({"interrupt_on": {"pya": True}}, ["pya", "pay"]),
        ({"interrupt_on": {"mcp__*": True}}, ["mcp__*"]),
        ({"interrupt_on": {"pay": {**REVIEWED, "reviewers": "ann"}}}, ["pay", "reviewers", "ann"]),
        ({"interrupt_on": {"pay": {**REVIEWED, "quorum": 2, "allow_remember": True}}}, ["pay", "allow_remember", "2"]),
        ({"interrupt_on": {"pay": {**REVIEWED, "reviewers": ["role:dba"]}}}, ["pay", "dba"]),
        ({"interrupt_on": {"pay": {**REVIEWED, "reviewers": ["a"], "quorum": 2}}}, ["pay", "quorum"]),
        ({"interrupt_on": {"pay": {**REVIEWED, "escalate_after": "1h"}}}, ["pay", "escalate_to"]),
        (
            {"interrupt_on": {"pay": {**REVIEWED, "timeout": "1h", "escalate_after": 3600, "escalate_to": ["a"]}}},
            ["pay", "escalate_after", "timeout"],
        ),
        ({"interrupt_on": {"pay": {**REVIEWED, "timeout": True}}}, ["pay", "timeout"]),
        ({"interrupt_on": {"pay": {**REVIEWED, "on_timeout": {"type": "reject"}}}}, ["pay", "timeout"]),
        (
            {"interrupt_on": {"pay": {**REVIEWED, "timeout": 5, "on_timeout": {"type": "respond", "message": "x"}}}},
            ["pay", "on_timeout", "respond"],
        ),
        ({"interrupt_on": {"pay": {**REVIEWED, "editable_args": ["amuont"]}}}, ["pay", "amuont", "amount"]),
        ({"interrupt_on": {"pay": {**REVIEWED, "editable_args": ["amount"]}}}, ["pay", "editable_args", "edit"]),
        ({"interrupt_on": {"pay": {**REVIEWED, "secret_args": ["pin"]}}}, ["pay", "secret_args", "pin"]),
        ({"interrupt_on": {"pay": {**REVIEWED, "args_schema": {"type": 7}}}}, ["pay", "args_schema"]),
        ({"policy": "review"}, ["policy", "review"]),
        ({"policy": Predicate("f")}, ["policy", "'f'"]),  # type: ignore[arg-type]
        ({"policy": Allowlist(["payy"])}, ["policy", "payy"]),
        ({"policy": [Denylist(["read_*", "tabel"])]}, ["policy", "tabel"]),
        ({"default": "ask"}, ["default", "ask"]),
        ({"max_steps": True}, ["max_steps", "True"]),
        ({"max_duration": "soon"}, ["max_duration", "soon"]),
        ({"tool_options": {"pay": {"max_attempts": 3}}}, ["pay", "retry_safe"]),
        ({"tool_options": {"pay": {"retry_save": True}}}, ["pay", "retry_save", "retry_safe"]),
        ({"tool_options": {"pyament": {}}}, ["pyament"]),
        ({"tool_options": {5: {}}}, ["tool_options", "5"]),
        ({"tool_options": {"pay": {"task_queue": ""}}}, ["pay", "task_queue"]),
        ({"roles": {5: ["ann"]}}, ["roles", "5"]),
        ({"admins": ["\udc80"]}, ["admins", "udc80"]),  # what a broken environment variable holds
        ({"edit_notice": "\udc80"}, ["edit_notice", "udc80"]),
        ({"policy": Allowlist}, ["policy", "Allowlist"]),
        ({"roles": {"dba": "ann"}}, ["roles", "dba", "ann"]),
        ({"edit_notise": ""}, ["edit_notise", "edit_notice"]),
        ({"model": 7}, ["model", "7"]),
        ({"subagents": [{"description": "x"}]}, ["subagents", "name"]),
        ({"subagents": [{"name": "w", "tols": []}]}, ["main/w", "tols", "tools"]),
    ],
)
def test_refuses_nonsense_naming_place_and_value(options: dict[str, Any], named: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        make_agent(**options)
    assert [word for word in named if word not in str(refused.value)] == []


@pytest.mark.parametrize("name", ["", "a/b", 7, "x" * 101])
def test_refuses_names_that_can_not_be_part_of_an_id(name: Any) -> None:
    with pytest.raises(ConfigError, match="name"):
        Agent(name, model=FakeModel())


def test_refuses_plain_functions_and_two_tools_of_one_name() -> None:
    with pytest.raises(ConfigError, match="@tool"):
        make_agent(lambda x: x)
    with pytest.raises(ConfigError, match="pay"):
        make_agent(pay, pay)


def test_takes_every_documented_key_and_time_spans_in_every_form() -> None:
    agent = make_agent(
        interrupt_on={
            "pay": InterruptOnConfig(
                timeout=timedelta(hours=1),
                on_timeout={"type": "reject", "message": "late"},
                remind_every="10m",
                escalate_after=1800,
                escalate_to=["lead"],
                reviewers=["role:dba", "ann"],
                quorum=2,
                args_schema={"type": "object"},
                editable_args=["amount"],
            ),
            "read_*": False,
        },
        roles={"dba": ["ben"]},
        tool_options={"pay": ToolOptions(retry_safe=True, start_to_close="90s")},
        interrupt_mode="batched",
    )
    config = agent.rules.config("pay")
    assert (config.timeout, config.remind_every, config.escalate_after) == (3600, 600, 1800)
    assert config.allow_remember is False, "one person's rule would settle what takes two"
    assert agent.allow_tool_change, "batched allows it, as LangChain's batched mode does"
    assert agent.tool_settings(pay).max_attempts == 3
    assert agent.tool_settings(read_table).max_attempts == 1


def test_exact_name_beats_pattern_and_the_more_literal_pattern_wins() -> None:
    @tool
    def read_secret(name: str) -> str:
        """Read a secret."""
        return name

    rules = {"*": REVIEWED, "read_*": False, "read_secret": {"allowed_decisions": ["reject"]}}
    agent = make_agent(pay, read_table, read_secret, interrupt_on=rules)
    assert agent.rules.find("read_table") == ("read_*", None)
    assert agent.rules.config("read_secret").allowed_decisions == ("reject",)
    assert agent.rules.config("pay").allowed_decisions == ("approve", "reject")


def test_a_person_as_a_tool_can_not_run_unasked() -> None:
    ask = human_tool("ask_user")
    with pytest.raises(ConfigError, match="ask_user"):
        make_agent(ask, interrupt_on={"ask_user": False})
    with pytest.raises(ConfigError, match="respond"):
        make_agent(ask, interrupt_on={"ask_user": REVIEWED})
    silent = {"allowed_decisions": ["approve", "respond"], "timeout": "1h", "on_timeout": {"type": "approve"}}
    with pytest.raises(ConfigError, match="on_timeout"):
        make_agent(ask, interrupt_on={"ask_user": silent})
    assert make_agent(ask, interrupt_on={"ask_user": True})
    for name, schema in (("", None), ("ask_user", dict), ("ask_user", 5)):
        with pytest.raises(ConfigError, match="human tool"):
            human_tool(name, schema)


def test_a_subagent_inherits_what_it_does_not_set() -> None:
    parent = make_agent(
        interrupt_on={"pay": True},
        default="review",
        interrupt_mode="batched",
        on_tool_error="ask",
        subagents=[
            {"name": "worker", "description": "works"},
            Agent("own", model=FakeModel(), tools=[read_table], interrupt_mode="per_call", default="run"),
        ],
    )
    worker, own = parent.subagents["worker"], parent.subagents["own"]
    assert worker.key == "main/worker"
    assert worker.model is parent.model
    assert (worker.interrupt_mode, worker.on_tool_error) == ("batched", "ask")
    assert worker.find_tool("pay") is pay
    assert own.interrupt_mode == "per_call"
    assert own.default == "review", "a subagent's default is never looser than its parent's"
    assert list(Registry([parent])) == ["main", "main/worker", "main/own"]


def test_leaving_a_tool_out_opens_nothing_and_an_explicit_false_opens() -> None:
    parent = make_agent(
        interrupt_on={"pay": True},
        subagents=[
            {"name": "empty", "interrupt_on": {}},
            {"name": "open", "interrupt_on": {"pay": False}},
            {"name": "more", "interrupt_on": {"read_table": True}},
        ],
    )
    assert parent.subagents["empty"].rules.find("pay") is not None
    assert parent.subagents["open"].rules.find("pay") == ("pay", None)
    assert parent.subagents["more"].rules.find("read_table") is not None


def test_a_rule_may_be_about_a_tool_that_only_a_subagent_has() -> None:
    worker = {"name": "worker", "tools": [pay], "model": FakeModel()}
    parent = make_agent(read_table, interrupt_on={"pay": True}, subagents=[worker])
    assert parent.subagents["worker"].rules.find("pay") is not None


def test_nesting_has_a_limit_and_task_is_a_reserved_name() -> None:
    with pytest.raises(ConfigError, match="max_depth"):
        make_agent(max_depth=1, subagents=[{"name": "a", "subagents": [{"name": "b"}]}])

    @tool
    def task(x: str) -> str:
        """A tool of the user's own."""
        return x

    with pytest.raises(ConfigError, match="task"):
        make_agent(task, subagents=[{"name": "a", "tools": []}])


def test_registry_refuses_two_agents_of_one_name() -> None:
    with pytest.raises(ConfigError, match="main"):
        Registry([make_agent(), make_agent()])


async def test_late_tools_come_from_a_factory_and_never_replace_an_early_one() -> None:
    asked = []

    @tool("pay")
    def other_pay(to: str) -> str:
        """A tool that takes the name of another."""
        return to

    async def factory() -> list[BaseTool]:
        asked.append(1)
        return [read_table, other_pay]

    agent = make_agent(pay, factory, interrupt_on={"mcp__*": True})
    box = await agent.toolbox()
    await agent.toolbox()
    assert box.names == ["pay", "read_table"]
    assert box.get("pay") is pay
    assert box.late == {"read_table"}
    assert len(asked) == 1, "asked once for some seconds"
    assert (await Agent("whole", model=FakeModel(), tools=factory).toolbox()).names == ["read_table", "pay"]


def test_a_model_text_needs_langchain() -> None:
    assert Agent("main", model="openai:gpt-5").model == "openai:gpt-5"
