"""Every history that a release left behind replays on today's workflows: a turn that waits survives the deploy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from turngate import TurngatePlugin
from turngate.testing import ScriptedModel

FOLDER = Path(__file__).parent / "histories"
FILES = sorted(FOLDER.glob("*/*.json"))


def plugin() -> TurngatePlugin:
    from turngate import Agent

    return TurngatePlugin([Agent("any", model=ScriptedModel([]))])


def test_there_are_histories_of_every_shape() -> None:
    """The newest recorded version has one of each."""
    from tests.histories.shapes import SHAPES

    newest = max(path.parent.name for path in FILES)
    recorded = {path.stem.rpartition("-")[0] or path.stem for path in FILES if path.parent.name == newest}
    recorded |= {path.stem for path in FILES if path.parent.name == newest}
    assert {shape.name for shape in SHAPES} <= recorded


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
async def test_history_replays(path: Path) -> None:
    """No command differs from what was recorded."""
    recorded = json.loads(path.read_text())
    history = WorkflowHistory.from_json(recorded["id"], recorded["history"])
    await Replayer(workflows=[], plugins=[plugin()]).replay_workflow(history)
