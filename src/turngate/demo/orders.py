"""The orders database: a few hundred rows over five years, the same at every run."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path

YEARS = range(2021, 2026)
ORDERS_A_YEAR = 84
CUTOFF = "2025-01-01"
"""Orders before this day are old."""

COLUMNS = ("id", "ordered_on", "customer", "email", "item", "cents")

_PEOPLE = ("Ada Berg", "Ben Castro", "Chiara Dunn", "Dev Eriksen", "Emi Fontaine", "Farid Gomes", "Greta Hoxha")
_ITEMS = {"desk lamp": 3900, "bookshelf": 12900, "office chair": 24900, "door mat": 1800, "wall clock": 4500}

Row = tuple[object, ...]


def create(path: Path) -> None:
    """Create the database anew."""
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(
            "CREATE TABLE orders (id INTEGER PRIMARY KEY, ordered_on TEXT NOT NULL, customer TEXT NOT NULL,"
            " email TEXT NOT NULL, item TEXT NOT NULL, cents INTEGER NOT NULL)"
        )
        db.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?, ?)", _rows())


def rows(path: Path, query: str = "SELECT * FROM orders ORDER BY id") -> list[Row]:
    """Return what a query finds, without being able to change anything."""
    return select(path, query)[1]


def select(path: Path, query: str) -> tuple[list[str], list[Row]]:
    """Return the columns and the rows that a query finds. Raises sqlite3.Error for anything that would write."""
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as db:
        cursor = db.execute(query)
        return [column[0] for column in cursor.description or ()], cursor.fetchall()


def change(path: Path, statement: str) -> int:
    """Execute one statement and return how many rows it changed."""
    with closing(sqlite3.connect(path)) as db, db:
        return max(db.execute(statement).rowcount, 0)


def rehearse(path: Path, statement: str) -> dict[str, int]:
    """Return how many orders a year a statement would remove, by trying it on a copy in memory."""
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(":memory:")) as copy:
        source.backup(copy)
        before = _by_year(copy)
        # A rehearsal must not reach any file: ATTACH, and VACUUM INTO which uses it, could.
        copy.set_authorizer(_stay_inside)
        copy.execute(statement)
        after = _by_year(copy)
    return {year: count - after.get(year, 0) for year, count in before.items() if count != after.get(year, 0)}


def _stay_inside(action: int, *_: object) -> int:
    return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_ATTACH else sqlite3.SQLITE_OK


def _by_year(db: sqlite3.Connection) -> dict[str, int]:
    return dict(db.execute("SELECT substr(ordered_on, 1, 4) AS year, count(*) FROM orders GROUP BY year ORDER BY year"))


def _rows() -> Iterator[Row]:
    chance = random.Random(2025)
    number = 0
    for year in YEARS:
        days = sorted(chance.randrange(365) for _ in range(ORDERS_A_YEAR))
        for day in days:
            number += 1
            who, item = chance.choice(_PEOPLE), chance.choice(list(_ITEMS))
            email = f"{who.lower().replace(' ', '.')}@example.com"
            ordered_on = (date(year, 1, 1) + timedelta(days=day)).isoformat()
            yield number, ordered_on, who, email, item, _ITEMS[item] * chance.randint(1, 3)
