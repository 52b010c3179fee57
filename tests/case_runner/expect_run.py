"""Expectations about the state of a run: what waits, how it stands, what is remembered."""

from __future__ import annotations

from typing import Any

import jsonschema_rs

from tests.case_runner.expect_told import COMPARED_STATUSES
from tests.case_runner.facts import Facts
from tests.case_runner.matching import Problems, contains, match, match_unordered, short
from tests.case_runner.references import written
from tests.case_runner.world import bounded
from turngate.contracts import Approval

Json = dict[str, Any]


async def pending(facts: Facts, expected: Any) -> Problems:
    """The open approvals, in the order of the calls."""
    found = await facts.pending()
    raised = await facts.approvals() if found else []
    ways = [written(approval, raised) for approval in found]
    return same_approvals(expected, ways, "pending")


def same_approvals(expected: Any, ways: list[set[str]], where: str) -> Problems:
    """Compare references with approvals, each given by the ways in which it may be written."""
    shown = [min(each, key=lambda way: ("#" in way, len(way))) for each in ways]
    if isinstance(expected, list):
        fits = len(expected) == len(ways) and all(one in each for one, each in zip(expected, ways, strict=True))
        return [] if fits else [f"{where}: expected {expected}, found {shown}"]
    count = len(ways)
    fits = count == expected.get("count", count) and count <= expected.get("count_at_most", count)
    if fits and "unordered" in expected:
        fits = _assigned(expected["unordered"], ways)
    return [] if fits else [f"{where}: expected {expected}, found {count}: {shown}"]


def _assigned(expected: list[str], ways: list[set[str]]) -> bool:
    """Tell whether each reference has an approval of its own, and each approval a reference."""
    left = list(ways)
    for one in expected:
        found = next((each for each in left if one in each), None)
        if found is None:
            return False
        left.remove(found)
    return not left


async def final(facts: Facts, expected: Any) -> Problems:
    """The turn's output."""
    return await facts.compare(expected, (await facts.result()).output, "final")


async def status(facts: Facts, expected: Any) -> Problems:
    """What the run is at, or how it ended."""
    return match(expected, await facts.status(), "status")


async def failure(facts: Facts, expected: Json) -> Problems:
    """Why the run failed."""
    found = await facts.failure()
    return [
        f"failure: {one!r} is not mentioned in {short(found)}"
        for one in expected["mentions"]
        if not contains(one.lower(), found.lower())
    ]


async def turns(facts: Facts, expected: list[str]) -> Problems:
    """The turns of the thread that were started; an open one says itself what it is at."""
    world = facts.world
    told = (await bounded(world.thread(facts.run).status()))["turns"]
    found = [str(turn["status"]) for turn in told if turn["status"] != "queued"]
    if found and found[-1] == "running":
        found[-1] = await facts.status()
    return match(expected, found, "turns")


async def result(facts: Facts, expected: Json) -> Problems:
    """Fields of the TurnResult."""
    found = await facts.result()
    data = {**found.to_json(), "approvals": [approval.to_json() for approval in found.approvals]}
    data["message_types"] = [message["type"] for message in found.messages or []]
    return await facts.compare(expected, data, "result")


async def approval(facts: Facts, expected: dict[str, Json]) -> Problems:
    """Fields of approvals, by reference."""
    problems: Problems = []
    for reference, wanted in expected.items():
        found = await facts.resolver.find(reference.removeprefix("@"))
        if found is None:
            problems.append(f"approval: there is none for {reference}")
        else:
            problems += await _compare_approval(facts, reference, wanted, found)
    return problems


async def _compare_approval(facts: Facts, where: str, expected: Json, found: Approval) -> Problems:
    expected = dict(expected)
    schema = expected.pop("$schema", {})
    mentions = expected.pop("$mentions", [])
    if isinstance(expected.get("status"), str) and expected["status"] not in COMPARED_STATUSES:
        del expected["status"]
    data = found.to_json()
    problems = await facts.compare(expected, data, where)
    problems += [f"{where}: {one!r} is not mentioned in {short(data)}" for one in mentions if not contains(one, data)]
    return problems + _compare_schema(f"{where}.response_schema", schema, found.response_schema)


def _compare_schema(where: str, expected: Json, schema: Json) -> Problems:
    if not expected:
        return []
    problems: Problems = []
    if "branches" in expected and sorted(_branches(schema)) != sorted(expected["branches"]):
        problems.append(f"{where}: expected branches {expected['branches']}, found {_branches(schema)}")
    if "has_one_of" in expected and ("oneOf" in schema) is not expected["has_one_of"]:
        problems.append(f"{where}: oneOf is {'not ' if expected['has_one_of'] else ''}there")
    validator = jsonschema_rs.validator_for(schema)
    for verdict in ("accepts", "refuses"):
        for decision in expected.get(verdict, ()):
            if validator.is_valid(decision) is not (verdict == "accepts"):
                problems.append(f"{where}: it should be one that {verdict} {short(decision)}: {short(schema)}")
    return problems


def _branches(schema: Json) -> list[str]:
    """Return the decisions that a response schema has branches for."""
    found = []
    for branch in schema.get("oneOf") or schema.get("anyOf") or [schema]:
        if "$ref" in branch:
            branch = schema["$defs"][branch["$ref"].rpartition("/")[2]]
        kind = branch.get("properties", {}).get("type", {})
        found += [kind["const"]] if "const" in kind else kind.get("enum", [])
    return found


async def approvals(facts: Facts, expected: Json) -> Problems:
    """How many were raised, and whether they are the same as noted before."""
    ids = [approval.id for approval in await facts.approvals()]
    noted = facts.world.noted
    problems: Problems = []
    if "count" in expected and len(ids) != expected["count"]:
        problems.append(f"approvals: expected {expected['count']}, found {ids}")
    if expected.get("distinct_ids") and len(set(ids)) != len(ids):
        problems.append(f"approvals: ids are used twice: {ids}")
    if "remember_as" in expected:
        noted[expected["remember_as"]] = ids
    if "same_as" in expected and ids != noted.get(expected["same_as"]):
        problems.append(f"approvals: expected {noted.get(expected['same_as'])}, found {ids}")
    return problems


async def refused(facts: Facts, expected: Any) -> Problems:
    """The refused signals so far."""
    handle = facts.world.temporal.get_workflow_handle(await facts.latest_turn())
    found: Json = await bounded(handle.query("refused"))
    count, entries = found.get("count", len(found["refused"])), found["refused"]
    wanted = {"count": expected} if isinstance(expected, int) else expected
    problems = []
    if count != wanted.get("count", count):
        problems.append(f"refused: expected {wanted['count']}, found {count}: {short(entries)}")
    if len(entries) != wanted.get("kept", len(entries)):
        problems.append(f"refused: expected {wanted['kept']} kept, found {len(entries)}")
    if "entries" in wanted:
        problems += await facts.compare(wanted["entries"], entries, "refused")
    return problems


async def rules(facts: Facts, expected: list[Json]) -> Problems:
    """The remembered rules in force."""
    world, run = facts.world, facts.run
    handle = world.thread(run) if run.is_thread else world.turn(run)
    found = [rule.to_json() for rule in await bounded(handle.rules())]
    return match_unordered(expected, found, "rules") if match(expected, found, "rules") else []
