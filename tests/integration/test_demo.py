"""The demo, run as people run it: as a program, by itself and at a terminal."""

from __future__ import annotations

import csv
import os
import pty
import re
import select
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from langchain_core.messages import ToolMessage

from tests.integration.openai_server import OpenAIServer, Says
from turngate import TurngateClient
from turngate.cli.app import run as main
from turngate.contracts import Approval, ApprovalStatus, Resolution
from turngate.demo import orders, script
from turngate.demo.deciding import Person, Quit
from turngate.demo.screen import Screen
from turngate.demo.script import next_message
from turngate.demo.terminal import Terminal
from turngate.demo.tools import Desk, describe_file, describe_statement, is_select
from turngate.demo.verdict import checks

DEMO = [sys.executable, "-m", "turngate.demo"]
PATIENCE = 120.0


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A desk as the demo finds it."""
    desk = Desk(tmp_path / "desk")
    desk.set_up()
    return desk


@pytest.fixture(scope="session")
def old_and_new(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[orders.Row], list[orders.Row]]:
    """The orders before 2025 and those after, from a database of its own."""
    path = tmp_path_factory.mktemp("orders") / "orders.db"
    orders.create(path)
    every = orders.rows(path)
    return [row for row in every if str(row[1]) < "2025"], [row for row in every if str(row[1]) >= "2025"]


# --- By itself -------------------------------------------------------------------------------------------------------


@pytest.mark.server
def test_by_itself_the_file_and_the_rows_are_as_decided(
    tmp_path: Path, old_and_new: tuple[list[orders.Row], list[orders.Row]]
) -> None:
    """One edit (no e-mail addresses), one rejection (2025 stays), one approval: and exit code 0."""
    old, new = old_and_new
    done = subprocess.run([*DEMO, "--yes", "--folder", str(tmp_path)], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    with (tmp_path / "archive" / "orders-before-2025.csv").open(newline="") as file:
        header, *archived = csv.reader(file)
    assert header == ["id", "ordered_on", "customer", "item", "cents"]
    assert archived == [[str(row[index]) for index in (0, 1, 2, 4, 5)] for row in old]
    assert orders.rows(tmp_path / "orders.db") == new
    for said in ("a script that plays one", "1 approved, 1 edited, 1 rejected", "/workflows/archive"):
        assert said in done.stdout
    assert done.stderr == ""


def test_without_a_terminal_somebody_must_say_yes() -> None:
    """Where nobody can be asked, the demo says what to add, before it starts anything."""
    done = subprocess.run(DEMO, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=PATIENCE)
    assert done.returncode == 1
    assert "add --yes" in done.stderr


@pytest.mark.server
def test_a_real_model_is_asked_over_the_wire(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With `--model` the provider decides what is proposed; the demo's own answers fit any proposal."""
    write = ("w", "write_file", {"path": "old.csv", "query": script.ARCHIVE_QUERY})
    delete, look = ("d", "execute_sql", {"query": script.DELETE}), ("s", "execute_sql", {"query": script.COUNT_QUERY})
    again = ("d2", "execute_sql", {"query": script.DELETE})
    answers = [Says(None, calls) for calls in ((write,), (delete,), (look,), (again,))]
    with OpenAIServer([*answers, Says("All done.")]) as openai:
        monkeypatch.setenv("OPENAI_API_KEY", "key")
        monkeypatch.setenv("OPENAI_BASE_URL", openai.base_url)
        code = main(["demo", "--yes", "--model", "openai:gpt-5", "--folder", str(tmp_path)])
    said = capsys.readouterr()
    assert code == 0, said
    assert openai.problems == []
    assert "openai:gpt-5" in said.out
    assert "Count with a SELECT" in openai.sent(2)[-1]["content"]
    assert "All done." in said.out


