"""The case runner finds what is wrong: a case that passes whatever the product does would be worth nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.case_runner.__main__ import main, summary, verdict
from tests.case_runner.loading import Case
from tests.case_runner.run_case import CHECKS, Report, run_case
from tests.case_runner.servers import ServerPool

pytestmark = pytest.mark.server

PAY = {"id": "c1", "name": "pay", "args": {"amount": 5}}
GIVEN: dict[str, Any] = {
    "tools": {"pay": {"params": {"amount": "int"}, "returns": "paid {amount}", "reports": ["attempt"]}},
    "agent": {"interrupt_on": {"pay": True}},
    "model": [{"tool_calls": [PAY]}, {"text": "done"}],
}
START = {"do": {"start": "go"}, "expect": {"pending": ["c1"]}}
APPROVE: dict[str, Any] = {"decide": {"approval_id": "@c1", "type": "approve"}}
WRONG: dict[str, Any] = {
    "receipt": [{"approval": "c1", "outcome": "queued"}],
    "error": {"code": "closed"},
    "outcomes": {"applied": 2},
    "pending": ["c1"],
    "executed": [["pay", {"amount": 6}]],
    "tool_messages": [{"tool_call_id": "c1", "content": "paid 6"}],
    "ai_tool_calls": [[{**PAY, "args": {"amount": 6}}]],
    "model_calls": 3,
    "model_input": {"call": 2, "types": ["human", "ai"]},
    "conversation": {"human_texts": ["stop"]},
    "final": "finished",
    "status": "waiting",
    "failure": {"mentions": ["pay"]},
    "turns": ["completed"],
    "result": {"steps": 3},
    "approval": {"@c1": {"resolution": {"type": "reject"}}},
    "approvals": {"count": 2},
    "refused": 1,
    "rules": [{"tool": "pay"}],
    "subagents": {"worker": {"model_calls": 1}},
    "seen_by_tool": {"pay": [{"attempt": 2}]},
    "behaviour_calls": {"when": 1},
    "listed": ["c1"],
    "notified": [{"kind": "requested", "approval": "c1"}],
    "events": {"include": ["token"]},
    "server": {"alive": True},
    "surface": {"search_attributes": {"TurngateStatus": "waiting"}},
}


async def problems_of(tmp_path: Path, *steps: dict[str, Any], **given: Any) -> list[str]:
    case = Case("DEC-001", "decisions", "a case of this test", {**GIVEN, **given}, list(steps))
    async with ServerPool() as pool:
        return (await run_case(case, pool, tmp_path)).problems


async def test_a_right_case_passes_and_every_wrong_expectation_is_found(tmp_path: Path) -> None:
    """One run, each kind of expectation asked for what is not so."""
    assert set(WRONG) == set(CHECKS)
    assert await problems_of(tmp_path, START, {"do": APPROVE, "expect": {"pending": [], "final": "done"}}) == []
    found = await problems_of(tmp_path, START, {"do": APPROVE, "expect": WRONG})
    words = {problem.removeprefix("step 2 (decide): ").split(":")[0].split(".")[0].split("[")[0] for problem in found}
    shown_as = {"approval": "@c1", "surface": "search_attributes"}
    assert {shown_as.get(key, key) for key in WRONG} <= words, sorted(words)


async def test_what_the_case_does_not_expect_is_found_as_well(tmp_path: Path) -> None:
    """A refusal, a model that is asked beyond its script, a tool that runs twice for one call."""
    unknown = {"do": {"decide": {"approval_id": "@!9", "type": "approve"}}, "expect": {}}
    assert "unknown_approval" in (await problems_of(tmp_path, START, unknown))[0]
    short = await problems_of(tmp_path, START, {"do": APPROVE, "expect": {}}, model=[{"tool_calls": [PAY]}])
    assert any("one more was asked for" in problem for problem in short)
    twice = {**GIVEN["tools"]["pay"], "raises": {"message": "boom", "times": 1}}
    again = await problems_of(
        tmp_path,
        {"do": {"start": "go"}, "expect": {}},
        {"do": APPROVE, "expect": {}},
        {"do": {"decide": {"approval_id": "@c1#2", "type": "approve"}}, "expect": {}},
        tools={"pay": twice},
        agent={"interrupt_on": {"pay": True}, "on_tool_error": "ask"},
    )
    assert again == ["pay started 2 times for one call"]


def test_expected_failures_are_shown_and_only_surprises_fail(capsys: pytest.CaptureFixture[str]) -> None:
    """One that is listed and passes is told, too."""
    cases = [Case(f"DEC-00{n}", "decisions", "", {}, []) for n in (1, 2, 3)]
    reports = [Report(cases[0], ["wrong"]), Report(cases[1]), Report(cases[2])]
    expected = {"DEC-001": "not built yet", "DEC-002": "fixed?"}
    assert [verdict(report, expected) for report in reports] == [
        "expected failure",
        "passed, though listed as an expected failure",
        "passed",
    ]
    assert summary(reports, 4, expected, 1.0) == 0
    assert summary(reports, 4, {}, 1.0) == 1
    printed = capsys.readouterr().out
    assert "DEC-001: not built yet" in printed
    assert "passed: DEC-002" in printed
    assert "2 passed, 1 failed, 4 skipped" in printed


def test_a_file_outside_the_grammar_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is neither run nor left out silently."""
    (tmp_path / "broken.json").write_text('[{"id": "DEC-001", "title": "nothing in it at all"}]')
    monkeypatch.setenv("TURNGATE_CASES", str(tmp_path))
    assert main([]) == 1
    assert "not in the grammar" in capsys.readouterr().out
