"""What people see of a run at a glance, in the Temporal UI and in its list: summaries and search attributes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributePair, SearchAttributeUpdate, TypedSearchAttributes

with workflow.unsafe.imports_passed_through():
    from turngate.contracts import SEARCH_ATTRIBUTE_LIMIT
    from turngate.items import Item
    from turngate.ledger import Ledger

STATUS = SearchAttributeKey.for_keyword("TurngateStatus")
AGENT = SearchAttributeKey.for_keyword("TurngateAgent")
THREAD = SearchAttributeKey.for_keyword("TurngateThread")
WAITING = SearchAttributeKey.for_keyword_list("TurngateWaiting")

SUMMARY_LIMIT = 390
MORE = "more"
"""Stands in the search attribute for what has no room in it, so that a filter by name still finds the run."""


@dataclass(frozen=True)
class Pause:
    """What the outside is shown of a pause; equal pauses look the same."""

    waiting: tuple[str, ...]
    moment: datetime | None
    summary: str
    refused: int
    calls: tuple[tuple[str, ...], ...] = ()
    """What the details page says of each call that can change while it waits."""

    @property
    def face(self) -> tuple[Any, ...]:
        """What the timer shows and when it fires."""
        return (bool(self.waiting), self.moment, self.summary)

    @property
    def status(self) -> str:
        """The value of TurngateStatus."""
        return "waiting" if self.waiting else "running"


def pause_of(ledger: Ledger) -> Pause:
    """Look at the ledger and say what a pause should show."""
    items = ledger.waiting()
    return Pause(
        waiting=_attribute(items),
        moment=ledger.next_moment(),
        summary=_summary(items),
        refused=ledger.state.refused_count,
        calls=tuple(_changeable(item) for item in items),
    )


def _changeable(item: Item) -> tuple[str, ...]:
    approval = item.approval
    proposed = approval.proposal.digest if approval.proposal else ""
    return (approval.id, proposed, str(len(approval.votes)), *approval.reviewers)


def _attribute(items: Sequence[Item]) -> tuple[str, ...]:
    values: dict[str, None] = {}
    for item in items:
        values[f"tool:{item.approval.name}"] = None
        values |= dict.fromkeys(f"tag:{tag}" for tag in item.approval.tags)
        values |= dict.fromkeys(f"reviewer:{name}" for name in item.approval.reviewers)
    kept: list[str] = []
    room = SEARCH_ATTRIBUTE_LIMIT - len(MORE) - 4
    for value in values:
        value = clip(value, 200)
        room -= len(value.encode()) + 4
        if room < 0:
            return (*kept, MORE)
        kept.append(value)
    return tuple(kept)


def upserts(pause: Pause, agent: str, thread_id: str | None) -> list[SearchAttributeUpdate[Any]]:
    """Return the search attributes of a pause; agent and thread come along at no extra cost."""
    updates: list[SearchAttributeUpdate[Any]] = [STATUS.value_set(pause.status), AGENT.value_set(clip(agent, 500))]
    if thread_id:
        updates.append(THREAD.value_set(clip(thread_id, 1000)))
    updates.append(WAITING.value_set(list(pause.waiting)) if pause.waiting else WAITING.value_unset())
    return updates


def known() -> bool:
    """Whether the run was started with our search attributes: then the server has them, whatever the worker saw."""
    return any(pair.key == STATUS for pair in workflow.info().typed_search_attributes)


def at_start(agent: str, thread_id: str | None) -> TypedSearchAttributes:
    """Return the search attributes of a run that a workflow starts."""
    pairs = [SearchAttributePair(STATUS, "running"), SearchAttributePair(AGENT, clip(agent, 500))]
    if thread_id:
        pairs.append(SearchAttributePair(THREAD, clip(thread_id, 1000)))
    return TypedSearchAttributes(pairs)


def _summary(items: Sequence[Item]) -> str:
    """Say in one line what waits for whom: all that the first page of the UI shows of a pause."""
    if not items:
        return ""
    first = items[0].approval
    names = list(dict.fromkeys(name for item in items for name in item.approval.reviewers))
    who = clip(", ".join(names) or "a person", 120)
    more = f" and {len(items) - 1} more" if len(items) > 1 else ""
    deadlines = [item.approval.expires_at for item in items if item.approval.expires_at]
    until = f" until {min(deadlines):%Y-%m-%d %H:%M} UTC" if deadlines else ""
    asked = {"question": "answer", "recovery": "say what became of"}.get(first.type, "decide")
    return clip(f"Waits for {who} to {asked} {first.name}{more}{until}, see User Metadata", SUMMARY_LIMIT)


def clip(text: str, limit: int) -> str:
    """Cut a text to `limit` bytes, with an ellipsis."""
    raw = text.encode("utf-8", "replace")
    return text if len(raw) <= limit else raw[: limit - 3].decode("utf-8", "ignore") + "…"
