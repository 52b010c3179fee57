"""Signs of life, so that the server notices within seconds when a worker is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from temporalio import activity

REGULAR = 5.0
"""Seconds between two signs of life."""


@contextmanager
def beating(every: float | None = None, details: Callable[[], Any] | None = None) -> Iterator[None]:
    """Send signs of life while the code inside runs, each with what `details()` returns (None: without any)."""
    heart = _Heart(every or interval(activity.info().heartbeat_timeout), details)
    heart.rest()
    try:
        yield
    finally:
        heart.stop()


def interval(timeout: timedelta | None) -> float:
    """Return the seconds between signs of life under a heartbeat timeout: three fit into it."""
    return REGULAR if timeout is None else min(REGULAR, timeout.total_seconds() / 3)


class _Heart:
    """Beats now and then; a timer of the event loop costs far less than a task that sleeps."""

    def __init__(self, every: float, details: Callable[[], Any] | None) -> None:
        self._every = every
        self._details = details

    def rest(self) -> None:
        """Wait first: the server counts from the start, and Temporal Cloud bills each sign of life.

        Most calls are over before they owe one.
        """
        self._next = asyncio.get_running_loop().call_later(self._every, self._beat)

    def stop(self) -> None:
        """Beat no more."""
        self._next.cancel()

    def _beat(self) -> None:
        self.rest()
        found = self._details() if self._details else None
        activity.heartbeat(*([] if found is None else [found]))
