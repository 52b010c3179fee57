"""A paused turn continues as new at the very moment when decisions, votes, junk and stops arrive."""

from __future__ import annotations

import pytest

from tests.crash.racing import race

pytestmark = pytest.mark.server


async def test_nothing_is_lost_or_doubled() -> None:
    """A few dozen tries; `python -m tests.crash.racing --tries 300` makes hundreds."""
    tally = await race(tries=30)
    assert tally.wrong == []
    assert tally.tries == 30
    assert tally.continued_as_new >= 20
