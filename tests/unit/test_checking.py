"""`turngate check`: what happens with each tool, dangerous tools without a gate, and entries that can never match."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import BaseTool, StructuredTool

from tests.unit.fakes import make_agent
from turngate import Allowlist, Denylist, InterruptOnConfig, Predicate, human_tool
from turngate.checking import AgentCheck, check_agents
from turngate.errors import ConfigError
from turngate.policy import PolicyContext


def a_tool(name: str, **options: Any) -> BaseTool:
    return StructuredTool.from_function(lambda x=1: x, name=name, description="A tool.", **options)


PAY, READ = a_tool("pay"), a_tool("read_table")


async def check(*tools: Any, dangerous: tuple[str, ...] = (), **options: Any) -> AgentCheck:
    [report] = await check_agents([make_agent(*(tools or (PAY, READ)), **options)], dangerous=dangerous)
    return report


async def what(*tools: Any, **options: Any) -> dict[str, str]:
    return {tool.name: tool.what for tool in (await check(*tools, **options)).tools}


def over_limit(context: PolicyContext) -> bool:
    return context.args["x"] > 1


ALL = "approve, edit, reject, respond"


@pytest.mark.parametrize(
    ("options", "pay"),
    [
        ({}, "runs by itself (default)"),
        ({"default": "review"}, f"waits: {ALL} (default)"),
        ({"default": "deny"}, "is denied (default)"),
        ({"interrupt_on": {"pay": True}}, f"waits: {ALL} (interrupt_on['pay'])"),
        ({"interrupt_on": {"p*": True}}, f"waits: {ALL} (interrupt_on['p*'])"),
        ({"interrupt_on": {"pay": False}, "default": "review"}, "runs by itself (interrupt_on['pay'])"),
        (
            {"interrupt_on": {"pay": InterruptOnConfig(allowed_decisions=["approve"], when=bool)}},
            "may wait: approve (interrupt_on['pay'], where its condition says so)",
        ),
        (
            {"interrupt_on": {"pay": InterruptOnConfig(reviewers=["ann", "bob"], quorum=2)}},
            f"waits for ann, bob, 2 of them: {ALL} (interrupt_on['pay'])",
        ),
        ({"policy": Allowlist(["pay"])}, f"waits: {ALL} (policy Allowlist)"),
        ({"policy": Denylist(["read_*"])}, f"waits: {ALL} (policy Denylist)"),
        ({"policy": Denylist(["pay"])}, "runs by itself (policy Denylist)"),
        ({"policy": over_limit}, f"may wait: {ALL} (policy over_limit)"),
        ({"policy": Predicate(over_limit)}, f"may wait: {ALL} (policy over_limit)"),
        ({"policy": [Allowlist(["read_table"]), over_limit]}, f"may wait: {ALL} (policy over_limit)"),
        ({"policy": [Allowlist(["read_table"])], "default": "deny"}, "is denied (default)"),
    ],
)
async def test_each_tool_is_told_with_what_decides_about_it(options: dict[str, Any], pay: str) -> None:
    """Exact entry, pattern, condition, policy and default."""
    assert (await what(**options))["pay"] == pay


async def test_people_and_late_tools_wait() -> None:
    """A person as a tool is only answered; a tool that comes late is reviewed unless an entry says otherwise."""

    async def late() -> list[BaseTool]:
        return [a_tool("remote")]

    found = await what(human_tool("ask_boss", {"type": "object", "properties": {}}), late)
    assert found == {"ask_boss": "waits: respond (a person is the tool)", "remote": f"waits: {ALL} (a late tool)"}


@pytest.mark.parametrize(
    ("tool", "patterns"),
    [
        (a_tool("delete_all", metadata={"dangerous": True}), ()),
        (a_tool("delete_all", metadata={"destructiveHint": True}), ()),
        (a_tool("delete_all", tags=["dangerous"]), ()),
        (a_tool("delete_all"), ("delete_*",)),
        (a_tool("delete_all"), ("delete_all",)),
    ],
)
async def test_a_dangerous_tool_without_a_gate_is_a_problem(tool: BaseTool, patterns: tuple[str, ...]) -> None:
    """However it was marked; any gate, a condition or policy too, will do."""
    bare = await check(tool, dangerous=patterns)
    assert "'delete_all' is marked as dangerous" in bare.problems[0]
    gates: list[dict[str, Any]] = [
        {"interrupt_on": {"delete_all": True}},
        {"interrupt_on": {"delete_all": InterruptOnConfig(when=bool)}},
        {"policy": over_limit},
        {"default": "deny"},
    ]
    for options in gates:
        assert (await check(tool, dangerous=patterns, **options)).problems == ()


async def test_a_mark_that_is_not_true_marks_nothing() -> None:
    """MCP servers say `destructiveHint: false`."""
    assert (await check(a_tool("look", metadata={"destructiveHint": False, "dangerous": "no"}))).problems == ()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"interrupt_on": {"p*": True, "pay": True}},
            "interrupt_on['p*'] can never match: for the tools that it matches",
        ),
        ({"interrupt_on": {"pay": True}, "policy": Allowlist(["pay"])}, "policy Allowlist: 'pay' can never match"),
    ],
)
async def test_entries_that_others_hide_are_problems(options: dict[str, Any], problem: str) -> None:
    """They look like a gate and are none."""
    [found] = (await check(**options)).problems
    assert problem in found


async def test_entries_for_late_tools_are_checked_once_these_are_there() -> None:
    """At construction nobody knows their names; a typo would let the entry do nothing for ever."""

    async def late() -> list[BaseTool]:
        return [a_tool("mcp__delete")]

    report = await check(
        PAY,
        late,
        interrupt_on={"mcp__delete": False, "mcp__delte": True},
        tool_options={"mcp__x": {"retry_safe": True}},
    )
    assert [problem.split(":")[0] for problem in report.problems] == [
        "interrupt_on['mcp__delte'] can never match",
        "tool_options['mcp__x'] can never match",
    ]


async def test_late_tools_that_can_t_be_loaded_are_a_config_error() -> None:
    """The check fails, and says whose tools they are."""

    async def late() -> list[BaseTool]:
        raise OSError("no route to host")

    with pytest.raises(ConfigError, match=r"'main' can't be loaded: .*no route to host"):
        await check(PAY, late)


async def test_subagents_are_checked_with_their_parents_gates() -> None:
    """A parent's entry for a tool that only its subagent has is in use; the subagent can open a gate."""
    subs = [
        {"name": "obeys", "tools": [PAY]},
        {"name": "opens", "tools": [PAY], "interrupt_on": {"pay": False}},
        {"name": "narrows", "tools": [PAY], "interrupt_on": {"pay": InterruptOnConfig(when=bool)}},
    ]
    agent = make_agent(READ, subagents=subs, interrupt_on={"pay": True}, tool_options={"pay": {"retry_safe": True}})
    reports = await check_agents([agent], dangerous=["pay"])
    assert [report.name for report in reports] == ["main", "main/obeys", "main/opens", "main/narrows"]
    outcomes = {report.name: report.tools[0].outcome for report in reports[1:]}
    assert outcomes == {"main/obeys": "review", "main/opens": "run", "main/narrows": "review"}
    assert {report.name: len(report.problems) for report in reports} == {
        "main": 0,
        "main/obeys": 0,
        "main/opens": 1,
        "main/narrows": 0,
    }


async def test_a_schema_that_takes_editing_away_is_a_warning() -> None:
    """It does not fail the check."""
    schema = {"type": "object", "properties": {"x": {"$ref": "https://example.com/schema.json"}}}
    tool = StructuredTool.from_function(lambda **_: 1, name="odd", description="Odd.", args_schema=schema)
    report = await check(tool)
    assert report.problems == ()
    assert len(report.warnings) == 1


async def test_agents_are_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on the command line."""
    name = f"agents_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text("from tests.unit.fakes import make_agent\nmain = make_agent()\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    [report] = await check_agents(f"{name}:main")
    assert report.to_json()["tools"]["pay"]["outcome"] == "run"
