"""The wire: defaults are frozen, because history leaves them out."""

from __future__ import annotations

import json
from pathlib import Path

from turngate import contracts, items
from turngate.contracts import Recorded
from turngate.workflows import agent_thread, state

FROZEN = Path(__file__).parent / "defaults.json"
MODULES = (contracts, items, state, agent_thread)


def defaults() -> dict[str, object]:
    """Every recorded model with the values of its fields when nothing is given."""
    found = {
        name: value().model_dump(mode="json")
        for module in MODULES
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Recorded) and value is not Recorded
    }
    return dict(sorted(found.items()))


def test_no_default_has_changed() -> None:
    """A changed default would change how old histories are read. New fields are added to the file, never altered."""
    frozen = json.loads(FROZEN.read_text())
    today = defaults()
    for model, fields in frozen.items():
        assert model in today, f"{model} is gone"
        for field, value in fields.items():
            assert today[model].get(field, "gone") == value, f"{model}.{field} changed"  # type: ignore[attr-defined]
    missing = {model: set(fields) - set(frozen.get(model, {})) for model, fields in today.items()}  # type: ignore[call-overload]
    assert not any(missing.values()), f"freeze the new fields too: {missing}"


def test_what_is_compact_reads_back_the_same() -> None:
    """A null that is not the default survives: a switched-off edit notice stays off."""
    settings = contracts.StepSettings(edit_notice=None, max_steps=3)
    assert contracts.StepSettings.model_validate(settings.compact()) == settings
    assert settings.compact() == {"edit_notice": None, "max_steps": 3}
