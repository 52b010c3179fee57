"""What a measurement comes to: a name, a number, a goal; and how all of them are shown and kept."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Goal:
    """A bound on a number: `<= 1.1` or `>= 0.95`."""

    sign: str
    bound: float

    def met_by(self, number: float) -> bool:
        """Tell whether the number keeps to the bound."""
        return number <= self.bound if self.sign == "<=" else number >= self.bound

    def __str__(self) -> str:
        return f"{self.sign} {_number(self.bound)}"


def at_most(bound: float) -> Goal:
    """Return the goal of not being above a bound."""
    return Goal("<=", bound)


def at_least(bound: float) -> Goal:
    """Return the goal of not being below a bound."""
    return Goal(">=", bound)


@dataclass(frozen=True)
class Measure:
    """One measure. `ratio` compares with the yardstick of the same run; `value` stands alone; `note` says how."""

    name: str
    unit: str
    ratio: float | None = None
    value: float | None = None
    goal: Goal | None = None
    note: str = ""

    @property
    def number(self) -> float:
        """What is held against the goal."""
        found = self.value if self.ratio is None else self.ratio
        assert found is not None, f"{self.name} has neither a ratio nor a value"
        return found

    @property
    def meets_goal(self) -> bool | None:
        """Whether the goal is met; None where there is no goal."""
        return None if self.goal is None else self.goal.met_by(self.number)

    def to_json(self) -> dict[str, Any]:
        """Return the measure as one object of results.json."""
        number = {"value": _rounded(self.value)} if self.ratio is None else {"ratio": _rounded(self.ratio)}
        if self.ratio is not None and self.value is not None:
            number["value"] = _rounded(self.value)
        goal = str(self.goal) if self.goal else None
        found = {"name": self.name, **number, "unit": self.unit, "goal": goal, "meets_goal": self.meets_goal}
        return found | ({"note": self.note} if self.note else {})


def paired(ours: Sequence[float], yardstick: Sequence[float]) -> float:
    """Return the median of the ratios of neighbours in time: whatever slows the machine slows both of a pair."""
    return statistics.median(one / other for one, other in zip(ours, yardstick, strict=True))


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the value below which so many percent of the values are."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(percent / 100 * (len(ordered) - 1)))]


def show(measures: Sequence[Measure], console: Console, title: str) -> None:
    """Print the measures as a table."""
    table = Table(title=title, title_justify="left")
    for heading in ("measure", "figure", "unit", "goal", ""):
        table.add_column(heading, justify="right" if heading == "figure" else "left", overflow="fold")
    for one in measures:
        verdict = {True: "[green]met", False: "[red]missed", None: ""}[one.meets_goal]
        table.add_row(one.name, _number(one.number), one.unit, str(one.goal or ""), verdict)
    console.print(table)
    for one in measures:
        if one.note:
            console.print(f"[dim]{one.name}: {one.note}", highlight=False)


def save(measures: Sequence[Measure], path: Path) -> None:
    """Write the measures as a JSON list."""
    path.write_text(json.dumps([one.to_json() for one in measures], indent=1) + "\n")


def _rounded(number: float | None) -> float | None:
    return None if number is None else float(f"{number:.4g}") if abs(number) < 10_000 else round(number)


def _number(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}"
