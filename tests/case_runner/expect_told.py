"""Expectations about what a sender was told: receipts, errors, outcomes."""

from __future__ import annotations

from itertools import permutations
from typing import Any

from tests.case_runner.facts import Facts
from tests.case_runner.matching import Problems, contains, match, short
from turngate.errors import Refusal

Json = dict[str, Any]
COMPARED_STATUSES = ("pending", "expired", "cancelled")


async def receipt(facts: Facts, expected: list[Json]) -> Problems:
    """One receipt per decision, in the order sent."""
    found = [receipt.to_json() for receipt in facts.outcome.receipts]
    wanted = []
    for entry in expected:
        entry = dict(entry)
        reference = entry.pop("approval", None)
        if entry.get("status") not in COMPARED_STATUSES:
            entry.pop("status", None)
        if reference is not None:
            entry["approval_id"] = await facts.resolver.id_of(reference)
        wanted.append(entry)
    return match(await facts.resolver.fill(wanted), found, "receipt")


async def error(facts: Facts, expected: Any) -> Problems:
    """The sender was refused so: one error, or several in any order."""
    refusals = facts.outcome.refusals
    if not refusals:
        return [f"error: expected {short(expected)}, but it was accepted"]
    wanted = [await _with_id(facts, entry) for entry in (expected if isinstance(expected, list) else [expected])]
    if facts.outcome.exit_code is not None:
        # A program prints code and sentence, not the fields.
        wanted = [{key: entry[key] for key in ("code", "mentions") if key in entry} for entry in wanted]
    if isinstance(expected, list) and len(refusals) != len(wanted):
        return [f"error: expected {len(wanted)} refusals, found {_shown(refusals)}"]
    for chosen in permutations(refusals, len(wanted)):
        if all(not _differs(one, refusal) for one, refusal in zip(wanted, chosen, strict=True)):
            return []
    return [problem for one in wanted for problem in _differs(one, refusals[0])][:3]


def not_refused(facts: Facts) -> Problems:
    """Without the key `error` the request must have been accepted."""
    refusals = facts.outcome.refusals
    return [f"it was refused: {_shown(refusals)}"] if refusals else []


async def outcomes(facts: Facts, expected: dict[str, int]) -> Problems:
    """How many senders got which outcome or error code."""
    words = facts.outcome.words
    found = {word: words.count(word) for word in {*words, *expected}}
    return [
        f"outcomes: expected {count} x {word}, found {found}"
        for word, count in expected.items()
        if found[word] != count
    ]


async def _with_id(facts: Facts, entry: Json) -> Json:
    entry = dict(entry)
    if "approval" in entry:
        entry["approval_id"] = await facts.resolver.id_of(entry.pop("approval"))
    return entry


def _differs(expected: Json, refusal: Refusal) -> Problems:
    expected = dict(expected)
    mentions = expected.pop("mentions", [])
    found = {**refusal.to_json(), "path": list(refusal.path)}
    problems = match(expected, {key: value for key, value in found.items() if value is not None}, "error")
    missing = [one for one in mentions if not contains(one.lower(), refusal.message.lower())]
    problems += [f"error: {one!r} is not mentioned" for one in missing]
    return [f"{problem} ({_shown([refusal])})" for problem in problems]


def _shown(refusals: list[Refusal]) -> str:
    return "; ".join(f"{one.code} {list(one.path)} {one.approval_id}: {short(one.message, 300)}" for one in refusals)
