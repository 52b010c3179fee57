"""What the agent can do with the orders, and what a reviewer is told before it does."""

from __future__ import annotations

import csv
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.tools import BaseTool, tool

from turngate.demo import orders

_SHOWN = 20
"""Rows of a SELECT that the model is shown."""


@dataclass(frozen=True)
class Desk:
    """The folder that the agent works in: the database, and an archive for files."""

    folder: Path

    @property
    def database(self) -> Path:
        """The orders."""
        return self.folder / "orders.db"

    @property
    def archive(self) -> Path:
        """Where files are written."""
        return self.folder / "archive"

    def set_up(self) -> None:
        """Create the database anew, and an empty archive. Files of an earlier demo go."""
        self.archive.mkdir(parents=True, exist_ok=True)
        for file in self.archive.glob("*.csv"):
            file.unlink()
        orders.create(self.database)

    def files(self) -> dict[str, str]:
        """Return what stands in the archive, by file name."""
        return {file.name: file.read_text("utf-8") for file in sorted(self.archive.iterdir())}

    # --- Effects ---

    def write(self, path: str, query: str) -> str:
        """Write the rows of a SELECT to a CSV file of the archive."""
        columns, rows = orders.select(self.database, query)
        with self._file(path).open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(rows)
        return f"wrote {len(rows)} rows to {path}, with the columns {', '.join(columns)}"

    def execute(self, query: str) -> str:
        """Execute one statement. A SELECT gets a connection that can't write, whatever its text made of the gate."""
        if is_select(query):
            columns, rows = orders.select(self.database, query)
            lines = [", ".join(map(str, row)) for row in (columns, *rows[:_SHOWN])]
            return "\n".join([*lines, f"({len(rows)} rows)"])
        return f"{orders.change(self.database, query)} rows changed"

    def _file(self, path: str) -> Path:
        if Path(path).name != path or not path.endswith(".csv"):
            raise ValueError(f"{path!r} is no name for a file: give one that ends in .csv, without a folder")
        return self.archive / path


def is_select(query: str) -> bool:
    """Tell whether a statement only reads. SQLite executes one statement a call, so the first word says it."""
    return query.lstrip().lower().startswith("select")


def quoted(name: str) -> str:
    """Return a name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def build_tools(desk: Desk) -> list[BaseTool]:
    """Return the agent's three tools."""

    @tool
    def read_data(table: str) -> str:
        """Describe a table: how many rows there are, and the columns with an example of each."""
        columns, rows = orders.select(desk.database, f"SELECT * FROM {quoted(table)}")
        first = rows[0] if rows else ["none"] * len(columns)
        examples = ", ".join(f"{column} ({value})" for column, value in zip(columns, first, strict=True))
        return f"{table} has {len(rows)} rows. Columns, as in the first row: {examples}."

    @tool
    def write_file(path: str, query: str) -> str:
        """Write the rows that a SELECT finds to a CSV file of the archive. `path` is a file name such as x.csv."""
        return desk.write(path, query)

    @tool
    def execute_sql(query: str) -> str:
        """Execute one statement of SQLite's SQL. Days are texts such as 2025-01-31."""
        return desk.execute(query)

    return [read_data, write_file, execute_sql]


# --- What a reviewer is told: looked up when the call is proposed, so that nobody decides on the text alone ---


def describe_file(desk: Desk, call: Mapping[str, Any]) -> str:
    """Say what a file would hold."""
    try:
        columns, rows = orders.select(desk.database, call["args"]["query"])
    except sqlite3.Error as error:
        return f"The query would fail: {error}."
    return f"The file would have {len(rows)} rows with the columns {', '.join(columns)}."


def describe_statement(desk: Desk, call: Mapping[str, Any]) -> str:
    """Say what a statement would remove, by a rehearsal on a copy."""
    try:
        removed = orders.rehearse(desk.database, call["args"]["query"])
    except sqlite3.Error as error:
        return f"The statement would fail: {error}."
    if not removed:
        return "Tried on a copy: it removes no order."
    years = ", ".join(f"{count} of {year}" for year, count in removed.items())
    return f"Tried on a copy: it removes {sum(removed.values())} orders: {years}."
