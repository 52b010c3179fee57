"""What people see: tables and panels through rich, or JSON.

Names, arguments and descriptions come from a model, so they are shown as they are: no markup, no terminal codes, and
nothing that turns text around.
"""

from __future__ import annotations

import json
import shlex
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from turngate.checking import AgentCheck
    from turngate.contracts import Approval, Receipt

_WIDE = 160
_NEEDED = {"respond": " --message '...'", "answer": " --value '...'"}
"""What a decision can't be sent without."""
# Needed inside emoji and in several scripts.
_JOINERS = "\u200c\u200d"


def console(*, stderr: bool = False) -> Console:
    """Return a console. Output that goes to a file or a pipe gets lines long enough for ids."""
    out = Console(stderr=stderr, highlight=False)
    if not out.is_terminal:
        out.width = max(out.width, _WIDE)
    return out


def print_json(value: Any) -> None:
    """Print JSON."""
    print(json.dumps(value, ensure_ascii=False, indent=2))


def say(text: str) -> None:
    """Print a line for people."""
    console().print(Text(safe(text)))


def note(text: str) -> None:
    """Print a remark beside the output."""
    console(stderr=True).print(Text(safe(f"note: {text}"), style="yellow"))


def safe(text: str) -> str:
    """Show control characters and invisible direction marks instead of obeying them."""
    return "".join(char if _plain(char) else f"\\u{ord(char):04x}" for char in text)


def _plain(char: str) -> bool:
    return char in "\n\t" or char in _JOINERS or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp")


def pretty(value: Any) -> str:
    """Return JSON over several lines."""
    return safe(json.dumps(value, ensure_ascii=False, indent=2))


def short(value: Any, limit: int = 120) -> str:
    """Return JSON on one line, cut."""
    text = safe(json.dumps(value, ensure_ascii=False)).replace("\n", " ")
    return text if len(text) <= limit else text[: limit - 1] + "…"


def ago(moment: datetime | None) -> str:
    """Return how long ago, or in how long, roughly."""
    if moment is None:
        return ""
    seconds = (datetime.now(UTC) - moment).total_seconds()
    amount = _amount(abs(seconds))
    return f"{amount} ago" if seconds >= 0 else f"in {amount}"


