"""Give up a run in memory that is ahead of its history, before it records what no replay can follow.

A query that waits for a killed worker reaches the next one after some seconds, together with whatever has happened in
between: a tool's heartbeat timeout, a signal. That worker has no workflow task for these events yet, but applies them
all the same to answer the query, and keeps the run so. When the task comes, with an update perhaps, the run handles
only the rest of it. A replay handles all of the task at once, updates first: other commands, and the run can't go on
once it has left the memory (TMPRL1100). The SDK for Java met the same (temporalio/sdk-java#643, pull request 1134).

The first sign: new events, while the time of the workflow stands still, for it moves with each workflow task. Where the
killed worker had begun a task, which then timed out, the time moves all the same. So the second sign: a run that is
read from its history reaches events that are not called replayed, their task began a while ago, and right then comes a
query. A task that really was given out began a moment ago. Where that is misjudged, a run too many is given up.

The next task is failed then, and nothing else is lost: the server gives it out again at once, with the whole history.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from temporalio.bridge.proto.workflow_activation import WorkflowActivation, WorkflowActivationJob
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion

logger = logging.getLogger(__name__)

Activate = Callable[[WorkflowActivation], WorkflowActivationCompletion]
_NO_NEWS = {"query_workflow", "remove_from_cache"}
_QUERY_ALONE = "legacy_query"
"""The id of a query that came without a workflow task."""
_RIGHT_THEN = 5.0
"""Seconds between the last events and the query that they were read for: in truth it is milliseconds."""
_A_WHILE = 1.0
"""Seconds since the start of the task. One that timed out began ten seconds ago; one that is to be done, just now."""


class NotAhead:
    """Stands in front of one run's `activate`."""

    def __init__(self, activate: Activate, clock: Callable[[], float] = time.time) -> None:
        self._activate = activate
        self._clock = clock
        self._length = 0
        self._time = (0, 0)
        self._ahead = False
        self._replayed = False
        self._caught_up: float | None = None
        """When events of an old task came right behind replayed ones; None once others have followed."""

    def __call__(self, activation: WorkflowActivation) -> WorkflowActivationCompletion:
        """Let the run work, unless it is ahead and this is another workflow task."""
        if any(_is_news(job) for job in activation.jobs) and activation.history_length != self._length:
            if self._ahead:
                return _failed(activation)
            self._take_in(activation)
        elif self._caught_up is not None and any(_is_query_alone(job) for job in activation.jobs):
            self._ahead = self._ahead or self._clock() - self._caught_up < _RIGHT_THEN
        return self._activate(activation)

    def _take_in(self, activation: WorkflowActivation) -> None:
        began, now = (activation.timestamp.seconds, activation.timestamp.nanos), self._clock()
        self._ahead = began == self._time
        is_old = self._replayed and not activation.is_replaying and now - began[0] - began[1] / 1e9 > _A_WHILE
        self._caught_up = now if is_old else None
        self._length, self._time, self._replayed = activation.history_length, began, activation.is_replaying


def _is_news(job: WorkflowActivationJob) -> bool:
    return job.WhichOneof("variant") not in _NO_NEWS


def _is_query_alone(job: WorkflowActivationJob) -> bool:
    return job.WhichOneof("variant") == "query_workflow" and job.query_workflow.query_id == _QUERY_ALONE


def _failed(activation: WorkflowActivation) -> WorkflowActivationCompletion:
    logger.info("run %s is ahead of its history: it is read anew", activation.run_id)
    completion = WorkflowActivationCompletion(run_id=activation.run_id)
    completion.failed.failure.message = (
        "A query was answered here from events that had no workflow task yet; this task is done again from the history."
    )
    return completion
