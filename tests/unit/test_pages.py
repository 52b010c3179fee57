"""Pages of an answer: from where and how much, and what is asked for wrongly is said."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from turngate.workflows.conversation import page

ITEMS = ["a", "b", "c"]


@pytest.mark.parametrize(
    ("request_", "found", "after"),
    [
        (None, ITEMS, None),
        ({}, ITEMS, None),
        ({"start": 1, "limit": None}, ["b", "c"], None),
        ({"start": 1, "limit": 1}, ["b"], 2),
        ({"start": 9}, [], None),
    ],
)
def test_pages(request_: Any, found: list[str], after: int | None) -> None:
    """Null counts as absent, and behind the end is nothing."""
    assert page(ITEMS, request_) == (found, (request_ or {}).get("start", 0), after)


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({"start": "x"}, "'start' is a whole number from 0 on, not 'x'"),
        ({"start": -1}, "not -1"),
        ({"start": True}, "not True"),
        ({"limit": 0}, "'limit' is a whole number from 1 on"),
        ({"strat": 3}, "'strat'"),
        ([3], r"\[3\]"),
    ],
)
def test_what_is_no_page_is_refused(request_: Any, said: str) -> None:
    """Or the asker would take the first page for another."""
    with pytest.raises(ApplicationError, match=said) as refused:
        page(ITEMS, request_)
    assert refused.value.type == "malformed"
