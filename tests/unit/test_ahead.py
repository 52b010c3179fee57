"""A run in memory that has seen events before their workflow task is given up at the next one."""

from __future__ import annotations

from collections.abc import Callable

from temporalio.bridge.proto.workflow_activation import WorkflowActivation, WorkflowActivationJob
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion

from turngate.ahead import NotAhead

RESOLVED, QUERY, UPDATE = "resolve_activity", "query_workflow", "do_update"


class Stage:
    """Seconds on the clock of the stage."""

    now = 100.0


def stage() -> tuple[list[int], Callable[..., bool]]:
    """Return the lengths at which the run was let work, and a function that activates it and says whether it did."""
    worked: list[int] = []
    Stage.now = 100.0

    def work(activation: WorkflowActivation) -> WorkflowActivationCompletion:
        worked.append(activation.history_length)
        completion = WorkflowActivationCompletion(run_id=activation.run_id)
        completion.successful.SetInParent()
        return completion

    guarded = NotAhead(work, lambda: Stage.now)

    def activate(length: int, time: int, *jobs: str, replayed: bool = False) -> bool:
        activation = WorkflowActivation(run_id="run", history_length=length, is_replaying=replayed)
        activation.timestamp.seconds = time
        for name in jobs:
            job = WorkflowActivationJob()
            getattr(job, name).SetInParent()
            if name == QUERY:
                job.query_workflow.query_id = "legacy_query"
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


def test_task_after_a_look_into_a_task_that_timed_out_is_failed() -> None:
    """The time moves with a task that a killed worker had begun; as the soak recorded it, followed by an update."""
    worked, activate = stage()
    activate(9, 70, "initialize_workflow", replayed=True)
    activate(16, 75, UPDATE, replayed=True)
    assert activate(32, 86, RESOLVED)
    assert activate(32, 86, QUERY, replayed=True)
    assert not activate(36, 100, UPDATE)
    assert worked == [9, 16, 32, 32]


def test_query_after_taking_over_changes_nothing() -> None:
    """A worker takes a run over with a task of just now, or does an old one late; who looks then costs nothing."""
    for began, later in ((100, 0), (90, 6)):
        _, activate = stage()
        activate(9, 70, "initialize_workflow", replayed=True)
        assert activate(16, began, UPDATE)
        Stage.now += later
        assert activate(16, began, QUERY, replayed=True)
        assert activate(23, 110, UPDATE)


def test_query_to_a_run_that_was_only_replayed_changes_nothing() -> None:
    """Nothing is ahead where all that was read had its workflow task."""
    _, activate = stage()
    activate(9, 70, "initialize_workflow", replayed=True)
    activate(16, 75, UPDATE, replayed=True)
    assert activate(16, 75, QUERY, replayed=True)
    assert activate(23, 100, UPDATE)


def test_query_after_two_tasks_changes_nothing() -> None:
    """The second task is none that a query could have brought."""
    _, activate = stage()
    activate(9, 70, "initialize_workflow", replayed=True)
    activate(16, 75, UPDATE)
    activate(20, 76, RESOLVED)
    assert activate(20, 76, QUERY, replayed=True)
    assert activate(23, 100, UPDATE)
