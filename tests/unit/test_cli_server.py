"""The command line against a real server and worker."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.conftest import PAY_5, RunShop, call, calls
from turngate.cli.app import GONE, OK, run
from turngate.client import Paused, TurngateClient
from turngate.devserver import DevServer

pytestmark = pytest.mark.server
Cli = Callable[..., Awaitable[tuple[int, str]]]
PATIENCE = 30.0


@pytest.fixture
def cli(server: DevServer, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run `turngate` against the test's server and task queue, on a thread with an event loop of its own."""

    async def command(*argv: str) -> tuple[int, str]:
        where = ("--address", server.address, "--task-queue", request.node.name)
        code = await asyncio.wait_for(asyncio.to_thread(run, [*argv, *where]), PATIENCE)
        shown = capsys.readouterr()
        return code, shown.out + shown.err

    return command


async def waiting(client: TurngateClient, agent: str = "shop") -> list[str]:
    """Start a turn, wait until people are wanted, and return the ids of the approvals."""
    end = await client.run_turn(agent, "go")
    assert isinstance(end, Paused)
    return [approval.id for approval in end.approvals]


async def test_list_show_decide(shop: RunShop, cli: Cli) -> None:
    """A refusal has another exit code than success."""
    three = calls(*(call(f"c{n}", "pay", to="acme", amount=n) for n in (5, 6, 7)))
    async with shop(three, "done", name="cli-shop") as client:
        one, two, three_ = await waiting(client, "cli-shop")
        async with asyncio.timeout(PATIENCE):
            while one not in (shown := await cli("inbox", "--agent", "cli-shop", "--json"))[1]:
                pass
        assert shown[0] == 0
        assert [entry["id"] for entry in json.loads(shown[1])] == [one, two, three_]
        code, table = await cli("inbox", "--agent", "cli-shop")
        assert (code, all(each in table for each in (one, two, three_, "acme"))) == (0, True)
        code, panel = await cli("show", one)
        assert (code, "pay" in panel, f"turngate approve {one}" in panel) == (0, True, True)
        assert json.loads((await cli("show", one, "--json"))[1])["id"] == one
        assert (await cli("approve", one))[0] == 0
        code, refusal = await cli("reject", one)
        assert (code, "was approved" in refusal) == (3, True)
        assert (await cli("reject", three_, "--message", "over budget"))[0] == 0
        code, shown_edit = await cli("edit", two, "--args", '{"to": "acme", "amount": 1}')
        assert (code, '+  "amount": 1' in shown_edit) == (0, True)
        turn_id = one.rpartition("/")[0]
        result = await client.turn(turn_id).result()
        assert [approval.status for approval in result.approvals] == ["approved", "edited", "rejected"]
        code, record = await cli("audit", turn_id, "--json")
        assert (code, [json.loads(line)["status"] for line in record.splitlines()]) == (
            0,
            ["approved", "edited", "rejected"],
        )
        assert "edited" in (await cli("audit", turn_id))[1]
        assert (await cli("reject", one, "--message", "late"))[0] == 4
        assert (await cli("approve", "no-such-run/abcdef-1"))[0] == 4


