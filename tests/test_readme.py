"""What the README tells people to do, done: its snippets run as they stand there."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import tool
from temporalio.client import Client

from tests.docs.terminals import Terminals
from tests.integration.openai_server import OpenAIServer, Says
from turngate import Agent, NotAReviewerError, Paused, TurngateClient, TurnResult, build_worker
from turngate.testing import ScriptedModel, dev_server

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
PATIENCE = 120.0

REFUND = Says(None, (("call_1", "refund", {"order": 4711, "amount": 25}),))


def snippets(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


PROGRAM, FROM_PYTHON, RULES = snippets("python")
MAKE, _INSTALL, DEV, COMMANDS = snippets("sh")


def with_provider(openai: OpenAIServer) -> dict[str, str]:
    """Return an environment in which `openai:gpt-5` is a script."""
    return {**os.environ, "OPENAI_API_KEY": "key", "OPENAI_BASE_URL": openai.base_url}


# --- The program -----------------------------------------------------------------------------------------------------


def test_the_program_is_short_and_stands_among_the_examples() -> None:
    """About twenty lines, and the same file as the one in the repository."""
    assert (ROOT / "examples" / "refunds.py").read_text("utf-8") == PROGRAM
    assert len([line for line in PROGRAM.splitlines() if line.strip()]) <= 25


@pytest.mark.server
def test_the_program_asks_and_goes_on(tmp_path: Path) -> None:
    """A reason rejects, Enter approves; the model reads what became of its calls."""
    (tmp_path / "refunds.py").write_text(PROGRAM, "utf-8")
    with OpenAIServer([REFUND, REFUND, Says("That is all.")]) as openai:
        done = subprocess.run(
            [sys.executable, "refunds.py"],
            cwd=tmp_path,
            env=with_provider(openai),
            input="too much\n\n",
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
    assert done.returncode == 0, done.stderr
    assert "refund" in done.stdout
    assert done.stdout.rstrip().endswith("That is all.")
    assert "too much" in openai.sent(1)[-1]["content"]
    assert openai.sent(2)[-1]["content"] == "refunded 25.00 for order 4711"


# --- The commands ----------------------------------------------------------------------------------------------------


@pytest.mark.server
def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call waits, is listed, shown and approved, and runs. That it waits over a restart, the tutorial shows."""
    (tmp_path / "refunds.py").write_text(PROGRAM, "utf-8")
    start, inbox, show, approve = COMMANDS.splitlines()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TEMPORAL_ADDRESS", "set by turngate dev")
    with OpenAIServer([REFUND, Says("That is all.")]) as openai:
        for name, value in with_provider(openai).items():
            monkeypatch.setenv(name, value)
        with contextlib.closing(Terminals(tmp_path)) as terminals:

            def runs(line: str) -> str:
                code, said = terminals.execute(line)
                assert code == 0, said
                return said

            runs(DEV)
            turn = json.loads(runs(f"{start} --wait --json"))
            [approval] = turn["approvals"]
            assert approval["id"] in runs(inbox)
            assert "4711" in runs(show.replace("APPROVAL", approval["id"]))
            assert "approved" in runs(approve.replace("APPROVAL", approval["id"]))
            runs(f"turngate watch {turn['turn_id']}")
            terminals.ctrl_c()
            assert (tmp_path / ".turngate" / "dev.db").exists()
        assert openai.sent(1)[-1]["content"] == "refunded 25.00 for order 4711"


def test_make_knows_the_targets() -> None:
    """What the README gives to make is there."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in re.findall(r"^make (\w+)", MAKE, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


def test_every_link_leads_somewhere() -> None:
    """Files that the README points to exist."""
    for link in re.findall(r"\]\(([^)]+)\)", README):
        assert link.startswith("https://") or (ROOT / link).exists(), link


# --- Deciding from Python, and the rules -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
async def temporal() -> AsyncIterator[Client]:
    """A client of a server for the tests of this module."""
    async with dev_server() as server:
        yield await server.client()


@tool
def refund(order: int, amount: float) -> str:
    """Pay money back to the customer of an order."""
    return f"refunded {amount:.2f} for order {order}"


def a_shop(**options: Any) -> Agent:
    """An agent whose script pays back 25, then 250."""
    calls = [
        {"tool_calls": [{"id": f"c{amount}", "name": "refund", "args": {"order": 1, "amount": amount}}]}
        for amount in (25, 250)
    ]
    return Agent("shop", model=ScriptedModel([*calls, "done"]), tools=[refund], **options)


async def executed(code: str, **names: Any) -> dict[str, Any]:
    """Run a snippet that awaits, and return the names it leaves."""
    body = textwrap.indent(code, "    ")
    exec(compile(f"async def snippet():\n{body}\n    return locals()", "README.md", "exec"), names)
    found: dict[str, Any] = await names["snippet"]()
    return found


@pytest.mark.server
async def test_the_snippet_that_decides_from_python(temporal: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """It finds the server by Temporal's own settings, and edits what waits."""
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal.service_client.config.target_host)
    async with build_worker(temporal, [a_shop(interrupt_on={"refund": True})]):
        paused = await TurngateClient(temporal).run_turn("shop", "go", turn_id="from-python")
        assert isinstance(paused, Paused)
        await executed(FROM_PYTHON)
        [first, *_] = await paused.turn.approvals()
        assert first.resolution is not None
        assert (first.status, first.resolution.reviewer) == ("edited", "lena")
        await paused.turn.stop()


@pytest.mark.server
async def test_the_rules_do_what_the_readme_says(temporal: Client) -> None:
    """Small refunds run; a large one waits a day for one of two people, who may approve or reject."""
    rules = await executed(RULES)
    agent = a_shop(interrupt_on=rules["interrupt_on"])
    client = TurngateClient(temporal, "rules")
    async with build_worker(temporal, [agent], task_queue="rules"):
        paused = await client.run_turn("shop", "go")
        assert isinstance(paused, Paused)
        [approval] = paused.approvals
        assert (approval.args["amount"], approval.allowed_decisions) == (250, ["approve", "reject"])
        assert approval.expires_at is not None
        assert approval.requested_at is not None
        assert (approval.expires_at - approval.requested_at).days == 1
        with pytest.raises(NotAReviewerError):
            await client.approve(approval.id, reviewer="somebody")
        await client.approve(approval.id, reviewer="omar")
        result = await client.wait(paused.turn)
        assert isinstance(result, TurnResult)
        assert result.output == "done"
