"""JSON Schema of a tool's arguments: prepared once where the plan is made, checked where an edit is judged.

The check runs in workflow code, so it must be bounded: patterns in linear time, no remote references, no reference
that turns in place, no expansion beyond a few thousand nodes. What can't be bounded is not prepared, and then the
call can't be edited.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, time
from typing import Any
from urllib.parse import unquote

import jsonschema_rs

from turngate.contracts import KIB, MAX_DEPTH, Json, json_size

SCHEMA_LIMIT = 64 * KIB
EXPANSION_LIMIT = 20_000
Path = tuple[str | int, ...]
Problem = tuple[Path, str]

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_IN_PLACE = (*_REFERENCES, "allOf", "anyOf", "oneOf", "not", "if", "then", "else")
_ARGS = "#/$defs/edited_args"

LOCAL = {"date-time": "date-time-local", "time": "time-local"}
"""The formats of OpenAPI's registry for a moment without a time zone; JSON Schema's own formats demand one."""


class _Unprepared(Exception):
    """The schema can't be used for a bounded check; the text says why."""


def prepare(schema: Any) -> tuple[Json | None, str | None]:
    """Return the schema ready for `check`, or None and the reason why it can't be used."""
    try:
        return _prepare(schema), None
    except _Unprepared as problem:
        return None, f"the argument schema can't be used to check an edit: {problem}"


def _prepare(schema: Any) -> Json:
    if not isinstance(schema, dict):
        raise _Unprepared("it is not a JSON object")
    try:
        size = json_size(schema)
    except (TypeError, ValueError, RecursionError):
        raise _Unprepared("it is not plain JSON, or nested too deep") from None
    if size > SCHEMA_LIMIT:
        raise _Unprepared(f"it has {size} bytes, the limit is {SCHEMA_LIMIT}")
    prepared = {key: value for key, value in schema.items() if key != "$id"}
    _bounded(prepared)
    try:
        _validator(prepared)
    except Exception as error:  # the library's own errors have no common base
        raise _Unprepared(str(error).splitlines()[0][:300] if str(error) else type(error).__name__) from None
    return prepared


def _bounded(root: Json) -> None:
    """Refuse what makes a check unbounded: remote or dangling references, loops in place, explosions."""
    _Measure(root).of(root, 0)
    for start in _dicts(root):
        _no_loop_in_place(root, start, set())


class _Measure:
    """Counts the nodes of a schema with every reference written out; a loop counts once."""

    def __init__(self, root: Json) -> None:
        self._root = root
        self._sizes: dict[int, int] = {}
        self._open: set[int] = set()

    def of(self, node: Any, depth: int) -> int:
        if depth > MAX_DEPTH:
            raise _Unprepared(f"it is nested deeper than {MAX_DEPTH}")
        if isinstance(node, list):
            return sum(self.of(item, depth + 1) for item in node)
        if not isinstance(node, dict) or id(node) in self._open:
            return 1
        if id(node) not in self._sizes:
            self._sizes[id(node)] = self._of_object(node, depth)
        return self._sizes[id(node)]

    def _of_object(self, node: Json, depth: int) -> int:
        if isinstance(node.get("$id"), str):  # an object there would be the schema of a field of this name
            raise _Unprepared("a part of it has an $id of its own")
        self._open.add(id(node))
        total = 1
        for key, value in node.items():
            reference = key in _REFERENCES and isinstance(value, str)
            total += self.of(_target(self._root, value) if reference else value, depth + 1)
            if total > EXPANSION_LIMIT:
                raise _Unprepared("its references multiply without measure")
        self._open.discard(id(node))
        return total


def _no_loop_in_place(root: Json, node: Any, seen: set[int]) -> None:
    """Follow only what applies to the same value: coming back to a node would never end."""
    if not isinstance(node, dict):
        return
    if id(node) in seen:
        raise _Unprepared("a reference leads back to itself")
    seen = seen | {id(node)}
    for key in _IN_PLACE:
        value = node.get(key)
        if key.startswith("$"):
            if isinstance(value, str):
                _no_loop_in_place(root, _target(root, value), seen)
        else:
            for item in value if isinstance(value, list) else [value]:
                _no_loop_in_place(root, item, seen)


def _dicts(node: Any) -> Iterator[Json]:
    if isinstance(node, dict):
        yield node
        for value in node.values():
            yield from _dicts(value)
    elif isinstance(node, list):
        for item in node:
            yield from _dicts(item)


def _target(root: Json, reference: str) -> Any:
    """Resolve a reference inside the schema itself."""
    if not reference.startswith("#"):
        raise _Unprepared(f"it refers to {reference[:100]!r}, and only references inside the schema are followed")
    pointer = unquote(reference[1:])
    if pointer and not pointer.startswith("/"):
        raise _Unprepared(f"it refers to the anchor {reference[:100]!r}; use a JSON pointer")
    node: Any = root
    for part in pointer.split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, list) and part.isdigit() and int(part) < len(node):
            node = node[int(part)]
        elif isinstance(node, dict) and part in node:
            node = node[part]
        else:
            raise _Unprepared(f"the reference {reference[:100]!r} leads nowhere")
    return node


