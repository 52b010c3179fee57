"""Commands around turns: start one, talk in a thread, watch, stop."""

from __future__ import annotations

import json as json_module
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from turngate.cli.options import HERE, Json, Server, UsageError, Words

if TYPE_CHECKING:
    from turngate.handles import TurnHandle


async def start(
    agent: str,
    text: str,
    /,
    *,
    turn_id: str | None = None,
    thread: str | None = None,
    context: str | None = None,
    requested_by: str | None = None,
    review_also: list[str] | None = None,
    stream: bool = False,
    wait: bool = False,
    json: Json = False,
    server: Server = HERE,
) -> int:
    """Start a turn.

    Parameters
    ----------
    agent
        The agent's name.
    text
        What the user says.
    turn_id
        The turn's id; used once. By default a new one.
    thread
        A conversation to file it under.
    context
        A JSON object for policy and tools.
    requested_by
        Who asks for the work.
    review_also
        A tool (or pattern) to review in this turn as well; may stand several times.
    stream
        Let readers follow the model's words while they come.
    wait
        Wait until the turn is done or waits for people.
    """
    client = await server.client()
    turn = await client.start_turn(
        agent,
        text,
        turn_id=turn_id,
        thread_id=thread,
        context=_object(context),
        requested_by=requested_by,
        review_also=review_also or (),
        stream=stream,
    )
    return await _report(server, turn, wait, json, {"turn_id": turn.id})


async def send(
    thread: str,
    message: str,
    /,
    *,
    agent: str | None = None,
    on_busy: Literal["queue", "refuse", "stop"] | None = None,
    requested_by: str | None = None,
    wait: bool = False,
    json: Json = False,
    server: Server = HERE,
) -> int:
    """Send a message to a conversation.

    Parameters
    ----------
    thread
        The conversation's id.
    message
        What the user says.
    agent
        The agent's name, for the first message.
    on_busy
        While a turn is open: queue the message, refuse it, or stop the open turn.
    requested_by
        Who asks for the work.
    wait
        Wait until the turn is done or waits for people.
    """
    client = await server.client()
    conversation = client.thread(thread, agent)
    sent = await conversation.send(message, on_busy, requested_by=requested_by)
    facts = {"turn": sent.turn, "turn_id": sent.turn_id, "queued": sent.queued}
    turn = await conversation.started(sent) if wait else client.turn(sent.turn_id)
    return await _report(server, turn, wait, json, facts)


async def stop(
    turn: str | None = None,
    /,
    *,
    agent: str | None = None,
    reason: Words | None = None,
    reviewer: Annotated[str | None, Parameter(env_var="TURNGATE_REVIEWER")] = None,
    json: Json = False,
    server: Server = HERE,
) -> int:
    """Stop a turn, the open turn of a thread, or every open turn of an agent.

    Parameters
    ----------
    turn
        The id of a turn or of a thread.
    agent
        Stop every open turn of this agent.
    reason
        Why, for the record.
    reviewer
        Your name for the record.
    """
    from turngate.cli import output

    if (turn is None) == (agent is None):
        raise UsageError("name a turn, or an agent with --agent")
    client = await server.client()
    if agent is not None:
        stopped = await client.stop_agent(agent, reason)
    else:
        assert turn is not None
        stopped = [(turn, str((await client.turn(turn).stop(reason, reviewer=reviewer)).get("status", "stopping")))]
    if json:
        output.print_json([{"turn_id": turn_id, "status": status} for turn_id, status in stopped])
    for turn_id, status in () if json else stopped:
        output.say(f"{turn_id}: {status}")
    return 0 if all(status == "stopping" for _, status in stopped) else 1


async def watch(turn: str, /, *, json: Json = False, server: Server = HERE) -> int:
    """Follow a turn and its subagents live until it ends, or a thread turn after turn.

    With --json one line of JSON for each event.

    Parameters
    ----------
    turn
        The id of a turn or of a thread.
    """
    from turngate.cli.watching import follow

    return await follow((await server.client()).turn(turn), json)


async def _report(server: Server, turn: TurnHandle, wait: bool, json: bool, facts: dict[str, Any]) -> int:
    from turngate.cli import output
    from turngate.handles import Paused

    if not wait:
        output.print_json(facts) if json else output.say(str(facts["turn_id"]))
        return 0
    client = await server.client()
    with output.console(stderr=True).status(f"{output.safe(turn.id)} runs"):
        end = await client.wait(turn)
    if isinstance(end, Paused):
        waiting = [approval.to_json() for approval in end.approvals]
        if json:
            output.print_json({**facts, "status": "waiting", "approvals": waiting})
        else:
            output.say(f"{turn.id} waits for people:")
            output.console().print(output.inbox_table(end.approvals))
        return 0
    output.print_json({**facts, **end.to_json()}) if json else output.say(end.output)
    return 0


def _object(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        value = json_module.loads(text)
    except ValueError as error:
        raise UsageError(f"--context is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise UsageError("--context is a JSON object")
    return value
