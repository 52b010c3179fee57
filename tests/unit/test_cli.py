"""The command line without a server: help, usage, what is shown."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pytest

from turngate.cli import decide, output
from turngate.cli.app import COMMANDS, FAILED, GONE, OK, REFUSED, USAGE, app, code_of, run
from turngate.cli.editing import check, difference, parse
from turngate.cli.options import UsageError
from turngate.contracts import Approval, ApprovalContext, Resolution
from turngate.errors import ConfigError, InvalidEditError, NotAllowedError, ServerError, refuse

NOWHERE = ["--address", "127.0.0.1:1"]


@pytest.mark.parametrize(("module", "name", "sentence"), [entry[2:0:-1] + entry[3:] for entry in COMMANDS])
def test_the_list_of_commands_says_what_each_command_says_itself(module: str, name: str, sentence: str) -> None:
    """The sentences stand twice, so that the list loads no command."""
    command = getattr(import_module(f"turngate.cli.{module}"), name.replace("-", "_"))
    assert (command.__doc__ or "").strip().splitlines()[0] == sentence


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """And says what the exit codes mean."""
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(entry[1] in shown for entry in COMMANDS)
    assert "3 refused" in shown


@pytest.mark.parametrize("name", [entry[1] for entry in COMMANDS])
def test_each_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With all its options explained."""
    assert run([name, "--help"]) == 0
    assert "Usage: turngate " + name in capsys.readouterr().out


@pytest.mark.parametrize(
    "argv",
    [
        ["no-such-command"],
        ["inbox", "--no-such-option"],
        ["respond", "t/a-1"],
        ["approve"],
        ["approve", "t/a-1", "--all"],
    ],
)
def test_wrong_usage_has_a_code_of_its_own_and_says_where_help_is(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """On stderr, without a traceback."""
    assert run(argv) == USAGE
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("turngate: ")


def test_what_people_say_may_begin_with_a_dash_and_look_like_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is taken as it is."""
    sent: list[object] = []

    async def send(ids: tuple[str, ...], decision: dict[str, object], *more: object) -> int:
        sent.append(decision.get("message", decision.get("value")))
        return OK

    monkeypatch.setattr(decide, "_decide", send)
    said = [("reject", "message", "-1 is no amount"), ("respond", "message", "--done--")]
    said += [("answer", "value", value) for value in ("-x", "-5", "NaN", '{"a": [null]}')]
    assert [run([command, "t/a-1", f"--{option}", text]) for command, option, text in said] == [OK] * 6
    assert sent == ["-1 is no amount", "--done--", "-x", -5, "NaN", {"a": [None]}]


def test_no_server_is_said_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    """With what to do next."""
    assert run(["inbox", *NOWHERE]) == FAILED
    assert "start one with `turngate dev`" in capsys.readouterr().err


AGENTS = """
from langchain_core.tools import tool
from turngate.agent import Agent
from turngate.testing import ScriptedModel

@tool
def pay(amount: int) -> str:
    "Pay."
    return "paid"

@tool
def look(at: str) -> str:
    "Look."
    return "seen"

main = Agent("main", model=ScriptedModel([]), tools=[pay, look],
             interrupt_on={"pay": {"allowed_decisions": ["approve", "reject"], "reviewers": ["rev-1"]}})
broken = "no agent"
"""


def test_check_says_what_happens_with_each_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a server."""
    (tmp_path / "some_agents.py").write_text(AGENTS)
    monkeypatch.chdir(tmp_path)
    assert run(["check", "some_agents:main", "--json"]) == 0
    [found] = json.loads(capsys.readouterr().out)
    assert {name: tool["what"] for name, tool in found["tools"].items()} == {
        "pay": "waits for rev-1: approve, reject (interrupt_on['pay'])",
        "look": "runs by itself (default)",
    }
    assert (found["name"], found["problems"], found["warnings"]) == ("main", [], [])
    assert run(["check", "some_agents:main", "--dangerous", "l*", "--dangerous", "nuke"]) == FAILED
    assert "'look' is marked as dangerous" in " ".join(capsys.readouterr().out.split())
    assert run(["check", "some_agents:broken"]) == FAILED
    assert "not an Agent" in capsys.readouterr().err


def test_errors_are_json_where_json_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """For scripts."""
    assert run(["inbox", "--json", *NOWHERE]) == FAILED
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["exit_code"] == FAILED
    assert "127.0.0.1:1" in error["message"]


def test_each_kind_of_error_has_its_exit_code() -> None:
    """Documented in the help."""
    assert code_of(refuse("unknown_approval", "x")) == GONE
    assert code_of(refuse("closed", "x")) == GONE
    assert code_of(refuse("not_allowed", "x")) == REFUSED
    assert code_of(ServerError("x")) == FAILED
    assert code_of(ConfigError("x")) == FAILED


def test_completion_can_be_generated() -> None:
    """For the common shells."""
    assert "turngate" in app.generate_completion(shell="bash")


def test_what_a_model_writes_is_shown_and_not_obeyed() -> None:
    """No terminal codes, no text that turns around, no markup."""
    assert output.safe("a\x1b[31mb\u202ec\x00\ttab\n") == "a\\u001b[31mb\\u202ec\\u0000\ttab\n"
    approval = Approval(id="t/a-1", name="[red]x[/red]", args={"q": "\x1b[2J"}, description="[b]hi[/b]")
    console = output.console()
    with console.capture() as shown:
        console.print(output.approval_panel(approval))
        console.print(output.inbox_table([approval]))
        console.print(output.audit_table([approval]))
    assert "\x1b" not in shown.get()
    assert "[red]x[/red]" in shown.get()
    assert "[b]hi[/b]" in shown.get()


def test_ids_are_never_cut() -> None:
    """They are copied from the table."""
    long_id = "turn-0123456789abcdef-0123456789abcdef/9d21aa-1"
    console = output.console()
    with console.capture() as shown:
        console.print(output.inbox_table([Approval(id=long_id, name="pay", args={"x": "y" * 500})]))
    assert long_id in shown.get()


def test_what_only_visibility_knows_is_not_shown_as_an_approval() -> None:
    """No id that nobody could approve, no arguments that nobody knows."""
    seen = Approval(id="t/?", name="pay", reviewers=["ann"], context=ApprovalContext(agent="shop", turn_id="t"))
    read = Approval(id="u/a-1", name="pay", args={}, context=ApprovalContext(agent="shop", turn_id="u"))
    console = output.console()
    with console.capture() as shown:
        console.print(output.inbox_table([seen]))
        console.print(output.inbox_table([seen, read]))
    glance, _, mixed = shown.get().partition("Approval")
    assert glance.split() == ["Turn", "Tool", "Agent", "For", "t", "pay", "shop", "ann"]
    assert "Arguments" in mixed
    assert [line.split()[:4] for line in mixed.splitlines()[1:]] == [
        ["t", "pay", "not", "known"],
        ["u/a-1", "pay", "{}", "shop"],
    ]


EDITABLE = Approval(
    id="t/a-1",
    name="pay",
    args={"to": "acme", "amount": 5},
    allowed_decisions=["approve", "edit"],
    response_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "oneOf": [],
        "$defs": {
            "edited_args": {
                "type": "object",
                "properties": {"to": {"type": "string"}, "amount": {"type": "integer"}},
                "required": ["to", "amount"],
                "additionalProperties": False,
            }
        },
    },
)


