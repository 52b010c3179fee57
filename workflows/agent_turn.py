"""AgentTurn: one turn of an agent. Ask the model, gate its calls, run them, go on until it is done.

The story is `run` and `_turn`. What a client may do to it stands in the handlers below; how one call gets from
proposed to answered is `calls.py`; what a decision does is the ledger's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from datetime import timedelta
from typing import Any, NoReturn

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    from turngate import texts
    from turngate.contracts import (
        ApprovalContext,
        Json,
        Message,
        ModelInput,
        ModelStep,
        TurnRequest,
        TurnStart,
        TurnStatus,
        json_size,
    )
    from turngate.decisions import sender_of
    from turngate.errors import RefusedError, refuse
    from turngate.ledger import Ledger
    from turngate.workflows import announcing, conversation, payloads, surface
    from turngate.workflows.asking import Asked
    from turngate.workflows.attending import Attendant
    from turngate.workflows.beginning import read_start
    from turngate.workflows.calls import Calls
    from turngate.workflows.measuring import Measuring
    from turngate.workflows.results import turn_result
    from turngate.workflows.signing import Signing
    from turngate.workflows.state import Step, TurnState, add_usage, pack

ORIGINAL_LIMIT = 8 * 1024
OUTPUT_RETRIES = 2
"""How often a model may answer again whose final answer does not fit the agent's output schema."""

DECIDE = (
    'Decide about a call that waits. Data: {"approval_id": "...", "type": "approve" | "edit" | "reject" | "respond" |'
    ' "answer", ...}. Ready ones to copy stand under User Metadata; the query `pending` has everything.'
)
STOP = 'Stop the turn. Data: {"reason"?: "...", "reviewer"?: "you"}. What waits is cancelled and does not run.'
REVOKE = 'Take back a remembered decision. Data: {"rule_id": "..."} or {"tool": "..."}. The query `rules` lists them.'


