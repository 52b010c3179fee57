"""`ThreadHandle`: a conversation, from the outside. One turn answers each message."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from temporalio.client import Client, WithStartWorkflowOperation
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from turngate import rpc, sending, starting
from turngate.contracts import RESULT_LIMIT, THREAD, Approval, Json, Message, Rule
from turngate.errors import ConfigError, UnknownApprovalError, refuse
from turngate.handles import TurnHandle
from turngate.payloads import check_json
from turngate.waiting import pages

if TYPE_CHECKING:
    from turngate.events import Event

OnBusy = Literal["queue", "refuse", "stop"]


@dataclass(frozen=True)
class Sent:
    """What became of a message: the number and the id of the turn that answers it, and whether that has to wait."""

    turn: int
    turn_id: str
    queued: bool


@dataclass(frozen=True)
class ThreadHandle:
    """A conversation. Get it from `client.thread(id, agent=...)`; the first message starts it.

    Errors as for TurnHandle; `send` also raises BusyError.
    """

    client: Client
    id: str
    agent: str | None = None
    on_busy: OnBusy | None = None
    task_queue: str = "turngate"
    indexed: Callable[[], Awaitable[bool]] | None = None

    async def send(
        self,
        message: str,
        on_busy: OnBusy | None = None,
        *,
        context: Json | None = None,
        requested_by: str | None = None,
        review_also: Sequence[str] = (),
        stream: bool = False,
        message_id: str | None = None,
    ) -> Sent:
        """Send a message; a turn of its own answers it.

        While a turn is open the message waits for it (`queue`, the default), is refused with BusyError (`refuse`), or
        stops it (`stop`). At most 100 messages (512 KiB) wait, the next one is refused with BusyError as well. Send
        again with the same `message_id` after a broken connection and it counts once.
        """
        fields = {
            "message": message,
            "on_busy": on_busy,
            "context": context,
            "requested_by": requested_by,
            "review_also": list(review_also) or None,
            "stream": stream or None,
        }
        request = {key: value for key, value in fields.items() if value is not None}
        check_json(request, "the message", RESULT_LIMIT)
        answer = await self._send(request, f"send-{message_id or uuid.uuid4().hex}")
        return Sent(int(answer["turn"]), str(answer["turn_id"]), bool(answer.get("queued")))

    async def messages(self, start: int = 0) -> list[Message]:
        """Return the whole conversation from message `start` on."""
        return await TurnHandle(self.client, self.id).messages(start)

    async def status(self) -> Json:
        """Return `agent`, `turns` (number, id and status of the last 200), `open_turn`, and how many there are:

        `turns_total`, `queued`, `messages`.
        """
        return await rpc.query(self.client, self.id, "status")

    async def turns(self, start: int = 0) -> list[Json]:
        """Return `n`, `turn_id` and `status` of all turns, queued ones included, but for the first `start`."""
        pages_ = [page async for page in rpc.paged(self.client, self.id, "turns", start=start)]
        return [turn for page in pages_ for turn in page.get("turns", [])]

    async def rules(self) -> list[Rule]:
        """Return the decisions remembered for the thread."""
        return await TurnHandle(self.client, self.id).rules()

    async def pending(self) -> list[Approval]:
        """Return what waits for people in the open turn and its subagents."""
        return await TurnHandle(self.client, self.id).pending()

    async def stop(self, reason: str | None = None, *, reviewer: str | None = None) -> Json:
        """Stop the open turn."""
        return await TurnHandle(self.client, self.id).stop(reason, reviewer=reviewer)

    async def revoke_rule(
        self, rule_id: str | None = None, *, tool: str | None = None, reviewer: str | None = None
    ) -> Json:
        """Take back a decision remembered for the thread."""
        return await TurnHandle(self.client, self.id).revoke_rule(rule_id, tool=tool, reviewer=reviewer)

    async def close(self) -> Json:
        """End the thread: it takes no further message. An open turn goes on to its end."""
        return await sending.request(self.client, self.id, "close", {})

    def events(
        self, *, offset: int | str = 0, subagents: bool = True, until: Literal["closed", "idle"] = "closed"
    ) -> AsyncIterator[Event]:
        """Follow the conversation live: the events of its turns, turn after turn, as `TurnHandle.events` has them.

        Ends when the thread has ended, or with `until="idle"` as soon as no turn is open or queued. `offset` is the
        `cursor` of the last event seen, or the number of the turn to begin with.
        """
        from turngate.following import stream

        return stream(self.client, self.id, offset=offset, subagents=subagents, until=until)

    def turn(self, number: int) -> TurnHandle:
        """Return the turn that answered (or answers) message `number`, counted from 1."""
        return TurnHandle(self.client, f"{self.id}/turn-{number}")

    async def started(self, turn: Sent | int) -> TurnHandle:
        """Wait until a turn has begun, which a queued one does when those before it have ended, and return it."""
        handle = self.turn(turn if isinstance(turn, int) else turn.turn)
        if await handle.exists():
            return handle
        async for _ in pages(self.client, self.id):
            if await handle.exists():
                return handle
        raise refuse("closed", f"thread {self.id!r} ended before turn {handle.id!r} began")

    async def _send(self, request: Json, update_id: str) -> Json:
        if self.agent is None:
            return await self._send_to_existing(request, update_id)
        indexed = self.indexed is not None and await self.indexed()
        fields = {"agent": self.agent, "on_busy": self.on_busy, "search_attributes": indexed}
        setup = {key: value for key, value in fields.items() if value}
        found = starting.search_attributes(self.agent, self.id) if indexed else None
        thread_id = starting.checked_id(self.id)

        def call() -> Awaitable[Any]:
            operation: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
                THREAD,
                setup,
                id=thread_id,
                task_queue=self.task_queue,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                static_summary=f"{self.agent}: conversation",
                search_attributes=found,
            )
            return self.client.execute_update_with_start_workflow(
                "send", request, id=update_id, start_workflow_operation=operation
            )

        try:
            answer: Json = await sending.answered(call, self.id, sending.REQUEST_LIMIT)
        except WorkflowAlreadyStartedError as error:
            raise refuse("closed", f"thread {self.id!r} is closed: start another one") from error
        except sending.NoAnswer as error:
            raise rpc.no_worker(self.id) from error
        return answer

    async def _send_to_existing(self, request: Json, update_id: str) -> Json:
        try:
            return await sending.request(self.client, self.id, "send", request, update_id=update_id)
        except UnknownApprovalError as error:
            raise ConfigError(
                f"there is no thread {self.id!r} yet: name the agent that it is with (agent=..., or --agent)"
            ) from error
