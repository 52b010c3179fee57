"""Keep updates away from a workflow that are too large to be answered.

An update's answer repeats its request. So the refusal of an update of 2 to 4 MB is itself over the server's limit: the
task fails for ever, or the server terminates the run. No validator can help, for it is the refusing that hurts. What
is not answered at all, though, the server rejects by itself, and tells the sender that it was not processed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from copy import copy
from functools import cache, partial

from temporalio.bridge.proto.workflow_activation import WorkflowActivation, WorkflowActivationJob
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner

from turngate.ahead import NotAhead
from turngate.contracts import KIB, WORKFLOW_TYPES

logger = logging.getLogger(__name__)

UPDATE_LIMIT = 1024 * KIB
"""Bytes of an update that the workflow gets to see, and refuses in its own words."""
TASK_LIMIT = 2048 * KIB
"""Bytes of all updates of one workflow task: they are answered in one message, which may have 4 MB."""

Activate = Callable[[WorkflowActivation], WorkflowActivationCompletion]


def careful(runner: WorkflowRunner) -> WorkflowRunner:
    """Return a copy of `runner` that keeps such updates from Turngate's workflows; it is still of the same class."""
    wrapped = copy(runner)
    # A runner may be a frozen dataclass, sandboxed or not, or somebody's own.
    object.__setattr__(wrapped, "__class__", _careful(type(runner)))
    return wrapped


@cache
def _careful(base: type[WorkflowRunner]) -> type[WorkflowRunner]:
    if hasattr(base, "leaves_large_updates_unanswered"):
        return base

    class Careful(base):  # type: ignore[misc, valid-type]
        leaves_large_updates_unanswered = True

        def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
            instance: WorkflowInstance = super().create_instance(det)
            if det.info.workflow_type in WORKFLOW_TYPES:
                inner = partial(_without_large_updates, instance.activate)
                instance.activate = NotAhead(inner)  # type: ignore[method-assign, assignment]
            return instance

    Careful.__name__ = Careful.__qualname__ = f"Careful{base.__name__}"
    return Careful


def _without_large_updates(activate: Activate, activation: WorkflowActivation) -> WorkflowActivationCompletion:
    # What history holds was let through when it was new.
    if not activation.is_replaying:
        kept = _kept(list(activation.jobs))
        if len(kept) < len(activation.jobs):
            del activation.jobs[:]
            activation.jobs.extend(kept)
    return activate(activation)


def _kept(jobs: list[WorkflowActivationJob]) -> list[WorkflowActivationJob]:
    kept: list[WorkflowActivationJob] = []
    room = TASK_LIMIT
    for job in jobs:
        if job.HasField("do_update"):
            size = job.do_update.ByteSize()
            if size > min(UPDATE_LIMIT, room):
                logger.warning(
                    "left an update %r of %d bytes unanswered: it is too large", job.do_update.name[:100], size
                )
                continue
            room -= size
        kept.append(job)
    return kept
