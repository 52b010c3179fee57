"""The inbox: everything that waits for people, over all runs, with no store of our own.

Visibility knows which runs wait and roughly for what; each of them is then asked, by a query that costs server, worker
and client some 12 ms of processor time together. Visibility alone answers for a thousand runs at once. It lags a moment
behind, so a run that has just come to wait, or has just gone on, shows up or vanishes a little later.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from temporalio.client import Client, WorkflowExecution

from turngate import attributes, rpc, starting
from turngate.contracts import TURN, Approval, ApprovalContext, Json, Receipt
from turngate.errors import NoWorkerError, RefusedError, ServerError, TurngateError
from turngate.handles import TurnHandle
from turngate.payloads import by_run
from turngate.recalling import Recall
from turngate.sending import send_all

T = TypeVar("T")
R = TypeVar("R")

_log = logging.getLogger(__name__)

AT_ONCE = 20
"""Runs asked at the same time."""
_PATIENCE = 5.0
"""Seconds to wait for one run's answer."""
_HOPELESS = 3
"""Unanswered questions on a task queue that has answered none, after which its other runs are not asked."""

MORE_WAITS = "more"
"""Stands in the search attribute for what had no room in it."""
_UNREAD = "/?"
_OPEN = f"WorkflowType = '{TURN}' AND ExecutionStatus = 'Running'"

NO_ATTRIBUTES = (
    "the namespace lacks Turngate's search attributes, so every running turn was asked, which is slow:"
    " `turngate setup` registers them"
)
NO_WORKER = "details need a worker: none answers on task queue {queue!r}"
MORE = "the first {limit} are listed; up to {runs} more turns wait"


@dataclass(frozen=True)
class Filter:
    """What to list; None is everything. `reviewer` lists what names this reviewer, not what is open to everybody."""

    agent: str | None = None
    tool: str | None = None
    tag: str | None = None
    reviewer: str | None = None
    thread: str | None = None
    expires_before: datetime | None = None

    def query(self) -> str:
        """Return the visibility query that narrows the runs down."""
        waits = [f"{attributes.STATUS.name} = 'waiting'", *filter(None, self._conditions())]
        # A run without the attribute began before they were registered: it has to be asked.
        return f"{_OPEN} AND (({' AND '.join(waits)}) OR {attributes.STATUS.name} IS NULL)"

    def accepts(self, approval: Approval) -> bool:
        """Check one approval exactly: a run that waits for several things is found by any of them."""
        wanted = (
            (self.agent, [approval.context.agent]),
            (self.tool, [approval.name]),
            (self.tag, approval.tags),
            (self.reviewer, approval.reviewers),
            (self.thread, [approval.context.thread_id]),
        )
        ends = approval.expires_at
        in_time = self.expires_before is None or (ends is not None and ends < self.expires_before)
        return in_time and all(value is None or value in found for value, found in wanted)

    def _conditions(self) -> Iterable[str | None]:
        if self.agent is not None:
            yield rpc.equals(attributes.AGENT.name, starting.agent_value(self.agent))
        if self.thread is not None:
            yield rpc.equals(attributes.THREAD.name, starting.thread_value(self.thread))
        for kind in ("tool", "tag", "reviewer"):
            if (name := getattr(self, kind)) is not None:
                waits = rpc.equals(attributes.WAITING.name, starting.waiting_value(kind, name))
                yield waits and f"({waits} OR {attributes.WAITING.name} = '{MORE_WAITS}')"


def has_details(approval: Approval) -> bool:
    """Whether it was read from its run, so that it can be decided; else only visibility knows of it."""
    return not approval.id.endswith(_UNREAD)


class Listing(list[Approval]):
    """A list of approvals; `notes` says what a reader should know about its making."""

    def __init__(self, approvals: Iterable[Approval] = (), notes: Iterable[str] = ()) -> None:
        super().__init__(approvals)
        self.notes = list(notes)


