"""Signs of life, so that the server notices within seconds when a worker is lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from temporalio import activity

REGULAR = 5.0
"""Seconds between two signs of life."""


@asynccontextmanager
async def beating(every: float | None = None, details: Callable[[], Any] | None = None) -> AsyncIterator[None]:
    """Send signs of life while the code inside runs, each with what `details()` returns (None: without any)."""
    beat = asyncio.create_task(_beat(every or interval(activity.info().heartbeat_timeout), details))
    try:
        yield
    finally:
        beat.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await beat


def interval(timeout: timedelta | None) -> float:
    """Return the seconds between signs of life under a heartbeat timeout: three fit into it."""
    return REGULAR if timeout is None else min(REGULAR, timeout.total_seconds() / 3)


async def _beat(every: float, details: Callable[[], Any] | None) -> None:
    while True:
        # First the wait: the server counts from the start, and each sign is a request that Temporal Cloud bills. Most
        # calls are over before they owe one.
        await asyncio.sleep(every)
        found = details() if details else None
        activity.heartbeat(*([] if found is None else [found]))
