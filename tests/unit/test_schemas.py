"""Argument schemas: what can be prepared, what can't, and where a fault is found."""

from __future__ import annotations

import time
from typing import Any

import pytest

from turngate.schemas import check, prepare, response_schema

ORDER = {
    "type": "object",
    "properties": {
        "to": {"type": "string"},
        "amount": {"type": "integer", "maximum": 9},
        "line": {"$ref": "#/$defs/Line"},
        "open": {"unevaluatedProperties": False},
    },
    "required": ["to", "amount"],
    "additionalProperties": False,
    "$defs": {"Line": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Line"}, "n": {"type": "integer"}}}},
}


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"to": "a"}, ("amount",)),
        ({"to": "a", "amount": "7"}, ("amount",)),
        ({"to": "a", "amount": 10}, ("amount",)),
        ({"to": "a", "amount": 1, "memo": "x"}, ("memo",)),
        ({"to": "a", "amount": 1, "line": {"next": {"n": "x"}}}, ("line", "next", "n")),
        ({"to": "a", "amount": 1, "open": {"memo": "x"}}, ("open", "memo")),
    ],
)
def test_a_fault_has_the_path_of_its_field(value: Any, path: tuple[str, ...]) -> None:
    """Missing and undeclared fields too."""
    prepared, warning = prepare(ORDER)
    assert warning is None
    assert prepared is not None
    assert check(prepared, value)[0][0] == path


def deep(levels: int) -> dict[str, Any]:
    """A schema whose references double at every level."""
    definitions: dict[str, Any] = {f"a{i}": {"allOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(levels)}
    return {"$ref": "#/$defs/a0", "$defs": {**definitions, f"a{levels}": {"type": "string"}}}


@pytest.mark.parametrize(
    "schema",
    [
        5,
        {"$ref": "http://127.0.0.1:1/schema.json"},
        {"properties": {"a": {"$ref": "other.json#/x"}}},
        {"$ref": "#"},
        {"$ref": "#/$defs/missing"},
        {
            "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}},
            "$ref": "#/$defs/a",
        },
        deep(40),
        {"type": "objekt"},
        {"$schema": "http://127.0.0.1:1/own-draft"},
        {"properties": {"a": {"pattern": "(?=look)ahead"}}},
        {"properties": {"a": {"$id": "urn:x", "type": "string"}}},
        {"description": "x" * 70_000},
    ],
)
def test_what_cannot_be_bounded_is_not_prepared(schema: Any) -> None:
    """It comes back with a reason, quickly, and nothing is fetched."""
    begun = time.perf_counter()
    prepared, warning = prepare(schema)
    assert prepared is None
    assert warning
    assert time.perf_counter() - begun < 2


def test_a_catastrophic_pattern_takes_linear_time() -> None:
    """Python's engine would take longer than the universe for this one."""
    prepared, _ = prepare({"properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}})
    assert prepared is not None
    begun = time.perf_counter()
    assert check(prepared, {"a": "a" * 20_000 + "!"})
    assert time.perf_counter() - begun < 2


def test_a_schema_of_an_older_draft_is_read_as_such() -> None:
    """In draft 4 `exclusiveMaximum` is a flag; in newer ones it is a number."""
    prepared, warning = prepare(
        {
            "$schema": "http://json-schema.org/draft-04/schema#",
            "properties": {"n": {"maximum": 3, "exclusiveMaximum": True}},
        }
    )
    assert warning is None
    assert prepared is not None
    assert check(prepared, {"n": 3})
    assert not check(prepared, {"n": 2})


def test_references_of_every_kind_still_lead_where_they_should_once_published() -> None:
    """Draft 2019-09 has one that refers to the whole schema; fields may be named as keywords are."""
    own = {
        "$schema": "https://json-schema.org/draft/2019-09/schema",
        "properties": {"n": {"type": "integer"}, "sub": {"$recursiveRef": "#"}, "$id": {"type": "string"}},
        "additionalProperties": False,
    }
    prepared, warning = prepare(own)
    assert warning is None
    schema = response_schema("pay", ["edit"], prepared)
    for args, good in (({"sub": {"n": 1, "$id": "x"}}, True), ({"sub": {"n": "x"}}, False)):
        edit = {"type": "edit", "edited_action": {"name": "pay", "args": args}}
        assert (check(prepared or {}, args) == []) is good
        assert (check(schema, edit) == []) is good


def test_the_published_schema_accepts_what_the_ledger_would() -> None:
    """One branch a decision; references of the argument schema still lead where they should."""
    schema = response_schema("pay", ["approve", "edit", "reject", "respond"], ORDER)
    edit = {"type": "edit", "edited_action": {"name": "pay", "args": {"to": "a", "amount": 1, "line": {"next": {}}}}}
    assert not check(schema, edit)
    wrong = {"type": "edit", "edited_action": {"name": "pay", "args": {"to": "a", "amount": 1, "line": {"next": 5}}}}
    assert check(schema, wrong)
    assert check(schema, {"type": "edit", "edited_action": {"name": "other", "args": {"to": "a", "amount": 1}}})
    assert not check(schema, {"type": "reject", "reviewer": "ann", "digest": "0" * 16})
    assert "oneOf" not in response_schema("ask", ["respond"], None)
