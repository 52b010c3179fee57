"""The details page of a run: what waits, why, by when, and answers to paste.

Shown by the Temporal UI under User Metadata and by `temporal workflow metadata`. It lives in the worker's memory and
costs no event. The safest answer comes first and can be sent as it stands.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from turngate import texts
from turngate.contracts import Approval, CallPlan, Json, Refused, json_size
from turngate.judging import silence
from turngate.workflows.markdown import code, json_to_copy, json_to_read, line, prose, visible

PAGE_LIMIT = 19_000
"""Bytes; the documented limit of Temporal Cloud is 20 kB."""
_TABLE_LIMIT = 7000
_ARGUMENTS_LIMIT = 4000
_VALUE_LIMIT = 1500
_LEAST = 40
_ELSEWHERE = "read the rest with query `pending` before you decide"
_DESCRIPTION_LIMIT = 800
_EDIT_LIMIT = 1500
_ORDER = ("reject", "respond", "answer", "approve", "edit")
_EFFECTS = {
    "tool_approval": {
        "reject": 'it does not run; add `"message": "why"` to give the model a reason',
        "respond": "it does not run; your text goes to the model as its result",
        "approve": "it runs exactly as above",
        "edit": "it runs with your arguments instead",
    },
    "recovery": {
        "reject": "it does not run again; the model is told what is known",
        "respond": "it does not run again; your text goes to the model as its result",
        "approve": "it runs again, with the same arguments",
    },
    "question": {
        "reject": "no answer; the call ends as rejected",
        "answer": "your value goes back into the tool, which goes on",
    },
}
_PLACEHOLDERS: dict[str, Json] = {
    "respond": {"message": "YOUR TEXT"},
    "answer": {"value": "YOUR ANSWER"},
}
_SILENCE = {
    "reject": "it is rejected",
    "approve": "**it runs** without a decision",
    "respond": "a fixed text becomes its result",
}


@dataclass(frozen=True)
class Waiting:
    """One open approval as people see it, and the plan that it was raised by."""

    approval: Approval
    plan: CallPlan
    signed: bool = False

    @property
    def effects(self) -> Mapping[str, str]:
        """What each decision leads to, in words."""
        if self.plan.human:
            return {"respond": "your text goes to the model; there is nothing to run"}
        return _EFFECTS[self.approval.type]

    def answer(self, kind: str) -> Json:
        """Return a decision that only lacks what the reviewer has to say."""
        approval = self.approval
        proposal = approval.proposal
        answer: Json = {"approval_id": approval.id, "type": kind}
        if kind != "reject" or proposal:
            answer["digest"] = proposal.digest if proposal else approval.digest
        if approval.reviewers or approval.quorum.required > 1:
            answer["reviewer"] = "YOUR NAME"
        if kind == "edit":
            name, args = (proposal.name, proposal.args) if proposal else (approval.name, approval.args)
            answer["edited_action"] = {"name": name or approval.name, "args": args}
        if self.signed:
            answer["token"] = "YOUR SIGNATURE"
        return answer | _PLACEHOLDERS.get(kind, {})


def page(waiting: Sequence[Waiting], refused: Sequence[Refused], namespace: str = "default") -> str:
    """Write the markdown of the page; "" when nothing waits and nothing was refused."""
    blocks = []
    if waiting:
        blocks.append(_heading(waiting))
        blocks.append(_table(waiting))
    if refused:
        blocks.append(_refusals(refused))
    if waiting:
        shell = _shell(waiting[0], namespace)
        room = PAGE_LIMIT - _size(blocks) - len(shell.encode()) - 200
        blocks += _sections(waiting, room)
        blocks.append(shell)
    return _cut("\n\n".join(blocks), PAGE_LIMIT)


def _heading(waiting: Sequence[Waiting]) -> str:
    if len(waiting) > 1:
        return f"## {len(waiting)} calls wait for a decision"
    approval = waiting[0].approval
    what = {"question": "asks a question", "recovery": "needs a look"}
    return f"## {line(approval.name)} {what.get(approval.type, 'waits for a decision')}"


def _table(waiting: Sequence[Waiting]) -> str:
    """Write one row a call; a cell has no padding of its own in the UI."""
    rows = [_row("#", "tool", "who decides", "until"), "|:--|:--|:--|:--|"]
    room = _TABLE_LIMIT
    for number, one in enumerate(waiting, 1):
        approval = one.approval
        row = _row(
            str(number), line(_cut(approval.name, 80)), line(_cut(_people(approval), 120)), _when(approval.expires_at)
        )
        room -= len(row.encode()) + 1
        if room < 0:
            rows.append(f"\n… and {len(waiting) - number + 1} more: query `pending`")
            break
        rows.append(row)
    return "\n".join(rows)


def _row(*cells: str) -> str:
    return f"| {'&#160;&#160; | '.join(cells)} |"


def _people(approval: Approval) -> str:
    names = ", ".join(approval.reviewers) or "anybody"
    quorum = approval.quorum
    return names if quorum.required < 2 else f"{names} ({quorum.received} of {quorum.required} agreed)"


def _when(moment: datetime | None) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC" if moment else "no deadline"


def _refusals(refused: Sequence[Refused]) -> str:
    lines = ["**Sent, but refused; nothing was changed** (newest first)"]
    for one in list(reversed(refused))[:3]:
        at = f"{one.at:%H:%M:%S} UTC, " if one.at else ""
        by = f" by {line(_cut(one.by, 60))}" if one.by else ""
        lines.append(f"{at}signal{by}: {line(_cut(one.message, 300))}")
    if len(refused) > 3:
        lines.append("More: query `refused`")
    return "\n".join(lines)


# --- One call ----------------------------------------------------------------------------------------------------


def _sections(waiting: Sequence[Waiting], room: int) -> Iterator[str]:
    for number, one in enumerate(waiting, 1):
        section = _section(number if len(waiting) > 1 else None, one)
        room -= len(section.encode()) + 2
        if room < 0:
            left = [code(each.approval.id) for each in waiting[number - 1 :]]
            shown = ", ".join(left[:10]) + (", …" if len(left) > 10 else "")
            yield _cut(f"**Not shown here**: {shown}\nSee them with query `pending`.", room + len(section.encode()))
            return
        yield section


def _section(number: int | None, one: Waiting) -> str:
    approval = one.approval
    blocks = [] if number is None else [f"### {number}. {line(_cut(approval.name, 80))}"]
    if description := _description(approval):
        blocks.append(description)
    blocks += [_arguments(approval), _facts(one), *_answers(one)]
    return "\n\n".join(block for block in blocks if block)


def _description(approval: Approval) -> str:
    """Return what the agent's author says of the call; else what the tool does, as the model was told."""
    first, *rest = approval.description.split("\n")
    standard = [one.partition(" = ")[0].strip() for one in rest] in (list(approval.args), ["(no arguments)"])
    if not standard:
        return prose(_cut(approval.description, _DESCRIPTION_LIMIT))
    if first.startswith(texts.DESCRIPTION_PREFIX):
        first = approval.tool_description.strip().partition("\n")[0]
    return prose(_cut(first, 200))