@dataclass
class Inbox:
    """What waits: `await` it for the whole list, or iterate over it with `async for` to see the first ones early.

    Ordered by the start of the run, then as the run raised them. Runs that end meanwhile are left out. Where no worker
    answers, what visibility knows is listed, with a warning in place of the details.
    """

    client: Client
    wanted: Filter
    indexed: Callable[[], Awaitable[bool]]
    limit: int | None = None
    details: bool = True
    recall: Recall = field(default_factory=Recall)
    notes: list[str] = field(default_factory=list)
    _answered: set[str] = field(default_factory=set)
    _unanswered: Counter[str] = field(default_factory=Counter)

    def __await__(self) -> Generator[Any, None, Listing]:
        return self._list().__await__()

    async def __aiter__(self) -> AsyncIterator[Approval]:
        self._answered.clear()
        self._unanswered.clear()
        runs = await self._runs()
        asked = listed = 0
        # Closed at once when a reader has enough, so that nobody is asked in vain.
        async with aclosing(in_order(runs, self._ask if self.details else self._glance, AT_ONCE)) as answers:
            async for approvals in answers:
                asked += 1
                for approval in filter(self.wanted.accepts, approvals):
                    if listed == self.limit:
                        self._note(MORE.format(limit=listed, runs=len(runs) - asked + 1))
                        return
                    listed += 1
                    yield approval

    async def _list(self) -> Listing:
        approvals = [approval async for approval in self]
        return Listing(approvals, self.notes)

    async def _runs(self) -> list[WorkflowExecution]:
        if await self.indexed():
            query = self.wanted.query()
        else:
            query = _OPEN
            self._note(NO_ATTRIBUTES)
        return await rpc.listed(self.client, query)

    async def _glance(self, run: WorkflowExecution) -> list[Approval]:
        """Take what visibility knows for enough, unless it had no room for all of it."""
        waiting = run.typed_search_attributes.get(attributes.WAITING) or ()
        whole = waiting and MORE_WAITS not in waiting and not any(name.endswith("…") for name in waiting)
        return _seen(run) if whole else await self._ask(run)

    async def _ask(self, run: WorkflowExecution) -> list[Approval]:
        """Ask a run; once more where others on its queue do answer: a worker with much to replay may be slow."""
        problem: ServerError | None = None
        for attempts in range(2):
            if run.task_queue not in self._answered and (attempts or self._unanswered[run.task_queue] >= _HOPELESS):
                break
            try:
                approvals, asked = await self.recall.pending(self.client, run, limit=_PATIENCE)
            except RefusedError:
                return []  # It has ended and is gone.
            except ServerError as error:
                problem = error
                # Another trouble is that run's own, and says nothing about the others.
                self._unanswered[run.task_queue] += isinstance(error, NoWorkerError)
            else:
                if asked:
                    self._answered.add(run.task_queue)
                return approvals
        return self._known(run, problem)

    def _known(self, run: WorkflowExecution, problem: ServerError | None) -> list[Approval]:
        """What visibility knows of a run that does not answer."""
        silent = problem is None or isinstance(problem, NoWorkerError)
        note = NO_WORKER.format(queue=run.task_queue) if silent else str(problem)
        self._note(note)
        return _seen(run, note)

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)
            _log.warning("%s", note)


def _seen(run: WorkflowExecution, *warnings: str) -> list[Approval]:
    """Return what visibility knows of a run: one entry a tool, with the tags and reviewers of all that waits in it."""
    found = run.typed_search_attributes
    kinds = [entry.partition(":") for entry in found.get(attributes.WAITING) or ()]
    tags, reviewers = ([value for kind, _, value in kinds if kind == wanted] for wanted in ("tag", "reviewer"))
    context = ApprovalContext(
        agent=found.get(attributes.AGENT) or "",
        thread_id=found.get(attributes.THREAD),
        turn_id=run.id,
        run_id=run.run_id,
    )
    return [
        Approval(
            id=run.id + _UNREAD, name=name, tags=tags, reviewers=reviewers, context=context, warnings=list(warnings)
        )
        for kind, _, name in kinds
        if kind == "tool"
    ]


@dataclass(frozen=True)
class Settled:
    """What became of one decision out of many: a receipt, or the error."""

    approval_id: str
    receipt: Receipt | None = None
    error: TurngateError | None = None


async def watch(list_all: Callable[[], Awaitable[Listing]], interval: float) -> AsyncIterator[Approval]:
    """Yield each approval once, when it first shows up. Never ends by itself."""
    seen: set[str] = set()
    while True:
        now = [approval for approval in await list_all() if has_details(approval)]
        for approval in now:
            if approval.id not in seen:
                yield approval
        seen = {approval.id for approval in now}
        await asyncio.sleep(interval)


async def stop_all(client: Client, agent: str, reason: str | None, *, indexed: bool) -> list[tuple[str, str]]:
    """Stop every open turn of an agent; return each turn's id with what it answered."""
    query = _OPEN
    if indexed and (found := rpc.equals(attributes.AGENT.name, starting.agent_value(agent))):
        query += f" AND ({found} OR {attributes.AGENT.name} IS NULL)"

    async def stop(run: WorkflowExecution) -> tuple[str, str] | None:
        turn = TurnHandle(client, run.id)
        try:
            named = run.typed_search_attributes.get(attributes.AGENT)
            if named is None:
                named = starting.agent_value((await turn.status()).get("agent") or "")
            if named != starting.agent_value(agent):
                return None  # It was found by its type alone.
            return run.id, str((await turn.stop(reason)).get("status", "stopping"))
        except TurngateError as error:
            return run.id, str(error)

    answers = [answer async for answer in in_order(await rpc.listed(client, query), stop, AT_ONCE)]
    return [answer for answer in answers if answer is not None]


async def settle(
    client: Client, approvals: Sequence[Approval], decision: Json | Callable[[Approval], Json]
) -> AsyncIterator[Settled]:
    """Decide many, each on its own, and say of each what became of it."""

    async def one(approval: Approval) -> Settled:
        answer = decision(approval) if callable(decision) else decision
        digest = approval.proposal.digest if approval.proposal else approval.digest
        payload = {"approval_id": approval.id, "digest": digest, **answer}
        try:
            receipts = await send_all(client, by_run(payload))
        except TurngateError as error:
            return Settled(approval.id, error=error)
        return Settled(approval.id, receipt=receipts[0] if receipts else None)

    async for report in in_order(approvals, one, AT_ONCE):
        yield report


async def in_order(items: Iterable[T], work: Callable[[T], Awaitable[R]], at_once: int) -> AsyncGenerator[R]:
    """Do `work` on all items, at most `at_once` together, and yield the results in the order of the items."""
    slots = asyncio.Semaphore(at_once)

    async def bounded(item: T) -> R:
        async with slots:
            return await work(item)

    tasks = [asyncio.ensure_future(bounded(item)) for item in items]
    try:
        for task in tasks:
            yield await task
    finally:
        for task in tasks:
            task.cancel()