async def test_editing_in_the_persons_own_editor(
    shop: RunShop, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is saved is checked and sent."""
    script = tmp_path / "editor.py"
    script.write_text(
        "import pathlib, sys; f = pathlib.Path(sys.argv[1]); f.write_text(f.read_text().replace('5', '4'))"
    )
    editor = f"{shlex.quote(sys.executable)} {shlex.quote(str(script))}"
    monkeypatch.setenv("VISUAL", editor)
    async with shop(PAY_5, "done") as client:
        (approval_id,) = await waiting(client)
        code, _ = await cli("edit", approval_id, "--reviewer", "rev-1")
        assert code == 0
        result = await client.turn(approval_id.rpartition("/")[0]).result()
    assert result.approvals[0].executed is not None
    assert result.approvals[0].executed.args == {"to": "acme", "amount": 4}
    assert result.approvals[0].votes[0].reviewer == "rev-1"


async def test_an_edit_that_does_not_fit_is_not_sent(shop: RunShop, cli: Cli) -> None:
    """The field is named."""
    async with shop(PAY_5) as client:
        (approval_id,) = await waiting(client)
        code, shown = await cli("edit", approval_id, "--args", '{"to": "acme"}')
        assert (code, "amount" in shown) == (3, True)


async def test_many_at_once(shop: RunShop, cli: Cli) -> None:
    """Only when somebody says yes, and each is reported."""
    async with shop(PAY_5, "done", name="many") as client:
        ids = [*await waiting(client, "many"), *await waiting(client, "many")]
        async with asyncio.timeout(PATIENCE):
            while len(await client.pending(agent="many")) < 2:
                await asyncio.sleep(0.05)
        code, shown = await cli("reject", "--all", "--agent", "many", "--tool", "pay")
        assert (code, "--yes" in shown) == (2, True)
        code, shown = await cli("reject", "--all", "--agent", "many", "--tool", "pay", "--yes", "--json")
        reports = json.loads(shown)
        assert (code, [report["approval_id"] for report in reports]) == (0, ids)
        assert {report["receipt"]["outcome"] for report in reports} == {"applied"}


async def test_starting_waiting_and_stopping(shop: RunShop, cli: Cli) -> None:
    """A turn from the command line."""
    async with shop(PAY_5, "done", name="starter"):
        code, shown = await cli("start", "starter", "go", "--turn-id", "cli-1", "--wait", "--json")
        state: dict[str, Any] = json.loads(shown)
        assert (code, state["status"], state["approvals"][0]["name"]) == (0, "waiting", "pay")
        assert (await cli("start", "starter", "go", "--turn-id", "cli-1"))[0] == 1
        code, shown = await cli("show", "cli-1")
        assert (code, "waiting" in shown, "acme" in shown) == (0, True, True)
        assert (await cli("stop", "cli-1", "--reason", "enough"))[0] == 0
        code, shown = await cli("watch", "cli-1", "--json")
        assert (code, json.loads(shown.splitlines()[-1])["data"]["status"]) == (0, "stopped")
        assert (await cli("stop", "cli-1"))[0] == 4
        assert (await cli("stop"))[0] == 2


async def test_talking_in_a_thread(shop: RunShop, cli: Cli) -> None:
    """Each message has its turn, and whoever watches the thread sees them all."""
    async with shop("hello to you", name="talker") as client:
        code, shown = await cli("send", "cli-thread", "hello", "--agent", "talker", "--wait")
        assert (code, shown.strip().splitlines()[-1]) == (0, "hello to you")
        assert (await cli("rules", "cli-thread"))[1].strip() == "No decision is remembered."
        # The id of its turn looks like that of an approval of the thread, which keeps none.
        assert "completed, agent talker" in (await cli("show", "cli-thread/turn-1"))[1]
        assert (await cli("show", "cli-thread/turn-2"))[0] == GONE
        assert (await cli("approve", "cli-thread/turn-1"))[0] == GONE
        assert (await cli("audit", "cli-thread"))[0] == OK
        await client.thread("cli-thread").close()
        code, shown = await cli("watch", "cli-thread")
        told = ["cli-thread/turn-1", "human: hello", "step 1", "ai: hello to you", "completed"]
        assert (code, [line.rstrip() for line in shown.splitlines() if line.strip()]) == (0, told)


SECRETS = """
import dataclasses, pathlib
from langchain_core.tools import tool
from temporalio.contrib.pydantic import pydantic_data_converter
from turngate import Agent, EncryptionCodec
from turngate.testing import ScriptedModel

@tool
def pay(to: str) -> str:
    "Pay."
    return f"paid {to}"

class Told:
    async def notify(self, notification):
        pathlib.Path("told.txt").write_text(notification.approval.args["to"])

notifiers = {"page": Told()}
call = {"id": "c1", "name": "pay", "args": {"to": "acme"}}
agent = Agent("secret", model=ScriptedModel([{"tool_calls": [call]}, "done"]), tools=[pay],
    interrupt_on={"pay": True}, notifiers=["page"])

def converter():
    return dataclasses.replace(pydantic_data_converter, payload_codec=EncryptionCodec({"k1": b"k" * 32}))
"""


@contextlib.asynccontextmanager
async def worker_of(folder: Path, server: DevServer, *words: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run `turngate worker` in a folder, and end it."""
    program = "from turngate.cli import main; main()"
    command = [sys.executable, "-c", program, "worker", *words, "--address", server.address]
    process = await asyncio.create_subprocess_exec(*command, cwd=folder)
    try:
        yield process
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), PATIENCE)


async def test_everything_encrypted(
    cli: Cli, server: DevServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """The worker and every command read their data converter from the environment; without it they say so."""
    (tmp_path / "secrets_of_mine.py").write_text(SECRETS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("TURNGATE_DATA_CONVERTER", "secrets_of_mine:converter")
    words = ("secrets_of_mine:agent", "--notifiers", "secrets_of_mine:notifiers", "--task-queue", request.node.name)
    async with worker_of(tmp_path, server, *words) as worker:
        code, shown = await cli("start", "secret", "go", "--turn-id", "cli-secret", "--wait", "--json")
        approval_id = json.loads(shown)["approvals"][0]["id"]
        assert (code, "acme" in shown) == (0, True)
        assert '"to": "acme"' in (await cli("show", approval_id))[1]
        monkeypatch.delenv("TURNGATE_DATA_CONVERTER")
        code, shown = await cli("show", approval_id)
        assert (code, "binary/encrypted" in shown, "--data-converter" in shown) == (1, True, True)
        option = ("--data-converter", "secrets_of_mine:converter")
        assert (await cli("approve", approval_id, *option))[0] == 0
        code, shown = await cli("watch", "cli-secret", *option)
        assert (code, "pay: succeeded" in shown, (tmp_path / "told.txt").read_text()) == (0, True, "acme")
    assert worker.returncode == 0


async def test_setup_tells_what_is_there(cli: Cli) -> None:
    """The test's server has everything."""
    code, shown = await cli("setup")
    assert (code, "registered" in shown) == (0, True)