def _arguments(approval: Approval) -> str:
    if approval.type == "question":
        return "\n".join(_value(approval.question, _ARGUMENTS_LIMIT))
    shown = approval.proposal.args if approval.proposal else approval.args
    lines: list[str] = []
    room = _ARGUMENTS_LIMIT
    for key, value in shown.items():
        if room < _LEAST:
            lines.append(f"**cut here**, {len(shown)} arguments in all: {_ELSEWHERE}")
            break
        first, *more = _value(value, min(room, _VALUE_LIMIT))
        entry = [f"{code(visible(_cut(key, 100)) or ' ')}: {first}", *more]
        lines += entry
        room -= _size(entry)
    return "\n".join(lines) or "no arguments"


def _value(value: object, room: int) -> list[str]:
    """Return JSON as lines of code within `room` bytes, with a mark that nobody overlooks where there is more."""
    kept: list[str] = []
    for text in json_to_read(value, room + 1):
        if len(text.encode()) > room:
            mark = f"**cut here**, {json_size(value)} bytes in all: {_ELSEWHERE}"
            return [*kept, code(_cut(text, max(room, _LEAST))), mark]
        kept.append(code(text))
        room -= len(text.encode()) + 1
    return kept


def _facts(one: Waiting) -> str:
    approval, plan = one.approval, one.plan
    facts = [f"Warning: {line(_cut(warning, 300))}" for warning in approval.warnings[:5]]
    if approval.repeat_of:
        facts.append(f"The same call was rejected before, as {code(approval.repeat_of)}")
    if approval.tags:
        facts.append(f"Tags: {line(_cut(', '.join(approval.tags), 200))}")
    if proposal := approval.proposal:
        other = proposal.name not in ("", approval.name)
        what = f"**{line(proposal.name)}** with these arguments is" if other else "These arguments are"
        facts.append(f"{what} proposed by {line(proposal.by or 'somebody')}, not by the model")
    if approval.votes and approval.quorum.required > 1:
        facts.append(f"Agreed so far: {line(_cut(', '.join(vote.reviewer or '?' for vote in approval.votes), 200))}")
    if approval.expires_at:
        ending = _SILENCE[silence(plan, approval).get("type", "reject")]
        facts.append(f"If nobody decides until {_when(approval.expires_at)}, {ending}")
    return "\n".join(facts)


# --- Answers to paste --------------------------------------------------------------------------------------------


def _answers(one: Waiting) -> Iterator[str]:
    for kind in sorted(one.approval.allowed_decisions, key=_ORDER.index):
        answer = one.answer(kind)
        if kind == "edit" and json_size(answer) > _EDIT_LIMIT:
            yield "**edit**: the arguments are too long for this page, take them from query `pending`"
        else:
            yield f"**{kind}**: {one.effects.get(kind, '')}\n{code(json_to_copy(answer))}"


def _shell(one: Waiting, namespace: str) -> str:
    run = one.approval.id.rsplit("/", 1)[0]
    safest = min(one.approval.allowed_decisions, key=_ORDER.index)
    where = "" if namespace == "default" else f" --namespace {shlex.quote(namespace)}"
    command = (
        f"temporal workflow update execute{where} --workflow-id {shlex.quote(run)}"
        f" --name decide --input {shlex.quote(json_to_copy(one.answer(safest)))}"
    )
    return (
        f"**How to send one**: More Actions, Send an Update, `decide`, paste it as Data; or in a shell\n{code(command)}"
    )


def _size(blocks: Iterable[str]) -> int:
    return sum(len(block.encode()) + 2 for block in blocks)


def _cut(text: str, limit: int) -> str:
    raw = text.encode("utf-8", "replace")
    return text if len(raw) <= limit else raw[: max(0, limit - 3)].decode("utf-8", "ignore") + "…"
