"""Whether the file and the rows are exactly as decided.

The decisions are carried out once more, by hand, on the same database in another folder: both folders must then be
equal. What ran twice, ran without leave, or did not run, shows.
"""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from turngate.contracts import Approval, ApprovalStatus, Json
from turngate.demo import orders
from turngate.demo.tools import Desk

Check = tuple[str, bool]
ALL_THREE = (ApprovalStatus.APPROVED, ApprovalStatus.EDITED, ApprovalStatus.REJECTED)


def checks(desk: Desk, approvals: Sequence[Approval], *, automatic: bool) -> list[Check]:
    """Return what was checked, and whether it holds."""
    with tempfile.TemporaryDirectory(prefix="turngate-demo-") as folder:
        twin = Desk(Path(folder))
        twin.set_up()
        for approval in approvals:
            _carry_out(twin, approval)
        found = [_files(desk, twin), _rows(desk, twin)]
    return [*found, _all_three(approvals)] if automatic else found


def _carry_out(desk: Desk, approval: Approval) -> None:
    args = _decided(approval)
    if args is None:
        return
    # A tool that fails changes nothing, here as there.
    with contextlib.suppress(ValueError, sqlite3.Error):
        if approval.name == "write_file":
            desk.write(**args)
        else:
            desk.execute(**args)


def _decided(approval: Approval) -> Json | None:
    """Return the arguments that were let through, or None."""
    if approval.status is ApprovalStatus.APPROVED:
        return approval.args
    if approval.status is ApprovalStatus.EDITED and approval.resolution and approval.resolution.edited_action:
        return dict(approval.resolution.edited_action["args"])
    return None


def _files(desk: Desk, twin: Desk) -> Check:
    found = desk.files()
    told = ", ".join(f"{name} has {len(text.splitlines()) - 1} orders" for name, text in found.items())
    return f"The archive is exactly as decided: {told or 'empty'}.", found == twin.files()


def _rows(desk: Desk, twin: Desk) -> Check:
    left = orders.rows(desk.database)
    total = len(orders.YEARS) * orders.ORDERS_A_YEAR
    text = f"The table is exactly as decided: {len(left)} of {total} orders are left."
    return text, left == orders.rows(twin.database)


def _all_three(approvals: Sequence[Approval]) -> Check:
    counted = Counter(approval.status for approval in approvals)
    told = ", ".join(f"{counted[status]} {status}" for status in ALL_THREE)
    return f"Every kind of decision was used: {told}.", all(counted[status] for status in ALL_THREE)
