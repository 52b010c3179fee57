"""Node scripts that serve requests, see lines.mjs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import TracebackType
from typing import Any, Self

HERE = Path(__file__).parent
_PATIENCE = 90.0


class NodeScript:
    """Run a script beside this file for as long as the `async with` block lasts, and ask it things."""

    def __init__(self, script: str, *arguments: str | Path) -> None:
        self._command = ("node", str(HERE / script), *map(str, arguments))
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(*self._command, stdin=pipe, stdout=pipe, limit=2**24)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), 10)
        except TimeoutError:
            process.kill()
            await process.wait()

    async def ask(self, operation: str, **options: Any) -> Any:
        """Return what the script answers. Raises AssertionError with the script's error."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"operation": operation, **options}).encode() + b"\n")
        line = await asyncio.wait_for(process.stdout.readline(), _PATIENCE)
        assert line, f"{self._command[1]} ended when asked to {operation}: run `make setup` for its packages"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer["value"]
