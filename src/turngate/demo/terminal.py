"""Lines from the person at the terminal, read without blocking the worker that shares the event loop."""

from __future__ import annotations

import asyncio
import os
import sys


class Terminal:
    """Reads standard input line by line."""

    def __init__(self) -> None:
        self._read = b""

    async def line(self) -> str:
        """Return the next line, stripped. Raises EOFError at the end of the input."""
        # Not `input` in a thread: such a thread can't be cancelled, so Ctrl-C would wait for one more Enter.
        while b"\n" not in self._read:
            await _readable(sys.stdin.fileno())
            more = os.read(sys.stdin.fileno(), 4096)
            if not more:
                raise EOFError
            self._read += more
        line, _, self._read = self._read.partition(b"\n")
        return line.decode("utf-8", "replace").strip()


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)
