"""Commands to decide: one approval, or a filtered list of them."""

from __future__ import annotations

import json as json_module
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from turngate.cli.options import HERE, NOBODY, Json, Sender, Server, UsageError, Words, Yes

if TYPE_CHECKING:
    from turngate.client import TurngateClient
    from turngate.inbox import Settled

_MANY = Group("Many at once", sort_key=10)


@Parameter(name="*")
@dataclass(frozen=True)
class Many:
    """Which approvals to decide at once, instead of naming them."""

    all: Annotated[bool, Parameter(group=_MANY)] = False
    """Decide everything that the filters find, after a look and a confirmation."""
    agent: Annotated[str | None, Parameter(group=_MANY)] = None
    """With --all: only of this agent."""
    tool: Annotated[str | None, Parameter(group=_MANY)] = None
    """With --all: only calls of this tool."""
    tag: Annotated[str | None, Parameter(group=_MANY)] = None
    """With --all: only with this tag."""
    thread: Annotated[str | None, Parameter(group=_MANY)] = None
    """With --all: only of this conversation."""
    named: Annotated[str | None, Parameter(group=_MANY)] = None
    """With --all: only what names this reviewer."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by the names of `pending`."""
        return {
            "agent": self.agent,
            "tool": self.tool,
            "tag": self.tag,
            "thread": self.thread,
            "reviewer": self.named,
        }


NONE = Many()


async def approve(
    *approvals: str,
    many: Many = NONE,
    sender: Sender = NOBODY,
    yes: Yes = False,
    json: Json = False,
    server: Server = HERE,
) -> int:
    """Let calls run as they are.

    Parameters
    ----------
    approvals
        The ids of the approvals.
    """
    return await _decide(approvals, {"type": "approve"}, many, sender, yes, json, server)


async def reject(
    *approvals: str,
    message: Words | None = None,
    many: Many = NONE,
    sender: Sender = NOBODY,
    yes: Yes = False,
    json: Json = False,
    server: Server = HERE,
) -> int:
    """Keep calls from running.

    Parameters
    ----------
    approvals
        The ids of the approvals.
    message
        The reason, which the model reads.
    """
    decision = {"type": "reject", **({"message": message} if message is not None else {})}
    return await _decide(approvals, decision, many, sender, yes, json, server)


async def respond(
    approval: str, /, *, message: Words, sender: Sender = NOBODY, json: Json = False, server: Server = HERE
) -> int:
    """Answer in place of the tool.

    Parameters
    ----------
    approval
        The id of the approval.
    message
        What the model reads as the tool's result.
    """
    return await _decide((approval,), {"type": "respond", "message": message}, NONE, sender, True, json, server)


async def answer(
    approval: str, /, *, value: Words, sender: Sender = NOBODY, json: Json = False, server: Server = HERE
) -> int:
    """Answer the question that a tool asked.

    Parameters
    ----------
    approval
        The id of the approval.
    value
        The answer as JSON; what is no JSON is taken as text.
    """
    from turngate.decisions import no_constant

    try:
        given: Any = json_module.loads(value, parse_constant=no_constant)
    except ValueError:
        given = value
    return await _decide((approval,), {"type": "answer", "value": given}, NONE, sender, True, json, server)


async def edit(
    approval: str,
    /,
    *,
    args: str | None = None,
    name: str | None = None,
    sender: Sender = NOBODY,
    yes: Yes = False,
    json: Json = False,
    server: Server = HERE,
) -> int:
    """Let a call run with other arguments.

    Without --args your editor ($VISUAL, $EDITOR) opens on the arguments. They are checked, the difference is shown,
    and in a terminal you are asked before anything is sent.

    Parameters
    ----------
    approval
        The id of the approval.
    args
        All arguments as JSON; they replace the model's completely.
    name
        Another tool, where the agent allows that.
    """
    from turngate.cli import editing, output

    client = await server.client()
    waiting = await client.approval(approval)
    changed = editing.parse(args) if args is not None else editing.in_editor(waiting, name)
    decision = {"type": "edit", "edited_action": {"name": name or waiting.name, "args": changed}}
    editing.check(waiting, decision)
    if not json:
        output.console().print(editing.difference(waiting, changed))
    if not yes and not json and not editing.confirmed("Send this?"):
        output.say("Nothing was sent.")
        return 0
    return await _send(client, (approval,), {**decision, **sender.fields()}, json)


async def reassign(
    approval: str,
    /,
    *,
    to: list[str],
    reviewer: Annotated[str | None, Parameter(env_var="TURNGATE_REVIEWER")] = None,
    json: Json = False,
    server: Server = HERE,
) -> None:
    """Hand an approval to other reviewers.

    Parameters
    ----------
    approval
        The id of the approval.
    to
        The new reviewers; may stand several times.
    reviewer
        Your name: one of the present reviewers, of those it escalates to, or an admin.
    """
    from turngate.cli import output

    client = await server.client()
    changed = await client.reassign(approval, to, reviewer=reviewer)
    if json:
        output.print_json(changed)
    else:
        output.say(f"{approval}: now with {', '.join(to)}")


async def _decide(
    ids: tuple[str, ...], decision: dict[str, Any], many: Many, sender: Sender, yes: bool, json: bool, server: Server
) -> int:
    if many.all == bool(ids):
        raise UsageError("name the approvals, or use --all with filters (`turngate inbox` lists what waits)")
    client = await server.client()
    full = {**decision, **sender.fields()}
    if many.all:
        return await _decide_all(client, full, many, yes, json)
    return await _send(client, ids, full, json)


async def _send(client: TurngateClient, ids: tuple[str, ...], decision: dict[str, Any], json: bool) -> int:
    """Decide the approvals that were named: all or none of a run."""
    from turngate.cli import output

    receipts = await client.decide({"decisions": [{"approval_id": each, **decision} for each in ids]})
    if json:
        output.print_json([receipt.to_json() for receipt in receipts])
    for receipt in () if json else receipts:
        output.say(output.receipt_text(receipt))
    return 0


async def _decide_all(client: TurngateClient, decision: dict[str, Any], many: Many, yes: bool, json: bool) -> int:
    """Decide a filtered list, each on its own."""
    from turngate.cli import editing, output
    from turngate.inbox import has_details

    listing = [each for each in await client.pending(**many.filters()) if has_details(each)]
    if not json:
        output.console().print(output.inbox_table(listing))
    if listing and not yes:
        if not editing.interactive():
            raise UsageError(f"{len(listing)} approvals would be decided: say --yes to send without being asked")
        if not editing.confirmed(f"{decision['type']} these {len(listing)}?"):
            output.say("Nothing was sent.")
            return 0
    reports = await client.decide_many(listing, decision)
    if json:
        output.print_json([_report(report) for report in reports])
    for report in () if json else reports:
        output.say(output.receipt_text(report.receipt) if report.receipt else f"{report.approval_id}: {report.error}")
    return 3 if any(report.error for report in reports) else 0


def _report(report: Settled) -> dict[str, Any]:
    receipt = report.receipt.to_json() if report.receipt else None
    return {"approval_id": report.approval_id, "receipt": receipt, "error": str(report.error) if report.error else None}
