"""A database of real effects, shared by all processes, and the traps that make a tool stop or die in its middle.

Nothing here is unique or idempotent on purpose: what runs twice is counted twice.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TABLES = """
CREATE TABLE IF NOT EXISTS starts (tool TEXT, ref TEXT, key TEXT, attempt INTEGER, decision TEXT, pid INTEGER);
CREATE TABLE IF NOT EXISTS effects (tool TEXT, ref TEXT, amount INTEGER, key TEXT, pid INTEGER);
CREATE TABLE IF NOT EXISTS traps (ref TEXT, at TEXT, sprung INTEGER);
"""
_PATIENCE = 60.0


@dataclass(frozen=True)
class Start:
    """One start of a tool's body."""

    tool: str
    ref: str
    key: str
    attempt: int
    decision: str | None
    pid: int


class Effects:
    """The database at `path`; any number of processes may have it open."""

    def __init__(self, path: str | Path) -> None:
        self._path = str(path)
        with self._open() as db:
            db.execute("PRAGMA journal_mode=WAL")
            db.executescript(_TABLES)

    # --- What a tool does ------------------------------------------------------------------------------------------

    def work(
        self, tool: str, ref: str, amount: int, *, key: str, attempt: int = 1, decision: str | None = None
    ) -> None:
        """Write down that a tool started, have its effect, and step into the traps that lie on the way."""
        row = (tool, ref, key, attempt, decision, os.getpid())
        self._change("INSERT INTO starts VALUES (?, ?, ?, ?, ?, ?)", *row)
        if self._springs(ref, "hang"):
            self._wait_for_release(ref)
        if self._springs(ref, "die before"):
            die()
        self._change("INSERT INTO effects VALUES (?, ?, ?, ?, ?)", tool, ref, amount, key, os.getpid())
        if self._springs(ref, "die after"):
            die()

    def before_report(self, ref: str) -> None:
        """Die here if a trap lies between the end of a tool and the report of its result."""
        self.pass_by(ref, "die at report")

    def pass_by(self, ref: str, at: str) -> None:
        """Die here if a trap of this name lies here."""
        if self._springs(ref, at):
            die()

    # --- What a test asks and arranges -----------------------------------------------------------------------------

    def trap(self, ref: str, at: str) -> None:
        """Lay a trap, which springs once: `hang`, `die before` or `die after` the effect, `die at report`."""
        self._change("INSERT INTO traps VALUES (?, ?, 0)", ref, at)

    def release(self, ref: str) -> None:
        """Let a hanging tool go on."""
        self._change("INSERT INTO traps VALUES (?, 'released', 1)", ref)

    def sprung(self, ref: str) -> bool:
        """Whether somebody stepped into a trap of this ref."""
        return bool(self._rows("SELECT 1 FROM traps WHERE ref = ? AND at <> 'released' AND sprung = 1", ref))

    def starts(self, ref: str | None = None) -> list[Start]:
        """Return the starts so far, in order."""
        found = [Start(*row) for row in self._rows("SELECT * FROM starts ORDER BY rowid")]
        return [start for start in found if ref is None or start.ref == ref]

    def all(self) -> list[tuple[str, str, int]]:
        """Return every effect as tool, ref and amount, sorted."""
        return sorted(self._rows("SELECT tool, ref, amount FROM effects"))

    def happened(self, ref: str) -> bool:
        """Look whether a call took effect: what a person does before answering a recovery."""
        return bool(self._rows("SELECT 1 FROM effects WHERE ref = ?", ref))

    # --- Parts -----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        # A connection each time: connections must not be carried over a fork.
        db = sqlite3.connect(self._path, timeout=_PATIENCE)
        try:
            with db:
                yield db
        finally:
            db.close()

    def _change(self, statement: str, *values: object) -> int:
        with self._open() as db:
            return db.execute(statement, values).rowcount

    def _rows(self, statement: str, *values: object) -> list[Any]:
        with self._open() as db:
            return db.execute(statement, values).fetchall()

    def _springs(self, ref: str, at: str) -> bool:
        return self._change("UPDATE traps SET sprung = 1 WHERE ref = ? AND at = ? AND sprung = 0", ref, at) > 0

    def _wait_for_release(self, ref: str) -> None:
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end and not self._rows("SELECT 1 FROM traps WHERE ref = ? AND at = 'released'", ref):
            time.sleep(0.02)


def die() -> None:
    """End this process as a crash would."""
    os.kill(os.getpid(), signal.SIGKILL)
