"""`TurngateClient`: start turns, see what waits, decide. From any process that reaches the Temporal server.

Needs no worker of its own, no agent and no LangChain: messages are taken and given as JSON, and converted on request.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from temporalio.client import Client

from turngate import attending, inbox, sending, starting
from turngate.attending import Handler
from turngate.contracts import Approval, Json, Receipt, TurnResult
from turngate.errors import ConfigError, TurnAlreadyStartedError, refuse
from turngate.handles import Paused, TurnHandle
from turngate.inbox import Filter, Inbox, Listing, Settled
from turngate.message_json import to_json, to_langchain
from turngate.payloads import by_run, for_run, turn_of
from turngate.recalling import Recall
from turngate.threads import Sent, ThreadHandle

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

__all__ = [
    "Inbox",
    "Listing",
    "Paused",
    "Sent",
    "Settled",
    "ThreadHandle",
    "TurnHandle",
    "TurngateClient",
    "to_json",
    "to_langchain",
]

Messages = Iterable["BaseMessage | Mapping[str, Any]"]


class TurngateClient:
    """Turngate from the outside. Wraps a Temporal client that you have, or `await TurngateClient.connect()`.

    `task_queue` is where new turns go: the one that the workers serve.
    """

    def __init__(self, temporal_client: Client, task_queue: str = "turngate") -> None:
        self.temporal = temporal_client
        self.task_queue = task_queue
        self._indexed: bool | None = None
        self._recall = Recall()

    @classmethod
    async def connect(cls, *, task_queue: str = "turngate", **settings: Any) -> TurngateClient:
        """Connect with the settings of `temporalio.envconfig` (environment variables, profiles in `temporal.toml`).

        `settings` beat them: address, namespace, api_key, profile and whatever `turngate.connect.connect` takes.
        """
        from turngate.connect import connect

        return cls(await connect(**settings), task_queue)

    # --- Turns and threads -------------------------------------------------------------------------------------

    async def start_turn(
        self,
        agent: str,
        input: str | None = None,  # noqa: A002
        *,
        messages: Messages | None = None,
        turn_id: str | None = None,
        thread_id: str | None = None,
        context: Json | None = None,
        requested_by: str | None = None,
        review_also: Sequence[str] = (),
        metadata: Json | None = None,
        stream: bool = False,
        on_existing: Literal["refuse", "attach"] = "refuse",
        with_decision: Any = None,
    ) -> TurnHandle:
        """Start a turn and return its handle at once.

        Give the user's text as `input`, or a conversation as `messages` (LangChain messages or their JSON).
        `review_also` names tools to review in this turn as well; `context` is JSON for policy and tools.

        A `turn_id` is used once: in use, or used before, it raises TurnAlreadyStartedError; `on_existing="attach"`
        returns the existing turn instead. `with_decision` travels in the same request and takes effect before anything
        runs; refused, it raises RefusedError and the turn is started all the same.

        Raises MalformedError or TooLargeError (1 MiB) before anything is sent.
        """
        request = starting.turn_request(
            {
                "agent": agent,
                "input": input,
                "messages": None if messages is None else to_json(messages),
                "thread_id": thread_id,
                "context": context,
                "requested_by": requested_by,
                "review_also": list(review_also),
                "metadata": metadata,
                "stream": stream,
            }
        )
        turn = self.turn(starting.checked_id(f"turn-{uuid.uuid4()}" if turn_id is None else turn_id))
        attach = on_existing == "attach"
        if not await self._start(turn.id, request, with_decision, attach) and not attach:
            raise TurnAlreadyStartedError(turn.id)
        return turn

    async def run_turn(
        self,
        agent: str,
        input: str | None = None,  # noqa: A002
        *,
        on_approval: Handler | None = None,
        **options: Any,
    ) -> TurnResult | Paused:
        """Start a turn (arguments as for `start_turn`) and wait until it is done or waits for people.

        Returns its TurnResult, or Paused with the approvals once nothing of the turn runs any more. With `on_approval`
        the handler, sync or async, is asked for each approval as it comes up, and the turn goes on with its answers:
        the in-process way. Approvals it answers with None are left open.
        """
        turn = await self.start_turn(agent, input, **options)
        return await self.wait(turn, on_approval=on_approval)

    async def wait(self, turn: TurnHandle, *, on_approval: Handler | None = None) -> TurnResult | Paused:
        """Wait until a turn is done or waits for people; see `run_turn`."""
        return await attending.wait(self.temporal, turn, on_approval)

    def turn(self, turn_id: str) -> TurnHandle:
        """Return the handle of a turn by its id. Asks nobody whether there is one."""
        return TurnHandle(self.temporal, turn_id)

    def thread(
        self, thread_id: str, agent: str | None = None, *, on_busy: Literal["queue", "refuse", "stop"] | None = None
    ) -> ThreadHandle:
        """Return the handle of a conversation.

        `agent` is needed where the first message may be sent; `on_busy` (queue, refuse or stop) is what the thread
        does, from its start on, with a message that comes while a turn is open.
        """
        return ThreadHandle(self.temporal, thread_id, agent, on_busy, self.task_queue, self._has_attributes)

    # --- Deciding ----------------------------------------------------------------------------------------------

    async def approve(self, approval_id: str, **more: Any) -> Receipt:
        """Let the call run as it is. `more`: digest, reviewer, comment, remember, token."""
        return await self._one(approval_id, {"type": "approve"}, more)

    async def edit(self, approval_id: str, args: Json, name: str | None = None, **more: Any) -> Receipt:
        """Let the call run with other arguments, which replace the model's completely. `more` as for `approve`.

        `name` (of another tool) only where the agent allows that.
        """
        decision: Json = {"type": "edit", "args": args}
        if name is not None:
            decision = {"type": "edit", "edited_action": {"name": name, "args": args}}
        return await self._one(approval_id, decision, more)

    async def reject(self, approval_id: str, message: str | None = None, **more: Any) -> Receipt:
        """Keep the call from running; the model reads `message` as the reason. `more` as for `approve`."""
        return await self._one(approval_id, {"type": "reject", "message": message}, more)

    async def respond(self, approval_id: str, message: str, **more: Any) -> Receipt:
        """Answer in place of the tool: `message` becomes its result. `more` as for `approve`."""
        return await self._one(approval_id, {"type": "respond", "message": message}, more)

    async def answer(self, approval_id: str, value: Any, **more: Any) -> Receipt:
        """Answer the question that a tool asked; `value` is any JSON. `more` as for `approve`."""
        return await self._one(approval_id, {"type": "answer", "value": value}, more)

    async def decide(self, payload: Any) -> list[Receipt]:
        """Send decisions in any documented form that carries approval ids; each goes to the run that its id names.

        All or none within a run. Raises RefusedError (one class a code) with every refusal; where some runs took their
        part, its `receipts` has theirs. A decision that no worker answers within three seconds is left with the
        server: outcome `queued`. Sending the same again is harmless and brings the first receipt back.
        """
        return await sending.send_all(self.temporal, by_run(payload))

    async def decide_many(
        self, approvals: Sequence[Approval], decision: Json | Callable[[Approval], Json]
    ) -> list[Settled]:
        """Decide a list of approvals, each on its own, with the digest of the call that was listed.

        `decision` is one for all, or a function of the approval. Returns a report each: receipt or error.
        """
        return [report async for report in inbox.settle(self.temporal, approvals, decision)]

    async def reassign(self, approval_id: str, reviewers: Sequence[str], **more: str | None) -> Json:
        """Hand an approval to other reviewers. Its present reviewers, `escalate_to` and `admins` may.

        `more`: reviewer; digest and token where the agent wants decisions signed (see `sign_decision`).
        """
        return await self.turn(turn_of(approval_id)).reassign(approval_id, reviewers, **more)

    async def approval(self, approval_id: str) -> Approval:
        """Return one approval, settled ones included. Raises UnknownApprovalError."""
        for approval in await self.turn(turn_of(approval_id)).approvals():
            if approval.id == approval_id:
                return approval
        raise refuse(
            "unknown_approval",
            f"there is no approval {approval_id!r}: `turngate inbox` lists what waits",
            approval_id=approval_id,
        )

    # --- Over all runs -----------------------------------------------------------------------------------------

    def pending(
        self,
        *,
        agent: str | None = None,
        tool: str | None = None,
        tag: str | None = None,
        reviewer: str | None = None,
        thread: str | None = None,
        expires_before: datetime | None = None,
        limit: int | None = None,
        details: bool = True,
    ) -> Inbox:
        """List what waits for people in all runs: `await` it, or iterate with `async for`.

        Filters are exact and combine; `reviewer` lists what names this reviewer. `limit` is how many at most, the
        longest running turns first. Visibility lags a moment behind. In a namespace without the search attributes every
        running turn is asked, which is slow; where no worker answers, details are missing. `notes` of the awaited list
        says so.

        Each turn is asked by a query, which Temporal Cloud bills as an action; again by the same client only when its
        history has grown. With `details=False` none is asked: the list has an entry for each turn and tool, with the
        names of agent, tool, tags and reviewers, and is there at once;
        `client.turn(approval.context.turn_id).pending()` then has the details. Raises ConfigError for that together
        with `expires_before`.
        """
        if expires_before is not None and not details:
            raise ConfigError("'expires_before' needs details: leave out details=False")
        wanted = Filter(agent, tool, tag, reviewer, thread, expires_before)
        return Inbox(self.temporal, wanted, self._has_attributes, limit, details, self._recall)

    def watch_pending(self, *, interval: float = 5.0, **filters: Any) -> AsyncIterator[Approval]:
        """Yield each waiting approval once, as it shows up, for ever. `interval` is seconds between two looks.

        Each look asks the turns whose histories have grown.
        """

        async def look() -> Listing:
            return await self.pending(**filters)

        return inbox.watch(look, interval)

    async def stop_agent(self, agent: str, reason: str | None = None) -> list[tuple[str, str]]:
        """Stop every open turn of an agent. Returns each turn's id with `stopping`, or with why not."""
        return await inbox.stop_all(self.temporal, agent, reason, indexed=await self._has_attributes())

    # --- Parts -------------------------------------------------------------------------------------------------

    async def _start(self, turn_id: str, request: Json, decision: Any, attach: bool) -> bool:
        indexed = await self._has_attributes()
        if decision is None:
            return await starting.start(self.temporal, turn_id, request, task_queue=self.task_queue, indexed=indexed)
        return await starting.start_with_decision(
            self.temporal,
            turn_id,
            request,
            for_run(turn_id, decision),
            task_queue=self.task_queue,
            indexed=indexed,
            attach=attach,
        )

    async def _one(self, approval_id: str, decision: Json, more: Json) -> Receipt:
        given = {key: value for key, value in {**decision, **more}.items() if value is not None or key == "value"}
        receipts = await self.decide({"approval_id": approval_id, **given})
        return receipts[0]

    async def _has_attributes(self) -> bool:
        """Ask once whether the namespace has the search attributes; a negative answer is asked again next time."""
        if not self._indexed:
            self._indexed = await starting.has_attributes(self.temporal)
        return self._indexed
