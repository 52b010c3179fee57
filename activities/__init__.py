"""Everything with a side effect: one model step, one tool call, telling people.

Activities take and return plain JSON, so that any data converter works.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from turngate.activities.call_model import CallModel
from turngate.activities.call_tool import CallTool
from turngate.activities.notify import Notify, checked
from turngate.activities.read_messages import read_new_messages
from turngate.activities.verify_decision import VerifyDecision
from turngate.agent import Registry
from turngate.notifiers import Notifier


def build(
    registry: Registry,
    *,
    search_attributes: Callable[[], bool] | bool = False,
    notifiers: Mapping[str, Notifier] | None = None,
) -> list[Callable[..., Any]]:
    """Return the activities for the agents of a worker.

    `search_attributes` says whether the server knows Turngate's search attributes; every step records it. Raises
    ConfigError where an agent names a notifier that is not among `notifiers`.
    """
    known = search_attributes if callable(search_attributes) else lambda: search_attributes
    return [
        CallModel(registry, known).call_model,
        CallTool(registry).call_tool,
        Notify(checked(registry, notifiers or {})).notify,
        VerifyDecision(registry).verify_decision,
        read_new_messages,
    ]
