"""Editing the arguments of a call by hand: the editor, the check, the difference, the question."""

from __future__ import annotations

import difflib
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from turngate import schemas
from turngate.cli.options import UsageError
from turngate.cli.output import pretty, safe
from turngate.errors import Refusal, RefusedError

if TYPE_CHECKING:
    from turngate.contracts import Approval

_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def parse(text: str) -> dict[str, Any]:
    """Read arguments. Raises UsageError that says where the JSON breaks."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise UsageError(f"the arguments are not JSON: {error}") from None
    if not isinstance(value, dict):
        raise UsageError(f"the arguments are a JSON object, not {type(value).__name__}")
    return value


def in_editor(approval: Approval, name: str | None = None) -> dict[str, Any]:
    """Open the person's editor on the arguments until what is saved is right. Raises UsageError when they give up."""
    program = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not program:
        raise UsageError("no editor is set: set $EDITOR, or give all arguments with --args '{...}'")
    text = json.dumps(approval.args, ensure_ascii=False, indent=2) + "\n"
    while True:
        text = _edited(program, text)
        try:
            args = parse(text)
            check(approval, {"type": "edit", "edited_action": {"name": name or approval.name, "args": args}})
        except (UsageError, RefusedError) as problem:
            print(f"turngate: {safe(str(problem))}", file=sys.stderr)
            if not confirmed("Edit again?"):
                raise
        else:
            return args


def check(approval: Approval, decision: dict[str, Any]) -> None:
    """Check a decision against the schema that the approval was raised with. Raises InvalidEditError.

    The run checks once more: this is so that people hear of a mistake while they are at it.
    """
    if "edit" not in approval.allowed_decisions:
        allowed = ", ".join(approval.allowed_decisions)
        raise _refusal("not_allowed", f"{approval.id} can't be edited: {allowed} are allowed", (), approval)
    name, args = decision["edited_action"]["name"], decision["edited_action"]["args"]
    defs = approval.response_schema.get("$defs", {})
    if name != approval.name or "edited_args" not in defs:
        return
    schema = {"$schema": approval.response_schema["$schema"], "$defs": defs, "$ref": "#/$defs/edited_args"}
    problems = schemas.check(schema, args)
    if problems:
        text = "; ".join(message for _, message in problems)
        path = ("edited_action", "args", *problems[0][0])
        raise _refusal("invalid_edit", f"the arguments do not fit: {text}", path, approval)


def difference(approval: Approval, args: dict[str, Any]) -> Text:
    """Return what changes, line by line."""
    lines = difflib.unified_diff(
        pretty(approval.args).splitlines(), pretty(args).splitlines(), "proposed by the model", "edited", lineterm=""
    )
    text = Text()
    for line in lines:
        text.append(line + "\n", style=_STYLES.get(line[:1], ""))
    return text if text else Text("The arguments are the same.\n")


def interactive() -> bool:
    """Whether there is somebody to ask."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def confirmed(question: str) -> bool:
    """Ask in a terminal; where nobody can be asked, go on."""
    if not interactive():
        return True
    from rich.prompt import Confirm

    return Confirm.ask(question)


def _edited(program: str, text: str) -> str:
    with tempfile.TemporaryDirectory(prefix="turngate-") as folder:
        path = Path(folder) / "arguments.json"
        path.write_text(text, encoding="utf-8")
        code = subprocess.call([*shlex.split(program), str(path)])
        if code != 0:
            raise UsageError(f"the editor {program!r} ended with code {code}: nothing was sent")
        return path.read_text(encoding="utf-8")


def _refusal(code: str, message: str, path: tuple[str | int, ...], approval: Approval) -> RefusedError:
    return RefusedError.of([Refusal(code, message, path, approval.id)])