@pytest.mark.server
def test_a_model_that_can_not_be_built_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The turn fails with the provider's own words, and the demo with it."""
    for key in [key for key in os.environ if key.startswith("OPENAI_")]:
        monkeypatch.delenv(key)
    assert main(["demo", "--yes", "--model", "openai:gpt-without-key", "--folder", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "openai:gpt-without-key" in said
    assert "Traceback" not in said


# --- At a terminal ---------------------------------------------------------------------------------------------------


class Session:
    """The demo at a terminal of its own, and a person who reads and types."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self._environment = {**os.environ, "TERM": "dumb", "EDITOR": "", "VISUAL": "", **environment}
        self._command = [*DEMO, "--folder", str(folder)]
        self.screen = ""
        self._from = 0

    def __enter__(self) -> Self:
        self._keyboard, terminal = pty.openpty()
        self.process = subprocess.Popen(
            self._command,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env=self._environment,
            start_new_session=True,
        )
        os.close(terminal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(PATIENCE)
        os.close(self._keyboard)

    def reads(self, text: str) -> str:
        """Wait until the screen shows a text, after what was read before; return what stands there up to it."""
        deadline = time.monotonic() + PATIENCE
        while (found := self.screen.find(text, self._from)) < 0:
            assert time.monotonic() < deadline, f"no {text!r} on the screen:\n{self.screen}"
            assert self._more(), f"the demo ended without {text!r}:\n{self.screen}"
        passage = self.screen[self._from : found]
        self._from = found + len(text)
        return passage

    def types(self, line: str) -> None:
        os.write(self._keyboard, f"{line}\n".encode())

    def ends(self) -> int:
        while self._more():
            pass
        return self.process.wait(PATIENCE)

    def _more(self) -> bool:
        ready, _, _ = select.select([self._keyboard], [], [], 0.2)
        if not ready:
            return self.process.poll() is None
        try:
            data = os.read(self._keyboard, 65536)
        except OSError:  # how Linux says that nobody has the terminal open any more
            return False
        self.screen += data.decode("utf-8", "replace").replace("\r\n", "\n")
        return bool(data)


CHOICE = "[q]uit >"


@pytest.mark.server
def test_a_person_edits_rejects_and_approves(
    tmp_path: Path, old_and_new: tuple[list[orders.Row], list[orders.Row]]
) -> None:
    """What is typed at the terminal is what happens to the file and the rows."""
    with Session(tmp_path) as session:
        assert "write_file waits for a decision" in session.reads(CHOICE)
        session.types("what?")
        session.reads(CHOICE)
        session.types("e")
        session.reads("path (Enter: leave it) >")
        session.types("ids.csv")
        session.reads("query (Enter: leave it) >")
        session.types("SELECT id FROM orders WHERE id < 3")
        session.reads("Run it like this?")
        session.types("")
        assert "it removes 420 orders" in session.reads(CHOICE)
        session.types("r")
        session.reads("Why not?")
        session.types("2025 stays")
        passage = session.reads(CHOICE)
        assert "2025 stays" in passage
        assert "it removes 336 orders" in passage
        session.types("a")
        session.reads("Enter ends the demo")
        session.types("")
        assert session.ends() == 0
    assert (tmp_path / "archive" / "ids.csv").read_text() == "id\n1\n2\n"
    assert orders.rows(tmp_path / "orders.db") == old_and_new[1]


@pytest.mark.server
async def test_somebody_else_may_decide_meanwhile_and_ctrl_c_ends_it(
    tmp_path: Path, old_and_new: tuple[list[orders.Row], list[orders.Row]]
) -> None:
    """A decision from another process counts while the person still thinks; Ctrl-C ends all without one more Enter."""
    with Session(tmp_path) as session:
        panel = session.reads(CHOICE)
        approval, address = re.findall(r"turngate approve (\S+) --address (\S+)", panel)[0]
        elsewhere = await TurngateClient.connect(address=address)
        await elsewhere.respond(approval, "it is archived already", reviewer="lena")
        session.reads("responded elsewhere, by lena")
        session.reads(CHOICE)
        session.process.send_signal(signal.SIGINT)
        assert session.ends() != 0
    assert "Traceback" not in session.screen
    assert not listens(int(address.rpartition(":")[2]))
    assert list((tmp_path / "archive").iterdir()) == []
    assert orders.rows(tmp_path / "orders.db") == old_and_new[0] + old_and_new[1]


async def test_a_person_may_leave() -> None:
    """The key q, and the end of the input, end the demo; what is no answer is asked again."""
    approval = Approval(name="execute_sql", args={}, allowed_decisions=["approve", "reject"])
    for typed in (["q"], ["what?", "quit"], []):
        with pytest.raises(Quit):
            await Person(Typed(typed), Screen()).decide(approval)


class Typed(Terminal):
    """A terminal whose input is known before."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._lines = iter(lines)

    async def line(self) -> str:
        for line in self._lines:
            return line
        raise EOFError


def listens(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


# --- Its parts -------------------------------------------------------------------------------------------------------


def an_approval(
    name: str, args: dict[str, str], status: ApprovalStatus, edited: dict[str, str] | None = None
) -> Approval:
    resolution = Resolution(edited_action={"name": name, "args": edited}) if edited else None
    return Approval(name=name, args=args, status=status, resolution=resolution)


DELETED = an_approval("execute_sql", {"query": script.DELETE}, ApprovalStatus.APPROVED)
KEPT = an_approval("execute_sql", {"query": script.TOO_MUCH}, ApprovalStatus.REJECTED)


def verdicts(desk: Desk, *approvals: Approval) -> Iterator[bool]:
    return (holds for _, holds in checks(desk, approvals, automatic=False))


def test_the_verdict_sees_rows_that_nobody_let_go(desk: Desk) -> None:
    """A statement that was approved must have run, one that was not must not."""
    assert list(verdicts(desk)) == [True, True]
    assert list(verdicts(desk, KEPT)) == [True, True]
    assert list(verdicts(desk, DELETED)) == [True, False]
    desk.execute(script.DELETE)
    assert list(verdicts(desk, KEPT, DELETED)) == [True, True]
    assert list(verdicts(desk, KEPT)) == [True, False]


def test_the_verdict_sees_another_file(desk: Desk) -> None:
    """An edit counts with its own arguments; a file too many shows."""
    model, person = ({"path": "a.csv", "query": f"SELECT {what} FROM orders"} for what in ("*", "id"))
    edited = an_approval("write_file", model, ApprovalStatus.EDITED, person)
    desk.write(**model)
    assert list(verdicts(desk, edited)) == [False, True]
    desk.write(**person)
    assert list(verdicts(desk, edited)) == [True, True]
    desk.write("b.csv", "SELECT 1")
    assert list(verdicts(desk, edited)) == [False, True]


def test_by_itself_all_three_decisions_must_occur(desk: Desk) -> None:
    """`--yes` promises one approval, one edit and one rejection."""
    *_, (text, holds) = checks(desk, [KEPT], automatic=True)
    assert not holds
    assert "0 approved, 0 edited, 1 rejected" in text


@pytest.mark.parametrize(("query", "free"), [("select 1", True), ("\n SELECT 1", True), ("DELETE FROM orders", False)])
def test_only_a_select_is_free(query: str, free: bool) -> None:
    """The first word says whether a statement only reads."""
    assert is_select(query) is free


@pytest.mark.parametrize("query", ["SELECT 1; DELETE FROM orders", "SELECT load_extension('x')"])
def test_a_select_can_not_change_anything(desk: Desk, query: str) -> None:
    """What passes the gate as a SELECT has a connection that only reads."""
    with pytest.raises(sqlite3.Error):
        desk.execute(query)
    assert list(verdicts(desk)) == [True, True]


@pytest.mark.parametrize("path", ["../x.csv", "/tmp/x.csv", "orders.db", "a/b.csv"])
def test_files_stay_in_the_archive(desk: Desk, path: str) -> None:
    """A path that leads elsewhere is an error for the model."""
    with pytest.raises(ValueError, match="no name for a file"):
        desk.write(path, "SELECT 1")


def test_a_description_changes_nothing(desk: Desk) -> None:
    """What a reviewer is told comes from a copy, also for statements that would write files."""
    told = describe_statement(desk, {"args": {"query": script.TOO_MUCH}})
    assert told == "Tried on a copy: it removes 420 orders: 84 of 2021, 84 of 2022, 84 of 2023, 84 of 2024, 84 of 2025."
    target = desk.folder / "stolen.db"
    assert "would fail" in describe_statement(desk, {"args": {"query": f"VACUUM INTO '{target}'"}})
    assert not target.exists()
    assert "336 rows" in describe_file(desk, {"args": {"query": script.ARCHIVE_QUERY}})
    assert "would fail" in describe_file(desk, {"args": {"query": "SELECT nothing"}})
    assert list(verdicts(desk)) == [True, True]


def test_the_stand_in_goes_by_the_results() -> None:
    """An error where the archive was to be written ends it; a rejected deletion makes it propose a smaller one."""

    def after(**statuses: str) -> str:
        results = {
            call_id.replace("_", "-"): ToolMessage("", tool_call_id=call_id, status=status)
            for call_id, status in {"look": "success", "count": "success", **statuses}.items()
        }
        message = next_message(results)
        return message.tool_calls[0]["id"] or "" if message.tool_calls else str(message.content)

    assert next_message({}).tool_calls[0]["id"] == "look"
    assert after() == "archive"
    assert "deleted nothing" in after(archive="error")
    assert after(archive="success") == "delete-too-much"
    assert after(archive="success", delete_too_much="error") == "delete"
    assert "No order was deleted" in after(archive="success", delete_too_much="error", delete="error")