def _never(uri: str) -> Any:
    raise ValueError(f"remote reference {uri!r} is not followed")


def _is_local_time(text: str) -> bool:
    try:
        time.fromisoformat(text)
    except ValueError:
        return False
    return re.fullmatch(r"[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?", text) is not None


def _is_local_date_time(text: str) -> bool:
    try:
        date.fromisoformat(text[:10])
    except ValueError:
        return False
    return text[4:5] + text[7:8] == "--" and text[10:11] in ("T", " ") and _is_local_time(text[11:])


_FORMATS = {LOCAL["date-time"]: _is_local_date_time, LOCAL["time"]: _is_local_time}


def _validator(schema: Json) -> Any:
    return jsonschema_rs.validator_for(
        schema,
        pattern_options=jsonschema_rs.RegexOptions(),
        retriever=_never,
        validate_formats=True,
        formats=_FORMATS,
    )


def check(schema: Json, value: Any) -> list[Problem]:
    """Return what is wrong with `value`: the path of the field and a sentence each, at most 20; [] if it fits."""
    problems: list[Problem] = []
    for error in _validator(schema).iter_errors(value):
        problems.extend(_problems(error))
        if len(problems) >= 20:
            break
    return problems


_UNDECLARED = (
    jsonschema_rs.ValidationErrorKind.AdditionalProperties,
    jsonschema_rs.ValidationErrorKind.UnevaluatedProperties,
)


def _problems(error: Any) -> list[Problem]:
    path: Path = tuple(error.instance_path)
    kind = error.kind
    if isinstance(kind, _UNDECLARED):
        return [
            ((*path, name), f"{_dotted((*path, name))} is not an argument of this tool") for name in kind.unexpected
        ]
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.Required):
        name = str(kind.property).strip('"')
        return [((*path, name), f"{_dotted((*path, name))} is missing")]
    text = str(error.message)
    return [(path, f"{_dotted(path)}: {text[:200]}{'...' if len(text) > 200 else ''}")]


def _dotted(path: Path) -> str:
    return ".".join(str(part) for part in path) or "the arguments"


_TEXTS: Json = {"type": "string"}
_COMMON: Json = {
    "approval_id": _TEXTS,
    "digest": _TEXTS,
    "reviewer": {"type": "string", "maxLength": 256},
    "comment": {"type": "string", "maxLength": 8192},
    "token": _TEXTS,
}
_REMEMBER: Json = {
    "type": "object",
    "properties": {
        "scope": {"enum": ["turn", "thread"]},
        "match": {"enum": ["tool", "args"]},
        "expires_in": {"type": ["number", "string"]},
        "apply_to_pending": {"type": "boolean"},
    },
    "required": ["scope", "match"],
    "additionalProperties": False,
}


def response_schema(
    name: str,
    allowed: list[str],
    args_schema: Json | None,
    *,
    remember: bool = False,
    other_tools: list[str] | None = None,
) -> Json:
    """Return the JSON Schema of the accepted answers: one branch a decision, told apart by `type`.

    `other_tools` are the names that an edit may change to; their arguments are checked when the decision is sent.
    """
    branches = [_branch(kind, name, remember, other_tools or []) for kind in allowed]
    root: Json = {"$schema": (args_schema or {}).get("$schema", "https://json-schema.org/draft/2020-12/schema")}
    if len(branches) == 1:
        root |= branches[0]
    else:
        root |= {"oneOf": branches, "discriminator": {"propertyName": "type"}}
    if "edit" in allowed:
        own = {key: value for key, value in (args_schema or {"type": "object"}).items() if key != "$schema"}
        root["$defs"] = {"edited_args": _moved(own)}
    return root


def _branch(kind: str, name: str, remember: bool, other_tools: list[str]) -> Json:
    properties: Json = {"type": {"enum": [kind]}, **_COMMON}
    required = ["type"]
    if kind == "edit":
        action = _action([name], {"$ref": _ARGS})
        if other_tools:
            action = {"anyOf": [action, _action(other_tools, {"type": "object"})]}
        properties["edited_action"] = action
        required.append("edited_action")
    elif kind == "respond":
        properties["message"] = _TEXTS
        required.append("message")
    elif kind == "reject":
        properties["message"] = _TEXTS
    elif kind == "answer":
        properties["value"] = {}
        required.append("value")
    if remember and kind in ("approve", "reject"):
        properties["remember"] = _REMEMBER
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _action(names: list[str], args: Json) -> Json:
    return {
        "type": "object",
        "properties": {"name": {"enum": names}, "args": args},
        "required": ["name", "args"],
        "additionalProperties": False,
    }


def _moved(node: Any) -> Any:
    """Rewrite references for the schema's new place under `$defs`."""
    if isinstance(node, list):
        return [_moved(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: _ARGS + value[1:] if key in _REFERENCES and isinstance(value, str) else _moved(value)
        for key, value in node.items()
    }
