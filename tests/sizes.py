"""How much the long tests do: enough to show it, or with `make full` as much as the documentation says."""

from __future__ import annotations

import os

FULL = bool(os.environ.get("TURNGATE_FULL"))


def size(short: int, full: int) -> int:
    """Return the number that this run uses."""
    return full if FULL else short
