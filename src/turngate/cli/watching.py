"""`turngate watch`: a turn's events as lines, with a spinner for what runs."""

from __future__ import annotations

import json as json_module
from typing import TYPE_CHECKING

from rich.text import Text

from turngate.cli.output import console, safe, short

if TYPE_CHECKING:
    from turngate.events import Event
    from turngate.handles import TurnHandle


async def follow(turn: TurnHandle, json: bool) -> int:
    """Print events until the turn ends. Returns 1 where it failed."""
    out = console()
    failed = False
    if json:
        async for event in turn.events():
            print(json_module.dumps(event.to_json(), ensure_ascii=False), flush=True)
            failed = _failed(event)
        return int(failed)
    with out.status("", spinner="dots") as status:
        async for event in turn.events():
            line = _line(event)
            if line:
                out.print(Text(safe(line)))
            status.update(Text(safe(_running(event, turn.id))))
            failed = _failed(event)
    return int(failed)


def _failed(event: Event) -> bool:
    return event.type == "turn_ended" and event.data.get("status") in ("failed", "cancelled", "terminated", "timed_out")


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