def _amount(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"


def inbox_table(approvals: Sequence[Approval]) -> Table:
    """Return one row an approval; where only visibility was asked, one row a turn and tool."""
    from turngate.inbox import has_details

    if not any(map(has_details, approvals)):
        return _glance_table(approvals)
    table = _table("Approval", "Tool", "Arguments", "Agent", "For", "Waits since", "Ends")
    for approval in approvals:
        asked = approval.question if approval.type == "question" else approval.args
        table.add_row(
            *_cells(
                # Without details there is nothing that could be approved by its id, and nobody knows the arguments.
                approval.id if has_details(approval) else approval.context.turn_id,
                approval.name,
                short(asked) if has_details(approval) else "not known",
                approval.context.agent,
                people(approval),
                ago(approval.requested_at),
                ago(approval.expires_at),
            )
        )
    return table


def _glance_table(approvals: Sequence[Approval]) -> Table:
    table = _table("Turn", "Tool", "Agent", "For")
    for approval in approvals:
        context = approval.context
        table.add_row(*_cells(context.turn_id, approval.name, context.agent, people(approval)))
    return table


def people(approval: Approval) -> str:
    """Return who may decide, and how many it takes."""
    names = ", ".join(approval.reviewers) or "anybody"
    quorum = approval.quorum
    return names if quorum.required < 2 else f"{names} ({quorum.received} of {quorum.required})"


def approval_panel(approval: Approval) -> Panel:
    """Return everything that a reviewer needs about one call."""
    return Panel(Group(*_parts(approval)), title=Text(safe(approval.id)), title_align="left")


def _parts(approval: Approval) -> Iterable[Any]:
    yield _facts(approval)
    if approval.description:
        yield Text("\n" + safe(approval.description))
    if approval.question is not None:
        yield Text("\nQuestion\n" + pretty(approval.question))
    yield Text("\nArguments\n" + pretty(approval.args))
    if (proposal := approval.proposal) is not None:
        heading = f"{proposal.by or 'somebody'} proposes {proposal.name or approval.name}, digest {proposal.digest}"
        yield Text(safe(f"\n{heading}\n") + pretty(proposal.args))
    for vote in approval.votes:
        comment = f": {vote.comment}" if vote.comment else ""
        yield Text(safe(f"{vote.reviewer or 'somebody'} voted {vote.type} {ago(vote.at)}{comment}"))
    for warning in approval.warnings:
        yield Text(safe(f"warning: {warning}"), style="yellow")
    if approval.status == "pending":
        yield Text("\n" + "\n".join(_command(kind, approval.id) for kind in approval.allowed_decisions))


def _command(kind: str, approval_id: str) -> str:
    """The command line for one kind of decision, ready to paste."""
    return safe(f"turngate {kind} {shlex.quote(approval_id)}{_NEEDED.get(kind, '')}")


def _facts(approval: Approval) -> Table:
    context = approval.context
    ran = approval.executed
    facts = {
        "Tool": approval.name,
        "Status": _status(approval),
        "Ran": f"{ran.name} {short(ran.args)}: {ran.outcome} {ago(ran.at)}" if ran else None,
        "For": people(approval),
        "Tags": ", ".join(approval.tags),
        "Digest": approval.digest,
        "Requested": ago(approval.requested_at),
        "Ends": ago(approval.expires_at),
        "Agent": context.agent,
        "Turn": f"{context.turn_id}, step {context.step}",
        "Thread": context.thread_id,
        "Requested by": context.requested_by,
        "Under calls": " > ".join(context.path[:-1]),
        "Asked for": context.original_input,
        "Repeats": approval.repeat_of,
    }
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in facts.items():
        if value:
            table.add_row(Text(name, style="bold"), Text(safe(str(value))))
    return table


def _status(approval: Approval) -> str:
    settled = approval.resolution
    if settled is None:
        return approval.status
    by = settled.reviewer or settled.by
    return f"{approval.status} by {by} {ago(settled.at)}"


def audit_table(approvals: Sequence[Approval]) -> Table:
    """Return a turn's record: what was asked, who decided what and when, and what ran."""
    table = _table("Approval", "Tool", "Proposed", "Decided", "By", "When", "Ran")
    for approval in approvals:
        settled, ran = approval.resolution, approval.executed
        table.add_row(
            *_cells(
                approval.id,
                approval.name,
                short(approval.args, 80),
                approval.status,
                (settled.reviewer or settled.by) if settled else "",
                settled.at.isoformat(timespec="seconds") if settled and settled.at else "",
                f"{ran.outcome}: {short(ran.args, 60)}" if ran else "",
            )
        )
    return table


def check_report(agents: Sequence[AgentCheck]) -> None:
    """Print what was found about agents."""
    for agent in agents:
        say(f"{agent.name}: {'has problems' if agent.problems else 'all right'}")
        for tool in agent.tools:
            say(f"  {tool.name}: {tool.what}")
        for problem in agent.problems:
            console().print(Text(safe(f"  problem: {problem}"), style="red"))
        for warning in agent.warnings:
            note(warning)


def receipt_text(receipt: Receipt) -> str:
    """Return one sentence on what became of a decision."""
    texts = {
        "applied": "decided",
        "already_resolved": "was decided so before; nothing changed",
        "vote_recorded": "vote recorded; more votes are needed",
        "held": "kept until the call appears",
        "queued": "no worker answered; the server keeps the decision for the next one",
    }
    status = f" ({receipt.status})" if receipt.status else ""
    return f"{receipt.approval_id}: {texts[receipt.outcome]}{status}"


def _table(*names: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for index, name in enumerate(names):
        table.add_column(name, overflow="fold", no_wrap=False, min_width=24 if index == 0 else None)
    return table


def _cells(*values: str | None) -> list[Text]:
    return [Text(safe(value or "")) for value in values]
