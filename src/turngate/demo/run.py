"""The story of the demo: a server, a worker, one turn, and its decisions."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

from turngate.client import TurngateClient
from turngate.contracts import Approval, Json, TurnResult
from turngate.demo.agent import NAME, TASK, build_agent
from turngate.demo.deciding import Automatic, Person, Quit, Reviewer
from turngate.demo.screen import Screen
from turngate.demo.terminal import Terminal
from turngate.demo.tools import Desk
from turngate.demo.verdict import checks
from turngate.devserver import DevServer
from turngate.errors import RefusedError
from turngate.handles import Paused, TurnHandle
from turngate.waiting import TurnWatch
from turngate.worker import build_worker

_LOG = "demo.log"


async def run(*, yes: bool = False, model: str | None = None, folder: Path | None = None) -> int:
    """Run the demo and return its exit code: 0 if the file and the rows are exactly as decided.

    `yes` decides by itself, otherwise the person at the terminal is asked. `model` is a text for `init_chat_model`;
    by default a script plays the model. `folder` gets the database, the archive and a log; by default a new temporary
    folder, which stays.
    Raises TurnFailedError where the turn fails.
    """
    screen = Screen()
    desk = Desk(folder or Path(tempfile.mkdtemp(prefix="turngate-demo-")))
    desk.set_up()
    agent = build_agent(desk, model)
    with _logging_to(desk.folder / _LOG):
        async with contextlib.AsyncExitStack() as running:
            with screen.busy("starting a Temporal server and a worker"):
                server = await running.enter_async_context(DevServer())
                temporal = await server.client()
                await running.enter_async_context(build_worker(temporal, [agent]))
            screen.title(
                {
                    "Database": f"{desk.database}, made for this demo",
                    "Model": model or "a script that plays one, without a key (--model openai:... for a real one)",
                    "Temporal": f"{server.address}, with its UI at {server.ui_url}",
                }
            )
            terminal = Terminal()
            reviewer = Automatic(desk, screen) if yes else Person(terminal, screen)
            story = _Story(TurngateClient(temporal), server, screen, reviewer)
            try:
                result = await story.tell()
            except Quit:
                screen.remark("The call still waits. Its server ends with the demo; a real one would keep it for days.")
                return 1
            found = checks(desk, result.approvals, automatic=yes)
            screen.end(found, {"Files": str(desk.folder)})
            if not yes:
                screen.question(f"The whole run: {story.address}\nEnter ends the demo and its server")
                with contextlib.suppress(EOFError):
                    await terminal.line()
            return 0 if all(holds for _, holds in found) else 1


class _Story:
    """One turn from the task to its result."""

    def __init__(self, client: TurngateClient, server: DevServer, screen: Screen, reviewer: Reviewer) -> None:
        self._client = client
        self._server = server
        self._screen = screen
        self._reviewer = reviewer
        self._shown = 0
        self.address = ""

    async def tell(self) -> TurnResult:
        """Start the turn, and decide until it is done."""
        turn = await self._client.start_turn(NAME, TASK, turn_id="archive")
        self.address = f"{self._server.ui_url}/namespaces/{self._server.namespace}/workflows/{turn.id}"
        while True:
            with self._screen.busy("the agent works"):
                end = await self._client.wait(turn)
            await self._show_new_messages(turn)
            if isinstance(end, TurnResult):
                return end
            await self._settle(end)

    async def _show_new_messages(self, turn: TurnHandle) -> None:
        new = await turn.messages(self._shown)
        self._screen.said(new)
        self._shown += len(new)

    async def _settle(self, paused: Paused) -> None:
        for approval in paused.approvals:
            elsewhere = f"turngate approve {approval.id} --address {self._server.address}"
            self._screen.waits(approval, {"Paused run": self.address, "Elsewhere": elsewhere})
            while not await self._decided(paused.turn, approval):
                pass

    async def _decided(self, turn: TurnHandle, approval: Approval) -> bool:
        """Get a decision and send it; or notice that somebody decided elsewhere. False: it was refused."""
        deciding = asyncio.ensure_future(self._reviewer.decide(approval))
        elsewhere = asyncio.ensure_future(self._settled_elsewhere(turn, approval))
        try:
            await asyncio.wait({deciding, elsewhere}, return_when=asyncio.FIRST_COMPLETED)
            if not deciding.done():
                self._screen.elsewhere(await self._client.approval(approval.id))
                return True
            return await self._send(approval, deciding.result())
        finally:
            deciding.cancel()
            elsewhere.cancel()
            await asyncio.gather(deciding, elsewhere, return_exceptions=True)

    async def _send(self, approval: Approval, decision: Json) -> bool:
        try:
            await self._client.decide(
                {"approval_id": approval.id, "digest": approval.digest, "reviewer": self._reviewer.name, **decision}
            )
        except RefusedError as error:
            self._screen.problem(str(error))
            return error.code in ("already_decided_conflict", "expired", "cancelled", "closed")
        return True

    async def _settled_elsewhere(self, turn: TurnHandle, approval: Approval) -> None:
        async with TurnWatch(self._client.temporal, turn.id) as watch:
            async for _ in watch:
                if approval.id not in [waiting.id for waiting in await turn.pending()]:
                    return


@contextlib.contextmanager
def _logging_to(file: Path) -> Iterator[None]:
    """Keep log lines, such as a tool's failure, out of the picture and in a file."""
    handler = logging.FileHandler(file, mode="w", encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()