def _edit(**args: object) -> dict[str, object]:
    return {"type": "edit", "edited_action": {"name": "pay", "args": args}}


def test_edited_arguments_are_checked_before_they_are_sent() -> None:
    """Against the schema that the approval carries, naming the field."""
    check(EDITABLE, _edit(to="acme", amount=1))
    with pytest.raises(InvalidEditError, match="amount") as refused:
        check(EDITABLE, _edit(to="acme", amount="much"))
    assert refused.value.refusals[0].path == ("edited_action", "args", "amount")
    with pytest.raises(InvalidEditError, match="why is not an argument"):
        check(EDITABLE, _edit(to="acme", amount=1, why="x"))
    with pytest.raises(NotAllowedError, match="approve are allowed"):
        check(EDITABLE.model_copy(update={"allowed_decisions": ["approve"]}), _edit(to="a", amount=1))


def test_the_difference_shows_what_changes() -> None:
    """Line by line, the model's and the reviewer's."""
    lines = difference(EDITABLE, {"to": "acme", "amount": 1}).plain.splitlines()
    assert '-  "amount": 5' in lines
    assert '+  "amount": 1' in lines
    assert difference(EDITABLE, EDITABLE.args).plain == "The arguments are the same.\n"


@pytest.mark.parametrize("text", ["{", "[]", "5"])
def test_arguments_that_are_no_object_are_refused(text: str) -> None:
    """Where the JSON breaks."""
    with pytest.raises(UsageError, match="arguments are"):
        parse(text)


def test_a_status_says_who_settled_it() -> None:
    """A deadline is not a person."""
    settled = Approval(id="t/a-1", name="pay", status="expired", resolution=Resolution(type="reject", by="deadline"))
    console = output.console()
    with console.capture() as shown:
        console.print(output.approval_panel(settled))
    assert "expired by deadline" in shown.get()
