"""Running command line programs."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping

from tests.case_runner.outcome import Outcome
from tests.case_runner.world import World

_PATIENCE = 60.0
# What the installed script `turngate` does; tests need not have it on their path.
_TURNGATE = "import sys; from turngate.cli import main; sys.argv[0] = 'turngate'; sys.exit(main())"


async def run_turngate(world: World, *arguments: str) -> Outcome:
    """Run our own command line against the server of the case."""
    env = {**os.environ, "TEMPORAL_ADDRESS": world.server.address, "TURNGATE_TASK_QUEUE": world.task_queue}
    code, output = await run_program(sys.executable, "-c", _TURNGATE, *arguments, env=env)
    return Outcome(exit_code=code, output=output)


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
