"""Durations as people write them: seconds, a timedelta, or a text like 90s, 10m, 1h, 3d."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Any

_TEXT = re.compile(r"^(-?\d+(?:\.\d+)?)([smhd])$")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_MOST = 36_500 * 86400.0
"""A hundred years: far beyond that no calendar reaches, and adding it to a date would raise."""


def seconds(value: Any) -> float:
    """Return `value` in seconds. Raises ValueError where it is no duration above zero and below a hundred years."""
    if isinstance(value, timedelta):
        result = value.total_seconds()
    elif isinstance(value, bool):
        raise ValueError(f"{value!r} is not a duration: write seconds, or a text like '90s', '10m', '1h', '3d'")
    elif isinstance(value, (int, float)):
        # The bounds first: an integer of 400 digits is no float.
        result = float(max(-_MOST, min(value, 2 * _MOST)))
    elif isinstance(value, str) and (found := _TEXT.match(value.strip())):
        result = float(found[1]) * _UNITS[found[2]]
    else:
        raise ValueError(f"{value!r} is not a duration: write seconds, or a text like '90s', '10m', '1h', '3d'")
    if not math.isfinite(result) or result <= 0:
        raise ValueError(f"{value!r} is not above zero")
    if result > _MOST:
        raise ValueError(f"{value!r} is more than a hundred years")
    return result
