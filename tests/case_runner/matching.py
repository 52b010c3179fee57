"""How an expectation is compared with what was found: objects in part, arrays exactly, and the `$` words."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from tests.case_runner.placeholders import PLACEHOLDERS, text_of

MISSING: Any = type("Missing", (), {"__repr__": lambda self: "nothing"})()
Problems = list[str]


class Bindings(dict[str, Any]):
    """The values that `$same` and `$differs` speak of, within one comparison."""


def match(expected: Any, actual: Any, where: str = "", names: Bindings | None = None) -> Problems:
    """Return how `actual` differs from `expected`, nothing where it fits."""
    names = Bindings() if names is None else names
    if isinstance(expected, dict) and expected and all(key.startswith("$") for key in expected):
        return [problem for key, inner in expected.items() for problem in _special(key, inner, actual, where, names)]
    if actual is MISSING:
        return [f"{where}: expected {short(expected)}, found nothing"]
    if isinstance(expected, dict):
        return _match_object(expected, actual, where, names)
    if isinstance(expected, list):
        return _match_array(expected, actual, where, names)
    return [] if _equal(expected, actual) else [f"{where}: expected {short(expected)}, found {short(actual)}"]


def fits(expected: Any, actual: Any) -> bool:
    """Tell whether `actual` matches `expected`."""
    return not match(expected, actual)


def match_unordered(expected: Sequence[Any], actual: Any, where: str, names: Bindings | None = None) -> Problems:
    """Match the same entries in any order."""
    if not isinstance(actual, list) or len(actual) != len(expected) or not _assignable(expected, actual, names):
        return [f"{where}: expected in any order {short(list(expected))}, found {short(actual)}"]
    return []


def contains(needle: str, value: Any) -> bool:
    """Tell whether a text is found in a text, or in the JSON of a value."""
    if isinstance(value, str):
        return needle in value
    if needle in json.dumps(value, ensure_ascii=False, default=str):
        return True
    return any(needle in text for text in _texts(value))


def short(value: Any, limit: int = 400) -> str:
    """Return `value` for a message, cut where it is long."""
    text = value if value is MISSING else json.dumps(value, ensure_ascii=False, default=str)
    text = str(text)
    return text if len(text) <= limit else f"{text[: limit - 60]}... ({len(text)} characters) ...{text[-30:]}"


def _match_object(expected: dict[str, Any], actual: Any, where: str, names: Bindings) -> Problems:
    if not isinstance(actual, dict):
        return [f"{where}: expected an object like {short(expected)}, found {short(actual)}"]
    problems: Problems = []
    for key, inner in expected.items():
        found = actual.get(key, MISSING)
        # Null counts as absent, but a null that is asked for by name is one.
        found = MISSING if found is None and inner is not None else found
        found = None if found is MISSING and inner is None else found
        problems += match(inner, found, f"{where}.{key}" if where else key, names)
    return problems


def _match_array(expected: list[Any], actual: Any, where: str, names: Bindings) -> Problems:
    if not isinstance(actual, list | tuple):
        return [f"{where}: expected a list like {short(expected)}, found {short(actual)}"]
    if len(actual) != len(expected):
        return [f"{where}: expected {len(expected)} entries {short(expected)}, found {len(actual)}: {short(actual)}"]
    pairs = enumerate(zip(expected, actual, strict=True))
    return [problem for n, (one, other) in pairs for problem in match(one, other, f"{where}[{n}]", names)]


def _equal(expected: Any, actual: Any) -> bool:
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    if expected != expected:
        return bool(actual != actual)
    return bool(expected == actual)


def _special(key: str, inner: Any, actual: Any, where: str, names: Bindings) -> Problems:
    if key in PLACEHOLDERS:
        if not isinstance(actual, str | list):
            return [f"{where}: expected a text for {key}, found {short(actual)}"]
        return [
            f"{where}: {key}: {problem}; found {short(actual)}" for problem in PLACEHOLDERS[key](text_of(actual), inner)
        ]
    if key not in _SPECIAL:
        return [f"{where}: {key} is not a word of the grammar"]
    return _SPECIAL[key](inner, actual, where, names)


def _any(inner: Any, actual: Any, where: str, names: Bindings) -> Problems:
    return [f"{where}: expected anything, found nothing"] if actual is MISSING else []


def _absent(inner: Any, actual: Any, where: str, names: Bindings) -> Problems:
    return [] if actual is MISSING or actual is None else [f"{where}: expected nothing, found {short(actual)}"]


def _one_of(inner: Any, actual: Any, where: str, names: Bindings) -> Problems:
    if any(not match(one, actual, where, names) for one in inner):
        return []
    return [f"{where}: expected one of {short(inner)}, found {short(actual)}"]


def _all(inner: Any, actual: Any, where: str, names: Bindings) -> Problems:
    return [problem for one in inner for problem in match(one, actual, where, names)]


def _not(inner: Any, actual: Any, where: str, names: Bindings) -> Problems:
    return [] if match(inner, actual, where) else [f"{where}: expected anything but {short(inner)}, found it"]


def _same_members(inner: Any, actual: Any, where: str, names: Bindings) -> Problems:
    return match_unordered(inner, list(actual) if isinstance(actual, list | tuple) else actual, where, names)


def _contains(inner: Any, actual: Any, where: str, names: Bindings) -> Problems:
    if actual is not MISSING and contains(inner, actual):
        return []
    return [f"{where}: expected {short(inner)} in it, found {short(actual)}"]


def _contains_all(inner: Any, actual: Any, where: str, names: Bindings) -> Problems:
    return [problem for one in inner for problem in _contains(one, actual, where, names)]


def _valid_text(inner: Any, actual: Any, where: str, names: Bindings) -> Problems:
    try:
        text_of(actual).encode("utf-8")
    except (UnicodeEncodeError, TypeError, AttributeError):
        return [f"{where}: expected a text in valid characters, found {short(actual)}"]
    return []


def _same(inner: Any, actual: Any, where: str, names: Bindings) -> Problems:
    first = names.setdefault(inner, actual)
    return (
        []
        if first == actual and actual is not MISSING
        else [f"{where}: expected {short(first)} again, found {short(actual)}"]
    )


def _differs(inner: Any, actual: Any, where: str, names: Bindings) -> Problems:
    if inner in names and names[inner] != actual and actual is not MISSING:
        return []
    return [f"{where}: expected another value than {short(names.get(inner))}, found {short(actual)}"]


_SPECIAL: dict[str, Callable[[Any, Any, str, Bindings], Problems]] = {
    "$any": _any,
    "$absent": _absent,
    "$one_of": _one_of,
    "$all": _all,
    "$not": _not,
    "$same_members": _same_members,
    "$contains": _contains,
    "$contains_all": _contains_all,
    "$valid_text": _valid_text,
    "$same": _same,
    "$differs": _differs,
}


def _assignable(expected: Sequence[Any], actual: list[Any], names: Bindings | None) -> bool:
    """Find for each expected entry one of its own (bipartite matching: a greedy choice could block another)."""
    taken: dict[int, int] = {}

    def place(one: int, tried: set[int]) -> bool:
        for other in range(len(actual)):
            if other in tried or match(expected[one], actual[other], "", Bindings(names or {})):
                continue
            tried.add(other)
            if other not in taken or place(taken[other], tried):
                taken[other] = one
                return True
        return False

    return all(place(one, set()) for one in range(len(expected)))


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for key, inner in value.items() for text in [key, *_texts(inner)]]
    if isinstance(value, list | tuple):
        return [text for inner in value for text in _texts(inner)]
    return []
