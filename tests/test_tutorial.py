"""The tutorial, followed word by word: its files, its commands, and what it says that one sees."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import DOCS, Block, blocks
from tests.docs.terminals import Terminals
from turngate import TurngateClient

TUTORIAL = DOCS / "tutorial.md"
pytestmark = [pytest.mark.server, pytest.mark.slow]


class Reader:
    """Somebody who does what the tutorial says, from top to bottom."""

    def __init__(self, folder: Path, terminals: Terminals) -> None:
        self._folder = folder
        self._terminals = terminals
        self._turn = ""
        self._approval = ""
        self._ran = False
        self.names: dict[str, Any] = {"folder": folder, "ctrl_c": terminals.ctrl_c}

    def do(self, block: Block) -> None:
        """Save a file, run commands, or compare what was seen."""
        if block.hidden:
            exec(compile("\n" * (block.line - 1) + block.code, str(TUTORIAL), "exec"), self.names)
        elif block.language == "python":
            self.names["code_of_last_python"] = block.code
            if block.title:
                (self._folder / block.title).write_text(block.code, "utf-8")
        elif block.language == "sh":
            self._run(block)
            self._ran = True
            return
        elif block.language == "text" and self._ran:
            _compare(block, self.names["out"])
        self._ran = False

    def _run(self, block: Block) -> None:
        said = ""
        for line in block.code.splitlines():
            if found := re.search(r"--turn-id (\S+)", line):
                self._turn, self._approval = found[1], ""
            if "APPROVAL" in line and not self._approval:
                self._approval = asyncio.run(_waiting(self._turn))
            code, out = self._terminals.execute(line.replace("APPROVAL", self._approval))
            said += out
            self.names.update(code=code, out=said)
            if line.startswith("turngate start"):
                asyncio.run(_waiting(self._turn))
        assert code == 0 or block.line in self.names["wrong_on_purpose"], f"line {block.line}: {code}: {said}"


def _compare(block: Block, said: str) -> None:
    """What the page shows was seen, line by line; three dots stand for anything, and spaces for spaces."""
    seen = [" ".join(line.split()) for line in said.splitlines()]
    for line in filter(None, block.code.splitlines()):
        pattern = ".*".join(re.escape(" ".join(part.split())).strip() for part in line.split("…"))
        assert any(re.search(pattern, one) for one in seen), f"line {block.line}: {line!r} is not in {said}"


async def _waiting(turn_id: str) -> str:
    """Return the id of the one call that waits, as the inbox shows it."""
    client = await TurngateClient.connect()
    paused = await client.wait(client.turn(turn_id))
    [approval] = paused.approvals
    return approval.id


def test_the_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is there, works, and says what the page says."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TEMPORAL_ADDRESS", "set by turngate dev")
    monkeypatch.setenv("COLUMNS", "120")
    page = list(blocks(TUTORIAL))
    terminals = Terminals(tmp_path)
    reader = Reader(tmp_path, terminals)
    # Commands may fail where a hidden block behind them, and behind what they say, looks at their exit code.
    reader.names["wrong_on_purpose"] = {
        block.line
        for block, *after in zip(page, page[1:], page[2:], strict=False)
        if any("assert code" in one.code for one in after)
    }
    try:
        for block in page:
            reader.do(block)
    finally:
        terminals.close()
    assert "200.00 euros for order 4711" in (tmp_path / "refunds.txt").read_text("utf-8")
