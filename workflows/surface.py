"""What people see of a run in the Temporal UI and in its list: summaries, details and search attributes."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributePair, SearchAttributeUpdate, TypedSearchAttributes

with workflow.unsafe.imports_passed_through():
    from turngate import texts
    from turngate.contracts import SEARCH_ATTRIBUTE_LIMIT, Approval, Json, Refused
    from turngate.ledger import Item, Ledger

STATUS = SearchAttributeKey.for_keyword("TurngateStatus")
AGENT = SearchAttributeKey.for_keyword("TurngateAgent")
THREAD = SearchAttributeKey.for_keyword("TurngateThread")
WAITING = SearchAttributeKey.for_keyword_list("TurngateWaiting")

DETAILS_LIMIT = 19_000
"""Bytes; the documented limit of Temporal Cloud is 20 kB."""
SUMMARY_LIMIT = 390


@dataclass(frozen=True)
class Pause:
    """What the outside is shown of a pause; equal pauses look the same."""

    waiting: tuple[str, ...]
    moment: datetime | None
    summary: str
    refused: int

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
    )


def _attribute(items: Sequence[Item]) -> tuple[str, ...]:
    values: dict[str, None] = {}
    for item in items:
        values[f"tool:{item.approval.name}"] = None
        values |= dict.fromkeys(f"tag:{tag}" for tag in item.approval.tags)
        values |= dict.fromkeys(f"reviewer:{name}" for name in item.approval.reviewers)
    kept: list[str] = []
    room = SEARCH_ATTRIBUTE_LIMIT
    for value in values:
        value = clip(value, 200)
        room -= len(value.encode()) + 4
        if room < 0:
            break
        kept.append(value)
    return tuple(kept)


def upserts(pause: Pause, agent: str, thread_id: str | None) -> list[SearchAttributeUpdate[Any]]:
    """Return the search attributes of a pause; agent and thread come along at no extra cost."""
    updates: list[SearchAttributeUpdate[Any]] = [STATUS.value_set(pause.status), AGENT.value_set(clip(agent, 500))]
    if thread_id:
        updates.append(THREAD.value_set(clip(thread_id, 1000)))
    updates.append(WAITING.value_set(list(pause.waiting)) if pause.waiting else WAITING.value_unset())
    return updates


def at_start(agent: str, thread_id: str | None) -> TypedSearchAttributes:
    """Return the search attributes of a run that a workflow starts."""
    pairs = [SearchAttributePair(STATUS, "running"), SearchAttributePair(AGENT, clip(agent, 500))]
    if thread_id:
        pairs.append(SearchAttributePair(THREAD, clip(thread_id, 1000)))
    return TypedSearchAttributes(pairs)


def _summary(items: Sequence[Item]) -> str:
    if not items:
        return ""
    first = items[0].approval
    who = f" by {', '.join(first.reviewers)}" if first.reviewers else ""
    more = f" and {len(items) - 1} more" if len(items) > 1 else ""
    until = f", until {first.expires_at:%Y-%m-%d %H:%M} UTC" if first.expires_at else ""
    what = "an answer to" if first.type == "question" else "a decision about"
    return clip(f"waiting for {what} {first.name}{more}{who}{until}", SUMMARY_LIMIT)


def clip(text: str, limit: int) -> str:
    """Cut a text to `limit` bytes, with an ellipsis."""
    raw = text.encode("utf-8", "replace")
    return text if len(raw) <= limit else raw[: limit - 3].decode("utf-8", "ignore") + "…"


# --- The details page --------------------------------------------------------------------------------------------


def details(approvals: Sequence[Approval], refused: Sequence[Refused]) -> str:
    """Write the markdown of a paused run; "" when nothing waits and nothing was refused.

    Texts of the model stand only inside table cells and code fences, where they can't change the layout.
    """
    parts: list[str] = []
    if approvals:
        parts.append(_table(approvals))
    room = DETAILS_LIMIT - len("\n".join(parts).encode()) - 3000
    for number, approval in enumerate(approvals, 1):
        block = _answers(number, approval, min(room, 4000))
        room -= len(block.encode())
        if room < 0:
            parts.append(
                f"\n… the ready answers of {len(approvals) - number + 1} more are left out: see the query `pending`."
            )
            break
        parts.append(block)
    if refused:
        parts.append("\n## Refused\n")
        parts += [f"- {_cell(one.message, 250)} ({_cell(one.by or 'no name', 60)})" for one in reversed(refused[-8:])]
    return clip("\n".join(parts), DETAILS_LIMIT)


def _table(approvals: Sequence[Approval]) -> str:
    rows = [
        "## Waiting for a decision\n",
        "| # | approval | tool | arguments | why | who | until |",
        "|---|---|---|---|---|---|---|",
    ]
    room = 8000
    for number, approval in enumerate(approvals, 1):
        cells = [
            str(number),
            _cell(approval.id, 400),
            _cell(approval.name, 80),
            _cell(texts.as_json(approval.question if approval.type == "question" else approval.args), 240),
            _cell("; ".join([*approval.warnings, *approval.tags]) or approval.type.value, 160),
            _cell(", ".join(approval.reviewers) or "anybody", 100),
            f"{approval.expires_at:%Y-%m-%d %H:%M} UTC" if approval.expires_at else "no deadline",
        ]
        row = f"| {' | '.join(cells)} |"
        room -= len(row.encode())
        if room < 0:
            rows.append(f"\n… and {len(approvals) - number + 1} more: see the query `pending`.")
            break
        rows.append(row)
    return "\n".join(rows)


def _cell(text: str, limit: int) -> str:
    escaped = "".join(
        f"&#{ord(char)};" if char in "|`<>&*_#[]\\~" and char not in "_" else char for char in clip(text, limit)
    )
    return " ".join(escaped.split())


def _answers(number: int, approval: Approval, room: int) -> str:
    answers = [_ready(approval, kind, room // 3) for kind in approval.allowed_decisions]
    run = shlex.quote(approval.id.rsplit("/", 1)[0])
    first = texts.as_json({"approval_id": approval.id, "digest": approval.digest, "type": _safest(approval)})
    lines = [f"\n### {number}. Ready answers (update or signal `decide`)\n", "```json", *answers, "```"]
    lines += ["```sh", f"temporal workflow update execute -w {run} --name decide --input {shlex.quote(first)}", "```"]
    return "\n".join(lines)


def _safest(approval: Approval) -> str:
    return "reject" if "reject" in approval.allowed_decisions else approval.allowed_decisions[0]


def _ready(approval: Approval, kind: str, room: int) -> str:
    answer: Json = {"approval_id": approval.id, "digest": approval.digest, "type": kind}
    if approval.reviewers or approval.quorum.required > 1:
        answer["reviewer"] = "your name"
    if kind == "edit":
        answer["edited_action"] = {"name": approval.name, "args": approval.args}
        if len(texts.as_json(answer).encode()) > room:
            answer["edited_action"] = {
                "name": approval.name,
                "args": {"…": "the arguments are long: see the query pending"},
            }
    elif kind == "reject":
        answer["message"] = "why"
    elif kind == "respond":
        answer["message"] = "the result"
    elif kind == "answer":
        answer["value"] = "your answer"
    return texts.as_json(answer)
