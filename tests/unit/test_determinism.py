"""Workflow code may use nothing that differs at replay. The sandbox does not watch it (decision 3), so this does."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "turngate"
GATE = ("items", "judging", "ledger", "decisions", "schemas", "contracts", "texts", "durations")
MODULES = sorted((PACKAGE / "workflows").glob("*.py")) + [PACKAGE / f"{name}.py" for name in GATE]
CHANGING = {"time", "random", "os", "uuid", "secrets", "socket", "threading", "subprocess", "pathlib", "tempfile"}
CLOCKS = {"now", "utcnow", "today"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_no_clock_no_chance_no_outside(path: Path) -> None:
    """No module for time, chance, files or processes; the clock is the workflow's."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {(node.module or "").partition(".")[0]}
        else:
            names = set()
        assert not names & CHANGING, f"line {node.lineno}"  # type: ignore[attr-defined]
        if isinstance(node, ast.Attribute) and node.attr in CLOCKS:
            whose = node.value.id if isinstance(node.value, ast.Name) else ""
            assert whose in ("workflow", "self", "notice"), f"line {node.lineno}: {whose}.{node.attr}"
