"""Tools of an MCP server, a real process over stdio, as late tools: gated, run once approved, and gone in between."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from turngate import Agent, Paused, TurngateClient
from turngate.testing import ScriptedModel

if TYPE_CHECKING:
    from turngate.testing.fixtures import StartWorker

pytestmark = pytest.mark.server
pytest_plugins = ["turngate.testing.fixtures"]

SERVER = Path(__file__).with_name("mcp_server.py")
CALLS = [
    {"id": "c1", "name": "files_read", "args": {"path": "a.txt"}},
    {"id": "c2", "name": "files_delete", "args": {"path": "a.txt"}},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder that the MCP server serves, with one file in it."""
    (tmp_path / "a.txt").write_text("the text of a")
    return tmp_path


def agent(folder: Path, *calls: dict[str, Any], program: Path = SERVER, **options: Any) -> Agent:
    """Return an agent whose model makes these calls of the server's tools in one step."""
    # Imported here, and not by every process that collects the tests.
    from langchain_mcp_adapters.client import MultiServerMCPClient

    connection = {"transport": "stdio", "command": sys.executable, "args": [str(program), str(folder)]}
    servers = MultiServerMCPClient({"files": connection}, tool_name_prefix=True)  # type: ignore[dict-item]
    model = ScriptedModel([{"tool_calls": list(calls)}, "done"])
    return Agent("files", model=model, tools=servers.get_tools, **options)


def answers(messages: list[dict[str, Any]] | None) -> dict[str, tuple[str, str]]:
    """Return status and text of the tool messages, by call."""
    return {
        message["tool_call_id"]: (message["status"], str(message["content"]))
        for message in messages or []
        if message["type"] == "tool"
    }


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Poll until the condition holds."""
    async with asyncio.timeout(30):
        while not await condition():
            await asyncio.sleep(0.05)


async def paused(client: TurngateClient) -> Paused:
    """Start a turn that waits for people."""
    found = await client.run_turn("files", "Tidy up.")
    assert isinstance(found, Paused)
    return found


async def test_a_pattern_opens_the_gate_and_approval_runs_the_rest(
    folder: Path, turngate_client: TurngateClient, turngate_worker: StartWorker
) -> None:
    """What a pattern lets through runs at once; the other tool waits, with the server's own schema, and then runs."""
    await turngate_worker(agent(folder, *CALLS, interrupt_on={"files_read*": False, "files_*": True}))
    turn = await paused(turngate_client)
    [approval] = turn.approvals
    assert (approval.name, approval.tool_description) == ("files_delete", "Delete a file.")
    assert (folder / "a.txt").exists()
    assert approval.response_schema["$defs"]["edited_args"]["properties"]["path"]["type"] == "string"

    await turngate_client.approve(approval.id, digest=approval.digest)
    result = await turn.turn.result()
    found = answers(result.messages)
    assert found["c1"][0] == found["c2"][0] == "success"
    assert "the text of a" in found["c1"][1]
    assert "deleted a.txt" in found["c2"][1]
    assert not (folder / "a.txt").exists()


async def test_what_no_rule_speaks_about_waits(
    folder: Path, turngate_client: TurngateClient, turngate_worker: StartWorker
) -> None:
    """Late tools wait, though the agent's `default` is "run": nobody knew them when the rules were written."""
    await turngate_worker(agent(folder, CALLS[0]))
    turn = await paused(turngate_client)
    assert [approval.name for approval in turn.approvals] == ["files_read"]
    await turn.turn.stop()


async def test_default_deny_holds_for_late_tools(
    folder: Path, turngate_client: TurngateClient, turngate_worker: StartWorker
) -> None:
    """What no entry speaks about is refused, and the model is told so."""
    await turngate_worker(agent(folder, CALLS[1], default="deny", interrupt_on={"files_read": False}))
    result = await turngate_client.run_turn("files", "Tidy up.")
    assert not isinstance(result, Paused)
    assert answers(result.messages)["c2"][0] == "error"
    assert (folder / "a.txt").exists()


async def test_a_tool_that_vanished_since_the_approval_is_an_error_for_the_model(
    folder: Path, turngate_client: TurngateClient, turngate_worker: StartWorker
) -> None:
    """The server has taken the tool away: whether the worker knows that yet or not, the turn goes on."""
    gated = agent(folder, *[{**CALLS[1], "id": each} for each in ("c1", "c2")])
    await turngate_worker(gated)
    turn = await paused(turngate_client)
    (folder / "read-only").touch()

    await turngate_client.approve(turn.approvals[0].id)

    async def first_has_run() -> bool:
        return (await turn.turn.approvals())[0].executed is not None

    await until(first_has_run)
    gated._late = None  # the worker asks the server again, as it does after half a minute
    await turngate_client.approve(turn.approvals[1].id)

    result = await turn.turn.result()
    assert result.output == "done"
    found = answers(result.messages)
    assert found["c1"][0] == found["c2"][0] == "error"
    assert "files_delete" in found["c2"][1]
    assert (folder / "a.txt").exists()


async def test_a_server_that_is_gone_is_an_error_for_the_model(
    folder: Path, turngate_client: TurngateClient, turngate_worker: StartWorker
) -> None:
    """No server answers when the approved call should run: an error message, no crash and no second attempt."""
    program = folder / "server.py"
    program.write_text(SERVER.read_text())
    gated = agent(folder, CALLS[1], program=program)
    await turngate_worker(gated)
    turn = await paused(turngate_client)
    program.write_text("raise SystemExit(1)")
    gated._late = None

    await turngate_client.approve(turn.approvals[0].id)

    async def answered() -> bool:
        return (await turn.turn.messages())[-1]["type"] == "tool"

    await until(answered)
    program.write_text(SERVER.read_text())  # for the model's next call: without its tools it is not asked at all
    result = await turn.turn.result()
    assert result.output == "done"
    assert answers(result.messages)["c2"][0] == "error"
    assert "could not be loaded: McpError: Connection closed" in answers(result.messages)["c2"][1]
