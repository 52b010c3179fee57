"""Approval ids in the place of references, for one step."""

from __future__ import annotations

from typing import Any

from tests.case_runner.references import Reference
from tests.case_runner.templates import expand
from tests.case_runner.tree import approvals_of, numbered, turn_ids
from tests.case_runner.world import Run, World
from turngate.contracts import Approval


class Resolver:
    """Finds approvals by reference. What it has read of a run it keeps, so make one for each look."""

    def __init__(self, world: World, default: Run) -> None:
        self._world = world
        self._default = default
        self._approvals: dict[str, list[Approval]] = {}
        self._turns: dict[str, list[str]] = {}

    async def fill(self, value: Any) -> Any:
        """Return `value` with its templates filled in and its references replaced."""
        wanted: dict[str, str | None] = {}
        expand(value, lambda text: wanted.setdefault(text, None))
        for text in wanted:
            wanted[text] = await self.id_of(text)
        return expand(value, wanted.get)

    async def id_of(self, text: str) -> str | None:
        """Return the approval id that a reference means, or None."""
        if text.startswith("!"):
            return await numbered(self._world, self._default, int(text[1:]))
        if found := await self.find(text):
            return found.id
        reference = Reference.read(text)
        # The number of an approval that is still to come: an early decision's receipt names it.
        to_come = reference.number if reference == Reference("", number=reference.number) else None
        return None if to_come is None else await numbered(self._world, self._default, to_come)

    async def find(self, text: str) -> Approval | None:
        """Return the approval that a reference means, or None."""
        reference = Reference.read(text)
        if reference.run is not None and reference.run not in self._world.runs:
            return None
        run = self._world.run(reference.run) if reference.run else self._default
        if run.name not in self._world.runs:
            return None
        approvals = await self.approvals(run)
        for turn in reversed(self._turns[run.name]):
            mine = [approval for approval in approvals if approval.id.startswith(f"{turn}/")]
            if found := reference.choose(mine):
                return found
        return None

    async def approvals(self, run: Run) -> list[Approval]:
        """Return everything that was raised in a run; without a worker, what was seen of it last."""
        if run.name not in self._approvals:
            seen = self._world.last_seen
            if self._world.worker is not None or run.name not in seen:
                seen[run.name] = await turn_ids(self._world, run), await approvals_of(self._world, run)
            self._turns[run.name], self._approvals[run.name] = seen[run.name]
        return self._approvals[run.name]
