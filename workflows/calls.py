"""The calls of one step, each driven from proposed to answered.

A call is data (`state.Call`): it waits for an approval, or it is ready to run, or it has its result. `drive` moves it
on until it has; after a restart or continue-as-new it goes on from whatever the data says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any, Protocol

from temporalio import exceptions, workflow
from temporalio.common import RetryPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    ChildWorkflowError,
    TimeoutType,
    is_cancelled_exception,
)

with workflow.unsafe.imports_passed_through():
    from turngate import texts
    from turngate.contracts import (
        ARGS_INLINE_LIMIT,
        TASK_TOOL,
        Approval,
        ApprovalContext,
        ApprovalStatus,
        ApprovalType,
        CallPlan,
        Json,
        Message,
        ModelStep,
        ParentRef,
        ToolInput,
        ToolOutcome,
        ToolSettings,
        TurnResult,
        TurnStart,
        TurnStatus,
        Verdict,
        digest_of,
        json_size,
    )
    from turngate.items import Item
    from turngate.ledger import Ledger
    from turngate.workflows import surface
    from turngate.workflows.conversation import tool_message
    from turngate.workflows.measuring import Measuring
    from turngate.workflows.state import Call, Step, TurnState

RECOVERY = ["approve", "respond", "reject"]
INLINE_BUDGET = 512 * 1024
"""Bytes of arguments that one server task may carry inline; what is over goes by reference."""
AT_ONCE = 1000
"""Calls under way together; the others follow. The server fails the task, for ever, that would open more than 2,000."""


class ToolFailed(Exception):
    """A tool raised and the agent says that this fails the turn."""


class Turn(Protocol):
    """What the calls need of the turn that they belong to."""

    state: TurnState
    ledger: Ledger
    children: dict[int, str]
    measuring: Measuring

    def context(self, call_id: str | None) -> ApprovalContext:
        """Return the context of an approval raised now."""
        ...


class Calls:
    """Drives the calls of the open step."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._busy = 0
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._task = -1
        self._inline = 0
        self._tasks: list[asyncio.Task[None]] = []
        self.failure: str | None = None

    # --- The step as a whole -----------------------------------------------------------------------------------

    def begin(self, step: ModelStep) -> Step:
        """Turn the recorded plans into calls, and raise the approvals in the order of the calls."""
        state = self._turn.state
        if step.settings.interrupt_mode == "batched":
            state.batches += 1
        calls = [self._call(step.message, plan) for plan in step.plans]
        opened = Step(calls=calls, batch=state.batches if step.settings.interrupt_mode == "batched" else 0)
        state.step = opened
        for call in calls:
            self._propose(call, opened.batch, step.schemas)
        return opened

    def start(self) -> None:
        """Set the calls going that have no result yet."""
        calls = self._open_step().calls
        self._tasks = [asyncio.create_task(self._drive(call)) for call in calls if call.result is None]

    @property
    def done(self) -> bool:
        """Whether every call has its answer, or one failed the turn."""
        return self.failure is not None or all(task.done() for task in self._tasks)

    def raise_bugs(self) -> None:
        """Let an error of our own fail the task, which is tried again after a fix, instead of losing an answer."""
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()):
                raise error

    @property
    def quiet(self) -> bool:
        """Whether nothing runs: no activity and no child is open."""
        return self._busy == 0

    async def call_off(self) -> None:
        """Cancel what runs and close what waits; every call has an answer afterwards."""
        self._turn.ledger.cancel_all(workflow.now())
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for call in self._open_step().calls:
            if call.result is None:
                call.result = _answer(call, texts.cancelled(call.name), ok=False)

    def _open_step(self) -> Step:
        step = self._turn.state.step
        assert step is not None, "there is an open step while calls are driven"
        return step

    def _call(self, message: Message, plan: CallPlan) -> Call:
        state = self._turn.state
        state.calls += 1
        found = (message.get("invalid_tool_calls" if plan.unreadable else "tool_calls") or [])[plan.call]
        args = found.get("args") if isinstance(found.get("args"), dict) else {}
        name = str(found.get("name") or "")
        return Call(
            number=state.calls,
            plan=plan,
            tool_call_id=found.get("id"),
            original_name=name,
            name=name,
            args=args,
            digest=plan.digest,
        )

    def options_of(self, call: Call) -> ToolSettings:
        """How the call is executed as it stands: a tool that a reviewer put in has options of its own."""
        return self._put_in(call) or call.plan.options

    def _put_in(self, call: Call) -> ToolSettings | None:
        """The options of the tool that a reviewer put in; None where it is the model's (or recorded without them)."""
        return None if call.name == call.original_name else self._turn.state.tool_settings.get(call.name)

    def _propose(self, call: Call, batch: int, schemas: dict[str, Json]) -> None:
        plan, ledger = call.plan, self._turn.ledger
        if plan.verdict in (Verdict.INVALID, Verdict.DENY):
            call.result = _answer(call, plan.message or texts.denied(call.name, None), ok=False)
        elif plan.verdict is Verdict.REVIEW:
            if ledger.repeat_is_denied(plan):
                ledger.count_rejection(plan.digest, "")
                call.result = _answer(call, texts.repeat_denied(call.name), ok=False)
            else:
                self._ask(call, plan, batch=batch, schemas=schemas)

    # --- One call ------------------------------------------------------------------------------------------------

    async def _drive(self, call: Call) -> None:
        try:
            while call.result is None:
                if call.waits_for:
                    item = self._turn.ledger[call.waits_for]
                    await workflow.wait_condition(lambda item=item: not item.open)  # type: ignore[misc]
                    self._decided(call, item)
                else:
                    await workflow.wait_condition(lambda: not self._batch_waits())
                    if self._is_unjudged(call):
                        await self._judge(call)
                    elif self._any_unjudged():
                        await workflow.wait_condition(lambda: not self._any_unjudged())
                    else:
                        await self._run(call)
        except ToolFailed as error:
            self.failure = str(error)
        except BaseException as error:
            if not is_cancelled_exception(error) and not isinstance(error, asyncio.CancelledError):
                raise
            self._record(call, "unknown")
            call.result = call.result or _answer(call, self._noticed(call, texts.cancelled(call.name)), ok=False)

    def _batch_waits(self) -> bool:
        batch = self._open_step().batch
        return bool(batch) and any(item.batch == batch for item in self._turn.ledger.waiting())

    # --- A batch with calls that a reviewer changed to another tool: its rules speak before anything runs ---------

    def _is_unjudged(self, call: Call) -> bool:
        step = self._open_step()
        if not step.batch or len(step.calls) == 1 or call.result is not None:
            return False  # alone in its step, a call is judged when it runs
        name, judged, asked = call.name, call.judged or call.reviewed, call.asked_name or call.original_name
        if call.waits_for:
            settled = self._turn.ledger[call.waits_for].approval.resolution
            if settled is None or settled.edited_action is None:
                return False
            judged = judged and settled.edited_action["name"] == name
            if self._turn.state.tool_settings:
                asked = name
            name = settled.edited_action["name"]
        return name != asked and not judged

    def _any_unjudged(self) -> bool:
        return any(map(self._is_unjudged, self._open_step().calls))

    async def _judge(self, call: Call) -> None:
        """Ask what the rules say of the other tool; what is to be reviewed is put up in the order of the calls."""
        self._busy += 1
        try:
            async with self._slots:
                outcome = ToolOutcome.model_validate(await self._judgement(call))
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            outcome = ToolOutcome(kind="cleared")  # `call_tool` judges again before it runs anything
        finally:
            self._busy -= 1
        earlier = [other for other in self._open_step().calls if other.number < call.number]
        await workflow.wait_condition(lambda: not any(map(self._is_unjudged, earlier)))
        self._take_judgement(call, outcome)

    def _take_judgement(self, call: Call, outcome: ToolOutcome) -> None:
        call.judged = True
        if outcome.kind != "cleared":
            self._take(call, outcome)

    def _judgement(self, call: Call) -> Awaitable[Any]:
        options = self.options_of(call)
        return workflow.execute_activity(
            "call_tool",
            self._tool_input(call).model_copy(update={"judge_only": True}).compact(),
            task_queue=options.task_queue,
            start_to_close_timeout=timedelta(minutes=2),
            heartbeat_timeout=timedelta(seconds=options.heartbeat_s),
            retry_policy=RetryPolicy(maximum_attempts=3),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=surface.clip(f"rules on {call.name}", surface.SUMMARY_LIMIT),
        )

    def _batch_for_review(self) -> int:
        """The batch that a changed call joins: the one that waits, or a new one."""
        step, state = self._open_step(), self._turn.state
        if step.batch and not self._batch_waits():
            state.batches += 1
            step.batch = state.batches
        return step.batch

    def _ask(
        self,
        call: Call,
        plan: CallPlan,
        *,
        kind: ApprovalType = ApprovalType.TOOL,
        question: Any = None,
        batch: int = 0,
        schemas: dict[str, Json] | None = None,
    ) -> None:
        """Raise an approval for the call as it would run now."""
        state = self._turn.state
        changeable = state.settings.allow_tool_change and kind is ApprovalType.TOOL
        known = {**(state.schemas if changeable else {}), **(schemas or {})}
        if call.name != TASK_TOOL:
            known.pop(TASK_TOOL, None)  # a subagent is started by a call of its own
        item = self._turn.ledger.open(
            plan,
            name=call.name,
            args=call.args,
            digest=call.digest,
            tool_call_id=call.tool_call_id,
            context=self._turn.context(call.tool_call_id),
            now=workflow.now(),
            kind=kind,
            question=question,
            schemas=known if changeable else {name: known[name] for name in (call.name,) if name in known},
            roles=state.settings.roles,
            tool_change=changeable,
            batch=batch,
            call=call.number,
        )
        call.waits_for = item.approval.id
        call.approvals.append(item.approval.id)

    def _decided(self, call: Call, item: Item) -> None:
        """Take over what was decided."""
        approval, resolution = item.approval, item.approval.resolution
        call.waits_for = None
        if approval.status is ApprovalStatus.CANCELLED or resolution is None:
            call.result = _answer(call, texts.cancelled(call.name), ok=False)
            return
        if resolution.type == "respond":
            call.decision, call.reviewer = "respond", resolution.reviewer
            call.result = _answer(call, self._noticed(call, resolution.message or ""), ok=True)
        elif resolution.type == "answer":
            call.answers.append(resolution.value)
        elif resolution.type == "reject":
            call.result = _answer(call, self._noticed(call, _declined(call, approval)), ok=False)
        else:
            if approval.type is ApprovalType.TOOL:
                call.decision, call.reviewer = resolution.type, resolution.reviewer
                call.reviewed = call.edited
            if resolution.type == "edit" and resolution.edited_action:
                # Who is asked about the other tool may change its arguments without being asked again.
                name = resolution.edited_action["name"]
                call.reviewed = call.reviewed and name == call.name
                call.edited, call.judged = True, call.reviewed
                if name != call.name and self._turn.state.tool_settings:
                    call.asked_name = call.name
                call.name, call.args = name, resolution.edited_action["args"]
                call.digest = digest_of(call.name, call.args)

    # --- Running -------------------------------------------------------------------------------------------------

    async def _run(self, call: Call) -> None:
        self._busy += 1
        try:
            async with self._slots:
                await self._run_now(call)
        finally:
            self._busy -= 1

    async def _run_now(self, call: Call) -> None:
        with self._turn.measuring.tool(call):
            is_task = call.plan.subagent and self._put_in(call) is None
            await (self._run_subagent(call) if is_task else self._run_tool(call))

    async def _run_tool(self, call: Call) -> None:
        call.ran = True
        try:
            outcome = ToolOutcome.model_validate(await self._activity(call))
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            if _never_started(error):
                return
            self._record(call, "unknown")
            self._ask_what_happened(call, _interruption(error))
            return
        self._take(call, outcome)

    def _activity(self, call: Call) -> Awaitable[Any]:
        options = self.options_of(call)
        return workflow.execute_activity(
            "call_tool",
            self._tool_input(call).compact(),
            task_queue=options.task_queue,
            start_to_close_timeout=timedelta(seconds=options.start_to_close_s),
            heartbeat_timeout=timedelta(seconds=options.heartbeat_s),
            retry_policy=RetryPolicy(maximum_attempts=options.max_attempts if options.retry_safe else 1),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=surface.clip(_summary(call), surface.SUMMARY_LIMIT),
        )

    def _tool_input(self, call: Call) -> ToolInput:
        state, info = self._turn.state, workflow.info()
        request = state.asked()
        inline = self._travels_inline(call)
        return ToolInput(
            agent=request.agent,
            turn_id=info.workflow_id,
            thread_id=request.thread_id,
            step=state.steps,
            number=call.number,
            key=f"{info.namespace}/{self._turn.ledger.state.prefix}/call-{call.number}",
            tool_call_id=call.tool_call_id or "",
            name=call.name,
            args=call.args if inline else None,
            edited=call.edited,
            original_name=call.asked_name or call.original_name,
            reviewed=call.reviewed,
            decision=call.decision,
            reviewer=call.reviewer,
            answers=call.answers if inline else [],
            edit_notice=state.settings.edit_notice,
            context=request.context if inline else {},
            requested_by=request.requested_by,
            metadata=request.metadata if inline else {},
            # Only the rules on another tool ask for it.
            review_also=request.review_also if inline and call.edited else [],
            depth=state.depth,
            options=self.options_of(call),
        )

    def _travels_inline(self, call: Call) -> bool:
        # One server task takes 4 MB in all: a hundred calls decided at once must not add up to that.
        task = workflow.info().get_current_history_length()
        if task != self._task:
            self._task, self._inline = task, 0
        request = self._turn.state.asked()
        size = json_size([call.args, call.answers, request.context, request.metadata, request.review_also])
        if size > ARGS_INLINE_LIMIT or self._inline + size > INLINE_BUDGET:
            return False
        self._inline += size
        return True

    def _take(self, call: Call, outcome: ToolOutcome) -> None:
        """Take over what the tool did."""
        if outcome.kind == "question":
            plan = _follow_up(call.asked_plan or call.plan, ["answer"], [])
            self._ask(call, plan, kind=ApprovalType.QUESTION, question=outcome.question)
        elif outcome.kind == "review" and outcome.plan:
            call.ran = False
            plan = outcome.plan.model_copy(update={"digest": call.plan.digest})
            if self._turn.state.tool_settings:
                call.asked_plan = plan
            self._hide_secrets_of(plan, call)
            self._ask(call, plan, batch=self._batch_for_review(), schemas=outcome.schemas)
        else:
            call.ran = outcome.ran
            if outcome.ran:
                self._record(call, "succeeded" if outcome.succeeded else "failed")
            on_tool_error = self.options_of(call).on_tool_error
            if outcome.error is not None and on_tool_error == "fail":
                raise ToolFailed(texts.tool_error(call.name, outcome.error))
            if outcome.error is not None and on_tool_error == "ask":
                call.error = outcome.error
                self._ask_what_happened(call, texts.tool_error(call.name, outcome.error))
                return
            call.result = outcome.message or _answer(call, "", ok=outcome.succeeded)

    def _hide_secrets_of(self, plan: CallPlan, call: Call) -> None:
        """Mask the other tool's secret arguments also where the edit stands that put it in."""
        item = self._turn.ledger[call.approvals[-1]]
        secret = [*item.plan.secret_args, *plan.secret_args]
        item.plan = item.plan.model_copy(update={"secret_args": secret})

    def _ask_what_happened(self, call: Call, warning: str) -> None:
        self._turn.measuring.recovery(call)
        plan = _follow_up(call.asked_plan or call.plan, RECOVERY, [warning])
        self._ask(call, plan, kind=ApprovalType.RECOVERY)

    def _record(self, call: Call, outcome: str) -> None:
        """Write down under which approvals something ran."""
        if not call.ran:
            return
        for approval_id in call.approvals:
            item = self._turn.ledger[approval_id]
            settled = item.approval.resolution
            runs = settled is not None and settled.type in ("approve", "edit")
            if runs and _is_last_to_run(self._turn.ledger, call, item.approval):
                self._turn.ledger.executed(item, call.name, call.args, outcome, workflow.now())

    # --- Subagents -----------------------------------------------------------------------------------------------

    async def _run_subagent(self, call: Call) -> None:
        if call.edited and call.plan.judge_edits and not await self._may_start(call):
            return
        call.ran = True
        child_id = f"{workflow.info().workflow_id}/task-{call.number}"
        self._turn.children[call.number] = child_id
        try:
            result = TurnResult.model_validate(await self._child(call, child_id))
        except ChildWorkflowError as error:
            if is_cancelled_exception(error):
                raise
            self._finish_subagent(call, f"the subagent failed: {error.cause or error}", ok=False)
        else:
            completed = result.status is TurnStatus.COMPLETED
            text = (
                result.output if completed else f"the subagent ended early ({result.status}). {result.output}".strip()
            )
            self._finish_subagent(call, text, ok=completed)
        finally:
            self._turn.children.pop(call.number, None)

    async def _may_start(self, call: Call) -> bool:
        """Ask the rules about a changed task: they bind reviewers too. Where they forbid it, the call is answered."""
        try:
            self._take_judgement(call, ToolOutcome.model_validate(await self._judgement(call)))
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            call.result = _answer(call, texts.tool_error(call.name, "its rules could not be asked"), ok=False)
        return call.result is None

    def _child(self, call: Call, child_id: str) -> Awaitable[Any]:
        state = self._turn.state
        request = state.asked()
        agent = f"{request.agent}/{call.args.get('subagent_type')}"
        parent = ParentRef(
            turn_id=workflow.info().workflow_id,
            tool_call_id=call.tool_call_id or "",
            path=[*(state.parent.path if state.parent else []), call.tool_call_id or f"#{call.number}"],
        )
        asked = {
            "agent": agent,
            "input": str(call.args.get("description", "")),
            "thread_id": request.thread_id,
            "context": request.context,
            "requested_by": request.requested_by,
            "review_also": request.review_also,
            "metadata": request.metadata,
            "stream": request.stream,
        }
        start = TurnStart(request=asked, parent=parent, depth=state.depth + 1)
        return workflow.execute_child_workflow(
            "AgentTurn",
            {**start.compact(), "turngate": start.turngate},
            id=child_id,
            # After a reset the subagent of the run before may still be open: nobody waits for it any more.
            id_reuse_policy=WorkflowIDReusePolicy.TERMINATE_IF_RUNNING,
            search_attributes=surface.at_start(agent, request.thread_id) if state.settings.search_attributes else None,
            static_summary=surface.clip(f"{agent}: {asked['input']}", 200),
        )

    def _finish_subagent(self, call: Call, text: str, *, ok: bool) -> None:
        self._record(call, "succeeded" if ok else "failed")
        text = texts.cut(text, self.options_of(call).max_result_bytes)
        call.result = _answer(call, self._noticed(call, text), ok=ok)

    def _noticed(self, call: Call, text: str) -> str:
        """The text after the notice of what ran in place of the model's call, where something else did."""
        first = self._turn.state.settings.edit_notice
        if not (call.ran and call.edited and first):
            return text
        return str(texts.with_notice(texts.edit_notice(first, call.name, call.args), text))


