"""A run in memory that has seen events before their workflow task is given up at the next one."""

from __future__ import annotations

from collections.abc import Callable

from temporalio.bridge.proto.workflow_activation import WorkflowActivation, WorkflowActivationJob
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion

from turngate.ahead import NotAhead

RESOLVED, QUERY, UPDATE = "resolve_activity", "query_workflow", "do_update"


def stage() -> tuple[list[int], Callable[[int, int, str], bool]]:
    """Return the lengths at which the run was let work, and a function that activates it and says whether it did."""
    worked: list[int] = []

    def work(activation: WorkflowActivation) -> WorkflowActivationCompletion:
        worked.append(activation.history_length)
        completion = WorkflowActivationCompletion(run_id=activation.run_id)
        completion.successful.SetInParent()
        return completion

    guarded = NotAhead(work)

    def activate(length: int, time: int, *jobs: str) -> bool:
        activation = WorkflowActivation(run_id="run", history_length=length)
        activation.timestamp.seconds = time
        for name in jobs:
            job = WorkflowActivationJob()
            getattr(job, name).SetInParent()
            activation.jobs.append(job)
        return guarded(activation).HasField("successful")

    return worked, activate


def test_ordinary_tasks_are_done() -> None:
    """Each task has a time of its own; queries, and several rounds of one task, change nothing."""
    worked, activate = stage()
    assert activate(3, 10, "initialize_workflow")
    assert activate(3, 10, QUERY)
    assert activate(9, 11, RESOLVED)
    assert activate(9, 11, RESOLVED)
    assert activate(9, 11, QUERY)
    assert activate(14, 12, UPDATE)
    assert worked == [3, 3, 9, 9, 9, 14]


def test_task_after_an_early_look_is_failed() -> None:
    """New events at the time of the task before: the query is answered, the task that follows is not done."""
    worked, activate = stage()
    activate(14, 12, UPDATE)
    assert activate(23, 12, RESOLVED)
    assert activate(23, 12, QUERY)
    assert not activate(26, 15, UPDATE)
    assert worked == [14, 23, 23]


def test_run_that_is_given_up_can_leave() -> None:
    """The eviction that follows reaches the run, which has to clean up."""
    worked, activate = stage()
    activate(14, 12, UPDATE)
    activate(23, 12, RESOLVED)
    activate(26, 15, UPDATE)
    assert activate(26, 0, "remove_from_cache")
    assert worked[-1] == 26
