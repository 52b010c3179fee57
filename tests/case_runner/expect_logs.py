"""Expectations about what was written down meanwhile: by tools, behaviours, notifiers and the stream of events."""

from __future__ import annotations

from typing import Any

from tests.case_runner.expect_run import same_approvals
from tests.case_runner.facts import Facts
from tests.case_runner.matching import MISSING, Bindings, Problems, fits, match, short
from tests.case_runner.references import written

Json = dict[str, Any]
NOTIFIED_KINDS = ("requested", "reminder", "escalated")


async def seen_by_tool(facts: Facts, expected: dict[str, Any]) -> Problems:
    """What a tool reported, per execution in order."""
    problems: Problems = []
    names = Bindings()
    for tool, wanted in expected.items():
        found = reports_of(facts, tool)
        if isinstance(wanted, list):
            problems += await facts.compare(wanted, found, f"seen_by_tool.{tool}", names)
            continue
        found, wanted = facts.world.plain(found), facts.world.plain(await facts.resolver.fill(wanted))
        for one in wanted.get("include", ()):
            if not any(fits(one, report) for report in found):
                problems.append(f"seen_by_tool.{tool}: no execution saw {short(one)}, but {short(found)}")
        for number, report in enumerate(found if "all" in wanted else []):
            problems += match(wanted["all"], report, f"seen_by_tool.{tool}[{number}]", names)
        if "all" in wanted and not found:
            problems.append(f"seen_by_tool.{tool}: it never ran")
    return problems


def reports_of(facts: Facts, tool: str) -> list[Json]:
    """Return the last report of each execution."""
    latest: dict[str, Json] = {}
    for entry in facts.world.journal.read("report", tool=tool):
        latest[entry["execution"]] = entry["report"]
    return list(latest.values())


async def behaviour_calls(facts: Facts, expected: dict[str, int]) -> Problems:
    """How often each behaviour ran."""
    found = {name: facts.world.journal.count("behaviour", name=name) for name in expected}
    return match(expected, found, "behaviour_calls")


async def listed(facts: Facts, expected: Any) -> Problems:
    """What `list` gave."""
    ways = []
    for approval in facts.outcome.listed or []:
        run = next((run for run in facts.world.runs.values() if approval.id.startswith(f"{run.id}/")), None)
        raised = await facts.resolver.approvals(run) if run else [approval]
        ways.append(written(approval, raised, run.name if run else "unknown"))
    return same_approvals(expected, ways, "listed")


async def notified(facts: Facts, expected: Any) -> Problems:
    """What the notifier got."""
    everything = [entry["notification"] for entry in facts.world.journal.read("notified")]
    wanted: Json = {"list": expected} if isinstance(expected, list) else expected
    problems: Problems = []
    if "list" in wanted:
        entries = [
            {"kind": entry["kind"], "approval": await facts.resolver.id_of(entry["approval"])}
            for entry in wanted["list"]
        ]
        found = [
            {"kind": one["kind"], "approval": one["approval"]["id"]}
            for one in everything
            if one["kind"] in NOTIFIED_KINDS
        ]
        problems += match(entries, found, "notified")
    kinds = [one["kind"] for one in everything]
    for kind, count in wanted.get("counts", {}).items():
        if kinds.count(kind) != count:
            problems.append(f"notified: expected {count} x {kind}, found {kinds}")
    keys = [one.get("key") for one in everything]
    if wanted.get("unique") and (len(set(keys)) != len(keys) or not all(keys)):
        problems.append(f"notified: keys are used twice: {keys}")
    for path in wanted.get("each_has", ()):
        problems += [f"notified: {path} is not in {short(one)}" for one in everything if _field(one, path) is MISSING]
    return problems


def _field(notification: Json, path: str) -> Any:
    """Find a field of the approval in a notification."""
    value: Any = notification["approval"]
    for name in path.split("."):
        value = value.get(name, MISSING) if isinstance(value, dict) else MISSING
    return value


async def events(facts: Facts, expected: Json) -> Problems:
    """What the stream of events told."""
    found = {name for event in facts.run.events for name in _names(event)}
    problems = [
        f"events: {one} is missing in {sorted(found)}" for one in expected.get("include", ()) if one not in found
    ]
    return problems + [f"events: {one} is there" for one in expected.get("lack", ()) if one in found]


def _names(event: Any) -> set[str]:
    """Return the words by which cases speak of an event: its type, and its type with the call."""
    call = event.data.get("tool_call_id")
    return {event.type, f"{event.type}:{call}"} if call else {event.type}
