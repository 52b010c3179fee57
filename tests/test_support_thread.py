"""The example of a support thread: all that a conversation can wait for, in two turns."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from turngate import TurngateClient, build_worker
from turngate.testing import ScriptedModel, dev_server

EXAMPLE = Path(__file__).parents[1] / "examples" / "support_thread.py"
pytestmark = pytest.mark.server


@pytest.fixture
def example() -> ModuleType:
    """The example as a module."""
    spec = spec_from_file_location("support_thread", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_runs_by_itself() -> None:
    """As somebody would start it first; it says who decided what, and what was paid."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--yes"],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )
    assert done.returncode == 0, done.stderr
    assert "support/research: export_cases rejected" in done.stdout
    assert "support: refund approved by lena (remembered)" in done.stdout
    assert done.stdout.rstrip().endswith("Paid: 249.00 for order 4711, 89.00 for order 4712")


async def test_what_waited_and_what_ran(example: ModuleType) -> None:
    """The record, the money with its keys, and what the models read."""
    model, research_model = example.SupportScript(), ScriptedModel(example.RESEARCH)
    agent = example.support(model, research_model)
    async with dev_server() as server:
        temporal = await server.client()
        async with build_worker(temporal, [agent]):
            client = TurngateClient(temporal)
            record = await example.converse(client, "customer-1", example.MESSAGES, example.decide_by_itself)
            thread = client.thread("customer-1")
            assert [rule.scope for rule in await thread.rules()] == ["thread"]
            assert [turn["status"] for turn in (await thread.status())["turns"]][:1] == ["completed"]
    settled = [(one.context.turn_id, one.name, one.status, one.resolution.by) for one in record if one.resolution]
    assert settled == [
        ("customer-1/turn-1", "ask_customer", "responded", "reviewer"),
        ("customer-1/turn-1", "refund", "approved", "reviewer"),
        ("customer-1/turn-1/task-2", "export_cases", "rejected", "reviewer"),
        ("customer-1/turn-2", "refund", "approved", "rule"),
    ]
    assert [(order, amount) for order, amount, _ in example.paid] == [(4711, 249.0), (4712, 89.0)]
    assert len({key for _, _, key in example.paid}) == 2
    last = research_model.inputs()[-1][-1]
    assert "Names of customers are none of our business" in last["content"]
