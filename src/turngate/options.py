"""Checks of the values that people give to agents and tools.

Every check takes the place first ("agent 'main': interrupt_on['pay'].quorum"), so that the ConfigError names it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from turngate import durations
from turngate.errors import ConfigError
from turngate.plain import has_half_character

Duration = timedelta | int | float | str
"""A time span: a timedelta, a number of seconds, or a text such as "90s", "10m", "1h", "3d", "0.5s"."""


def seconds(place: str, value: Any) -> float:
    """Return a time span in seconds; it must be longer than nothing."""
    try:
        return durations.seconds(value)
    except ValueError as error:
        raise ConfigError(f"{place}: {error}") from None


def whole(place: str, value: Any, at_least: int = 1) -> int:
    """Return a whole number that is not too small."""
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise ConfigError(f"{place}: {value!r} is not a whole number of at least {at_least}")
    return value


def flag(place: str, value: Any) -> bool:
    """Return True or False; nothing else counts as either."""
    if not isinstance(value, bool):
        raise ConfigError(f"{place}: {value!r} is neither True nor False")
    return value


def text(place: str, value: Any) -> str:
    """Return a text that can be recorded."""
    if not isinstance(value, str) or has_half_character(value):
        raise ConfigError(f"{place}: {value!r} is not a text")
    return value


def one_of(place: str, value: Any, allowed: Iterable[str]) -> str:
    """Return a word of a fixed set."""
    words = tuple(allowed)
    if not isinstance(value, str) or value not in words:
        raise ConfigError(f"{place}: {value!r} is not one of {_listed(words)}{_hint(value, words)}")
    return value


def names(place: str, value: Any, *, may_be_empty: bool = True) -> tuple[str, ...]:
    """Return a list of names without repetitions. A single text is refused: its letters would be taken for names."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise ConfigError(f"{place}: {value!r} is not a list of names")
    listed = tuple(dict.fromkeys(name(place, item) for item in value))
    if not listed and not may_be_empty:
        raise ConfigError(f"{place} is empty; name at least one, or leave it out")
    return listed


def name(place: str, item: Any) -> str:
    """Return a text that is not empty."""
    if not isinstance(item, str) or not item or has_half_character(item):
        raise ConfigError(f"{place}: {item!r} is not a name")
    return item


def only_known(place: str, given: Iterable[Any], known: Iterable[str]) -> None:
    """Refuse keys that mean nothing."""
    words = tuple(known)
    for key in given:
        if key not in words:
            raise ConfigError(f"{place}: unknown option {key!r}{_hint(key, words) or f'; there are {_listed(words)}'}")


def _hint(value: Any, words: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(str(value), words, n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def unmatched(place: str, name: str, known: Iterable[str]) -> ConfigError:
    """Build the error for a rule about a tool that does not exist."""
    words = tuple(known)
    there = f"the tools are {_listed(words)}" if words else "there are no tools"
    return ConfigError(f"{place}: no tool matches {name!r}{_hint(name, words)}; {there}")


def _listed(words: Iterable[str]) -> str:
    return ", ".join(repr(word) for word in words)