@workflow.defn(name="AgentTurn", sandboxed=False)
class AgentTurn(Asked):
    """One turn of an agent, durable from the request to the result."""

    def __init__(self) -> None:
        info = workflow.info()
        self.state = TurnState()
        self.ledger = Ledger(f"{info.workflow_id}/{info.first_execution_run_id[-6:]}")
        self.calls = Calls(self)
        self.children: dict[int, str] = {}
        self.announcer = announcing.Announcer(self)
        self.measuring = Measuring(self)
        self._signing = Signing(self)
        self._stopping = False
        self._start = TurnStart()
        self.sizes = conversation.Sizes()
        self.begun = False

    # --- The story of a turn -------------------------------------------------------------------------------------

    @workflow.run
    async def run(self, raw: RawValue) -> Json:
        """Run the turn. Input: a TurnRequest; result: a TurnResult, both as plain JSON."""
        self._begin(raw)
        self.measuring.begin()
        attending = asyncio.create_task(Attendant(self).attend())
        try:
            ending = TurnStatus(await self._turn())
            self._end(ending)
        except asyncio.CancelledError:
            await self._call_off()
            self._end("cancelled", "Cancelled")
            raise
        except ApplicationError as error:
            self._end("failed", error.type or "Failed")
            raise
        finally:
            attending.cancel()
        await self._signing.close()
        await self.announcer.finish()
        return turn_result(self.state, self.ledger, ending, workflow.now()).to_json()

    def _end(self, ending: str, failure: str | None = None) -> None:
        self.state.ending = ending
        self.measuring.end(failure)

    async def _turn(self) -> str:
        while True:
            if self.state.step is None:
                if not await self._unless_stopped(self._ask_model()):
                    await self._call_off()  # the model's answer may have come together with the stop
                    return TurnStatus.STOPPED
            else:
                self.calls.start()
            await self._settle_calls()
            if self._stopping:
                await self._call_off()
                return TurnStatus.STOPPED
            if ending := self._close_step():
                return ending
            if workflow.info().is_continue_as_new_suggested():
                await self.announcer.finish()
                await workflow.wait_condition(workflow.all_handlers_finished)
                if self._stopping:
                    return TurnStatus.STOPPED
                self._continue_as_new()

    async def _ask_model(self) -> None:
        """One model call; its answer and the verdicts on its calls become the open step."""
        state = self.state
        state.steps += 1
        try:
            with self.measuring.model_call():
                answer = await self._model_call()
        except ActivityError as error:
            if self._stopping:
                raise
            _fail(error)
        step = ModelStep.model_validate(answer)
        state.settings = step.settings
        self.ledger.state.admins, self.ledger.state.signed = step.settings.admins, step.settings.signed
        await self._signing.admit_held()
        state.say(step.message)
        state.output, state.output_problem = step.output, step.output_problem
        add_usage(state.usage, step.message.get("usage_metadata"))
        if step.settings.allow_tool_change:
            state.schemas.update(step.schemas)
            state.tool_settings.update(step.tool_settings)
        self.calls.begin(step)
        self.calls.start()

    def _model_call(self) -> Awaitable[Any]:
        return workflow.execute_activity(
            "call_model",
            self._model_input().compact(),
            start_to_close_timeout=timedelta(minutes=10),
            heartbeat_timeout=timedelta(seconds=30),
            retry_policy=RetryPolicy(
                initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=30), maximum_attempts=5
            ),
            summary=f"model call {self.state.steps}",
        )

    async def _settle_calls(self) -> None:
        """Wait until every call of the step is answered, however long people take."""
        while not (self.calls.done or self._stopping):
            await workflow.wait_condition(lambda: self.calls.done or self._stopping or self._should_move())
            if self._should_move() and not (self.calls.done or self._stopping):
                self._continue_as_new()
        self.calls.raise_bugs()
        if self.calls.failure and not self._stopping:
            await self._call_off()
            raise ApplicationError(self.calls.failure, type="ToolFailed", non_retryable=True)

    def _close_step(self) -> str | None:
        """Put the answers of the step into the conversation, and say whether and how the turn ends."""
        state = self.state
        step, answers = self._answered()
        if not step.calls:
            if state.output_problem is None:
                return TurnStatus.COMPLETED
            self._ask_for_another_output(state.output_problem)
        elif all(call.ran and self.calls.options_of(call).return_direct for call in step.calls) and all(
            answer.get("status") == "success" for answer in answers
        ):
            return TurnStatus.COMPLETED
        if any(
            self.ledger.rejections(call.plan.digest) >= call.plan.max_rejections
            for call in step.calls
            if call.plan.digest
        ):
            return TurnStatus.REJECTED_TOO_OFTEN
        if self._over_budget():
            return TurnStatus.OVER_BUDGET
        return TurnStatus.MAX_STEPS if state.steps >= state.settings.max_steps else None

    def _answered(self) -> tuple[Step, list[Message]]:
        state, step = self.state, self.state.step
        assert step is not None, "a step is closed once"
        answers = [call.result for call in step.calls if call.result is not None]
        state.say(*answers)
        state.step = None
        self.measuring.end_step()
        return step, answers

    def _ask_for_another_output(self, problem: str) -> None:
        """Tell the model why its final answer does not fit, the last time instead fail the turn."""
        state = self.state
        if state.output_refused >= OUTPUT_RETRIES:
            raise ApplicationError(
                f"the final answer does not fit the output schema: {problem}", type="InvalidOutput", non_retryable=True
            )
        state.output_refused += 1
        state.say({"type": "human", "content": texts.output_invalid(problem)})

    def _over_budget(self) -> bool:
        settings, state = self.state.settings, self.state
        if settings.max_tokens is not None and state.usage.get("total_tokens", 0) >= settings.max_tokens:
            return True
        if settings.max_duration_s is None or state.started_at is None:
            return False
        return (workflow.now() - state.started_at).total_seconds() >= settings.max_duration_s

    # --- Waiting and being seen ------------------------------------------------------------------------------------

    async def _unless_stopped(self, work: Any) -> bool:
        """Do the work, or cancel it when a stop comes first. Returns whether it was done."""
        task = asyncio.ensure_future(work)
        await workflow.wait_condition(lambda: task.done() or self._stopping)
        if task.done():
            task.result()
            return True
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return False

    async def _call_off(self) -> None:
        """Close what is open: every call gets an answer, every approval is cancelled."""
        if self.state.step is not None:
            await self.calls.call_off()
            self._answered()
        self.announcer.announce()
        workflow.set_current_details("")

    def _should_move(self) -> bool:
        """Whether history is long and nothing but people is waited for."""
        quiet = self.calls.quiet and self._signing.quiet and self.announcer.quiet
        # A signal that the guard still holds back would be lost.
        return quiet and workflow.info().is_continue_as_new_suggested() and workflow.all_handlers_finished()

    def _continue_as_new(self) -> NoReturn:
        self.state.ledger, self.state.unsent = self.ledger.state, self.announcer.unsent
        workflow.continue_as_new(pack(self.state, self._start))

    # --- Beginning and end -----------------------------------------------------------------------------------------

    def _begin(self, raw: Any) -> None:
        self._start, carried = read_start(raw)
        if carried:
            self._go_on(carried)
        else:
            self._set_out(TurnRequest.model_validate(self._start.request))
        self.begun = True

    def _set_out(self, request: TurnRequest) -> None:
        state, start = self.state, self._start
        state.request, state.parent, state.thread, state.depth = start.request, start.parent, start.thread, start.depth
        state.started_at = workflow.now()
        given = [{"type": "human", "content": request.input}] if request.messages is None else request.messages
        messages, state.repairs = conversation.repair(given)
        state.say(*messages)
        state.first_new = len(state.messages)
        self.ledger.state.rules.extend(start.rules)
        self._start = start.model_copy(update={"request": {}, "rules": []})

    def _go_on(self, state: TurnState) -> None:
        early = self.ledger.state
        self.state = state
        self.ledger = Ledger(early.prefix, state.ledger)
        self.announcer.resume(state.unsent)
        self._start = self._start.model_copy(update={"carried": None})

    def _model_input(self) -> ModelInput:
        state = self.state
        request = state.asked()
        return ModelInput(
            agent=request.agent,
            turn_id=workflow.info().workflow_id,
            thread_id=request.thread_id,
            step=state.steps,
            conversation=conversation.segments(state.messages, state.size, state.settings.inline_limit, state.thread),
            context=request.context,
            requested_by=request.requested_by,
            review_also=request.review_also,
            metadata=request.metadata,
            stream=request.stream,
            depth=state.depth,
            schemas_known=bool(state.tool_settings),
        )

    def context(self, call_id: str | None) -> ApprovalContext:
        """Return the context of an approval raised now."""
        state, info = self.state, workflow.info()
        request = state.asked()
        path = state.parent.path if state.parent else []
        return ApprovalContext(
            agent=request.agent,
            thread_id=request.thread_id,
            turn_id=info.workflow_id,
            run_id=info.run_id,
            step=state.steps,
            original_input=self._original_input(),
            requested_by=request.requested_by,
            parent_call=state.parent.tool_call_id if state.parent else None,
            path=[*path, call_id or ""],
        )

    def _original_input(self) -> str | None:
        """What the turn was asked to do, cut: it stands in every approval, and an answer to a query has its limit."""
        asked = self.state.request.get("input") or conversation.last_human_text(
            self.state.messages[: self.state.first_new]
        )
        return surface.clip(asked, ORIGINAL_LIMIT) if asked else None

    def note_refusal(self, signal: str, error: RefusedError) -> None:
        """Keep a refused signal where people see it. Called by the guard."""
        self.ledger.refuse(error, workflow.now(), signal=signal, by=self._sender)

    _sender: str | None = None

    # --- What clients may do -----------------------------------------------------------------------------------------

    @workflow.update(name="decide", description=DECIDE)
    async def decide(self, raw: RawValue) -> Json:
        """Apply decisions and answer with a receipt each."""
        receipts = await self._signing.submit(payloads.read(raw), verified=True)
        found = {"receipts": [receipt.to_json() for receipt in receipts]}
        if json_size(found) > 256 * 1024:
            short = ("approval_id", "outcome", "status")
            found = {"receipts": [{key: one[key] for key in short if key in one} for one in found["receipts"]]}
        return found

    @decide.validator
    def _may_decide(self, raw: RawValue) -> None:
        self._signing.check(self.ledger.examine(payloads.read(raw), workflow.now()))

    # A turn that fails or is cancelled does not wait for signatures; otherwise `run` sees to it.
    @workflow.signal(name="decide", description=DECIDE, unfinished_policy=workflow.HandlerUnfinishedPolicy.ABANDON)
    async def decide_by_signal(self, raw: RawValue) -> None:
        """Apply decisions; what is refused is kept for the query `refused`."""
        self._sender = None
        payload = payloads.read(raw)
        try:
            await self._signing.submit(payload)
        finally:
            self._sender = sender_of(payload)

    @workflow.signal(name="stop", description=STOP)
    def stop_by_signal(self, raw: RawValue) -> None:
        """Stop; a thread stops its open turn so."""
        self._may_stop(raw)
        self._stopping = True

    @workflow.signal(name="revoke_rule", description=REVOKE)
    def revoke_rule_by_signal(self, raw: RawValue) -> None:
        """Take back rules; a thread hands a revocation to its open turn so."""
        self.ledger.revoke_rule(payloads.read(raw), workflow.now())

    @workflow.update(name="stop", description=STOP)
    def stop(self, raw: RawValue) -> Json:
        """Ask the turn to end now; it returns what there is."""
        self._stopping = True
        return {"status": "stopping"}

    @stop.validator
    def _validate_stop(self, raw: RawValue) -> None:
        self._may_stop(raw)

    def _may_stop(self, raw: RawValue) -> None:
        data = payloads.fields(raw, "reason", "reviewer")
        admins = self.ledger.state.admins
        if admins and data.get("reviewer") not in admins:
            raise refuse(
                "not_a_reviewer", "only an admin may stop this turn: say who you are in 'reviewer'", "reviewer"
            )

    @workflow.update(
        name="reassign",
        description='Hand an approval on: {"approval_id": "...", "reviewers": ["..."], "reviewer"?: "you"}.',
    )
    def reassign(self, raw: RawValue) -> Json:
        """Give an approval to other reviewers."""
        item = self.ledger.reassign(payloads.read(raw), workflow.now())
        return {"approval_id": item.approval.id, "reviewers": item.approval.reviewers}

    @reassign.validator
    def _may_reassign(self, raw: RawValue) -> None:
        payload = payloads.read(raw)
        self.ledger.examine_reassign(payload, workflow.now())
        self._signing.check_reassign(payload)

    @workflow.update(name="revoke_rule", description=REVOKE)
    def revoke_rule(self, raw: RawValue) -> Json:
        """Take back remembered rules."""
        return {"revoked": [rule.to_json() for rule in self.ledger.revoke_rule(payloads.read(raw), workflow.now())]}

    @revoke_rule.validator
    def _may_revoke(self, raw: RawValue) -> None:
        self.ledger.examine_revoke(payloads.read(raw), workflow.now())

    @workflow.signal(dynamic=True)
    def unknown_signal(self, name: str, args: Sequence[RawValue]) -> None:
        """Record a signal of a name that means nothing here."""
        self._sender = None
        raise refuse("malformed", f"there is no signal {name[:200]!r}: decisions go to 'decide'")


def _fail(error: ActivityError) -> NoReturn:
    cause = error.cause
    if isinstance(cause, ApplicationError):
        raise ApplicationError(cause.message, type=cause.type or "ModelFailed", non_retryable=True) from None
    raise ApplicationError(
        f"the model could not be asked: {cause or error}", type="ModelFailed", non_retryable=True
    ) from None
