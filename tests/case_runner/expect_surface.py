"""Expectations about what people see: search attributes, the details page, the command line."""

from __future__ import annotations

import json
from typing import Any

from temporalio.api.sdk.v1 import WorkflowMetadata

from tests.case_runner.facts import Facts
from tests.case_runner.matching import Problems, match, short
from tests.case_runner.programs import run_turngate
from tests.case_runner.world import bounded
from turngate.contracts import Approval

Json = dict[str, Any]


async def surface(facts: Facts, expected: Json) -> Problems:
    """See README: search_attributes, details, same_object, exit_code, output."""
    problems: Problems = []
    if "search_attributes" in expected:
        problems += await _search_attributes(facts, expected["search_attributes"])
    if "details" in expected:
        problems += await _details(facts, await facts.resolver.fill(expected["details"]))
    if "same_object" in expected:
        problems += await _same_object(facts, expected["same_object"])
    if "exit_code" in expected:
        problems += match(expected["exit_code"], facts.outcome.exit_code, "exit_code")
    if "output" in expected:
        problems += match(await facts.resolver.fill(expected["output"]), facts.outcome.output, "output")
    return [f"{problem} | {short(facts.outcome.output)}" if facts.outcome.output else problem for problem in problems]


async def _search_attributes(facts: Facts, expected: Json) -> Problems:
    description = await facts.world.describe(await facts.latest_turn())
    found = {pair.key.name: _plain(pair.value) for pair in description.typed_search_attributes}
    return await facts.compare(expected, found, "search_attributes")


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, list | tuple) else value


async def _details(facts: Facts, expected: Json) -> Problems:
    handle = facts.world.temporal.get_workflow_handle(await facts.latest_turn())
    metadata = await bounded(handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata))
    text = metadata.current_details
    problems = [
        f"details: {one!r} is not in it: {short(text)}" for one in expected.get("mentions", ()) if one not in text
    ]
    problems += [f"details: {one!r} is in it" for one in expected.get("lacks", ()) if one in text]
    if "one_row_per_call" in expected and (rows := _table_rows(text)) != expected["one_row_per_call"]:
        problems.append(f"details: expected {expected['one_row_per_call']} rows, found {rows}: {short(text, 1500)}")
    size = len(text.encode())
    if size > expected.get("at_most_bytes", size):
        problems.append(f"details: {size} bytes, more than {expected['at_most_bytes']}")
    return problems


def _table_rows(markdown: str) -> int:
    """Count the rows below the head of the first table, outside of code."""
    fence: str | None = None
    rows = 0
    below_head = False
    for line in markdown.splitlines():
        mark = line.strip()
        if fence is None and mark.startswith("```"):
            fence = mark[: len(mark) - len(mark.lstrip("`"))]
        elif fence is not None:
            fence = None if mark == fence else fence
        elif mark.startswith("|") and set(mark) <= set("|-: "):
            below_head = True
        elif mark.startswith("|") and below_head:
            rows += 1
        elif below_head and rows:
            break
    return rows


async def _same_object(facts: Facts, places: list[str]) -> Problems:
    """The same approvals, wherever they are shown."""
    readers = {"query": _by_query, "list": _by_list, "notification": _by_notification, "cli": _by_command_line}
    shown = {place: sorted(await readers[place](facts), key=lambda one: str(one["id"])) for place in places}
    first, *others = shown.items()
    problems = [f"same_object: {first[0]} shows nothing"] if not first[1] else []
    return problems + [
        f"same_object: {place} shows {short(objects, 1500)}, {first[0]} shows {short(first[1], 1500)}"
        for place, objects in others
        if objects != first[1]
    ]


async def _by_query(facts: Facts) -> list[Json]:
    handle = facts.world.temporal.get_workflow_handle(await facts.latest_turn())
    page: Json = await bounded(handle.query("pending"))
    return [Approval.model_validate(entry).to_json() for entry in page["approvals"]]


async def _by_list(facts: Facts) -> list[Json]:
    return [approval.to_json() for approval in await _listed(facts)]


async def _listed(facts: Facts) -> list[Approval]:
    return list(await facts.world.client.pending())


async def _by_command_line(facts: Facts) -> list[Json]:
    outcome = await run_turngate(facts.world, "inbox", "--json")
    shown = json.loads(outcome.output)
    entries = shown if isinstance(shown, list) else shown["approvals"]
    return [Approval.model_validate(entry).to_json() for entry in entries]


async def _by_notification(facts: Facts) -> list[Json]:
    entries = facts.world.journal.read("notified")
    requested = [entry["notification"] for entry in entries if entry["notification"]["kind"] == "requested"]
    return [Approval.model_validate(one["approval"]).to_json() for one in requested]
