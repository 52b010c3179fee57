"""Who decides: a person at the terminal, or the demo by itself (`--yes`)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from turngate.cli import editing
from turngate.contracts import Approval, Json
from turngate.demo import orders
from turngate.demo.screen import Screen
from turngate.demo.terminal import Terminal
from turngate.demo.tools import Desk
from turngate.errors import ConfigError, RefusedError

WITHOUT_EMAIL = "SELECT id, ordered_on, customer, item, cents FROM orders WHERE ordered_on < '2025-01-01' ORDER BY id"
TOO_MUCH = "This would delete orders of 2025 as well. Only those before 2025."
LOOK_FIRST = "Count with a SELECT what this deletes, then propose it once more: the user asks for it."


class Quit(Exception):
    """The person ends the demo."""


class Reviewer(Protocol):
    """Decides about one call."""

    name: str

    async def decide(self, approval: Approval) -> Json:
        """Return a decision such as `{"type": "approve"}`."""


class Automatic:
    """The reviewer of `--yes`: edits the first file, rejects the first change of rows, approves what follows."""

    name = "demo"

    def __init__(self, desk: Desk, screen: Screen) -> None:
        self._desk = desk
        self._screen = screen
        self._seen: set[str] = set()

    async def decide(self, approval: Approval) -> Json:
        """Decide, and say so."""
        first = approval.name not in self._seen
        self._seen.add(approval.name)
        decision = self._first(approval) if first else {"type": "approve"}
        self._screen.decision(approval, decision)
        return decision

    def _first(self, approval: Approval) -> Json:
        if approval.name == "write_file":
            args = {**approval.args, "query": WITHOUT_EMAIL}
            return {"type": "edit", "edited_action": {"name": approval.name, "args": args}}
        removed = orders.rehearse(self._desk.database, approval.args["query"])
        return {"type": "reject", "message": TOO_MUCH if "2025" in removed else LOOK_FIRST}


class Person:
    """The person at the terminal."""

    name = "you"

    def __init__(self, terminal: Terminal, screen: Screen) -> None:
        self._terminal = terminal
        self._screen = screen
        self._ways: dict[str, Callable[[Approval], Awaitable[Json | None]]] = {
            "approve": self._approve,
            "edit": self._edit,
            "reject": self._reject,
            "respond": self._respond,
        }

    async def decide(self, approval: Approval) -> Json:
        """Ask until there is a decision. Raises Quit."""
        while True:
            self._screen.choices(approval.allowed_decisions)
            kind = chosen(await self._line(), approval.allowed_decisions)
            if kind is None:
                continue
            decision = await self._ways[kind](approval)
            if decision is not None:
                return decision

    async def _approve(self, approval: Approval) -> Json | None:
        return {"type": "approve"}

    async def _reject(self, approval: Approval) -> Json | None:
        self._screen.question("Why not? The model reads it (Enter: no reason)")
        return {"type": "reject", "message": await self._line() or None}

    async def _respond(self, approval: Approval) -> Json | None:
        self._screen.question("What shall the model read as the tool's result? (Enter: go back)")
        message = await self._line()
        return {"type": "respond", "message": message} if message else None

    async def _edit(self, approval: Approval) -> Json | None:
        decision: Json = {"type": "edit", "edited_action": {"name": approval.name, "args": {}}}
        try:
            args = await self._new_args(approval)
            decision["edited_action"]["args"] = args
            editing.check(approval, decision)
        except (ConfigError, RefusedError) as problem:
            self._screen.problem(str(problem))
            return None
        self._screen.difference(approval, args)
        self._screen.question("Run it like this? (Enter: yes, n: go back)")
        return None if (await self._line()).lower().startswith("n") else decision

    async def _new_args(self, approval: Approval) -> Json:
        if os.environ.get("VISUAL") or os.environ.get("EDITOR"):
            return await asyncio.to_thread(editing.in_editor, approval)
        args: Json = {}
        for name, value in approval.args.items():
            self._screen.question(f"{name} (Enter: leave it)")
            args[name] = await self._line() or value
        return args

    async def _line(self) -> str:
        try:
            line = await self._terminal.line()
        except EOFError:
            raise Quit from None
        if line in ("q", "quit"):
            raise Quit
        return line


KEYS = {"a": "approve", "e": "edit", "r": "reject", "s": "respond"}


def chosen(line: str, allowed: list[str]) -> str | None:
    """Return the decision that a person's answer stands for, a key or the word."""
    kind: Any = KEYS.get(line.lower(), line.lower())
    return kind if kind in allowed else None
