"""`turngate watch`: the events of a turn or a thread as lines, with a spinner for what runs."""

from __future__ import annotations

import json as json_module
from typing import TYPE_CHECKING

from rich.text import Text

from turngate.cli.output import console, safe, short

if TYPE_CHECKING:
    from turngate.events import Event
    from turngate.handles import TurnHandle


async def follow(turn: TurnHandle, json: bool) -> int:
    """Print events until the turn, or the thread, ends. Returns 1 where the turn, or the last one, failed."""
    out = console()
    failed = False
    begun = turn.id
    if json:
        async for event in turn.events():
            print(json_module.dumps(event.to_json(), ensure_ascii=False), flush=True)
            failed = _failed(event, failed)
        return int(failed)
    with out.status("", spinner="dots") as status:
        async for event in turn.events():
            if not event.path and event.turn_id != begun:
                begun = event.turn_id
                out.print(Text(safe(begun)))
            line = _line(event)
            if line:
                out.print(Text(safe(_whose(event) + line)))
            status.update(Text(safe(_running(event, turn.id))))
            failed = _failed(event, failed)
    return int(failed)


def _failed(event: Event, before: bool) -> bool:
    """Whether the turn ended badly; a subagent that did is a result like others."""
    if event.type != "turn_ended" or event.path:
        return before
    return event.data.get("status") in ("failed", "cancelled", "terminated", "timed_out")


def _whose(event: Event) -> str:
    """Name the subagent: `researcher: ` or, below another one, `researcher/clerk: `."""
    return f"{event.agent.partition('/')[2]}: " if event.path else ""


def _running(event: Event, turn_id: str) -> str:
    if event.type == "tool_started":
        return f"{event.data.get('name')} runs"
    if event.type == "step_started":
        return "the model thinks"
    if event.type == "approval_requested":
        return f"waiting for people: {event.data.get('id')}"
    return turn_id


def _line(event: Event) -> str | None:
    data = event.data
    match event.type:
        case "step_started":
            return f"step {data.get('step')}"
        case "tool_started":
            return f"  {data.get('name')} {short(data.get('args', {}))}"
        case "tool_ended":
            return f"  {data.get('name')}: {data.get('outcome')}"
        case "approval_requested":
            return f"  waits: {data.get('name')} {short(data.get('args', {}))}  {data.get('id')}"
        case "approval_resolved":
            return f"  {data.get('status')}: {data.get('name')}  {data.get('id')}"
        case "message" if data.get("text"):
            return f"{data.get('role')}: {data.get('text')}"
        case "turn_ended":
            return f"{data.get('status')}"
    return None
