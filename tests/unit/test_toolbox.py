"""What an edit of a typed tool's arguments may look like."""

from __future__ import annotations

from datetime import datetime, time
from decimal import Decimal
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, WithJsonSchema

from turngate.schemas import check
from turngate.toolbox import prepared


class Folder(BaseModel):
    name: str
    inside: list[Folder] = []


class Meeting(BaseModel):
    begins: datetime
    daily: time | None = None


def fits(model: Any, args: dict[str, Any]) -> bool:
    schema = prepared(model).schema
    assert schema is not None
    return not check(schema, args)


def test_a_model_that_holds_itself_takes_its_own_fields_and_no_others() -> None:
    """Pydantic refers to such a model from the top, where a closed object would have no field at all."""
    assert fits(Folder, {"name": "a", "inside": [{"name": "b"}]})
    assert not fits(Folder, {"name": "a", "inside": [{"name": "b", "size": 1}]})
    assert not fits(Folder, {"name": "a", "size": 1})


def test_a_pattern_that_looks_around_does_not_take_edits_away() -> None:
    """Pydantic 2.12 writes such a one for Decimal, the type of money."""

    class Payment(BaseModel):
        amount: Annotated[Decimal, WithJsonSchema({"type": "string", "pattern": r"^(?!^[-+.]*$)[+-]?\d*$"})]
        pattern: str = ""

    assert fits(Payment, {"amount": "5", "pattern": "(?=x)"})
    assert not fits(Payment, {"amount": 5})


@pytest.mark.parametrize(
    ("begins", "good"),
    [
        ("2025-06-01T10:00:00Z", True),
        ("2025-06-01T10:00:00+02:00", True),
        ("2025-06-01T10:00:00", True),
        ("2025-06-01 10:00:00.5", True),
        ("2025-06-31T10:00:00", False),
        ("2025-06-01T25:00:00", False),
        ("2025-W22-7T10:00:00", False),
        ("2025-06-01", False),
        ("soon", False),
        (1, False),
    ],
)
def test_a_moment_may_have_no_time_zone(begins: Any, good: bool) -> None:
    """Models mostly write it so, pydantic reads it, and a tool may take no other."""
    assert fits(Meeting, {"begins": begins}) is good
    if good:
        assert fits(Meeting, {"begins": begins, "daily": begins[11:]})
