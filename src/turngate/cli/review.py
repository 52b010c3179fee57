"""Commands to look: what waits, one approval in full, rules, the record."""

from __future__ import annotations

import json as json_module
from datetime import UTC, datetime, timedelta
from typing import Any

from turngate import durations
from turngate.cli.options import HERE, Json, Server, UsageError

_SCREENFUL = 100


async def inbox(
    *,
    agent: str | None = None,
    tool: str | None = None,
    tag: str | None = None,
    reviewer: str | None = None,
    thread: str | None = None,
    ends_within: str | None = None,
    limit: int | None = None,
    brief: bool = False,
    json: Json = False,
    server: Server = HERE,
) -> None:
    """List what waits for people, in all runs.

    Parameters
    ----------
    agent
        Only of this agent.
    tool
        Only calls of this tool.
    tag
        Only with this tag.
    reviewer
        Only what names this reviewer.
    thread
        Only of this conversation.
    ends_within
        Only what expires within this time: 90s, 10m, 1h, 3d.
    limit
        At most so many, 0 for all; by default 100, and all as JSON.
    brief
        Turns, tools and reviewers only, which takes a moment for thousands: no turn is asked for the arguments.
    """
    from turngate.cli import output

    client = await server.client()
    end = None if ends_within is None else _in(ends_within)
    if limit is None and not (json or brief):
        limit = _SCREENFUL
    listing = await client.pending(
        agent=agent,
        tool=tool,
        tag=tag,
        reviewer=reviewer,
        thread=thread,
        expires_before=end,
        limit=limit or None,
        details=not brief,
    )
    if json:
        output.print_json([approval.to_json() for approval in listing])
    elif listing:
        output.console().print(output.inbox_table(listing))
    else:
        output.say("Nothing waits.")
    # Below the list, where whoever reads a long one is looking.
    for note in listing.notes:
        output.note(note)


async def show(approval: str, /, *, json: Json = False, server: Server = HERE) -> None:
    """Show one approval in full, or a turn with everything that waits in it.

    Parameters
    ----------
    approval
        The id of an approval, of a turn or of a thread.
    """
    from turngate.cli import output
    from turngate.errors import UnknownApprovalError

    client = await server.client()
    try:
        found = [await client.approval(approval)]
        state = None
    except UnknownApprovalError:
        turn = client.turn(approval)
        state, found = await turn.status(), await turn.pending()
    if json:
        entries = [each.to_json() for each in found]
        output.print_json(entries[0] if state is None else {**state, "approvals": entries})
        return
    if state is not None:
        output.say(f"{approval}: {_standing(state)}")
    for each in found:
        output.console().print(output.approval_panel(each))


async def rules(
    turn: str,
    /,
    *,
    revoke: str | None = None,
    reviewer: str | None = None,
    json: Json = False,
    server: Server = HERE,
) -> None:
    """List the remembered decisions of a turn or thread, or take one back.

    Parameters
    ----------
    turn
        The id of a turn or of a thread.
    revoke
        The id of the rule to take back.
    reviewer
        Your name for the record.
    """
    from turngate.cli import output

    handle = (await server.client()).turn(turn)
    if revoke is not None:
        await handle.revoke_rule(revoke, reviewer=reviewer)
    found = await handle.rules()
    if json:
        output.print_json([rule.to_json() for rule in found])
        return
    for rule in found:
        what = "any arguments" if rule.match == "tool" else f"arguments of digest {rule.digest}"
        end = f", ends {output.ago(rule.expires_at)}" if rule.expires_at else ""
        output.say(f"{rule.id}: {rule.type} {rule.tool}, {what}, for the {rule.scope}, by {rule.by or 'somebody'}{end}")
    if not found:
        output.say("No decision is remembered.")


async def audit(turn: str, /, *, json: Json = False, server: Server = HERE) -> None:
    """Show the record of a turn: every call put up, who decided what and when, and what ran.

    With --json one line of JSON for each approval.

    Parameters
    ----------
    turn
        The id of a turn, or of a thread with all its turns.
    """
    from turngate.cli import output

    record = await (await server.client()).turn(turn).record()
    if json:
        for approval in record:
            print(json_module.dumps(approval.to_json(), ensure_ascii=False))
    elif record:
        output.console().print(output.audit_table(record))
    else:
        output.say("Nothing was put up in this turn.")


def _standing(state: dict[str, Any]) -> str:
    """One line on a turn or a thread."""
    if "turns" in state:
        turns = ", ".join(f"{turn['n']} {turn['status']}" for turn in state["turns"]) or "none"
        return f"conversation with {state.get('agent')}; turns: {turns}"
    return f"{state.get('status')}, agent {state.get('agent')}, {state.get('steps', 0)} steps"


def _in(text: str) -> datetime:
    try:
        return datetime.now(UTC) + timedelta(seconds=durations.seconds(text))
    except ValueError as error:
        raise UsageError(f"--ends-within: {error}") from None
