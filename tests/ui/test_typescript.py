"""Temporal's TypeScript client decides, is refused, and can't hurt a run; the example in TypeScript works."""

from __future__ import annotations

import asyncio
import os
import subprocess

import pytest

from tests.ui.conftest import EXAMPLE, StartPaused
from tests.ui.decisions import check_four, details_of, failed_tasks, four_decisions
from tests.ui.node import NodeScript
from turngate.client import Paused, TurngateClient
from turngate.devserver import DevServer


async def test_updates_decide(sdk: NodeScript, start_paused: StartPaused) -> None:
    """All four decisions by update; each is answered with its receipt."""
    paused = await start_paused()
    for decision in four_decisions(paused.approvals):
        answer = await sdk.ask("update", turn=paused.turn.id, payloads=[{"json": decision}])
        assert [one["outcome"] for one in answer["value"]["receipts"]] == ["applied"]
    check_four(await paused.turn.result())


async def test_signals_decide(sdk: NodeScript, start_paused: StartPaused) -> None:
    """All four decisions by signal."""
    paused = await start_paused()
    for decision in four_decisions(paused.approvals):
        await sdk.ask("signal", turn=paused.turn.id, payloads=[{"json": decision}])
    check_four(await paused.turn.result())


async def test_refused_update_tells_the_sender(sdk: NodeScript, start_paused: StartPaused) -> None:
    """The error says what is wrong, with code and field, and nothing was changed."""
    paused = await start_paused()
    payload = {"approval_id": paused.approvals[0].id, "type": "aprove"}
    refused = (await sdk.ask("update", turn=paused.turn.id, payloads=[{"json": payload}]))["refused"]
    assert refused["error"] == "WorkflowUpdateFailedError"
    assert refused["type"] == "malformed"
    assert "unknown type 'aprove'" in refused["message"]
    assert refused["details"][0]["refusals"][0]["path"] == ["type"]
    assert len(await paused.turn.pending()) == 4


async def test_refused_signal_is_kept(sdk: NodeScript, start_paused: StartPaused) -> None:
    """A signal has no answer, so its refusal is in the query `refused` and in the details."""
    paused = await start_paused()
    payload = {"approval_id": paused.approvals[0].id, "type": "aprove", "reviewer": "rev-1"}
    await sdk.ask("signal", turn=paused.turn.id, payloads=[{"json": payload}])
    (refused,) = (await sdk.ask("query", turn=paused.turn.id, name="refused"))["refused"]
    assert refused["code"] == "malformed"
    assert refused["by"] == "rev-1"
    assert "unknown type 'aprove'" in await details_of(paused)
    assert len(await paused.turn.pending()) == 4


POISON = {
    "undefined": [{"undefined": True}],
    "null": [{"json": None}],
    "nothing": [],
    "two arguments": [{"json": {"type": "approve"}}, {"json": 1}],
    "two undefined": [{"undefined": True}, {"undefined": True}],
    "bytes": [{"bytes": [0, 255, 128]}],
    "a number": [{"json": 7}],
}


async def test_junk_does_not_hurt(sdk: NodeScript, start_paused: StartPaused) -> None:
    """What a careless program sends is refused, one by one, and the good decision behind it counts."""
    paused = await start_paused()
    for number, payloads in enumerate(POISON.values(), 1):
        await sdk.ask("signal", turn=paused.turn.id, payloads=payloads)
        answer = await sdk.ask("update", turn=paused.turn.id, payloads=payloads)
        assert answer["refused"]["type"] == "malformed", payloads
        assert len(await paused.turn.refused()) == number
    await sdk.ask("signal", turn=paused.turn.id, name="aprove", payloads=[{"json": {}}])
    assert "there is no signal 'aprove'" in (await paused.turn.refused())[-1].message
    for decision in four_decisions(paused.approvals):
        await sdk.ask("update", turn=paused.turn.id, payloads=[{"json": decision}])
    check_four(await paused.turn.result())
    assert await failed_tasks(paused) == 0


# --- The example --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def built_example() -> None:
    """The example compiled, which `make setup` does; compiled again where its source is newer."""
    built = EXAMPLE / "dist" / "main.js"
    newest = max(path.stat().st_mtime for path in (EXAMPLE / "src").iterdir())
    if not built.exists() or built.stat().st_mtime < newest:
        subprocess.run(["npm", "run", "build"], cwd=EXAMPLE, check=True, capture_output=True)


@pytest.mark.usefixtures("built_example")
async def test_example(ui_server: DevServer, turngate: TurngateClient) -> None:
    """The commands of the example: start, list, a refusal, decisions, the result."""

    async def run(*words: str, code: int = 0) -> str:
        process = await asyncio.create_subprocess_exec(
            "node",
            "dist/main.js",
            *words,
            cwd=EXAMPLE,
            env={**os.environ, "TEMPORAL_ADDRESS": ui_server.address, "USER": "rev-1"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said = (await process.communicate())[0].decode().strip()
        assert process.returncode == code, said
        return said

    turn = turngate.turn(await run("start", "clerk", "Pay the four invoices."))
    paused = await turngate.wait(turn)
    assert isinstance(paused, Paused)
    first, second, third, fourth = (approval.id for approval in paused.approvals)
    listed = await run("list", 'TurngateWaiting = "tool:pay"')
    assert f'{first}  pay {{"to":"acme","amount":1}}  for anybody' in listed

    refused = await run("edit", second, '{"to": "acme", "amount": "much"}', code=1)
    assert refused.startswith("refused (invalid_edit): "), refused
    assert await run("approve", first) == f"{first}: applied (approved)"
    assert await run("edit", second, '{"to": "acme", "amount": 20}') == f"{second}: applied (edited)"
    assert await run("reject", third, "not due yet") == f"{third}: applied (rejected)"
    assert await run("respond", fourth, "paid by hand") == f"{fourth}: applied (responded)"
    assert '"output": "All done."' in await run("result", turn.id)
    check_four(await turn.result())
    assert [vote.reviewer for approval in await turn.approvals() for vote in approval.votes] == ["rev-1"] * 4
