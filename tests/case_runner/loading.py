"""Case files: read, checked against their grammar, selected."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema_rs

HERE = Path(__file__).parent
DEFAULT = HERE.parent / "cases"
EXPECTED_FAILURES = HERE / "expected_failures.txt"
Json = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One case as it stands in its file. `problems` is what is wrong with the case itself."""

    id: str
    area: str
    title: str
    given: Json
    steps: list[Json]
    problems: list[str] = field(default_factory=list)


def case_directory() -> Path:
    """Return the directory that TURNGATE_CASES names, or our own."""
    return Path(os.environ.get("TURNGATE_CASES") or DEFAULT)


def load_cases(directory: Path) -> list[Case]:
    """Read all case files of a directory, in the order of their names."""
    validator = jsonschema_rs.validator_for(_grammar(directory))
    files = sorted(path for path in directory.glob("*.json") if path.name != "schema.json")
    return [_read(entry, path, validator) for path in files for entry in json.loads(path.read_text("utf-8"))]


def select(cases: Sequence[Case], wanted: Sequence[str]) -> list[Case]:
    """Return the cases with these ids, areas (DEC) or file names (decisions); all where nothing is wanted.

    Raises ValueError for a word that selects nothing.
    """
    if not wanted:
        return list(cases)
    for word in wanted:
        if not any(_selects(word, case) for case in cases):
            raise ValueError(f"{word!r} is neither a case, an area nor a file here")
    return [case for case in cases if any(_selects(word, case) for word in wanted)]


def expected_failures(path: Path = EXPECTED_FAILURES) -> dict[str, str]:
    """Return the ids of cases that are known to fail, with the reason that stands behind each."""
    lines = [line.strip() for line in path.read_text("utf-8").splitlines()] if path.exists() else []
    entries = [line.partition(" ") for line in lines if line and not line.startswith("#")]
    return {case_id: reason.strip() for case_id, _, reason in entries}


def _grammar(directory: Path) -> Json:
    own = directory / "schema.json"
    grammar: Json = json.loads((own if own.exists() else DEFAULT / "schema.json").read_text("utf-8"))
    return grammar


def _read(entry: Json, path: Path, validator: Any) -> Case:
    problems = [
        f"{path.name}: not in the grammar at {'/'.join(map(str, error.instance_path))}: {error.message[:300]}"
        for error in validator.iter_errors([entry])
    ]
    return Case(
        id=str(entry.get("id", "?")),
        area=path.stem,
        title=str(entry.get("title", "")),
        given=entry.get("given", {}),
        steps=entry.get("steps", []),
        problems=problems[:3],
    )


def _selects(word: str, case: Case) -> bool:
    return word.upper() in (case.id, case.id.partition("-")[0]) or word.lower() == case.area
