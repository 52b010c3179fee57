"""Give up a run in memory that is ahead of its history, before it records what no replay can follow.

A query that waits for a killed worker reaches the next one after some seconds, together with whatever has happened in
between: a tool's heartbeat timeout, a signal. That worker has no workflow task for these events yet, but applies them
all the same to answer the query, and keeps the run so. When the task comes, with an update perhaps, the run handles
only the rest of it. A replay handles all of the task at once, updates first: other commands, and the run can't go on
once it has left the memory (TMPRL1100). The SDK for Java met the same (temporalio/sdk-java#643, pull request 1134).

The sign: new events, while the time of the workflow stands still, for it moves with each workflow task. The next task
is failed then, and nothing else is lost: the server gives it out again at once, with the whole history.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from temporalio.bridge.proto.workflow_activation import WorkflowActivation, WorkflowActivationJob
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion

logger = logging.getLogger(__name__)

Activate = Callable[[WorkflowActivation], WorkflowActivationCompletion]
_NO_NEWS = {"query_workflow", "remove_from_cache"}


class NotAhead:
    """Stands in front of one run's `activate`."""

    def __init__(self, activate: Activate) -> None:
        self._activate = activate
        self._length = 0
        self._time = (0, 0)
        self._ahead = False

    def __call__(self, activation: WorkflowActivation) -> WorkflowActivationCompletion:
        """Let the run work, unless it is ahead and this is another workflow task."""
        if any(_is_news(job) for job in activation.jobs) and activation.history_length != self._length:
            if self._ahead:
                return _failed(activation)
            time = (activation.timestamp.seconds, activation.timestamp.nanos)
            self._ahead = time == self._time
            self._length, self._time = activation.history_length, time
        return self._activate(activation)


def _is_news(job: WorkflowActivationJob) -> bool:
    return job.WhichOneof("variant") not in _NO_NEWS


def _failed(activation: WorkflowActivation) -> WorkflowActivationCompletion:
    logger.info("run %s is ahead of its history: it is read anew", activation.run_id)
    completion = WorkflowActivationCompletion(run_id=activation.run_id)
    completion.failed.failure.message = (
        "A query was answered here from events that had no workflow task yet; this task is done again from the history."
    )
    return completion
