"""What happens to a run from below: workers come and go, time passes, Temporal itself intervenes."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest

from tests.case_runner.outcome import Outcome
from tests.case_runner.quiet import look_at
from tests.case_runner.tree import runs_of_chain, turn_ids
from tests.case_runner.world import CaseError, World, bounded
from turngate.testing import pass_time

Json = dict[str, Any]
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_BODY_STARTS_WITHIN = 30.0


async def worker(world: World, do: Json, named: str | None) -> Outcome:
    """Stop, start or restart the workers."""
    if do["worker"] in ("stop", "restart"):
        await world.stop_worker()
    if do["worker"] in ("start", "restart"):
        await world.start_worker()
    return Outcome()


async def redeploy(world: World, do: Json, named: str | None) -> Outcome:
    """Replace all workers by ones that are given something else."""
    changes, given = do["redeploy"], dict(world.given)
    if "agent" in changes:
        # The runs of the case were started with this name; a deploy does not rename their agent.
        given["agent"] = {"name": world.agent_name, **changes["agent"]}
    tools = {**given["tools"], **changes.get("tools", {})}
    given["tools"] = {name: spec for name, spec in tools.items() if name not in changes.get("remove_tools", ())}
    given["model"] = changes.get("model", given.get("model", []))
    world.given = given
    await world.stop_worker()
    await world.start_worker()
    return Outcome()


async def kill_worker_during(world: World, do: Json, named: str | None) -> Outcome:
    """Do the trigger, kill the worker in the middle of the tool's body, and start another one."""
    from tests.case_runner.steps import do_step

    spec = do["kill_worker_during"]
    before = world.journal.count("started", tool=spec["tool"])
    outcome = await do_step(world, spec["trigger"], named)
    await _until(lambda: world.journal.count("started", tool=spec["tool"]) > before, _BODY_STARTS_WITHIN)
    dying, world.worker = world.worker, None
    if dying is None:
        raise CaseError("there is no worker to kill")
    await dying.kill()
    world.journal.write("killed")
    await world.start_worker()
    return outcome


async def _until(holds: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise CaseError(f"the tool's body did not start within {seconds:.0f} s")
        await asyncio.sleep(0.02)


async def advance_time(world: World, do: Json, named: str | None) -> Outcome:
    """Let time pass in every open run. The clock of one that waits for a child stands still, as Temporal has it."""
    text = do["advance_time"]
    duration = timedelta(**{_UNITS[text[-1]]: float(text[:-1])})
    look = await look_at(world)
    await pass_time(world.temporal, [each for each in look.open if each not in look.parents], duration)
    return Outcome()


async def by_temporal(world: World, do: Json, named: str | None) -> Outcome:
    """Cancel, terminate or reset a run without asking the product."""
    run = world.run(named or "main")
    target = (await turn_ids(world, run))[-1]
    handle = world.temporal.get_workflow_handle(target)
    if do["temporal"] == "cancel":
        await bounded(handle.cancel())
    elif do["temporal"] == "terminate":
        await bounded(handle.terminate())
    else:
        await _reset(world, target)
    return Outcome()


async def _reset(world: World, workflow_id: str) -> None:
    """Reset a run to its first task: the model's first answer was not there yet."""
    first_run = (await runs_of_chain(world, workflow_id))[0]
    handle = world.temporal.get_workflow_handle(workflow_id, run_id=first_run)
    async for event in handle.fetch_history_events():
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
            break
    else:
        raise CaseError("the run has no finished task to go back to")
    await world.temporal.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=world.temporal.namespace,
            workflow_execution=WorkflowExecution(workflow_id=workflow_id, run_id=first_run),
            reason="a case wants it",
            workflow_task_finish_event_id=event.event_id,
            request_id=uuid.uuid4().hex,
        )
    )
