"""What the demo prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.status import Status
from rich.table import Table
from rich.text import Text

from turngate.cli import editing
from turngate.cli.output import console, safe, short
from turngate.contracts import Approval, Json, Message, text_of

_WIDTH = 100
_INDENT = 10
_RESULT_LINES = 8
_KEYS = {"approve": "[a]pprove", "edit": "[e]dit", "reject": "[r]eject", "respond": "re[s]pond"}
_DONE = {
    "approve": ("approved", "green"),
    "edit": ("edited", "yellow"),
    "reject": ("rejected", "red"),
    "respond": ("answered in its place", "yellow"),
}


class Screen:
    """A quiet transcript: who said what, what ran, what waits."""

    def __init__(self, out: Console | None = None) -> None:
        self._out = out or console()
        self._out.width = min(self._out.width, _WIDTH)
        self._calls: dict[str | None, Json] = {}
        self._put_up: set[str | None] = set()

    # --- Beginning and end ---

    def title(self, facts: dict[str, str]) -> None:
        """Say what this is and where everything stands."""
        self._out.print()
        self._out.print(Text("Turngate demo", style="bold"))
        self._out.print("An agent works on real rows. What it must not do alone waits for a person.")
        self._out.print()
        self._out.print(_facts(facts))
        self._out.print(Rule(style="dim"))

    def busy(self, what: str) -> Status:
        """Show that something goes on, while a `with` block lasts."""
        return self._out.status(Text(what, style="dim"), spinner="dots")

    def end(self, checks: Iterable[tuple[str, bool]], facts: dict[str, str]) -> None:
        """Say how it ended and whether everything is as decided."""
        self._out.print(Rule(style="dim"))
        for text, holds in checks:
            mark, style = ("✓", "green") if holds else ("✗", "bold red")
            self._out.print(_labelled(Text(mark, style=style), Text(safe(text))))
        self._out.print()
        self._out.print(_facts(facts))

    # --- The conversation ---

    def said(self, messages: Sequence[Message]) -> None:
        """Show new messages of the conversation."""
        for message in messages:
            kind = message.get("type")
            if kind == "human":
                self._speaks("You", text_of(message))
            elif kind == "ai":
                self._calls.update({call["id"]: call for call in message.get("tool_calls") or []})
                self._speaks("Agent", text_of(message))
            elif kind == "tool":
                self._result(message)

    def waits(self, approval: Approval, more: dict[str, str]) -> None:
        """Show one call that waits: what, why, with which arguments, by when, and what may be decided."""
        self._put_up.add(approval.tool_call_id)
        end = {"Decide by": f"{_clock(approval.expires_at)}, or it is rejected"} if approval.expires_at else {}
        parts: list[RenderableType] = [
            Text(safe(approval.description)),
            _facts(approval.args, style="cyan"),
            _facts({**end, "Allowed": ", ".join(approval.allowed_decisions), **more}),
            *(Text(safe(f"warning: {warning}"), style="yellow") for warning in approval.warnings),
        ]
        title = Text.assemble((safe(approval.name), "bold"), " waits for a decision")
        body = Group(*(Padding(part, (1, 0, 0, 0)) for part in parts))
        self._out.print()
        self._out.print(Panel(body, title=title, title_align="left", border_style="cyan", padding=(0, 2, 1, 2)))

    def decision(self, approval: Approval, decision: Json) -> None:
        """Show a decision that the demo made by itself."""
        what, style = _DONE[decision["type"]]
        because = f": {decision['message']}" if decision.get("message") else ""
        self._out.print(_labelled(Text("Demo"), Text.assemble((what, style), safe(because))))
        if decision["type"] == "edit":
            self.difference(approval, decision["edited_action"]["args"])

    # --- Talking with the person ---

    def choices(self, allowed: Sequence[str]) -> None:
        """Ask what is to be done."""
        self._ask(f"{'  '.join(_KEYS[kind] for kind in allowed)}  [q]uit")

    def question(self, text: str) -> None:
        """Ask for a line."""
        self._ask(text)

    def problem(self, text: str) -> None:
        """Say what is wrong with what the person gave."""
        self._out.print(Text(safe(text), style="red"))

    def elsewhere(self, approval: Approval) -> None:
        """Say that somebody decided in another place while the person here was asked."""
        settled = approval.resolution
        by = (settled.reviewer or settled.by) if settled else "somebody"
        self._out.print()
        self._out.print(_labelled(Text("Note"), Text(safe(f"{approval.status} elsewhere, by {by}"), style="yellow")))

    def remark(self, text: str) -> None:
        """Say something beside the story."""
        self._out.print(Text(safe(text), style="dim"))

    def difference(self, approval: Approval, args: Json) -> None:
        """Show how a call was changed."""
        changed = {name: value for name, value in args.items() if approval.args.get(name) != value}
        if len(changed) == len(args) == 0:
            self._out.print(editing.difference(approval, args))
        for name, value in changed.items():
            lines = Text.assemble(
                (f"- {name}  {safe(str(approval.args.get(name)))}\n", "red"), (f"+ {name}  {safe(str(value))}", "green")
            )
            self._out.print(Padding(lines, (0, 0, 0, _INDENT)))

    # --- Parts ---

    def _ask(self, text: str) -> None:
        self._out.print(Text(safe(text)), end=" ")
        self._out.print(Text("> ", style="bold cyan"), end="")
        self._out.file.flush()

    def _speaks(self, who: str, text: str) -> None:
        if text:
            self._out.print()
            self._out.print(_labelled(Text(who, style="bold"), Text(safe(text))))

    def _result(self, message: Message) -> None:
        call = self._calls.get(message.get("tool_call_id"), {})
        failed = message.get("status") == "error"
        mark = Text("✗", style="red") if failed else Text("✓", style="green")
        name = safe(str(message.get("name") or call.get("name")))
        # Of a call that waited, the arguments stand above already.
        args = "" if message.get("tool_call_id") in self._put_up else short(call.get("args", {}), 200)
        head = Text.assemble((name, "cyan"), "  ", (args, "dim"))
        self._out.print(_labelled(mark, head))
        self._out.print(_labelled(Text(), Text(_few_lines(safe(text_of(message))), style="dim")))


def _labelled(label: Text, body: Text) -> Table:
    """Return a row with its label in the margin."""
    row = Table.grid(padding=(0, 2, 0, 0))
    row.add_column(width=_INDENT - 2, justify="right")
    row.add_column(overflow="fold")
    row.add_row(label, body)
    return row


def _facts(facts: dict[str, Any], style: str = "bold") -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style=style, no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(Text(safe(name)), Text(safe(str(value))))
    return table


def _few_lines(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return "\n".join(lines if len(lines) <= _RESULT_LINES else [*lines[: _RESULT_LINES - 1], "…"])


def _clock(moment: datetime) -> str:
    return moment.astimezone().strftime("%H:%M")
