"""A paused turn continues as new at the very moment when decisions, votes, junk and stops arrive."""

from __future__ import annotations

import pytest

from tests.crash.racing import race
from tests.sizes import size

pytestmark = pytest.mark.server


async def test_nothing_is_lost_or_doubled() -> None:
    """A few tries, or hundreds; `python -m tests.crash.racing --tries 300` shows more of them."""
    tries = size(10, 300)
    tally = await race(tries)
    assert tally.wrong == []
    assert tally.tries == tries
    assert tally.continued_as_new >= tries * 2 // 3
