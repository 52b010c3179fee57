"""Attending a turn: wait until it is done or waits for people, or have a handler decide in people's place."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence

from temporalio.client import Client

from turngate import sending
from turngate.contracts import Approval, Json, Outcome, TurnResult
from turngate.errors import AlreadyDecidedError, CancelledApprovalError, ClosedError, ExpiredError, NoWorkerError
from turngate.handles import Paused, TurnHandle
from turngate.payloads import by_run
from turngate.waiting import TurnWatch

Handler = Callable[[Approval], "Json | Awaitable[Json | None] | None"]
"""Asked for each approval; returns a decision such as `{"type": "approve"}`, or None to leave it to somebody else."""

# Somebody or something else settled it while the handler was thinking.
_OVERTAKEN = (AlreadyDecidedError, CancelledApprovalError, ClosedError, ExpiredError)
_MOVES = (Outcome.APPLIED, Outcome.QUEUED)


async def wait(client: Client, turn: TurnHandle, handler: Handler | None) -> TurnResult | Paused:
    """Wait until the turn is done or nothing but people is waited for; ask the handler for each approval meanwhile."""
    asked: set[str] = set()
    async with TurnWatch(client, turn.id) as watch:
        async for _ in watch:
            if handler is None and not watch.quiet:
                continue
            approvals = await _pending(turn)
            new = [approval for approval in approvals if approval.id not in asked]
            if handler is not None and new:
                asked |= {approval.id for approval in new}
                if await _ask(client, handler, new):
                    continue  # The turn goes on, and the watch will say when to look again.
            if approvals and watch.quiet:
                return Paused(turn, approvals)
    return await turn.result()


async def _pending(turn: TurnHandle) -> list[Approval]:
    """Ask for what waits until a worker is there to answer: whoever waits for a turn waits for that as well."""
    while True:
        try:
            return await turn.pending()
        except NoWorkerError:
            await asyncio.sleep(1)


async def _ask(client: Client, handler: Handler, approvals: Sequence[Approval]) -> bool:
    """Put approvals to a handler and send its decisions. Returns whether any of them moves the turn."""
    moved = False
    for approval in approvals:
        answer = handler(approval)
        decision = await answer if inspect.isawaitable(answer) else answer
        if decision is None:
            continue
        digest = approval.proposal.digest if approval.proposal else approval.digest
        payload = {"approval_id": approval.id, "digest": digest, **decision}
        try:
            receipts = await sending.send_all(client, by_run(payload))
        except _OVERTAKEN:
            moved = True
        else:
            moved = moved or receipts[0].outcome in _MOVES
    return moved
