"""The application: its commands, and the exit codes that scripts can rely on.

0  done
1  something went wrong: no server, no worker, a failed turn
2  the command line itself makes no sense
3  refused: the run answered that it does not take this
4  there is no such approval or run, or it has ended
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError, Group, Parameter

from turngate.cli.options import UsageError
from turngate.errors import ClosedError, RefusedError, TurngateError, UnknownApprovalError
from turngate.leaving import leave

OK, FAILED, USAGE, REFUSED, GONE = range(5)

_HELP = """Let people decide what LLM agents may do: see what waits, approve, edit, reject.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused, 4 no such approval or run, or it has ended.

The server's address, namespace, TLS and API key come from Temporal's own settings (temporal.toml, TEMPORAL_ADDRESS,
TEMPORAL_NAMESPACE, TEMPORAL_API_KEY, ...); options beat them.
"""

app = App(
    name="turngate",
    help=_HELP,
    help_format="plaintext",
    default_parameter=Parameter(negative=()),
    # Errors leave as exceptions, so that `main` alone says them and chooses the exit code.
    exit_on_error=False,
    print_error=False,
)
_REVIEW, _TURNS, _SETUP = (Group(name, sort_key=key) for key, name in enumerate(("Review", "Turns", "Setup")))

# Named by reference: a command's module is only loaded when it is run or asked for its own help. The sentences are the
# first lines of the docstrings there; a test compares them.
COMMANDS = (
    (_REVIEW, "inbox", "review", "List what waits for people, in all runs."),
    (_REVIEW, "show", "review", "Show one approval in full, or a turn with everything that waits in it."),
    (_REVIEW, "approve", "decide", "Let calls run as they are."),
    (_REVIEW, "edit", "decide", "Let a call run with other arguments."),
    (_REVIEW, "reject", "decide", "Keep calls from running."),
    (_REVIEW, "respond", "decide", "Answer in place of the tool."),
    (_REVIEW, "answer", "decide", "Answer the question that a tool asked."),
    (_REVIEW, "reassign", "decide", "Hand an approval to other reviewers."),
    (_REVIEW, "rules", "review", "List the remembered decisions of a turn or thread, or take one back."),
    (
        _REVIEW,
        "audit",
        "review",
        "Show the record of a turn: every call put up, who decided what and when, and what ran.",
    ),
    (_TURNS, "start", "turns", "Start a turn."),
    (_TURNS, "send", "turns", "Send a message to a conversation."),
    (_TURNS, "watch", "turns", "Follow a turn and its subagents live until it ends, or a thread turn after turn."),
    (_TURNS, "stop", "turns", "Stop a turn, the open turn of a thread, or every open turn of an agent."),
    (
        _SETUP,
        "demo",
        "operate",
        "See an agent's dangerous calls wait, and decide them. Needs no server and no API key.",
    ),
    (
        _SETUP,
        "dev",
        "operate",
        "Run a Temporal server for development, with its web UI, and a worker for agents, until Ctrl-C.",
    ),
    (_SETUP, "worker", "operate", "Run a worker for agents until Ctrl-C or SIGTERM."),
    (
        _SETUP,
        "check",
        "operate",
        "Build agents as a worker would, and say what they do with each tool. Needs no server.",
    ),
    (_SETUP, "codec-server", "operate", "Let the Temporal UI show encrypted payloads, until Ctrl-C."),
    (_SETUP, "setup", "operate", "Register Turngate's search attributes in the namespace, so that the inbox is quick."),
)
for _key, (_group, _name, _module, _help) in enumerate(COMMANDS):
    app.command(
        f"turngate.cli.{_module}:{_name.replace('-', '_')}", name=_name, group=_group, help=_help, sort_key=_key
    )
app.register_install_completion_command(add_to_startup=False)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    if argv is None:
        leave(run(sys.argv[1:]))
    sys.exit(run(argv))


def run(argv: Sequence[str]) -> int:
    """Run the command line and return its exit code. No traceback for anything that can be expected."""
    # What the library tells a log, the commands tell people; those that run a worker set up its log themselves.
    logging.getLogger("turngate").addHandler(logging.NullHandler())
    try:
        code = app(list(argv), result_action="return_value")
    except CycloptsError as error:
        return _say(argv, USAGE, f"{error}\nSee: turngate {_command(argv)}--help")
    except (KeyboardInterrupt, asyncio.CancelledError):
        return FAILED
    except UsageError as error:
        return _say(argv, USAGE, f"{error}\nSee: turngate {_command(argv)}--help")
    except TurngateError as error:
        return _say(argv, code_of(error), str(error), error)
    return code if isinstance(code, int) else OK


def code_of(error: TurngateError) -> int:
    """Return the exit code for an error."""
    if isinstance(error, (UnknownApprovalError, ClosedError)):
        return GONE
    return REFUSED if isinstance(error, RefusedError) else FAILED


def _say(argv: Sequence[str], code: int, text: str, error: TurngateError | None = None) -> int:
    from turngate.cli.output import safe

    if "--json" in argv:
        refusals = [refusal.to_json() for refusal in error.refusals] if isinstance(error, RefusedError) else []
        print(json.dumps({"error": {"message": text, "exit_code": code, "refusals": refusals}}, ensure_ascii=False))
    else:
        print(f"turngate: {safe(text)}", file=sys.stderr)
    return code


def _command(argv: Sequence[str]) -> str:
    return f"{argv[0]} " if argv and not argv[0].startswith("-") else ""
