"""A journal of what happened in a test, readable by every process and still there after a worker was killed."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

Entry = dict[str, Any]


class Journal:
    """Append-only JSON lines in a file, or in memory where no path is given.

    Each entry is one write with O_APPEND, so several processes may share the file. A write that has returned is in
    the page cache and survives the kill of its process; only a crash of the machine would need an fsync.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = Path(path) if path is not None else None
        self._entries: list[Entry] = []
        self._offset = 0
        self._lock = threading.RLock()

    @property
    def lock(self) -> threading.RLock:
        """Hold it around a read and a write that belong together."""
        return self._lock

    def write(self, kind: str, **fields: Any) -> None:
        """Append one entry."""
        entry = {"kind": kind, **fields}
        if self.path is None:
            with self._lock:
                self._entries.append(entry)
            return
        line = json.dumps(entry, default=str).encode() + b"\n"
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)

    def read(self, kind: str | None = None, **fields: Any) -> list[Entry]:
        """Return the entries so far, those of one kind and with these fields only where given."""
        with self._lock:
            self._catch_up()
            entries = list(self._entries)
        return [entry for entry in entries if _fits(entry, kind, fields)]

    def count(self, kind: str, **fields: Any) -> int:
        """Return how many entries of this kind have these fields."""
        return len(self.read(kind, **fields))

    def _catch_up(self) -> None:
        if self.path is None or not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._offset)
            new = file.read()
        complete = new[: new.rfind(b"\n") + 1]
        self._offset += len(complete)
        self._entries.extend(json.loads(line) for line in complete.splitlines())


def _fits(entry: Entry, kind: str | None, fields: dict[str, Any]) -> bool:
    return (kind is None or entry["kind"] == kind) and all(entry.get(key) == value for key, value in fields.items())
