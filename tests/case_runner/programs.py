"""Running command line programs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

_PATIENCE = 60.0


async def run_program(*command: str, env: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Run a program to its end and return its exit code and what it printed, errors included."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), _PATIENCE)
    except TimeoutError:
        process.kill()
        await process.wait()
        return -1, f"{command[0]} did not end within {_PATIENCE:.0f} s"
    return process.returncode or 0, output.decode("utf-8", "replace")
