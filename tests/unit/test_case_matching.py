"""The case runner can fail: what does not fit is found, and what is worded otherwise is not mistaken for wrong."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tests.case_runner.loading import DEFAULT, Case, load_cases, select
from tests.case_runner.matching import MISSING, Bindings, fits, match, match_unordered
from tests.case_runner.placeholders import PLACEHOLDERS
from tests.case_runner.references import Reference
from tests.case_runner.templates import encode, expand, fill
from turngate.contracts import digest_of

MAIL = {"to": "b@x.test", "body": "bye"}


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        ({"a": 1}, {"a": 1, "b": 2}),
        ([1, {"a": 2}], [1, {"a": 2, "b": 3}]),
        ({"a": {"$absent": True}}, {"a": None}),
        ({"a": {"$absent": True}}, {}),
        ({"a": None}, {"a": None}),
        ({"$any": True}, []),
        ({"$one_of": [1, {"$absent": True}]}, MISSING),
        ({"$all": [{"$contains": "x"}, {"$not": "x"}]}, "xy"),
        ({"$same_members": ["a", "b"]}, ["b", "a"]),
        ({"$contains": 'say "hi"'}, ['he may say "hi"']),
        ({"$contains_all": ["a", "b"]}, {"a": "b"}),
        ({"$valid_text": True}, "grüße"),
        (1, 1.0),
        (float("nan"), float("nan")),
    ],
)
def test_what_fits(expected: Any, found: Any) -> None:
    """Objects match in part, arrays exactly."""
    assert match(expected, found) == []


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        ({"a": 1}, {"b": 1}),
        ({"a": 1}, {"a": None}),
        ({"a": 1}, [1]),
        ([1], [1, 2]),
        ([1, 2], [2, 1]),
        ([], "text"),
        (1, True),
        (0, False),
        ("1", 1),
        ({"$any": True}, MISSING),
        ({"$absent": True}, 0),
        ({"$not": 1}, 1),
        ({"$same_members": ["a"]}, ["a", "a"]),
        ({"$contains": "x"}, MISSING),
        ({"$contains_all": ["a", "z"]}, "abc"),
        ({"$valid_text": True}, "\ud800"),
        ({"$no_such_word": 1}, 1),
    ],
)
def test_what_does_not_fit(expected: Any, found: Any) -> None:
    """Each of these is reported."""
    assert match(expected, found)


def test_unordered_matching_tries_every_assignment() -> None:
    """A greedy choice would give the first entry away."""
    expected = [{"$any": True}, {"a": 1}]
    assert match_unordered(expected, [{"a": 1}, {"b": 2}], "") == []
    assert match_unordered(expected, [{"b": 1}, {"b": 2}], "")


def test_same_and_differs() -> None:
    """Bindings hold within one comparison."""
    same = [{"k": {"$same": "k"}}, {"k": {"$same": "k"}}, {"k": {"$differs": "k"}}]
    assert match(same, [{"k": 1}, {"k": 1}, {"k": 2}], "", Bindings()) == []
    assert match(same, [{"k": 1}, {"k": 2}, {"k": 3}], "", Bindings())
    assert match(same, [{"k": 1}, {"k": 1}, {"k": 1}], "", Bindings())


CONVEYED = {
    "$reject_default": (
        {"name": "pay", "tool_call_id": "c1"},
        "A human said no: 'pay' was not executed. Never try this call again unless the user requests it.",
        "A reviewer declined 'pay'. It did not run.",
    ),
    "$reject_reason": (
        {"name": "pay", "message": "too much"},
        "The person in charge rejected pay, it hasn't been run. too much. Do not repeat it until the user asks.",
        "The person in charge rejected pay, it hasn't been run. Do not repeat it until the user asks.",
    ),
    "$edit_notice": (
        {"name": "mail", "args": MAIL, "result": "sent"},
        f"Somebody replaced your call: mail ran with {json.dumps(MAIL)}.\nsent",
        f"sent. Somebody replaced your call: mail ran with {json.dumps(MAIL)}.",
    ),
    "$expired": (
        {"name": "pay"},
        "The deadline of pay passed, so it was not run. Nobody said no.",
        "A reviewer declined pay, so it was not run.",
    ),
    "$cancelled": ({"name": "pay"}, "pay was stopped. No human refused it.", "pay was rejected by a reviewer."),
    "$denied": (
        {"name": "pay", "reason": "above the limit"},
        "The policy does not allow pay: above the limit. No one was consulted.",
        "A reviewer does not allow pay: above the limit.",
    ),
    "$repeat_denied": (
        {"name": "pay"},
        "This call of pay was declined earlier; nobody was asked again. Don't retry unless the user wants it.",
        "This call of pay was declined. Don't retry unless the user wants it.",
    ),
    "$invalid_call": (
        {"name": "pay"},
        "The call of pay is malformed and nothing ran. Send it once more.",
        "The call of pay was declined.",
    ),
    "$too_large": (
        {"name": "pay"},
        "The arguments of pay exceed 262144 bytes; it was never run.",
        "The arguments of pay exceed the budget.",
    ),
    "$invalid_args": (
        {"name": "pay", "fields": ["to", "amount"]},
        "pay: to is missing, amount is not valid",
        "pay: to is missing",
    ),
    "$unknown_tool": (
        {"name": "pya", "known": ["pay"]},
        "pya does not exist. Use pay.",
        "pya does not exist.",
    ),
    "$tool_error": ({"name": "pay", "error": "boom"}, "pay raised: boom", "pay raised"),
    "$unknown_outcome": (
        {"name": "pay", "message": "bank says no"},
        "Nobody knows whether pay happened; a person treats it as failed: bank says no",
        "pay failed: bank says no",
    ),
    "$cut": (
        {"total_bytes": 1000, "kept_at_most": 700},
        "x" * 600 + "\n[400 bytes more]",
        "x" * 600 + "\n[some bytes more]",
    ),
    "$default_description": (
        {"prefix": "Look", "name": "mail", "args": MAIL},
        "Look: mail\nto: b@x.test\nbody: bye",
        "Look: mail\nto: b@x.test",
    ),
}


def test_every_placeholder_is_checked_here() -> None:
    """None is forgotten, in the code or in this file."""
    assert set(CONVEYED) == set(PLACEHOLDERS)


@pytest.mark.parametrize("placeholder", sorted(CONVEYED))
def test_placeholders_look_for_ideas(placeholder: str) -> None:
    """Another wording of the same passes; a text that leaves an idea out does not."""
    values, good, bad = CONVEYED[placeholder]
    assert match({placeholder: values}, good) == []
    assert match({placeholder: values}, bad)
    assert match({placeholder: values}, MISSING)


def test_a_notice_needs_every_argument_and_may_stand_alone() -> None:
    """Names and values of what ran are in it."""
    values = {"name": "mail", "args": MAIL, "result": ""}
    assert fits({"$edit_notice": values}, f"A reviewer edited it: mail {json.dumps(MAIL)}")
    assert not fits({"$edit_notice": values}, "A reviewer edited it: mail b@x.test")
    blocks = [{"type": "text", "text": f"A reviewer edited it: mail {json.dumps(MAIL)}"}]
    assert fits({"$edit_notice": values}, blocks)


def test_templates() -> None:
    """Repetition, numbers, references and values that JSON texts can't hold."""
    repeated = [{"times": 2, "call": {"id": "c{i}", "n": {"$i": True}}}, "x"]
    assert expand(repeated) == [{"id": "c1", "n": 1}, {"id": "c2", "n": 2}, "x"]
    assert expand([{"times": 1, "offset": 4, "decision": "d{i}"}]) == ["d5"]
    assert expand({"$repeat": {"text": "ab", "times": 2}}) == "abab"
    assert expand({"$chars": [104, 105]}) == "hi"
    assert math.isnan(expand({"$nan": True}))
    assert encode(expand({"v": {"$nest": 3}})) == b'{"v":[[[]]]}'
    assert len(encode(expand({"$nest": 90_000}))) == 180_000
    assert encode(expand({"$chars": [55296]})) == b'"\\ud800"'
    assert expand({"$digest": ["pay", {"n": 1}]}) == digest_of("pay", {"n": 1})
    ids = {"c1": "run/x-1", "!9": "run/x-9"}
    assert expand({"@c1": {"$json_text": {"id": "@!9"}}}, ids.get) == {"run/x-1": '{"id": "run/x-9"}'}
    assert expand("@nobody", ids.get) == "@nobody"
    assert fill({"a": ["{x} {y.z} {other}"]}, {"x": 1, "y": {"z": 2}}) == {"a": ["1 2 {other}"]}


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("c1", Reference("c1")),
        ("@c1#2", Reference("c1", number=2)),
        ("#2", Reference("", number=2)),
        ("two:t1/s1/c1", Reference("c1", run="two", path=("t1", "s1"))),
    ],
)
def test_references(text: str, reference: Reference) -> None:
    """Every form of the grammar."""
    assert Reference.read(text) == reference


def test_our_cases_are_in_their_grammar() -> None:
    """All of them, each with an id of its own."""
    cases = load_cases(DEFAULT)
    assert [case.problems for case in cases if case.problems] == []
    assert len({case.id for case in cases}) == len(cases) > 150


def test_selecting() -> None:
    """By id, area or file; a word that selects nothing is told."""
    cases = [Case("DEC-001", "decisions", "", {}, []), Case("VAL-001", "validation", "", {}, [])]
    assert select(cases, []) == cases
    assert [case.id for case in select(cases, ["dec", "VAL-001"])] == ["DEC-001", "VAL-001"]
    assert [case.id for case in select(cases, ["validation"])] == ["VAL-001"]
    with pytest.raises(ValueError, match="DEC-009"):
        select(cases, ["DEC-009"])