# --- Small judgements --------------------------------------------------------------------------------------------


def _answer(call: Call, content: Any, *, ok: bool) -> Message:
    return tool_message(call.tool_call_id, call.original_name, content, ok=ok)


def _declined(call: Call, approval: Approval) -> str:
    """Say why the call was not run, in the words that fit who or what declined it."""
    resolution = approval.resolution
    assert resolution is not None, "a declined approval has a resolution"
    if approval.type is ApprovalType.RECOVERY and resolution.by != "deadline":
        if call.error is not None:
            return texts.failed_and_declined(call.name, call.error, resolution.message)
        return texts.unknown_outcome(call.name, resolution.message)
    if approval.type is ApprovalType.RECOVERY and call.error is None:
        return texts.unknown_outcome(call.name, "nobody said in time what happened")
    if approval.type is ApprovalType.RECOVERY:
        return texts.tool_error(call.name, call.error or "")
    if resolution.by == "deadline":
        return texts.expired(call.name, resolution.message)
    if resolution.by == "rule":
        return texts.rejected_by_rule(call.name, resolution.reviewer, resolution.message)
    return texts.rejected(call.name, call.tool_call_id, resolution.message)


def _follow_up(plan: CallPlan, allowed: list[str], warnings: list[str]) -> CallPlan:
    """The plan of a question or a recovery: the same people and times, other decisions, nothing to remember."""
    silent = plan.on_timeout if plan.on_timeout and plan.on_timeout.get("type") == "reject" else None
    return plan.model_copy(
        update={
            "allowed_decisions": allowed,
            "warnings": warnings,
            "allow_remember": False,
            "on_timeout": silent,
            "editable_args": None,
            "max_rejections": plan.max_rejections,
        }
    )


