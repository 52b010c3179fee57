"""The documentation's pages as blocks of code, in the order in which a reader meets them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

_FENCE = re.compile(r"^( *)```(\w*)(.*)$")
_TITLE = re.compile(r'title="([^"]+)"')
_HIDDEN = "<!-- test"
"""Python that readers don't see: it sets the scene of the next block, or looks at what the last one did."""


@dataclass(frozen=True)
class Block:
    """A fenced block of code, or a hidden one. `line` is where it begins in its file, counted from 1."""

    language: str
    code: str
    line: int
    title: str | None = None
    hidden: bool = False


def pages() -> list[Path]:
    """Return all pages but the records of decisions, which hold no code to run."""
    return sorted(page for page in DOCS.rglob("*.md") if "decisions" not in page.relative_to(DOCS).parts)


def name_of(page: Path) -> str:
    """Return a page's path inside the documentation."""
    return str(page.relative_to(DOCS))


def blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page."""
    lines = iter(enumerate(page.read_text("utf-8").splitlines(), 1))
    for number, line in lines:
        if line == _HIDDEN:
            code = _until("-->", lines)
            yield Block("python", code, number + 1, hidden=True)
        elif found := _FENCE.match(line):
            indent, language, rest = found.groups()
            code = _until(f"{indent}```", lines, len(indent))
            title = _TITLE.search(rest)
            yield Block(language, code, number + 1, title[1] if title else None)


def _until(end: str, lines: Iterator[tuple[int, str]], indent: int = 0) -> str:
    found = []
    for _, line in lines:
        if line == end:
            return "\n".join(found) + "\n"
        found.append(line[indent:])
    raise AssertionError(f"a block has no end {end!r}")


def commands(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the command lines of a page's shell blocks, with their lines; continued lines are joined."""
    for block in blocks(page):
        if block.language != "sh":
            continue
        text = block.code.replace("\\\n", " ")
        for line in text.splitlines():
            line = line.split(" #")[0].split(" >")[0].strip()
            if line and not line.startswith("#"):
                yield block.line, line


def tables(page: Path) -> list[list[list[str]]]:
    """Return the tables of a page, as rows of cells without their heads."""
    found: list[list[list[str]]] = []
    rows: list[list[str]] = []
    for line in [*page.read_text("utf-8").splitlines(), ""]:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
        elif rows:
            found.append(rows[2:])
            rows = []
    return found
