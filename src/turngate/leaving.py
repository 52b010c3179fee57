"""End a program that used Temporal's SDK, with its exit code."""

from __future__ import annotations

import atexit
import os
import sys
from typing import NoReturn


def leave(code: int) -> NoReturn:
    """End the process now: run exit handlers, write out what was printed, and skip the interpreter's own end.

    A thread of the SDK's core can still be calling into Python while the interpreter takes itself apart, which then
    aborts ("PyGILState_Release", exit code 134). After a refused connection that is one run in six (temporalio 1.35),
    and whoever asked for the exit code gets a wrong one.
    """
    # What the interpreter would do at its end, and nobody else can call.
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            # The reader of a pipe went away first.
            code = code or 1
    os._exit(code)
