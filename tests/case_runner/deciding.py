"""Sending decisions, by every way that a case may name."""

from __future__ import annotations

import json
import re
import uuid
from typing import Any

from temporalio.common import RawValue
from temporalio.service import RPCError

from tests.case_runner.outcome import Outcome, refused
from tests.case_runner.programs import run_program
from tests.case_runner.raw import build_payload
from tests.case_runner.tree import turn_ids
from tests.case_runner.world import Run, World, bounded
from turngate.devserver import find_binary
from turngate.errors import Refusal

Json = dict[str, Any]


async def decide(world: World, payload: Any, via: str, run: Run, named: bool) -> Outcome:
    """Send one payload. It goes to the run that was named, else to the run that its approval id names."""
    target = await _target(world, payload, run, named)
    try:
        if via == "client":
            by_id = not named and _approval_ids(payload)
            sender = world.client if by_id else world.turn(target)
            return Outcome.of(await bounded(sender.decide(payload)))
        if via == "update":
            return await _update(world, target, payload)
        if via == "signal":
            handle = world.temporal.get_workflow_handle(target)
            await bounded(handle.signal("decide", RawValue(build_payload({"json": payload}))))
            return Outcome()
        return await _by_program(world, target, payload, via)
    except Exception as error:
        return refused(error)


async def _update(world: World, target: str, payload: Any) -> Outcome:
    handle = world.temporal.get_workflow_handle(target)
    argument = RawValue(build_payload({"json": payload}))
    return Outcome.of(await bounded(handle.execute_update("decide", argument, id=uuid.uuid4().hex)))


async def _by_program(world: World, target: str, payload: Any, via: str) -> Outcome:
    """Use the `temporal` command line, as anybody may."""
    command = ["workflow", "signal"] if via == "temporal-cli-signal" else ["workflow", "update", "execute"]
    arguments = ["--address", world.server.address, "--workflow-id", target, "--name", "decide"]
    code, output = await run_program(find_binary(), *command, *arguments, "--input", json.dumps(payload), "-o", "json")
    if code != 0:
        kind = re.search(r"\(type: (\w+)", output)
        return Outcome(refusals=[Refusal(kind[1] if kind else "refused", output)], exit_code=code, output=output)
    if via == "temporal-cli-signal":
        return Outcome(output=output)
    answer = json.loads(output[output.index("{") :])
    return Outcome.of(answer.get("result", {}))


async def _target(world: World, payload: Any, run: Run, named: bool) -> str:
    ids = [each for each in _approval_ids(payload) if "/" in each]
    if not named:
        return ids[0].rsplit("/", 1)[0] if ids else await _open_turn(world, run)
    if run.is_thread:
        below = [each for each in ids if each.startswith(f"{run.id}/")]
        return below[0].rsplit("/", 1)[0] if below else await _open_turn(world, run)
    return run.id


async def _open_turn(world: World, run: Run) -> str:
    try:
        return (await turn_ids(world, run))[-1]
    except (RPCError, IndexError):
        return run.id


def _approval_ids(payload: Any) -> list[str]:
    """Return the approval ids that a payload names, in whatever form."""
    if isinstance(payload, str):
        try:
            return _approval_ids(json.loads(payload))
        except ValueError:
            return []
    if not isinstance(payload, dict):
        return []
    entries = payload.get("decisions")
    entries = [payload, *(entries if isinstance(entries, list) else ())]
    ids = [entry["approval_id"] for entry in entries if isinstance(entry, dict) and "approval_id" in entry]
    keys = [key for key, value in payload.items() if isinstance(value, dict) and "/" in key]
    return [each for each in [*ids, *keys] if isinstance(each, str)]
