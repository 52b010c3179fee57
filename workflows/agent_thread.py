"""AgentThread: a conversation. Each message starts one child turn; the turns run one after the other."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from pydantic import Field
from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ActivityError, ApplicationError, ChildWorkflowError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from pydantic import ValidationError

    from turngate.contracts import (
        MAX_VALUES,
        QUEUE_BYTES,
        QUEUE_LIMIT,
        TURNS_LISTED,
        Json,
        Message,
        Recorded,
        Rule,
        Segment,
        ThreadMessage,
        ThreadRequest,
        TurnResult,
        TurnStart,
        TurnStatus,
        json_size,
    )
    from turngate.errors import RefusedError, refuse
    from turngate.workflows import conversation, payloads, surface
    from turngate.workflows.beginning import bad_request, problems
    from turngate.workflows.state import pack_json, unpack_json

INPUT_LIMIT = 2 * 1024 * 1024
REQUESTS_KEPT = 100
"""Messages whose request is remembered, so that one that is sent again counts once. The server forgets them with each
run of the thread."""
SEND = (
    'Say something: {"message": "...", "on_busy"?: "queue" | "refuse" | "stop", "requested_by"?: "you"}.'
    " A message never decides about a waiting call."
)


class ThreadTurn(Recorded):
    """One turn of the thread: queued, running, or how it ended."""

    n: int = 0
    turn_id: str = ""
    status: str = "queued"
    asked: Json = Field(default_factory=dict)
    request: str = ""
    """The id of the update that brought the message."""


class ThreadState(Recorded):
    """Everything a thread knows."""

    request: Json = Field(default_factory=dict)
    messages: list[Message] = Field(default_factory=list)
    turns: list[ThreadTurn] = Field(default_factory=list)
    rules: list[Rule] = Field(default_factory=list)
    closing: bool = False
    refused: int = 0


@workflow.defn(name="AgentThread", sandboxed=False)
class AgentThread:
    """A conversation of any length, one child AgentTurn a message."""

    def __init__(self) -> None:
        self.state = ThreadState()
        self._open: Any = None
        self._revoked: set[str] = set()
        self._sizes = conversation.Sizes()
        self.begun = False
        self._coming: list[Json] = []
        """Messages let in whose handlers have not run yet: what arrives together is asked about together."""

    # --- The story of a thread -----------------------------------------------------------------------------------

    @workflow.run
    async def run(self, raw: RawValue) -> Json:
        """Answer messages until the thread is closed. Input: a ThreadRequest as plain JSON."""
        self._begin(raw)
        while True:
            await workflow.wait_condition(lambda: self._next() is not None or self.state.closing or self._should_move())
            turn = self._next()
            if turn is not None:
                await self._take_turn(turn)
                if workflow.cancellation_reason() is not None:
                    raise asyncio.CancelledError  # the thread itself: its turn was cancelled with it
            elif self.state.closing:
                return {"turns": len(self.state.turns), "status": "closed"}
            if self._should_move():
                workflow.continue_as_new(self._carried())

    def _next(self) -> ThreadTurn | None:
        return next((turn for turn in self.state.turns if turn.status == "queued"), None)

    def _should_move(self) -> bool:
        suggested = workflow.info().is_continue_as_new_suggested()
        return suggested and self._open is None and workflow.all_handlers_finished()

    async def _take_turn(self, turn: ThreadTurn) -> None:
        """Run one child turn, and keep what was said and the rules that were made."""
        turn.status = "running"
        asked = ThreadMessage.model_validate(turn.asked)
        said: Message = {"type": "human", "content": asked.message}
        try:
            self._open = await self._start_child(turn, asked, before=len(self.state.messages))
            result = TurnResult.model_validate(await self._open)
            new = await self._messages_of(turn, result)
        except (ChildWorkflowError, ActivityError) as error:
            self.state.messages += [said, *await self._said_without_result(turn)]
            turn.status = "cancelled" if is_cancelled_exception(error) else "failed"
            return
        finally:
            self._open, turn.asked = None, {}
        turn.status = "stopped" if result.status is TurnStatus.STOPPED else "completed"
        if result.status not in (TurnStatus.STOPPED, TurnStatus.COMPLETED):
            turn.status = str(result.status)
        self.state.messages += [said, *new]
        self.state.rules = [rule for rule in result.rules if rule.id not in self._revoked]

    async def _start_child(self, turn: ThreadTurn, asked: ThreadMessage, before: int) -> Any:
        setup = ThreadRequest.model_validate(self.state.request)
        info = workflow.info()
        request = {
            "agent": setup.agent,
            "input": asked.message,
            "thread_id": info.workflow_id,
            "context": {**setup.context, **asked.context},
            "requested_by": asked.requested_by,
            "review_also": asked.review_also,
            "metadata": setup.metadata,
            "stream": asked.stream,
        }
        start = TurnStart(
            request=request,
            thread=Segment(workflow_id=info.workflow_id, start=0, count=before),
            rules=self._rules(),
        )
        return await workflow.start_child_workflow(
            "AgentTurn",
            {**start.compact(), "turngate": start.turngate},
            id=turn.turn_id,
            # After a reset of the thread the turn of the run before may still be open: nobody waits for it any more.
            id_reuse_policy=WorkflowIDReusePolicy.TERMINATE_IF_RUNNING,
            search_attributes=surface.at_start(setup.agent, info.workflow_id) if setup.search_attributes else None,
            static_summary=surface.clip(f"{setup.agent}: {asked.message}", 200),
        )

    async def _messages_of(self, turn: ThreadTurn, result: TurnResult) -> list[Message]:
        """The new messages of a turn; page by page where they were too long for its result."""
        if result.messages is not None:
            return result.messages
        found: list[Message] = []
        while len(found) < result.new_messages and (page := await self._page(turn, len(found))):
            found += page
        return found

    async def _said_without_result(self, turn: ThreadTurn) -> list[Message]:
        """What was said in a turn that failed: the next one must know what was done, or may have been done."""
        found: list[Message] = []
        if workflow.cancellation_reason() is None:
            # Without an answer, of a turn that no worker can replay say, the thread goes on all the same.
            with contextlib.suppress(ActivityError):
                while page := await self._page(turn, len(found), within=timedelta(seconds=20), attempts=3):
                    found += page
        return conversation.repair(found)[0]

    async def _page(
        self, turn: ThreadTurn, start: int, *, within: timedelta = timedelta(minutes=1), attempts: int = 10
    ) -> list[Message]:
        page: list[Message] = await workflow.execute_activity(
            "read_new_messages",
            {"workflow_id": turn.turn_id, "start": start},
            start_to_close_timeout=within,
            retry_policy=RetryPolicy(maximum_attempts=attempts),
            summary=f"messages of {turn.turn_id}"[:200],
        )
        return page

    # --- Beginning and moving ------------------------------------------------------------------------------------

    def _begin(self, raw: Any) -> None:
        try:
            data = payloads.read(raw, INPUT_LIMIT, MAX_VALUES)
            if isinstance(data, dict) and "carried" in data and workflow.info().continued_run_id:
                carried = ThreadState.model_validate(unpack_json(data["carried"]))
                carried.turns += self.state.turns
                self.state = carried
            else:
                self.state.request = ThreadRequest.model_validate(data).model_dump(mode="json", exclude_defaults=True)
        except RefusedError as error:
            if workflow.info().continued_run_id:
                raise RuntimeError(f"the state of the run before can't be read: {error}") from None
            raise bad_request("thread", str(error)) from None
        except ValidationError as error:
            raise bad_request("thread", problems(error)) from None
        self.begun = True

    def _carried(self) -> Json:
        return {"carried": pack_json(self.state, "the thread", "start a new thread")}

    def _rules(self) -> list[Rule]:
        now = workflow.now()
        return [rule for rule in self.state.rules if rule.expires_at is None or now < rule.expires_at]

    def note_refusal(self, signal: str, error: RefusedError) -> None:
        """Count a refused signal. Called by the guard."""
        self.state.refused += len(error.refusals)

    # --- What clients may do -----------------------------------------------------------------------------------------

    @workflow.update(name="send", description=SEND)
    async def send(self, raw: RawValue) -> Json:
        """Take a message; its turn starts now, or when the turns before it have ended."""
        await workflow.wait_condition(lambda: self.begun)
        if (known := self._sent_before()) is not None:
            return {"turn": known.n, "turn_id": known.turn_id, "queued": known.status == "queued"}
        message = ThreadMessage.model_validate(payloads.read(raw))
        queued, first = self._busy(), self._first()
        n = len(self.state.turns) + 1
        turn = ThreadTurn(
            n=n,
            turn_id=f"{workflow.info().workflow_id}/turn-{n}",
            asked=message.model_dump(mode="json", exclude_defaults=True),
            request=_request_id(),
        )
        self.state.turns.append(turn)
        for forgotten in self.state.turns[-REQUESTS_KEPT - 1 : -REQUESTS_KEPT]:
            forgotten.request = ""
        del self._coming[:1]
        if first is not None and self._how(message) == "stop":
            await self._tell(first, "stop", {"reason": "a new message came"})
        return {"turn": n, "turn_id": turn.turn_id, "queued": queued}

    @send.validator
    def _may_send(self, raw: RawValue) -> None:
        try:
            message = ThreadMessage.model_validate(payloads.read(raw))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            path = [part for part in first["loc"] if isinstance(part, (str, int))]
            raise refuse("malformed", f"{'.'.join(map(str, path))}: {first['msg']}", *path) from None
        if self._sent_before() is not None:
            return
        if self.state.closing:
            raise refuse("closed", "this thread was closed: start a new one")
        if (self._busy() or self._coming) and self._how(message) == "refuse":
            raise refuse("busy", "the thread has an open turn: wait for it, queue the message, or stop the turn")
        # Only here and not in the handler, which runs again at replay: what was taken under other limits stays taken.
        asked = message.model_dump(mode="json", exclude_defaults=True)
        self._has_room(asked)
        self._coming.append(asked)

    def _sent_before(self) -> ThreadTurn | None:
        """The turn of the message that this update brings once more: its sender has lost the first answer."""
        request = _request_id()
        return next((turn for turn in self.state.turns[-REQUESTS_KEPT:] if request and turn.request == request), None)

    def _has_room(self, asked: Json) -> None:
        """Refuse what the queue can't hold: it goes along whenever the thread goes over into a new run."""
        waiting = [turn.asked for turn in self.state.turns if turn.status == "queued"] + self._coming
        if len(waiting) >= QUEUE_LIMIT:
            raise refuse("busy", f"{QUEUE_LIMIT} messages wait already: send it when turns have ended")
        if waiting and json_size([*waiting, asked]) > QUEUE_BYTES:
            raise refuse("busy", f"with this message more than {QUEUE_BYTES} bytes would wait: send it later")

    def _busy(self) -> bool:
        return self._open is not None or self._first() is not None

    def _first(self) -> ThreadTurn | None:
        """The turn that is open, or will be in a moment."""
        return next((turn for turn in self.state.turns if turn.status in ("queued", "running")), None)

    async def _tell(self, turn: ThreadTurn, signal: str, data: Json) -> None:
        """Signal a turn as soon as it has started, unless it ends before."""
        await workflow.wait_condition(
            lambda: turn.status not in ("queued", "running") or (turn.status == "running" and self._open is not None)
        )
        if turn.status == "running":
            with contextlib.suppress(ApplicationError):
                await self._open.signal(signal, data)

    def _how(self, message: ThreadMessage) -> str:
        return message.on_busy or self.state.request.get("on_busy", "queue")

    @workflow.update(name="stop", description='Stop the open turn: {"reason"?: "..."}. Queued messages follow.')
    async def stop(self, raw: RawValue) -> Json:
        """Stop the open turn."""
        if (first := self._first()) is not None:
            await self._tell(first, "stop", payloads.read(raw))
        return {"status": "stopping"}

    @stop.validator
    def _may_stop(self, raw: RawValue) -> None:
        payloads.fields(raw, "reason", "reviewer")
        if self._first() is None:
            raise refuse("closed", "no turn of this thread is open")

    @workflow.update(name="close", description="Take no more messages; the thread ends when its turns have ended.")
    def close(self, raw: RawValue) -> Json:
        """Close the thread."""
        self.state.closing = True
        return {"status": "closing"}

    @close.validator
    def _may_close(self, raw: RawValue) -> None:
        payloads.read(raw)

    @workflow.update(
        name="revoke_rule", description='Take back a remembered rule: {"rule_id": "..."} or {"tool": "..."}.'
    )
    async def revoke_rule(self, raw: RawValue) -> Json:
        """Take back rules of the thread, in its open turn too."""
        data = payloads.read(raw)
        doomed = self._doomed(data)
        self._revoked |= {rule.id for rule in doomed}
        self.state.rules = [rule for rule in self.state.rules if rule not in doomed]
        if (first := self._first()) is not None and first.status == "running":
            await self._tell(first, "revoke_rule", data)
        return {"revoked": [rule.to_json() for rule in doomed]}

    @revoke_rule.validator
    def _may_revoke(self, raw: RawValue) -> None:
        if not self._doomed(payloads.fields(raw, "rule_id", "tool", "reviewer")):
            raise refuse("unknown_approval", "there is no such rule: the query 'rules' lists them")

    def _doomed(self, data: Json) -> list[Rule]:
        if (data.get("rule_id") is None) == (data.get("tool") is None):
            raise refuse("malformed", 'name the rule: {"rule_id": "..."} or {"tool": "..."}')
        return [rule for rule in self._rules() if rule.id == data.get("rule_id") or rule.tool == data.get("tool")]

    @workflow.signal(dynamic=True)
    def unknown_signal(self, name: str, args: Sequence[RawValue]) -> None:
        """Count a signal of a name that means nothing here."""
        self.state.refused += 1

    # --- What clients may ask ----------------------------------------------------------------------------------------

    @workflow.query(name="status", description="Where the thread stands: its last turns, what is open and queued.")
    def status(self) -> Json:
        """Return the last turns and what is open."""
        turns = self.state.turns
        running = next((turn.turn_id for turn in turns if turn.status == "running"), None)
        return {
            "agent": self.state.request.get("agent"),
            "turns": [_listed(turn) for turn in turns[-TURNS_LISTED:]],
            "turns_total": len(turns),
            "open_turn": running,
            "queued": sum(turn.status == "queued" for turn in turns),
            "messages": len(self.state.messages),
            "closing": self.state.closing,
            "refused": self.state.refused,
        }

    @workflow.query(name="turns", description='All turns of the thread, in pages: {"start"?: 0, "limit"?: 50}.')
    def turns(self, request: Any = None) -> Json:
        """Return turns from `start`, at most `limit` and 512 KiB."""
        found, start, after = conversation.page(self.state.turns, request, show=_listed)
        return {"turns": found, "start": start, "next": after, "total": len(self.state.turns)}

    @workflow.query(
        name="messages", description='The conversation of the ended turns, in pages: {"start"?: 0, "limit"?: 50}.'
    )
    def messages(self, request: Any = None) -> Json:
        """Return messages from `start`, at most `limit` and 512 KiB."""
        messages = self.state.messages
        found, start, after = conversation.page(messages, request, sizes=self._sizes.of(messages))
        return {"messages": found, "start": start, "next": after, "total": len(messages)}

    @workflow.query(name="rules", description="The remembered rules of the thread.")
    def rules(self) -> Json:
        """Return the rules in force."""
        return {"rules": [rule.to_json() for rule in self._rules()]}

    @workflow.query(name="pending", description="The open turn, which has the approvals that wait.")
    def pending(self, request: Any = None) -> Json:
        """Return the id of the open turn."""
        running = [turn.turn_id for turn in self.state.turns if turn.status == "running"]
        return {"approvals": [], "children": running, "start": 0, "next": None}


def _request_id() -> str:
    info = workflow.current_update_info()
    return info.id if info else ""


def _listed(turn: ThreadTurn) -> Json:
    return {"n": turn.n, "turn_id": turn.turn_id, "status": turn.status}
