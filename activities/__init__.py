"""Everything with a side effect: one model step, one tool call, telling people.

Activities take and return plain JSON, so that any data converter works.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from turngate.activities.call_model import CallModel
from turngate.activities.call_tool import CallTool
from turngate.agent import Registry


def build(registry: Registry, *, search_attributes: Callable[[], bool] | bool = False) -> list[Callable[..., Any]]:
    """Return the activities for the agents of a worker.

    `search_attributes` says whether the server knows Turngate's search attributes; every step records it.
    """
    known = search_attributes if callable(search_attributes) else lambda: search_attributes
    return [CallModel(registry, known).call_model, CallTool(registry).call_tool]
