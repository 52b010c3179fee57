"""Read a conversation that travels by reference.

Long conversations stay where they are: the activity reads them, page by page, from the run that keeps them (its own
turn, or the thread), while that run waits for the activity.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import timedelta
from functools import cached_property
from typing import Any, overload

from langchain_core.messages import AnyMessage, BaseMessage
from pydantic import BaseModel
from temporalio import activity
from temporalio.client import RPCTimeoutOrCancelledError, WorkflowHandle, WorkflowQueryFailedError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from turngate.activities.remembered import Remembered
from turngate.contracts import Json, Message, Segment
from turngate.plain import cleaned

QUERY_TIMEOUT = timedelta(seconds=10)
PATIENCE = 300.0
"""Seconds to go on asking a run that nobody answers for; then the activity fails, and Temporal retries it."""
PAGE = 500


class _Messages(BaseModel):
    """A bare list of AnyMessage loses its classes or does not decode at all; inside a model it round-trips."""

    messages: list[AnyMessage]


def to_langchain(messages: Sequence[Message]) -> list[BaseMessage]:
    """Return messages as LangChain's objects, class and all fields as they were recorded."""
    return list(_Messages.model_validate({"messages": messages}).messages)


def to_json(message: BaseMessage) -> Message:
    """Return a LangChain message as strict JSON that `to_langchain` reads back. Raises ValueError if that can't be."""
    recorded: Message = cleaned(message.model_dump())
    to_langchain([recorded])
    return recorded


class AsLangchain(Sequence[BaseMessage]):
    """Recorded messages as LangChain's objects, made once somebody looks: a long conversation takes its time."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._recorded = messages

    @cached_property
    def _made(self) -> list[BaseMessage]:
        return to_langchain(self._recorded)

    @overload
    def __getitem__(self, index: int) -> BaseMessage: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[BaseMessage]: ...
    def __getitem__(self, index: int | slice) -> BaseMessage | Sequence[BaseMessage]:
        """Return one message, or some."""
        return self._made[index]

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._recorded)


async def resolve(segments: Sequence[Segment], remembered: Remembered | None = None) -> list[Message]:
    """Return the messages of a conversation, those by reference fetched from the runs that keep them."""
    remembered = remembered or Remembered()
    found: list[Message] = []
    for segment in segments:
        found += await _fetched(segment, remembered) if segment.messages is None else segment.messages
    return found


async def _fetched(segment: Segment, remembered: Remembered) -> list[Message]:
    handle, info = _handle(segment), activity.info()
    # While the run goes on that asks, what it refers to only grows: its own conversation, and its part of the thread's.
    key = (info.namespace, str(info.workflow_run_id), segment.workflow_id, str(segment.start))
    found = remembered.read(key, segment.count)
    while len(found) < segment.count:
        page = await ask(
            handle, "messages", {"start": segment.start + len(found), "limit": min(PAGE, segment.count - len(found))}
        )
        if not page.get("messages"):
            raise ApplicationError(
                f"the run {segment.workflow_id!r} has {len(found)} of {segment.count} messages from {segment.start} on",
                type="ConversationUnavailable",
            )
        remembered.add(key, len(found), page["messages"])
        found += page["messages"]
    return found[: segment.count]


def _handle(segment: Segment) -> WorkflowHandle[Any, Any]:
    info = activity.info()
    own = segment.workflow_id == info.workflow_id
    run_id = segment.run_id or (info.workflow_run_id if own else None)
    return activity.client().get_workflow_handle(segment.workflow_id, run_id=run_id)


async def ask_own_run(query: str, argument: Json) -> Json:
    """Ask the run that this activity belongs to."""
    info = activity.info()
    return await ask(
        activity.client().get_workflow_handle(str(info.workflow_id), run_id=info.workflow_run_id), query, argument
    )


async def ask(handle: WorkflowHandle[Any, Any], query: str, argument: Json) -> Json:
    """Ask a run, and ask again while no worker answers for it: the caller sends signs of life meanwhile."""
    give_up, pause = time.monotonic() + PATIENCE, 0.1
    while True:
        try:
            answer: Json = await handle.query(query, argument, rpc_timeout=QUERY_TIMEOUT)
            return answer
        except (RPCError, RPCTimeoutOrCancelledError, WorkflowQueryFailedError) as error:
            _reraise(handle, error, give_up)
        await asyncio.sleep(pause)
        pause = min(pause * 2, 5.0)


def _reraise(handle: WorkflowHandle[Any, Any], error: Exception, give_up: float) -> None:
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        # The SDK answers a cancelled query with the same error as a timeout.
        raise asyncio.CancelledError
    if isinstance(error, RPCError) and error.status in (RPCStatusCode.NOT_FOUND, RPCStatusCode.PERMISSION_DENIED):
        raise ApplicationError(
            f"the run {handle.id!r} that keeps the conversation can't be read: {error.message}",
            type="ConversationUnavailable",
            non_retryable=True,
        ) from None
    if time.monotonic() > give_up:
        raise ApplicationError(
            f"the run {handle.id!r} that keeps the conversation does not answer: {error}",
            type="ConversationUnavailable",
        ) from None
