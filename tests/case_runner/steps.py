"""Doing one step of a case."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tests.case_runner import deciding, interventions, raw
from tests.case_runner.outcome import Outcome, refused
from tests.case_runner.programs import run_turngate
from tests.case_runner.resolving import Resolver
from tests.case_runner.script import read_message
from tests.case_runner.templates import expand
from tests.case_runner.world import CaseError, Run, World, bounded
from turngate import Agent
from turngate.agent import Registry
from turngate.testing import ScriptedReviewer

Json = dict[str, Any]
MAIN = "main"
_LONG = 60.0


def run_name(do: Json, named: str | None) -> str:
    """Return the name of the run that a step is about."""
    start = do.get("start")
    if isinstance(start, dict) and "as" in start:
        return str(start["as"])
    if "send" in do:
        return str(do["send"].get("thread", named or MAIN))
    return named or MAIN


async def do_step(world: World, do: Json, named: str | None) -> Outcome:
    """Do what a step says and return what its sender was told."""
    kind = next(kind for kind in _KINDS if kind in do)
    return await _KINDS[kind](world, do, named)


async def _start(world: World, do: Json, named: str | None) -> Outcome:
    run = world.new_run(run_name(do, named))
    given = {"input": do["start"]} if isinstance(do["start"], str) else dict(do["start"])
    given.pop("as", None)
    options = await Resolver(world, run).fill(given)
    agent = options.pop("agent", world.agent_name)
    decisions = options.pop("on_approval", None)
    if "messages" in options:
        options["messages"] = [read_message(message) for message in options["messages"]]
    watched = options.get("stream", False)
    try:
        if decisions is not None:
            reviewer = ScriptedReviewer(*decisions)
            await bounded(world.client.run_turn(agent, turn_id=run.id, on_approval=reviewer, **options), _LONG)
        else:
            await bounded(world.client.start_turn(agent, turn_id=run.id, **options))
    except Exception as error:
        return refused(error)
    finally:
        if watched:
            world.tasks.append(asyncio.create_task(_follow(world, run)))
    return Outcome()


async def _follow(world: World, run: Run) -> None:
    async for event in world.turn(run).events():
        run.events.append(event)


async def _round_trip(world: World, do: Json, named: str | None) -> Outcome:
    return await _start(world, {"start": {"messages": do["round_trip"]}}, named)


async def _decide(world: World, do: Json, named: str | None) -> Outcome:
    run = world.runs.get(named or MAIN) or Run(MAIN, world.prefix + MAIN)
    payload = await Resolver(world, run).fill(do["decide"])
    via, is_named = do.get("via", "update"), named is not None
    outcomes = [await deciding.decide(world, payload, via, run, is_named) for _ in range(do.get("times", 1))]
    return outcomes[0] if len(outcomes) == 1 else _joined(outcomes)


def _joined(outcomes: list[Outcome]) -> Outcome:
    """Several senders as one: each keeps its own word."""
    return Outcome(
        receipts=[receipt for outcome in outcomes for receipt in outcome.receipts],
        refusals=[refusal for outcome in outcomes for refusal in outcome.refusals],
        others=outcomes,
    )


async def _raw(world: World, do: Json, named: str | None) -> Outcome:
    spec = do["raw"]
    name = named or MAIN
    run = world.new_run(name) if spec["channel"] == "start" else world.run(name)
    described = await Resolver(world, run).fill(spec["payloads"])
    payloads = [raw.build_payload(payload) for payload in described]
    try:
        return await raw.send_raw(world.temporal, run.id, world.task_queue, spec["channel"], spec["name"], payloads)
    except TimeoutError as error:
        raise CaseError(f"no answer to the raw {spec['channel']}: {error}") from None
    except Exception as error:
        return refused(error)


async def _send(world: World, do: Json, named: str | None) -> Outcome:
    spec = do["send"]
    run = world.new_run(run_name(do, named), is_thread=True)
    try:
        await bounded(world.thread(run).send(expand(spec["message"]), spec.get("on_busy")))
    except Exception as error:
        return refused(error)
    return Outcome()


async def _stop(world: World, do: Json, named: str | None) -> Outcome:
    run = world.run(named or MAIN)
    handle = world.thread(run) if run.is_thread else world.turn(run)
    try:
        await bounded(handle.stop(do["stop"].get("reason")))
    except Exception as error:
        return refused(error)
    return Outcome()


async def _revoke_rule(world: World, do: Json, named: str | None) -> Outcome:
    run = world.run(named or MAIN)
    handle = world.thread(run) if run.is_thread else world.turn(run)
    try:
        await bounded(handle.revoke_rule(tool=do["revoke_rule"]["tool"]))
    except Exception as error:
        return refused(error)
    return Outcome()


async def _concurrently(world: World, do: Json, named: str | None) -> Outcome:
    for inner in do["concurrently"]:
        if "send" in inner:
            world.new_run(run_name(inner, named), is_thread=True)
    return _joined(list(await asyncio.gather(*(do_step(world, inner, named) for inner in do["concurrently"]))))


async def _construct(world: World, do: Json, named: str | None) -> Outcome:
    spec, builder = do["construct"], world.builder
    try:
        if "agents" in spec:
            agents: list[Agent] = [builder.agent(each["agent"], name=each["name"]) for each in spec["agents"]]
            Registry(agents)
        if "agent" in spec or "duplicate_tool" in spec:
            Registry([builder.agent(spec.get("agent", {}), duplicate=spec.get("duplicate_tool"))])
    except Exception as error:
        return refused(error)
    return Outcome()


async def _list(world: World, do: Json, named: str | None) -> Outcome:
    listed = await bounded(_listed(world, do["list"]))
    return Outcome(listed=listed)


async def _listed(world: World, filters: Json) -> list[Any]:
    return list(await world.client.pending(**filters))


async def _cli(world: World, do: Json, named: str | None) -> Outcome:
    run = world.runs.get(named or MAIN) or Run(MAIN, world.prefix + MAIN)
    arguments = await Resolver(world, run).fill(do["cli"])
    return await run_turngate(world, *arguments)


Doing = Callable[[World, Json, "str | None"], Awaitable[Outcome]]
_KINDS: dict[str, Doing] = {
    "start": _start,
    "decide": _decide,
    "raw": _raw,
    "send": _send,
    "stop": _stop,
    "temporal": interventions.by_temporal,
    "revoke_rule": _revoke_rule,
    "redeploy": interventions.redeploy,
    "worker": interventions.worker,
    "kill_worker_during": interventions.kill_worker_during,
    "advance_time": interventions.advance_time,
    "concurrently": _concurrently,
    "construct": _construct,
    "list": _list,
    "cli": _cli,
    "round_trip": _round_trip,
}
