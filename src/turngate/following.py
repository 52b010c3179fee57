"""Following a turn with its subagents, or a thread turn after turn, as one stream of events.

A subagent's events stand between the start and the end of the call that runs it, so a cursor has to name open ones
only. A thread's turns follow each other.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Literal

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowExecutionStatus

from turngate import rpc
from turngate.contracts import THREAD
from turngate.errors import UnknownApprovalError
from turngate.events import Event, read_cursor, write_cursor
from turngate.reading import TurnReader, first_run, open_subagents
from turngate.waiting import Progress, pages

Until = Literal["closed", "idle"]
_AHEAD = 1000
"""Events that are read before they are asked for."""


async def stream(
    client: Client, run_id: str, *, offset: int | str = 0, subagents: bool = True, until: Until = "closed"
) -> AsyncIterator[Event]:
    """Yield the events of a turn, or of a thread's turns, from a cursor on."""
    follower = _Follower(client, run_id, offset, subagents, until)
    task = asyncio.create_task(follower.run())
    try:
        while (event := await follower.events.get()) is not None:
            if isinstance(event, BaseException):
                raise event
            yield event
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class _Follower:
    """Reads a turn and all below it, and says of each event where a reader goes on after it."""

    def __init__(self, client: Client, root: str, offset: int | str, subagents: bool, until: Until) -> None:
        self.events: asyncio.Queue[Event | BaseException | None] = asyncio.Queue(_AHEAD)
        self._client = client
        self._root = root
        self._is_cursor = isinstance(offset, str)
        self._positions = read_cursor(offset)
        self._resumed = set(self._positions)
        self._subagents = subagents
        self._until = until

    async def run(self) -> None:
        """Put all events into the queue, and at last None, or what went wrong."""
        try:
            if await self._is_thread():
                await self._follow_thread()
            else:
                await self._find_open_subagents()
                await self._follow(self._root, ())
        except Exception as error:  # the reader's to hear, whatever it is
            await self.events.put(error)
        else:
            await self.events.put(None)

    async def _is_thread(self) -> bool:
        description = await rpc.described(self._client, self._root)
        return description.workflow_type == THREAD

    async def _find_open_subagents(self) -> None:
        """A number says nothing of subagents: those that were open there are told from their beginning."""
        offset = self._positions.get("", 0)
        if self._subagents and offset and not self._is_cursor:
            self._resumed |= {self._name(child) for child in await open_subagents(self._client, self._root, offset)}

    # --- A turn and its subagents ----------------------------------------------------------------------------------

    async def _follow(self, turn_id: str, path: tuple[str, ...]) -> None:
        name = self._name(turn_id)
        begin = self._positions.setdefault(name, 0)
        reader = TurnReader(self._client, turn_id)
        below: dict[str, asyncio.Task[None]] = {}
        try:
            async with contextlib.aclosing(reader.events()) as events:
                async for event in events:
                    child = str(event.data.get("turn_id") or "") if self._subagents else ""
                    if event.type == "tool_started" and child:
                        if event.offset >= begin or self._name(child) in self._resumed:
                            self._positions.setdefault(self._name(child), 0)
                            call = str(event.data.get("tool_call_id") or f"#{event.data.get('number')}")
                            below[child] = asyncio.create_task(self._follow_subagent(child, (*path, call)))
                    elif event.type == "tool_ended" and child in below:
                        await below.pop(child)
                        self._forget(child)
                    elif event.type == "turn_ended":
                        await asyncio.gather(*below.values())
                    if event.offset >= begin:
                        await self._tell(replace(event, turn_id=turn_id, agent=reader.agent, path=path), reader.told)
        finally:
            for task in below.values():
                task.cancel()
            await asyncio.gather(*below.values(), return_exceptions=True)

    async def _follow_subagent(self, turn_id: str, path: tuple[str, ...]) -> None:
        try:
            await self._follow(turn_id, path)
        except UnknownApprovalError:
            pass  # the retention of its history is over
        except Exception as error:  # the reader's to hear, whatever it is
            await self.events.put(error)

    async def _tell(self, event: Event, told: int | None) -> None:
        name = self._name(event.turn_id)
        after = event.offset + 1 if told is None else min(told, event.offset + 1)
        self._positions[name] = max(self._positions[name], after)
        await self.events.put(replace(event, cursor=write_cursor(self._positions)))

    def _name(self, turn_id: str) -> str:
        return turn_id[len(self._root) + 1 :]

    def _forget(self, turn_id: str) -> None:
        name = self._name(turn_id)
        for known in [one for one in self._positions if one == name or one.startswith(f"{name}/")]:
            del self._positions[known]

    # --- A thread --------------------------------------------------------------------------------------------------

    async def _follow_thread(self) -> None:
        """Turn after turn. The thread's own place in a cursor is the number of the turn to begin with."""
        progress = Progress()
        run_id = await first_run(self._client, self._root)
        async for page in pages(self._client, self._root, run_id=run_id):
            for event in page:
                if event.event_type == EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_STARTED:
                    began = event.child_workflow_execution_started_event_attributes
                    await self._follow_turn(began.workflow_execution.workflow_id)
            progress.feed(page)
            if self._until == "idle" and progress.idle and await self._is_last(page[-1].event_id):
                return

    async def _follow_turn(self, turn_id: str) -> None:
        number = int(turn_id.rpartition("-")[2])
        if number < self._positions.get("", 0):
            return
        self._positions[""] = number
        with contextlib.suppress(UnknownApprovalError):  # the retention of its history is over
            await self._follow(turn_id, ())
        self._forget(turn_id)
        self._positions[""] = number + 1

    async def _is_last(self, event_id: int) -> bool:
        """Whether the thread has come to rest here, and did not only do so once."""
        description = await rpc.described(self._client, self._root)
        return description.status is WorkflowExecutionStatus.RUNNING and description.history_length == event_id
