"""A reviewer with nothing but a browser and the Temporal UI: sees what waits, copies an answer, sends it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.ui.conftest import StartPaused
from tests.ui.decisions import check_four, failed_tasks, four_decisions
from tests.ui.node import NodeScript
from turngate.client import Paused
from turngate.devserver import DevServer

PICTURES = os.environ.get("TURNGATE_PICTURES")
"""A folder that the pictures go to, such as docs/images; without it they are taken and thrown away."""


async def open_details(browser: NodeScript, server: DevServer, paused: Paused) -> None:
    """Open the tab User Metadata of a run."""
    run = paused.approvals[0].context.run_id
    url = f"{server.ui_url}/namespaces/default/workflows/{paused.turn.id}/{run}/user-metadata"
    await browser.ask("open", url=url, shows="Current Details")
    await browser.ask("details", shows="wait")


@pytest.mark.parametrize("kind", ["Update", "Signal"])
async def test_dialogs(kind: str, ui_server: DevServer, browser: NodeScript, start_paused: StartPaused) -> None:
    """Both dialogs approve, edit, reject and respond; a bad payload is refused where the reviewer sees it."""
    paused = await start_paused()
    await open_details(browser, ui_server, paused)

    bad = json.dumps({"approval_id": paused.approvals[0].id, "type": "aprove", "reviewer": "rev-1"})
    sent = await browser.ask("send", kind=kind, name="decide", payload=bad)
    if kind == "Update":
        assert sent["taken"] is False
        assert "unknown type 'aprove': use approve, edit, reject, respond or answer" in sent["said"]
        assert ".py" not in sent["said"], "a reviewer has no use for our stack"
        await browser.ask("closeDialog")
    else:
        text = await browser.ask("details", shows="refused")
        assert "signal by rev-1: unknown type" in text
    assert len(await paused.turn.pending()) == 4

    first, *others = four_decisions(paused.approvals)
    # One alone, as it is copied from the page, and the others at once.
    for payload in (first, {"decisions": others}):
        sent = await browser.ask("send", kind=kind, name="decide", payload=json.dumps(payload))
        assert sent["taken"], sent
    check_four(await paused.turn.result())
    assert await failed_tasks(paused) == 0


async def test_answers_can_be_copied(ui_server: DevServer, browser: NodeScript, start_paused: StartPaused) -> None:
    """What stands under Current Details can be copied with three clicks and sent as it is."""
    paused = await start_paused()
    await open_details(browser, ui_server, paused)
    first, second, *_ = paused.approvals
    await check_copied(browser, first.id, "reject")
    await browser.ask("details", shows="3 calls wait", hides=first.id)
    await check_copied(browser, second.id, "edit")
    await browser.ask("details", shows="2 calls wait", hides=second.id)
    rest = [approval.id for approval in await paused.turn.pending()]
    await paused.turn.decide({approval_id: {"type": "approve"} for approval_id in rest})
    result = await paused.turn.result()
    assert [one.status for one in result.approvals] == ["rejected", "edited", "approved", "approved"]
    assert result.approvals[1].executed
    assert result.approvals[1].executed.args == second.args


async def check_copied(browser: NodeScript, approval_id: str, kind: str) -> None:
    """Copy an answer from the page and send it."""
    copied = await browser.ask("copy", holds=[f'"approval_id": "{approval_id}"', f'"type": "{kind}"'])
    assert json.loads(copied)["type"] == kind
    sent = await browser.ask("send", kind="Update", name="decide", payload=copied)
    assert sent["taken"], sent


async def test_pictures(ui_server: DevServer, browser: NodeScript, start_paused: StartPaused, tmp_path: Path) -> None:
    """A paused run explains itself: in the list, on its first page, in its details and in the dialog."""
    folder = Path(PICTURES or tmp_path)
    paused = await start_paused(
        "records",
        "Delete the orders from before 2025 and tell finance.",
        turn_id="turn-8f3c",
        thread_id="ticket-4711",
        requested_by="mia",
    )
    sql = paused.approvals[0]

    query = quote('TurngateStatus="waiting" AND TurngateWaiting="tool:execute_sql"')
    await browser.ask("open", url=f"{ui_server.ui_url}/namespaces/default/workflows?query={query}", shows="turn-8f3c")
    await browser.ask("waitFor", text="1 Workflow")
    await browser.ask("picture", path=str(folder / "temporal-ui-list.png"))

    await browser.ask("click", role="link", name="turn-8f3c")
    await browser.ask("waitFor", text="Waits for role:dba to decide execute_sql and 1 more")
    shown = await browser.ask("text")
    assert "model call 2" in shown
    await browser.ask("picture", path=str(folder / "temporal-ui-timeline.png"))

    await browser.ask("click", role="tab", name="User Metadata")
    text = await browser.ask("details", shows="2 calls wait for a decision")
    assert '"DELETE FROM orders WHERE year < 2025"' in text
    assert "Tags: sql, destructive" in text
    assert f"If nobody decides until {sql.expires_at:%Y-%m-%d %H:%M} UTC, it is rejected" in text
    await browser.ask("resize", width=1400, height=1440)
    await browser.ask("picture", path=str(folder / "temporal-ui-details.png"))
    await browser.ask("resize", width=1400, height=1000)

    offered = "\n".join(await browser.ask("handlers", kind="Update"))
    assert "Decide about a call that waits" in offered
    assert (folder / "temporal-ui-details.png").stat().st_size > 50_000
    await paused.turn.stop()
