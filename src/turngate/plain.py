"""Strict JSON: what may go into history.

Models, providers and tools return anything: NaN, half characters, objects. Recorded as they are, they make a
payload that another language can't read, or that raises while it is written, again and again.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import re
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from turngate.contracts import KIB, MAX_DEPTH

WIRE_LIMIT = 1900 * KIB
"""Bytes that one payload may take as the SDK's default converter writes it (`wire_size`); the server takes 2 MiB."""
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")
_LONGEST_NUMBER = 4096
"""Bits of a whole number. Python itself refuses to write or read numbers of more than 4,300 digits."""


def problem_of(args: Any) -> str | None:
    """Say why `args` can't be the arguments of a call, or return None where they can."""
    if not isinstance(args, dict):
        return "the arguments are not an object"
    return next(_problems(args), None)


def _problems(root: Any) -> Iterator[str]:
    waiting = [(root, 1)]
    while waiting:
        value, depth = waiting.pop()
        if depth > MAX_DEPTH:
            yield f"it is nested deeper than {MAX_DEPTH} levels"
        elif isinstance(value, dict):
            if not all(isinstance(key, str) for key in value):
                yield "a key is not a text"
            waiting += [(item, depth + 1) for pair in value.items() for item in pair if not _is_good_key(item, pair)]
        elif isinstance(value, list):
            waiting += [(item, depth + 1) for item in value]
        elif problem := _problem_of_scalar(value):
            yield problem


def _is_good_key(item: Any, pair: tuple[Any, Any]) -> bool:
    return item is pair[0] and isinstance(item, str) and not has_half_character(item)


def _problem_of_scalar(value: Any) -> str | None:
    if isinstance(value, str):
        return "a text holds half a character" if has_half_character(value) else None
    if isinstance(value, float):
        return None if math.isfinite(value) else "a number is not finite"
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, int):
        return "a number is too long" if value.bit_length() > _LONGEST_NUMBER else None
    return f"{type(value).__name__} is not JSON"


def has_half_character(value: str) -> bool:
    """Tell whether a text holds a lone surrogate, which UTF-8 can't."""
    return not value.isascii() and _HALF_CHARACTER.search(value) is not None


def whole_text(value: str) -> str:
    """Return a text that UTF-8 can hold: halves of one character are joined, lone ones replaced."""
    if not has_half_character(value):
        return value
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def cleaned(value: Any, depth: int = 0) -> Any:
    """Return `value` as strict JSON, whatever it is; what JSON can't hold becomes null or a text."""
    if depth > MAX_DEPTH:
        return "[nested too deeply]"
    if isinstance(value, str):
        return whole_text(str(value))
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if value.bit_length() <= _LONGEST_NUMBER else hex(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, dict):
        return {_key(key): cleaned(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(item, depth + 1) for item in value]
    return _from_object(value, depth)


def _key(key: Any) -> str:
    return whole_text(key if isinstance(key, str) else _written(key))


def _from_object(value: Any, depth: int) -> Any:
    if isinstance(value, bytes | bytearray):
        return text_of_bytes(bytes(value))
    if isinstance(value, set | frozenset):
        return [cleaned(item, depth + 1) for item in value]
    if isinstance(value, BaseModel):
        return cleaned(value.model_dump(), depth + 1)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return cleaned(vars(value) if hasattr(value, "__dict__") else _written(value), depth + 1)
    try:
        return cleaned(to_jsonable_python(value), depth + 1)
    except Exception:  # an object of which pydantic knows no JSON form
        return whole_text(_written(value))


def _written(value: Any) -> str:
    try:
        return str(value)
    except Exception:  # a __str__ that raises must not stop the recording of a result
        return f"<{type(value).__name__}>"


def text_of_bytes(value: bytes) -> str:
    """Return bytes as text where they are UTF-8, else in base64."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return base64.b64encode(value).decode("ascii")


def is_strict(value: Any) -> bool:
    """Tell whether `value` is JSON as it is, so that nothing would be lost by recording it."""
    return next(_problems(value), None) is None


def wire_size(value: Any) -> int:
    """Return the bytes of `value` with non-ASCII escaped, as the SDK's default converter writes it.

    A text in Chinese takes twice the space there that it takes in UTF-8, an emoji three times.
    """
    return len(json.dumps(value, separators=(",", ":")))
