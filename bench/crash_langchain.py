"""LangChain's side: `create_agent` with its HumanInTheLoopMiddleware and the checkpointer for SQLite.

Written after LangChain's and LangGraph's documentation: a thread id, `durability="sync"`, `Command(resume=...)` for an
answer, by interrupt id in `per_call` mode; after a crash a new process goes on with the same thread id and no input.
Each `invoke` has a process of its own.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command

from bench.crash_moments import (
    PROCESS,
    REPORT,
    STARTING,
    TAKEN,
    Build,
    Json,
    Moment,
    Outcome,
    ScriptOnDisk,
    check_traps,
    counted,
    effects_in,
    lay_traps,
    prepare,
    tools_of,
)
from tests.crash.effects import Effects

MODES = ("batched", "per_call")
_CONFIG: Any = {"configurable": {"thread_id": "1"}}
_PATIENCE = 60.0
_LIMIT = 6
"""Processes after which a turn counts as stuck."""
_FORKS = multiprocessing.get_context("forkserver")
# A child imports the main module anew, so what that imports is there before the fork too.
_FORKS.set_forkserver_preload(["bench.crash_langchain", "bench.crash_page", "tests.crash.nursery"])


@dataclass(frozen=True)
class Seen:
    """What one process left behind: interrupts that wait, the end, an error, or nothing, for it died."""

    waiting: list[Json] = field(default_factory=list)
    ended: bool = False
    error: str = ""
    died: bool = False


@dataclass(frozen=True)
class Task:
    """What a process is to do: `action` is start, go on, or answer."""

    folder: str
    mode: Any
    build: Build
    action: str
    answer: Any = None


async def play(moment: Moment, folder: Path, mode: str) -> Outcome:
    """Go through one moment."""
    return await asyncio.to_thread(_Play(moment, folder, mode).run)


class _Play:
    """One try."""

    def __init__(self, moment: Moment, folder: Path, mode: str) -> None:
        self.moment, self.folder = moment, folder
        self.effects = prepare(moment, folder)
        self.task = Task(str(folder), mode, moment.before, "go on")
        self.answered: set[str] = set()
        self.outcome = Outcome()

    def run(self) -> Outcome:
        first = _Process(replace(self.task, action="start"))
        seen = first.seen()
        if not self.moment.stays_alive:
            first.kill()
        lay_traps(self.moment, self.effects)
        self.task = replace(self.task, build=self.moment.after)
        self._go_through(seen)
        first.kill()
        check_traps(self.moment, self.effects)
        self.outcome.effects = counted(self.effects)
        return self.outcome

    def _go_through(self, seen: Seen) -> None:
        if self.moment.answered == "by two":
            seen = self._both_answer(seen)
        again = self._answer_to(seen) if self.moment.answered == "again" else None
        for _ in range(_LIMIT):
            if seen.error:
                self.outcome.errors.append(seen.error)
                # As after a crash; only where that changes nothing, the person is asked for another answer.
                seen = self._do("go on")
            if seen.ended:
                self.outcome.ended = True
                return
            if again is not None and "a" in self.answered and seen.waiting:
                seen, again = self._do("answer", again), None
            elif seen.waiting:
                seen = self._do("answer", self._answer(seen))
            else:
                seen = self._do("go on")

    def _do(self, action: str, answer: Any = None) -> Seen:
        process = _Process(replace(self.task, action=action, answer=answer))
        seen = process.seen()
        process.kill()
        return seen

    # --- What people do ----------------------------------------------------------------------------------------------

    def _answer(self, seen: Seen) -> Any:
        refs = [call["args"]["ref"] for interrupt in seen.waiting for call in _calls(interrupt)]
        self.outcome.asked_again += sum(ref in self.answered for ref in refs)
        self.answered.update(refs)
        return self._answer_to(seen)

    def _answer_to(self, seen: Seen) -> Any:
        decisions = {
            interrupt["id"]: [{"type": self.moment.answers[call["args"]["ref"]]} for call in _calls(interrupt)]
            for interrupt in seen.waiting
        }
        if self.task.mode == "batched":
            (one,) = decisions.values()
            return {"decisions": one}
        return {interrupt_id: one for interrupt_id, (one,) in decisions.items()}

    def _both_answer(self, seen: Seen) -> Seen:
        task = replace(self.task, action="answer", answer=self._answer(seen))
        both = [_Process(task, held=True) for _ in range(2)]
        for process in both:
            process.let_go()
        left = [process.seen() for process in both]
        for process in both:
            process.kill()
        self.outcome.errors += [one.error for one in left if one.error]
        return next((one for one in left if one.ended), left[0])


def _calls(interrupt: Json) -> list[Json]:
    value = interrupt["value"]
    calls: list[Json] = value.get("action_requests", [value])
    return calls


class _Process:
    """A process, from the outside."""

    def __init__(self, task: Task, *, held: bool = False) -> None:
        self._here, there = _FORKS.Pipe()
        self._process = _FORKS.Process(target=_work, args=(task, there))
        self._process.start()
        there.close()
        if not self._here.poll(_PATIENCE):
            raise RuntimeError("the process did not get ready")
        self._here.recv()
        if not held:
            self.let_go()

    def let_go(self) -> None:
        """Let it begin."""
        self._here.send("go")

    def seen(self) -> Seen:
        """Wait for what it has to tell, or for its death."""
        try:
            if not self._here.poll(_PATIENCE):
                return Seen(error=f"no result within {_PATIENCE:.0f} s")
            found: Seen = self._here.recv()
        except (EOFError, ConnectionResetError):
            return Seen(died=True)
        return found

    def kill(self) -> None:
        """Kill it without warning, and wait until it is gone."""
        if self._process.is_alive():
            self._process.kill()
        self._process.join()


# --- In a process of its own -----------------------------------------------------------------------------------------


def _work(task: Task, parent: Connection) -> None:
    with SqliteSaver.from_conn_string(str(Path(task.folder) / "checkpoints.db")) as saver:
        effects = effects_in(Path(task.folder))
        agent = create_agent(
            ScriptOnDisk(folder=task.folder),
            tools_of(effects, task.build.tools),
            middleware=[
                HumanInTheLoopMiddleware(dict.fromkeys(task.build.gates, True), interrupt_mode=task.mode),
                _TrappedTools(effects),
            ],
            checkpointer=_TrappedSaver(saver.conn, effects),
        )
        parent.send("ready")
        parent.recv()
        parent.send(_invoke(agent, task))
        signal.pause()  # idle, as a service is: whoever started it kills it


def _invoke(agent: Any, task: Task) -> Seen:
    given: Any = {
        "start": {"messages": [{"role": "user", "content": "go"}]},
        "go on": None,
        "answer": Command(resume=task.answer),
    }[task.action]
    try:
        result = agent.invoke(given, _CONFIG, version="v2", durability="sync")
    except Exception as error:  # whatever it is, it is a result of the comparison
        waiting = agent.get_state(_CONFIG).interrupts
        return Seen(_plain(waiting), error=f"{type(error).__name__}: {str(error).splitlines()[0][:150]}")
    waiting = _plain(result.interrupts)
    return Seen(waiting, ended=not waiting)


def _plain(interrupts: Sequence[Any]) -> list[Json]:
    return [{"id": one.id, "value": dict(one.value)} for one in interrupts]


class _TrappedSaver(SqliteSaver):
    """The checkpointer as it is, with a place to die: the process has the answer, and opens the thread."""

    def __init__(self, conn: Any, effects: Effects) -> None:
        super().__init__(conn)
        self._effects = effects

    def get_tuple(self, config: Any) -> Any:
        """Read a checkpoint."""
        self._effects.pass_by(PROCESS, TAKEN)
        return super().get_tuple(config)


class _TrappedTools(AgentMiddleware):
    """Places to die right before and right after a tool, inside of everything else that stands around it."""

    def __init__(self, effects: Effects) -> None:
        super().__init__()
        self._effects = effects

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        """Run the tool."""
        self._effects.pass_by(PROCESS, STARTING)
        result = handler(request)
        self._effects.pass_by(PROCESS, REPORT)
        return result
