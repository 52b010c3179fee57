"""Sending to a run: the update for its answer, the signal where nobody answers.

An update tells its sender what became of it, but is lost or hangs where no worker runs. A signal is stored by the
server at once, but says nothing. So a decision goes as an update with a derived id, retried with that id, and after
three seconds as a signal. Should the update have arrived after all, the run meets the same decision twice, which is
harmless.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from temporalio.client import (
    Client,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.service import RPCError, RPCStatusCode

from turngate import rpc
from turngate.contracts import DECISION_LIMIT, Json, Outcome, Receipt
from turngate.errors import ClosedError, Refusal, RefusedError, TurngateError
from turngate.payloads import Batch, check_json

UPDATE_LIMIT = 3.0
"""Seconds to wait for a run's answer to a decision before it is sent as a signal."""
REQUEST_LIMIT = 10.0
"""Seconds to wait for the answer to a request that has no signal to fall back on."""

_LONGEST_PAUSE = 0.8
"""Seconds between two attempts at most: a run that goes over again and again wants many, until one falls in between."""

_TRY_AGAIN = {RPCStatusCode.FAILED_PRECONDITION, RPCStatusCode.UNAVAILABLE, RPCStatusCode.ABORTED}
# The run closed with the update under way. Sent again it meets the run that goes on, or learns that none does.
_ABORTED_BY_CLOSING = "aborted by closing workflow"
# Too many updates in flight or in total, or the time is up: the signal may still get through.
_GIVE_UP = {RPCStatusCode.RESOURCE_EXHAUSTED, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED}


class NoAnswer(Exception):
    """Nobody answered the update in time."""


async def send_all(client: Client, batches: list[Batch]) -> list[Receipt]:
    """Send every batch to its run at the same time and return the receipts in order.

    All or none holds within a run: where some runs refuse, the error has all refusals and `receipts` of the others.
    """
    answers = await asyncio.gather(*(send(client, batch) for batch in batches), return_exceptions=True)
    refusals: list[Refusal] = []
    receipts: list[Receipt] = []
    for answer in answers:
        if isinstance(answer, RefusedError):
            refusals += answer.refusals
        elif isinstance(answer, BaseException):
            raise answer
        else:
            receipts += answer
    if refusals:
        error = RefusedError.of(refusals)
        error.receipts = tuple(receipts)
        raise error
    return receipts


async def send(client: Client, batch: Batch) -> list[Receipt]:
    """Send one run its decisions and return the receipts; `queued` ones where no worker answered."""
    update_id = batch.update_id()
    try:
        answer = await _update(client, batch.turn_id, "decide", batch.payload, update_id, UPDATE_LIMIT)
    except NoAnswer:
        return await _queue(client, batch, update_id)
    return receipts_of(answer)


async def request(client: Client, turn_id: str, name: str, arg: Json, *, update_id: str | None = None) -> Json:
    """Send an update that has no signal to fall back on. Raises NoWorkerError when nobody answers in time."""
    arg = {key: value for key, value in arg.items() if value is not None}
    check_json(arg, "the request", DECISION_LIMIT)
    try:
        answer = await _update(client, turn_id, name, arg, update_id or f"{name}-{uuid.uuid4().hex}", REQUEST_LIMIT)
    except NoAnswer as error:
        raise rpc.no_worker(turn_id) from error
    return answer if isinstance(answer, dict) else {}


def receipts_of(answer: Any) -> list[Receipt]:
    """Read the answer to a `decide`."""
    entries = answer.get("receipts", []) if isinstance(answer, dict) else []
    return [Receipt.model_validate(entry) for entry in entries]


async def _queue(client: Client, batch: Batch, update_id: str) -> list[Receipt]:
    """Leave the decisions with the server, for the worker that comes."""
    handle = client.get_workflow_handle(batch.turn_id)
    try:
        with rpc.explained(batch.turn_id):
            await handle.signal("decide", batch.payload, rpc_timeout=rpc.RPC_LIMIT)
    except ClosedError as closed:
        # The update was taken after all and the run ended with it: its id still brings the first answer back.
        return await _first_answer(client, batch, update_id, closed)
    return [Receipt(approval_id=id_, outcome=Outcome.QUEUED) for id_ in batch.approval_ids or [""]]


async def _first_answer(client: Client, batch: Batch, update_id: str, closed: ClosedError) -> list[Receipt]:
    try:
        return receipts_of(await _update(client, batch.turn_id, "decide", batch.payload, update_id, UPDATE_LIMIT))
    except NoAnswer:
        raise closed from None


async def _update(client: Client, turn_id: str, name: str, arg: Any, update_id: str, limit: float) -> Any:
    """Send an update; always with the same id, so that it counts once however often it is sent."""
    handle = client.get_workflow_handle(turn_id)
    return await answered(lambda: handle.execute_update(name, arg, id=update_id), turn_id, limit)


async def answered(call: Callable[[], Awaitable[Any]], turn_id: str, limit: float) -> Any:
    """Make a call that carries an update until it is answered. Raises NoAnswer when the time is up."""
    loop = asyncio.get_running_loop()
    end, pause = loop.time() + limit, 0.1
    while (left := end - loop.time()) > 0:
        try:
            async with asyncio.timeout(left):
                with rpc.readable(turn_id):
                    return await call()
        except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError):
            rpc.reraise_cancellation()
            break
        except WorkflowUpdateFailedError as error:
            if not rpc.unprocessed(error):
                raise rpc.refusal(error, turn_id) from error
        except RPCError as error:
            _may_retry(error, turn_id)
        await asyncio.sleep(min(pause, max(0.0, end - loop.time())))
        pause = min(2 * pause, _LONGEST_PAUSE)
    raise NoAnswer


def _may_retry(error: RPCError, turn_id: str) -> None:
    if error.status in _GIVE_UP:
        raise NoAnswer from error
    if error.status not in _TRY_AGAIN and _ABORTED_BY_CLOSING not in error.message:
        explained: TurngateError = rpc.explain(error, turn_id)
        raise explained from error
