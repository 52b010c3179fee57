"""References to approvals: `c1`, `c1#2`, `#2`, `t1/c1`, `two:c1`, `!99`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from turngate.contracts import Approval

_GRAMMAR = re.compile(r"(?:(?P<run>[\w-]+):)?(?P<path>(?:[\w-]+/)*)(?P<call>[\w-]*)(?:#(?P<number>[0-9]+))?")


@dataclass(frozen=True)
class Reference:
    """A reference as it is written."""

    call: str
    run: str | None = None
    path: tuple[str, ...] = ()
    number: int | None = None

    @staticmethod
    def read(text: str) -> Reference:
        """Read a reference. Raises ValueError for what is none."""
        found = _GRAMMAR.fullmatch(text.removeprefix("@"))
        if found is None:
            raise ValueError(f"{text!r} is no reference")
        path = tuple(part for part in found["path"].split("/") if part)
        return Reference(found["call"], found["run"], path, int(found["number"]) if found["number"] else None)

    def choose(self, approvals: Sequence[Approval]) -> Approval | None:
        """Return the approval that is meant: the open one, else the latest; or the one with the number."""
        here = [approval for approval in approvals if path_of(approval) == self.path]
        if not self.call:
            return next((approval for approval in here if number_of(approval) == self.number), None)
        found = sorted((one for one in here if one.tool_call_id == self.call), key=number_of)
        if self.number is not None:
            return found[self.number - 1] if self.number <= len(found) else None
        waiting = [approval for approval in found if approval.status == "pending"]
        return next(iter([*waiting, *reversed(found)]), None)


def path_of(approval: Approval) -> tuple[str, ...]:
    """Return the call ids that lead from the outermost turn to the one that raised this."""
    return tuple(approval.context.path[:-1])


def number_of(approval: Approval) -> int:
    """Return the approval's number in its run."""
    number = approval.id.rpartition("-")[2]
    # Without a worker an inbox knows that something waits, but not its number.
    return int(number) if number.isdigit() else 0


def written(approval: Approval, raised: Sequence[Approval], run: str | None = None) -> set[str]:
    """Return the ways in which this approval may be referred to, among all that were raised."""
    before = [one for one in raised if path_of(one) == path_of(approval)]
    same = [one.id for one in sorted(before, key=number_of) if one.tool_call_id == approval.tool_call_id]
    order = same.index(approval.id) + 1 if approval.id in same else 1
    place = "".join(f"{part}/" for part in path_of(approval))
    call = approval.tool_call_id or ""
    ways = {f"{place}#{number_of(approval)}"}
    if call:
        ways |= {f"{place}{call}", f"{place}{call}#{order}"}
    return ways | ({f"{run}:{way}" for way in ways} if run else set())
