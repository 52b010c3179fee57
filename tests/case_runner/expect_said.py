"""Expectations about what ran and what was said: tool bodies, messages, the model's inputs."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import Any

from tests.case_runner.facts import Facts
from tests.case_runner.matching import MISSING, Problems, contains, match, match_unordered, short
from tests.case_runner.placeholders import text_of
from tests.case_runner.script import read_script
from tests.case_runner.tree import descendants
from tests.case_runner.world import bounded

Json = dict[str, Any]


async def executed(facts: Facts, expected: Any) -> Problems:
    """Every start of a tool body, over the whole case."""
    starts = facts.world.journal.read("started")
    found = [[start["tool"], start["args"]] for start in starts]
    wanted = await facts.resolver.fill({"list": expected} if isinstance(expected, list) else expected)
    problems: Problems = []
    if "list" in wanted:
        problems += match(wanted["list"], found, "executed")
    if "unordered" in wanted:
        problems += _any_order(wanted["unordered"], found)
    names = [tool for tool, _ in found]
    for tool, count in wanted.get("counts", {}).items():
        if names.count(tool) != count:
            problems.append(f"executed: expected {count} x {tool}, found {short(found)}")
    for tool, count in wanted.get("counts_at_most", {}).items():
        if names.count(tool) > count:
            problems.append(f"executed: expected at most {count} x {tool}, found {short(found)}")
    if "overlapped" in wanted and not _overlapped(facts, wanted["overlapped"], starts):
        problems.append(f"executed: {wanted['overlapped']} did not run at the same time")
    return problems


def _any_order(expected: Any, found: list[Any]) -> Problems:
    choices = expected["$one_of"] if isinstance(expected, dict) else [expected]
    answers = [match_unordered(choice, found, "executed") for choice in choices]
    return [] if any(not answer for answer in answers) else answers[0]


def _overlapped(facts: Facts, tools: list[str], starts: list[Json]) -> bool:
    ends = {end["execution"]: end["at"] for end in facts.world.journal.read("ended")}
    spans = [(start["tool"], start["at"], ends.get(start["execution"], float("inf"))) for start in starts]
    chosen = (each for each in combinations(spans, len(tools)) if sorted(tool for tool, _, _ in each) == sorted(tools))
    return any(max(start for _, start, _ in each) < min(end for _, _, end in each) for each in chosen)


async def tool_messages(facts: Facts, expected: Any) -> Problems:
    """All tool messages of the conversation, in order."""
    return await compare_tool_messages(facts, expected, await facts.messages(), "tool_messages")


async def compare_tool_messages(facts: Facts, expected: Any, messages: list[Json], where: str) -> Problems:
    """Compare the tool messages of a conversation."""
    found = [message for message in messages if message["type"] == "tool"]
    wanted = await facts.resolver.fill({"list": expected} if isinstance(expected, list) else expected)
    problems: Problems = []
    if "list" in wanted:
        problems += match(wanted["list"], found, where)
    if "unordered" in wanted:
        problems += match_unordered(wanted["unordered"], found, where)
    if len(found) != wanted.get("count", len(found)):
        problems.append(f"{where}: expected {wanted['count']}, found {len(found)}")
    if "last" in wanted:
        problems += match(wanted["last"], found[-1] if found else MISSING, f"{where}.last")
    if wanted.get("in_call_order"):
        problems += _in_call_order(messages, where)
    return problems


def _in_call_order(messages: list[Json], where: str) -> Problems:
    calls = [call["id"] for message in messages if message["type"] == "ai" for call in message.get("tool_calls") or []]
    answers = [message["tool_call_id"] for message in messages if message["type"] == "tool"]
    expected = [call for call in calls if call in answers]
    found = [answer for answer in answers if answer in calls]
    return [] if expected == found else [f"{where}: not in the order of the calls: {short(found)}"]


async def ai_tool_calls(facts: Facts, expected: list[Any]) -> Problems:
    """The calls of each AI message that has any."""
    calls = [message.get("tool_calls") for message in await facts.messages() if message["type"] == "ai"]
    # An id of null is compared as well, so calls are matched field by field here.
    found = [[{key: call.get(key) for key in ("id", "name", "args")} for call in each] for each in calls if each]
    return match(await facts.resolver.fill(expected), found, "ai_tool_calls")


async def model_calls(facts: Facts, expected: int) -> Problems:
    """How many answers of the script were used: by this run, and with that by the case where it has but one."""
    here, everywhere = len(facts.answers()), len(facts.answers(whole_case=True))
    return [] if expected in (here, everywhere) else [f"model_calls: expected {expected}, found {here}"]


async def model_input(facts: Facts, expected: Json) -> Problems:
    """What the model was given at its n-th call."""
    number = expected.get("call", 0)
    entries = facts.answers()
    if len(entries) < max(number, 1):
        return [f"model_input: there was no call {number}, only {len(entries)}"]
    known = {entry["hash"]: entry["value"] for entry in facts.world.journal.read("message")}
    messages = [known[one] for one in entries[number - 1]["messages"]]
    problems: Problems = []
    if "types" in expected:
        problems += match(expected["types"], [message["type"] for message in messages], "model_input.types")
    answered = [message.get("tool_call_id") for message in messages]
    problems += [
        f"model_input: the call {call!r} has no result in it"
        for call in expected.get("answered", ())
        if call not in answered
    ]
    if "last_text" in expected:
        problems += match(expected["last_text"], text_of(messages[-1]["content"]), "model_input.last_text")
    problems += [f"model_input: {text!r} is in it" for text in expected.get("lacks", ()) if contains(text, messages)]
    return problems + _kept_turns(facts, expected.get("kept_turns", ()), entries, known)


def _kept_turns(facts: Facts, turns: Iterable[int], entries: list[Json], known: dict[str, Json]) -> Problems:
    """The scripted messages came back unchanged in every later call."""
    script = read_script(facts.world.given["model"])
    problems: Problems = []
    for turn in turns:
        scripted = {
            key: value for key, value in script[turn - 1].message.model_dump(exclude_unset=True).items() if value
        }
        for entry in entries[turn:]:
            if not any(not match(scripted, known[one]) for one in entry["messages"]):
                problems.append(f"model_input: answer {turn} did not come back unchanged: {short(scripted)}")
    return problems


async def conversation(facts: Facts, expected: Json) -> Problems:
    """The types of the conversation's messages, and what people said."""
    messages = await facts.messages()
    found = {
        "types": [message["type"] for message in messages],
        "human_texts": [text_of(message["content"]) for message in messages if message["type"] == "human"],
    }
    return match(await facts.resolver.fill(expected), found, "conversation")


async def subagents(facts: Facts, expected: dict[str, Json]) -> Problems:
    """What each subagent has done."""
    problems: Problems = []
    for name, wanted in expected.items():
        answers = facts.world.journal.read("answer", agent=name, subagent=True)
        where = f"subagents.{name}"
        if len(answers) != wanted.get("model_calls", len(answers)):
            problems.append(f"{where}: expected {wanted['model_calls']} model calls, found {len(answers)}")
        if "input" in wanted or "tool_messages" in wanted:
            problems += await _subagent_messages(facts, wanted, {answer["turn"] for answer in answers}, where)
    return problems


async def _subagent_messages(facts: Facts, expected: Json, turns: set[str], where: str) -> Problems:
    below = [each for each in await descendants(facts.world, await facts.latest_turn()) if each in turns]
    messages = [message for turn in below for message in await bounded(facts.world.turn(turn).messages())]
    problems: Problems = []
    if "input" in expected:
        first = next((text_of(message["content"]) for message in messages if message["type"] == "human"), MISSING)
        problems += match(await facts.resolver.fill(expected["input"]), first, f"{where}.input")
    if "tool_messages" in expected:
        problems += await compare_tool_messages(facts, expected["tool_messages"], messages, f"{where}.tool_messages")
    return problems
