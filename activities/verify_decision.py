"""Verify the signatures of decisions that came by signal: a signal has no validator, so the verdict is recorded."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from temporalio import activity

from turngate.agent import Registry
from turngate.verifier import refusals_of


class VerifyDecision:
    """The activity `verify_decision` for the agents of a worker."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    @activity.defn(name="verify_decision")
    async def verify_decision(self, data: dict[str, Any]) -> dict[str, Any]:
        """Verify `{"agent", "decisions", "now"}`; `now` is the workflow's time.

        Returns `{"refusals": [...]}` with one entry a decision, null for each that is good.
        """
        agent = self._registry.get(data["agent"])
        verifier = agent.verifier if agent else None
        now = datetime.fromisoformat(data["now"])
        found = refusals_of(verifier, data["agent"], data["decisions"], now)
        return {"refusals": [refusal and refusal.to_json() for refusal in found]}
