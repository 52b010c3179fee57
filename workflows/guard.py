"""The worker interceptor that stands between clients and handlers.

The SDK fails the workflow task, for ever, when a signal handler raises or the number of arguments is wrong
(sdk-python#355). Here the first becomes a recorded refusal and the second an ordinary error.
"""

from __future__ import annotations

import asyncio
from collections import deque
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError, FailureError
from temporalio.worker import (
    ExecuteWorkflowInput,
    HandleSignalInput,
    HandleUpdateInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)

with workflow.unsafe.imports_passed_through():
    from turngate.contracts import WORKFLOW_TYPES
    from turngate.errors import RefusedError, refuse
    from turngate.workflows import measuring
    from turngate.workflows.refusals import as_failure

BATCH = 500
"""Signals that one workflow task handles. The SDK gives a task two seconds, and where thousands of signals take longer
together, it fails it again and again; the rest of a flood waits for the next tasks."""


class SignalGuard(Interceptor):
    """Keeps bad signals, updates and inputs from failing workflow tasks of Turngate's workflows."""

    def workflow_interceptor_class(
        self, input: WorkflowInterceptorClassInput
    ) -> type[WorkflowInboundInterceptor] | None:
        """Return the interceptor of one workflow run."""
        return _Guard


class _Guard(WorkflowInboundInterceptor):
    def __init__(self, next: WorkflowInboundInterceptor) -> None:
        super().__init__(next)
        self._queue = _Queue()

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        if workflow.info().workflow_type in WORKFLOW_TYPES and len(input.args) != 1:
            raise ApplicationError(
                f"start this workflow with one argument, a request object; {len(input.args)} were given",
                type="BadRequest",
                non_retryable=True,
            )
        return await super().execute_workflow(input)

    async def handle_signal(self, input: HandleSignalInput) -> None:
        if workflow.info().workflow_type not in WORKFLOW_TYPES:
            return await super().handle_signal(input)
        await self._queue.turn()
        await _begun()
        try:
            _one_argument(input.signal, input.args)
            await super().handle_signal(input)
        except asyncio.CancelledError:
            raise
        except RefusedError as error:
            _note(input.signal, error)
        except Exception as error:  # a bug of ours must not wedge a paused run either
            workflow.logger.exception("signal handler failed")
            _note(input.signal, _bug(error))

    def handle_update_validator(self, input: HandleUpdateInput) -> None:
        if workflow.info().workflow_type not in WORKFLOW_TYPES:
            return super().handle_update_validator(input)
        try:
            _one_argument(input.update, input.args)
            if _has_begun():
                super().handle_update_validator(input)
        except RefusedError as error:
            raise _answer(error) from None

    async def handle_update_handler(self, input: HandleUpdateInput) -> Any:
        if workflow.info().workflow_type not in WORKFLOW_TYPES:
            return await super().handle_update_handler(input)
        try:
            if not _has_begun():
                await _begun()
                super().handle_update_validator(input)
            return await super().handle_update_handler(input)
        except RefusedError as error:
            raise _answer(error) from None
        except (FailureError, workflow.NondeterminismError):
            raise
        except Exception as error:  # a bug of ours is the sender's to hear, and must not wedge the run
            workflow.logger.exception("update handler failed")
            raise _answer(_bug(error)) from None


class _Queue:
    """Lets at most `BATCH` signals through in one workflow task, in the order in which they came."""

    def __init__(self) -> None:
        self._task = -1
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def turn(self) -> None:
        """Wait until this signal may be handled."""
        now = workflow.info().get_current_history_length()
        if now != self._task:
            self._task, self._taken = now, 0
        if self._taken < BATCH and not self._waiting:
            self._taken += 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        if len(self._waiting) == 1:
            asyncio.create_task(self._serve())  # noqa: RUF006  (the workflow's loop keeps it)
        await place

    async def _serve(self) -> None:
        while self._waiting:
            # A timer ends this task and brings the next one.
            await workflow.sleep(timedelta(milliseconds=1), summary=f"{len(self._waiting)} more signals")
            for _ in range(min(BATCH, len(self._waiting))):
                self._waiting.popleft().set_result(None)


def _has_begun() -> bool:
    return getattr(workflow.instance(), "begun", True)


async def _begun() -> None:
    """Wait until the run has read its input.

    What arrives with a run's first task is handled before `run` starts. After continue-as-new the state would not be
    there yet, and a decision about an approval of the run before would be refused as unknown.
    """
    if not _has_begun():
        await workflow.wait_condition(_has_begun)


def _note(signal: str, error: RefusedError) -> None:
    """Keep the refusal of a signal, whose sender hears nothing, where people see it."""
    measuring.refused(error, "signal")
    if note := getattr(workflow.instance(), "note_refusal", None):
        note(signal, error)


def _answer(error: RefusedError) -> ApplicationError:
    """Return the refusal as an update's sender gets it."""
    measuring.refused(error, "update")
    return as_failure(error)


def _bug(error: Exception) -> RefusedError:
    return refuse("malformed", f"this could not be processed: {type(error).__name__}: {str(error)[:300]}")


def _one_argument(name: str, args: Any) -> None:
    # The dynamic signal handler gets the name and the list of arguments, whatever they are.
    if name in ("decide", "send", "stop", "reassign", "revoke_rule", "close") and len(args) != 1:
        raise refuse("malformed", f"'{name}' takes exactly one argument, a JSON object; {len(args)} were sent")
