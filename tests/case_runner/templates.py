"""Templates and values of case files: `{"$repeat": ...}`, `{"times": n, ...}`, `@c1` and the like."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from turngate.contracts import digest_of

Resolve = Callable[[str], str | None]
REPEATED = ("turn", "call", "decision")
_REFERENCE = re.compile(r"@(![0-9]+|(?:[\w-]+:)?(?:[\w-]+/)*[\w-]*(?:#[0-9]+)?)")


def expand(value: Any, resolve: Resolve | None = None, number: int | None = None) -> Any:
    """Return `value` with its templates filled in.

    `resolve` turns a reference without its @ into an approval id, or None where it names nothing. `number` is the
    count inside a `times`.
    """
    if isinstance(value, str):
        text = value if number is None else value.replace("{i}", str(number))
        return _resolved(text, resolve)
    if isinstance(value, list):
        return [one for entry in value for one in _entries(entry, resolve, number)]
    if not isinstance(value, dict):
        return value
    if len(value) == 1 and (made := _made(value, resolve, number)) is not _NOTHING:
        return made
    return {_resolved(key, resolve): expand(inner, resolve, number) for key, inner in value.items()}


def encode(value: Any) -> bytes:
    """Return JSON as a careless client would write it: NaN, Infinity and half characters included."""
    text = json.dumps(_flat(value), ensure_ascii=True, separators=(",", ":"))
    return _NEST_MARK.sub(lambda found: "[" * int(found.group(1)) + "]" * int(found.group(1)), text).encode()


def fill(template: Any, values: dict[str, Any]) -> Any:
    """Put values into the `{name}` and `{name.field}` of the texts in `template`."""
    if isinstance(template, str):
        return re.sub(r"\{([\w.]+)\}", lambda found: _look_up(found, values), template)
    if isinstance(template, list):
        return [fill(entry, values) for entry in template]
    if isinstance(template, dict):
        return {key: fill(entry, values) for key, entry in template.items()}
    return template


_NOTHING = object()


def _resolved(text: str, resolve: Resolve | None) -> str:
    if resolve is None or not (found := _REFERENCE.fullmatch(text)) or text == "@":
        return text
    return resolve(found.group(1)) or text


def _entries(entry: Any, resolve: Resolve | None, number: int | None) -> list[Any]:
    """Return what one entry of a list stands for: itself, or as many as its `times` says."""
    kind = _repeated_kind(entry)
    if kind is None:
        return [expand(entry, resolve, number)]
    first = entry.get("offset", 0) + 1
    return [expand(entry[kind], resolve, first + position) for position in range(entry["times"])]


def _repeated_kind(entry: Any) -> str | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("times"), int) or not set(entry) - {"times"}:
        return None
    return next((kind for kind in REPEATED if set(entry) - {"times", "offset"} == {kind}), None)


def _made(value: dict[str, Any], resolve: Resolve | None, number: int | None) -> Any:
    """Return the value that a one-key object like `{"$chars": [...]}` stands for, or _NOTHING."""
    ((key, inner),) = value.items()
    match key:
        case "$i" if number is not None:
            return number
        case "$repeat":
            return expand(inner["text"], resolve, number) * inner["times"]
        case "$nan":
            return float("nan")
        case "$inf":
            return float("inf")
        case "$chars":
            return "".join(map(chr, inner))
        case "$nest":
            return Nested(inner)
        case "$json_text":
            return json.dumps(expand(inner, resolve, number))
        case "$digest":
            name, args = expand(inner, resolve, number)
            return digest_of(name, args)
    return _NOTHING


class Nested(list[Any]):
    """Arrays in each other. It knows its depth, for JSON writers give up on deep ones."""

    def __init__(self, depth: int) -> None:
        value: list[Any] = []
        for _ in range(depth - 2):
            value = [value]
        super().__init__([value] if depth > 1 else [])
        self.depth = depth


_NEST_MARK = re.compile(r'"\$nested-([0-9]+)\$"')


def _flat(value: Any) -> Any:
    if isinstance(value, Nested):
        return f"$nested-{value.depth}$"
    if isinstance(value, list):
        return [_flat(entry) for entry in value]
    if isinstance(value, dict):
        return {key: _flat(entry) for key, entry in value.items()}
    return value


def _look_up(found: re.Match[str], values: dict[str, Any]) -> str:
    name, *fields = found.group(1).split(".")
    if name not in values:
        return found.group(0)
    value = values[name]
    for field in fields:
        value = value[field] if isinstance(value, dict) else getattr(value, field)
    return str(value)
