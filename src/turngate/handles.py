"""`TurnHandle`: one turn, from the outside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError
from temporalio.exceptions import (
    ActivityError,
    CancelledError as WorkflowCancelledError,
    ChildWorkflowError,
    FailureError,
    TerminatedError,
    TimeoutError as WorkflowTimeoutError,
)

from turngate import rpc, sending
from turngate.contracts import (
    THREAD,
    TURN,
    Approval,
    Json,
    Message,
    Receipt,
    Refused,
    Rule,
    TurnResult,
    TurnStatus,
    text_of,
)
from turngate.errors import NoWorkerError, RefusedError, TurnFailedError, UnknownApprovalError
from turngate.payloads import for_run
from turngate.waiting import successor

if TYPE_CHECKING:
    from turngate.events import Event

_CLOSED_AS = {
    WorkflowExecutionStatus.FAILED: "failed",
    WorkflowExecutionStatus.CANCELED: "cancelled",
    WorkflowExecutionStatus.TERMINATED: "terminated",
    WorkflowExecutionStatus.TIMED_OUT: "timed_out",
}


@dataclass(frozen=True)
class TurnHandle:
    """One turn. Get it from `client.start_turn(...)` or, by its id, from `client.turn(id)`.

    Every method raises UnknownApprovalError where there is no such run, ClosedError for a change to one that has
    ended, NoWorkerError where no worker answers, ServerError where the server does not.
    """

    client: Client
    id: str

    async def result(self) -> TurnResult:
        """Wait until the turn has ended and return how. Raises TurnFailedError for any other end.

        Waiting costs the run nothing and may last for days. What was too long to travel with the result is read from
        the run; without a worker `left_out` keeps saying what is missing.
        """
        while True:
            try:
                with rpc.explained(self.id):
                    answer = await self.client.get_workflow_handle(self.id).result()
                return await self._completed(TurnResult.model_validate(answer))
            except WorkflowFailureError as error:
                if not await self._was_reset(error):
                    raise self._failed(error.cause) from error

    async def exists(self) -> bool:
        """Whether there is such a turn, running or ended."""
        try:
            await rpc.described(self.client, self.id)
        except UnknownApprovalError:
            return False
        return True

    async def status(self) -> Json:
        """Return what the turn is at: `status`, `agent`, `thread_id`, `steps`, `usage`, `waiting` and more.

        `status` is running, waiting, how it ended, or failed, cancelled, terminated, timed_out.
        """
        description = await rpc.described(self.client, self.id)
        closed_as = _CLOSED_AS.get(description.status) if description.status else None
        try:
            state = await rpc.query(self.client, self.id, "status")
        except NoWorkerError:
            if description.status is WorkflowExecutionStatus.RUNNING:
                raise
            state = {"status": "completed"}
        return {**state, "status": closed_as} if closed_as else state

    async def pending(self) -> list[Approval]:
        """Return what waits for people in this turn and in its open subagents, in the order it was raised.

        A subagent's approvals come after the turn's own; `context.path` says where they belong.
        """
        approvals, children = await pending_of(self.client, self.id)
        for below in await asyncio.gather(*(self._of_child(child) for child in children)):
            approvals += below
        return approvals

    async def approvals(self) -> list[Approval]:
        """Return the whole record of this turn: every approval, settled ones included."""
        pages = [page async for page in rpc.paged(self.client, self.id, "approvals")]
        return [Approval.model_validate(entry) for page in pages for entry in page.get("approvals", [])]

    async def record(self) -> list[Approval]:
        """Return the record of this turn (or of a thread's turns) and of its subagents, ended ones included.

        Of a turn that has completed also where no worker answers. Subagents, and the turns of a thread, are found by
        visibility, which lags a moment behind.
        """
        description = await rpc.described(self.client, self.id)
        record = [] if description.workflow_type == THREAD else await self._own_record(description.status)
        below = rpc.equals("ParentWorkflowId", self.id) or f"WorkflowType = '{TURN}'"
        for child in await rpc.listed(self.client, below):
            if child.parent_id == self.id:
                record += await TurnHandle(self.client, child.id).record()
        return record

    async def _own_record(self, status: WorkflowExecutionStatus | None) -> list[Approval]:
        try:
            return await self.approvals()
        except NoWorkerError:
            if status is not WorkflowExecutionStatus.COMPLETED:
                raise
            return (await self.result()).approvals

    async def messages(self, start: int = 0) -> list[Message]:
        """Return the conversation from message `start` on, as the JSON of LangChain's messages.

        `turngate.message_json.to_langchain` makes objects of them.
        """
        pages = [page async for page in rpc.paged(self.client, self.id, "messages", start=start)]
        return [message for page in pages for message in page.get("messages", [])]

    async def rules(self) -> list[Rule]:
        """Return the remembered decisions in force."""
        answer = await rpc.query(self.client, self.id, "rules")
        return [Rule.model_validate(entry) for entry in answer.get("rules", [])]

    async def refused(self) -> list[Refused]:
        """Return the last refused signals. (An update's refusal is told to its sender alone.)"""
        answer = await rpc.query(self.client, self.id, "refused")
        return [Refused.model_validate(entry) for entry in answer.get("refused", [])]

    async def decide(self, payload: Any) -> list[Receipt]:
        """Send decisions of any documented form to this turn, lists by position included, and return the receipts.

        Raises RefusedError (one class a code), with nothing changed. Where no worker answers within three seconds the
        decision is left with the server: outcome `queued`.
        """
        return await sending.send(self.client, for_run(self.id, payload))

    async def stop(self, reason: str | None = None, *, reviewer: str | None = None) -> Json:
        """Stop the turn: what waits is closed as cancelled, what runs is cancelled, and the turn returns what there is.

        Returns at once; `result()` waits for the end.
        """
        return await sending.request(self.client, self.id, "stop", {"reason": reason, "reviewer": reviewer})

    async def reassign(
        self,
        approval_id: str,
        reviewers: Sequence[str],
        *,
        reviewer: str | None = None,
        digest: str | None = None,
        token: str | None = None,
    ) -> Json:
        """Hand an approval to other reviewers. Its present reviewers, `escalate_to` and `admins` may.

        `digest` and `token` are for agents that want decisions signed; see `sign_decision`.
        """
        change: Json = {"approval_id": approval_id, "reviewers": list(reviewers), "reviewer": reviewer}
        if token is not None:
            change |= {"digest": digest, "token": token}
        return await sending.request(self.client, self.id, "reassign", change)

    async def revoke_rule(
        self, rule_id: str | None = None, *, tool: str | None = None, reviewer: str | None = None
    ) -> Json:
        """Take back a remembered decision, named by its id or by the tool that it is about."""
        change = {"rule_id": rule_id, "tool": tool, "reviewer": reviewer}
        return await sending.request(self.client, self.id, "revoke_rule", change)

    def events(self, *, offset: int | str = 0, subagents: bool = True) -> AsyncIterator[Event]:
        """Follow the turn live: steps, tools, approvals, messages, the end, and tokens where the turn streams them.

        Events of subagents come along, each between the start and the end of the call that runs it; `turn_id` and
        `path` say whose they are. To go on after a broken connection give the `cursor` of the last event seen as
        `offset`, or for a turn without subagents its `offset` plus one. Any number of readers may follow; none of them
        costs the run anything.
        """
        from turngate.following import stream

        return stream(self.client, self.id, offset=offset, subagents=subagents)

    async def _of_child(self, child: str) -> list[Approval]:
        try:
            return await TurnHandle(self.client, child).pending()
        except RefusedError:
            # It ended, and its history may be gone, between the two questions.
            return []

    async def _completed(self, result: TurnResult) -> TurnResult:
        """Fetch what the result had no room for."""
        if not result.left_out and result.messages is not None:
            return result
        changes: dict[str, Any] = {}
        try:
            if result.messages is None:
                start = int((await self.status()).get("first_new_message", 0))
                changes["messages"] = await self.messages(start)
            if any(name.startswith("approvals") for name in result.left_out):
                changes["approvals"] = await self.approvals()
        except NoWorkerError:
            return result
        left_out = [name for name in result.left_out if name.partition(".")[0] not in changes]
        if "output" in left_out and result.status is TurnStatus.COMPLETED and changes.get("messages"):
            changes["output"] = text_of(changes["messages"][-1])
            left_out.remove("output")
        return result.model_copy(update={**changes, "left_out": left_out})

    async def _was_reset(self, error: WorkflowFailureError) -> bool:
        """A reset terminates the run and goes on with another of the same id."""
        return isinstance(error.cause, TerminatedError) and await successor(self.client, self.id) is not None

    def _failed(self, cause: BaseException) -> TurnFailedError:
        kinds = (
            (WorkflowCancelledError, "cancelled"),
            (TerminatedError, "terminated"),
            (WorkflowTimeoutError, "timed_out"),
        )
        status = next((name for kind, name in kinds if isinstance(cause, kind)), "failed")
        return TurnFailedError(self.id, status, _reason(cause))


@dataclass(frozen=True)
class Paused:
    """The turn waits for people: `approvals` are what for. Go on with `turn.result()` when they are decided."""

    turn: TurnHandle
    approvals: list[Approval]


async def pending_of(
    client: Client, turn_id: str, *, limit: float = rpc.QUERY_LIMIT
) -> tuple[list[Approval], list[str]]:
    """Return a run's own open approvals and the ids of its open children."""
    approvals: list[Approval] = []
    children: list[str] = []
    async for page in rpc.paged(client, turn_id, "pending", limit=limit):
        approvals += [Approval.model_validate(entry) for entry in page.get("approvals", [])]
        children = page.get("children", [])
    return approvals, children


def _reason(error: BaseException) -> str:
    """The innermost message: an activity's own error says more than "activity error"."""
    while isinstance(error, (ActivityError, ChildWorkflowError)) and error.cause is not None:
        error = error.cause
    return error.message if isinstance(error, FailureError) else str(error)
