"""A reviewer that decides by a script."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turngate.contracts import Approval


class ScriptedReviewer:
    """Give these decisions, one per approval asked, and keep the approvals that were shown.

        reviewer = ScriptedReviewer({"type": "approve"}, {"type": "reject", "message": "no"})
        result = await client.run_turn("main", "go", on_approval=reviewer)

    Raises AssertionError for an approval beyond the last decision.
    """

    def __init__(self, *decisions: Mapping[str, Any]) -> None:
        self._decisions = list(decisions)
        self.seen: list[Approval] = []

    async def __call__(self, approval: Approval) -> dict[str, Any]:
        """Return the next decision."""
        if len(self.seen) >= len(self._decisions):
            raise AssertionError(
                f"the reviewer has {len(self._decisions)} decisions, and {approval.id!r} was asked too"
            )
        self.seen.append(approval)
        return dict(self._decisions[len(self.seen) - 1])
