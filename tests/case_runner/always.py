"""What is checked in every case, whatever it expects (README, "Always checked")."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from tests.case_runner.expect_server import task_failures
from tests.case_runner.facts import Facts
from tests.case_runner.matching import Problems, match, short
from tests.case_runner.outcome import Outcome
from tests.case_runner.script import read_message
from tests.case_runner.templates import expand
from tests.case_runner.tree import all_workflows
from tests.case_runner.world import Run, World, bounded
from turngate.testing.journal import Entry

Json = dict[str, Any]
_UNCHANGED = ("status", "pending", "approvals", "messages", "rules")


def strict_model(world: World) -> Problems:
    """The scripted model was given possible conversations only, and never asked beyond its script."""
    return [entry["text"] for entry in world.journal.read("violation")]


def no_call_open(world: World) -> Problems:
    """The model was not asked while a tool of its step ran. (An answer that is missing the strict model finds.)"""
    problems: Problems = []
    running: dict[str, Entry] = {}
    for entry in world.journal.read():
        if entry["kind"] == "started" and not entry["hangs"] and not _may_be_given_up(world, entry["tool"]):
            running[entry["execution"]] = entry
        elif entry["kind"] == "ended":
            running.pop(entry["execution"], None)
        elif entry["kind"] == "killed":
            running.clear()
        elif entry["kind"] == "answer":
            here = [start["tool"] for start in running.values() if start["turn"] == entry["turn"]]
            problems += [f"the model was asked while {tool} ran" for tool in here]
    return problems


def _may_be_given_up(world: World, tool: str) -> bool:
    """A body that overruns its time limit may still run when a person has said how to go on."""
    return "start_to_close" in _tool_options(world, tool)


def _tool_options(world: World, tool: str) -> Json:
    options = world.case.given["agent"].get("tool_options", {})
    return options.get(tool, {}) if isinstance(options, dict) else {}


def no_second_start(world: World) -> Problems:
    """No tool body started twice for one call unless the case says so: by a count, or as the tool asks or retries."""
    starts = world.journal.read("started")
    by_call = Counter((start["tool"], start["key"]) for start in starts)
    totals = Counter(start["tool"] for start in starts)
    return [
        f"{tool} started {count} times for one call"
        for (tool, _), count in by_call.items()
        if count > _allowed(world, tool) and not _says_so(world, tool, totals[tool])
    ]


def _allowed(world: World, tool: str) -> int:
    spec = world.case.given["tools"].get(tool, {})
    return (1 + len(spec.get("asks", ()))) * int(_tool_options(world, tool).get("max_attempts", 1))


def _says_so(world: World, tool: str, total: int) -> bool:
    return any(_expected_starts(step["expect"].get("executed"), tool) == total for step in world.case.steps)


def _expected_starts(expected: Any, tool: str) -> int | None:
    """Return how many starts of a tool an expectation names, where it names a number."""
    if isinstance(expected, list):
        return sum(name == tool for name, _ in expected)
    if not isinstance(expected, dict):
        return None
    if tool in expected.get("counts", {}):
        return int(expected["counts"][tool])
    named = expected.get("list", expected.get("unordered"))
    return _expected_starts(named, tool) if isinstance(named, list) else None


async def no_failing_tasks(world: World) -> Problems:
    """The runs never fail their tasks."""
    return [f"a workflow task failed: {one}" for one in await task_failures(world, await all_workflows(world))]


async def snapshot(world: World, run: Run) -> Json | None:
    """Return what the queries of a run show; None for a run that can't be asked."""
    if world.worker is None or not await world.is_open(run.id):
        return None
    handle = world.temporal.get_workflow_handle(run.id)
    names = [name for name in _UNCHANGED if not (run.is_thread and name == "approvals")]
    return {name: await bounded(handle.query(name)) for name in names}


def nothing_changed(before: Json | None, after: Json | None) -> Problems:
    """A refused request changes nothing that a query shows."""
    if before is None or after is None:
        return []
    return [
        f"a refused request changed what {name} shows: {short(before[name])} -> {short(after[name])}"
        for name in before
        if json.dumps(before[name], sort_keys=True) != json.dumps(after.get(name), sort_keys=True)
    ]


async def round_trip(world: World, run: Run, messages: list[Json]) -> Problems:
    """The model got the messages that were sent, class and all fields."""
    entries = Facts(world, run, Outcome()).answers()
    if not entries:
        return ["round_trip: the model was not asked"]
    known = {entry["hash"]: entry["value"] for entry in world.journal.read("message")}
    found = [known[one] for one in entries[0]["messages"]]
    sent = [read_message(expand(message)) for message in messages]
    wanted = [
        {"class": type(message).__name__, **json.loads(json.dumps(message.model_dump(), default=str))}
        for message in sent
    ]
    if len(found) != len(wanted):
        return [f"round_trip: {len(wanted)} messages were sent, the model got {len(found)}"]
    return [
        problem for n, (one, other) in enumerate(zip(wanted, found, strict=True)) for problem in _exactly(one, other, n)
    ]


def _exactly(sent: Json, got: Json, number: int) -> Problems:
    more = [f"round_trip[{number}]: {key} was added" for key in got if key not in sent]
    return match(sent, got, f"round_trip[{number}]") + more
