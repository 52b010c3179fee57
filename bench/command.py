"""Run a command of the bench, and leave in order."""

from __future__ import annotations

import sys

import cyclopts
from rich.console import Console

from turngate.leaving import leave

CONSOLE = Console(width=None if sys.stdout.isatty() else 160)
"""Wide enough for the tables where the output goes into a file."""


def main(app: cyclopts.App) -> None:
    """Run the command, and end the process without what the SDK's threads may do to the interpreter's end."""
    try:
        app(result_action="return_value")
    except SystemExit as ending:
        if isinstance(ending.code, str):
            print(ending.code, file=sys.stderr)
        leave(ending.code if isinstance(ending.code, int) else int(ending.code is not None))
    leave(0)
