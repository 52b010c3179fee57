"""Durations as people write them: seconds, a timedelta, or a text like 90s, 10m, 1h, 3d."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Any

_TEXT = re.compile(r"^(-?\d+(?:\.\d+)?)([smhd])$")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(value: Any) -> float:
    """Return `value` in seconds. Raises ValueError where it is no finite duration above zero."""
    if isinstance(value, timedelta):
        result = value.total_seconds()
    elif isinstance(value, bool):
        raise ValueError(f"{value!r} is not a duration: write seconds, or a text like '90s', '10m', '1h', '3d'")
    elif isinstance(value, (int, float)):
        result = float(value)
    elif isinstance(value, str) and (found := _TEXT.match(value.strip())):
        result = float(found[1]) * _UNITS[found[2]]
    else:
        raise ValueError(f"{value!r} is not a duration: write seconds, or a text like '90s', '10m', '1h', '3d'")
    if not math.isfinite(result) or result <= 0:
        raise ValueError(f"{value!r} is not above zero")
    return result
