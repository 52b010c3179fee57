"""Running one case: each step, the wait until the run is quiet, the comparison."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.case_runner import (
    always,
    expect_logs,
    expect_run,
    expect_said,
    expect_server,
    expect_surface,
    expect_told,
)
from tests.case_runner.facts import Facts
from tests.case_runner.loading import Case, Json
from tests.case_runner.matching import Problems
from tests.case_runner.outcome import Outcome
from tests.case_runner.quiet import settle
from tests.case_runner.servers import ServerPool, needs_of
from tests.case_runner.steps import do_step, run_name
from tests.case_runner.world import CaseError, Run, World

Check = Callable[[Facts, Any], Awaitable[Problems]]
CHECKS: dict[str, Check] = {
    "receipt": expect_told.receipt,
    "error": expect_told.error,
    "outcomes": expect_told.outcomes,
    "pending": expect_run.pending,
    "executed": expect_said.executed,
    "tool_messages": expect_said.tool_messages,
    "ai_tool_calls": expect_said.ai_tool_calls,
    "model_calls": expect_said.model_calls,
    "model_input": expect_said.model_input,
    "conversation": expect_said.conversation,
    "final": expect_run.final,
    "status": expect_run.status,
    "failure": expect_run.failure,
    "turns": expect_run.turns,
    "result": expect_run.result,
    "approval": expect_run.approval,
    "approvals": expect_run.approvals,
    "refused": expect_run.refused,
    "rules": expect_run.rules,
    "subagents": expect_said.subagents,
    "seen_by_tool": expect_logs.seen_by_tool,
    "behaviour_calls": expect_logs.behaviour_calls,
    "listed": expect_logs.listed,
    "notified": expect_logs.notified,
    "events": expect_logs.events,
    "server": expect_server.server,
    "surface": expect_surface.surface,
}
# What reaches its reader a moment after the run is quiet: visibility, the stream, a cancelled tool's last report.
_LATE = {"listed", "events", "surface", "seen_by_tool", "notified"}
_LATE_BY = 5.0
_UNSETTLED_BY = 15.0
_CASE_LIMIT = 600.0


@dataclass
class Report:
    """What became of a case."""

    case: Case
    problems: Problems = field(default_factory=list)
    seconds: float = 0.0


async def run_case(case: Case, pool: ServerPool, folder: Path) -> Report:
    """Run a case to its end or to its first failing step."""
    began = time.monotonic()
    report = Report(case, list(case.problems))
    if not report.problems:
        limit = asyncio.timeout(_CASE_LIMIT)
        try:
            async with limit, pool.server(needs_of(case)) as (server, client):
                report.problems = await _run_in(World(case, server, client, folder, pool.nursery))
        except TimeoutError as error:
            report.problems = [f"the case took more than {_CASE_LIMIT:.0f} s" if limit.expired() else str(error)]
        except CaseError as error:
            report.problems = [str(error)]
        except Exception:
            report.problems = [traceback.format_exc(limit=-6)]
    report.seconds = time.monotonic() - began
    return report


async def _run_in(world: World) -> Problems:
    try:
        if any(set(step["do"]) - {"construct"} for step in world.case.steps):
            await world.start_worker()
        for number, step in enumerate(world.case.steps, 1):
            if problems := await _run_step(world, step):
                return [
                    f"step {number} ({_what(step['do'])}): {problem}"
                    for problem in problems + always.strict_model(world)
                ]
        return (
            always.strict_model(world)
            + always.no_call_open(world)
            + always.no_second_start(world)
            + (await always.no_failing_tasks(world))
        )
    finally:
        await world.close()


def _what(do: Json) -> str:
    return next((kind for kind in do if kind not in ("via", "times", "settle")), "?")


async def _run_step(world: World, step: Json) -> Problems:
    do, expected, named = step["do"], step["expect"], step.get("run")
    name = run_name(do, named)
    before = await _before(world, name, step)
    try:
        outcome = await do_step(world, do, named)
        if do.get("settle", True):
            await settle(world)
        run = world.runs.get(name) or Run(name, world.prefix + name)
        problems = await _compare(world, run, outcome, step)
        if before is not None and (outcome.refusals or "refused" in expected):
            problems += always.nothing_changed(before, await always.snapshot(world, run))
        if "round_trip" in do:
            problems += await always.round_trip(world, run, do["round_trip"])
    except CaseError as error:
        problems = [str(error)]
    return problems


async def _before(world: World, name: str, step: Json) -> Json | None:
    """Look at the run before a request that is going to be refused."""
    if "error" not in step["expect"] or name not in world.runs:
        return None
    return await always.snapshot(world, world.runs[name])


async def _compare(world: World, run: Run, outcome: Outcome, step: Json) -> Problems:
    """Compare; what may come late is looked at again until it fits or its time is up."""
    settled = step["do"].get("settle", True)
    patience = _LATE_BY if settled else _UNSETTLED_BY
    end = time.monotonic() + patience
    keys = list(step["expect"])
    while True:
        facts = Facts(world, run, outcome)
        found = {key: await _check(facts, key, step["expect"][key]) for key in keys}
        failing = [key for key, problems in found.items() if problems]
        if not failing or time.monotonic() > end or (settled and set(failing) - _LATE):
            break
        await asyncio.sleep(0.1)
        if "listed" in failing:
            outcome = await do_step(world, step["do"], step.get("run"))
    told = [] if {"error", "outcomes"} & set(step["expect"]) else expect_told.not_refused(Facts(world, run, outcome))
    return told + [problem for problems in found.values() for problem in problems]


async def _check(facts: Facts, key: str, expected: Any) -> Problems:
    try:
        return await CHECKS[key](facts, expected)
    except CaseError as error:
        return [f"{key}: {error}"]
    except Exception:
        return [f"{key}: {traceback.format_exc(limit=-4)}"]