def _is_last_to_run(ledger: Ledger, call: Call, approval: Approval) -> bool:
    """An edit that was put up again under its new name did not run under the first approval."""
    later = call.approvals[call.approvals.index(approval.id) + 1 :]
    return not any(ledger[other].approval.type is ApprovalType.TOOL for other in later)


def _never_started(error: ActivityError) -> bool:
    cause = error.cause
    return isinstance(cause, exceptions.TimeoutError) and cause.type == TimeoutType.SCHEDULE_TO_START


def _interruption(error: ActivityError) -> str:
    cause = error.cause
    if isinstance(cause, exceptions.TimeoutError):
        kinds = {
            TimeoutType.HEARTBEAT: "its worker was lost",
            TimeoutType.START_TO_CLOSE: "it ran longer than its time limit",
        }
        why = kinds.get(cause.type, "it timed out") if cause.type is not None else "it timed out"
    elif isinstance(cause, ApplicationError):
        why = f"its worker reported {cause.type or 'a failure'}: {cause.message}"
    else:
        why = str(cause or error)
    return f"The call was interrupted while it ran ({why[:500]}): nobody can know from here whether it took effect."


def _summary(call: Call) -> str:
    if not call.decision:
        return call.name
    by = f" by {call.reviewer}" if call.reviewer else ""
    past = {"approve": "approved", "edit": "edited"}.get(call.decision, call.decision)
    return f"{call.name} ({past}{by})"
