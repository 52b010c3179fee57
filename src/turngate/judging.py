"""What one decision may do to one approval: every check of it, before anything is recorded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from turngate.contracts import (
    Approval,
    ApprovalStatus,
    ApprovalType,
    CallPlan,
    Json,
    Outcome,
    Resolution,
    Rule,
    digest_of,
)
from turngate.decisions import Answer, Approve, Decision, Edit, Respond
from turngate.errors import RefusedError, refuse
from turngate.items import SECRET, Item
from turngate.schemas import check
from turngate.verifier import roles_of

VOTES_LIMIT = 100
"""What is kept for the record goes over continue-as-new: whoever may vote must not make it grow for ever."""

SETTLED_AS = {
    "approve": ApprovalStatus.APPROVED,
    "edit": ApprovalStatus.EDITED,
    "reject": ApprovalStatus.REJECTED,
    "respond": ApprovalStatus.RESPONDED,
    "answer": ApprovalStatus.ANSWERED,
}


def judge(item: Item, decision: Decision, now: datetime, *, signed: bool) -> Outcome:
    """Say what the decision does to this approval, or raise why it may not."""
    approval = item.approval
    _judge_digest(item, decision)
    if not item.open:
        return _judge_late(item, decision)
    if approval.expires_at and now >= approval.expires_at:
        raise refusal_of(item, "expired", f"time ran out at {_clock(approval.expires_at)}: nothing was changed")
    if decision.type not in approval.allowed_decisions:
        allowed = ", ".join(approval.allowed_decisions)
        raise refusal_of(
            item,
            "not_allowed",
            f"'{decision.type}' is not allowed for '{approval.name}': allowed are {allowed}",
            "type",
        )
    if decision.remember and not may_remember(item, decision):
        raise refusal_of(
            item, "not_allowed", f"a '{decision.type}' of '{approval.name}' can't be remembered", "remember"
        )
    _judge_sender(item, decision, signed)
    if isinstance(decision, Edit):
        _judge_edit(item, decision)
    if settles(item, decision):
        return Outcome.APPLIED
    if len(approval.votes) >= VOTES_LIMIT:
        raise refusal_of(item, "not_allowed", f"{VOTES_LIMIT} votes were cast: only one that settles it counts now")
    return Outcome.VOTE_RECORDED


def silence(plan: CallPlan, approval: Approval) -> Json:
    """Return what counts as decided where nobody decides in time.

    An approval is for silence: whoever has proposed another call has spoken against this one.
    """
    words = plan.on_timeout or {"type": "reject"}
    return {"type": "reject"} if words.get("type") == "approve" and approval.proposal else words


def _judge_digest(item: Item, decision: Decision) -> None:
    approval = item.approval
    proposal = approval.proposal
    if item.open and proposal:
        good = {proposal.digest} if decision.type != "reject" else {proposal.digest, approval.digest}
    else:
        good = {approval.digest} | ({proposal.digest} if proposal else set())
    if decision.digest is None and item.open and proposal:
        raise refusal_of(
            item,
            "digest_mismatch",
            f"an edit by {proposal.by} is proposed: a vote must carry its digest {proposal.digest!r}",
            "digest",
        )
    if decision.digest is not None and decision.digest not in good:
        wanted = proposal.digest if item.open and proposal else approval.digest
        raise refusal_of(
            item,
            "digest_mismatch",
            f"the decision is about another call: its digest is {decision.digest!r}, and {wanted!r} waits",
            "digest",
        )


def _judge_late(item: Item, decision: Decision) -> Outcome:
    approval, resolution = item.approval, item.approval.resolution
    if approval.status is ApprovalStatus.CANCELLED:
        raise refusal_of(item, "cancelled", "the call was called off: nothing was changed")
    if resolution is None or resolution.by == "deadline":
        at = f" at {_clock(approval.expires_at)}" if approval.expires_at else ""
        raise refusal_of(item, "expired", f"time ran out{at}: nothing was changed")
    if _same(item, resolution, decision):
        return Outcome.ALREADY_RESOLVED
    raise refusal_of(item, "already_decided_conflict", _who_decided(approval, resolution))


def _judge_sender(item: Item, decision: Decision, signed: bool) -> None:
    approval, plan = item.approval, item.plan
    name = decision.reviewer or ""
    asker = approval.context.requested_by
    named = bool(approval.reviewers) or plan.quorum > 1 or (not plan.allow_self_approval and asker is not None)
    if named and not name:
        raise refusal_of(
            item, "not_a_reviewer", "say who you are in 'reviewer': this call needs a named reviewer", "reviewer"
        )
    if approval.reviewers and name not in eligible(item) and not (signed and _claims_role(item, decision)):
        who = ", ".join(approval.reviewers)
        raise refusal_of(
            item, "not_a_reviewer", f"{name!r} may not decide about '{approval.name}': {who} may", "reviewer"
        )
    if not plan.allow_self_approval and name and name == asker:
        raise refusal_of(item, "self_approval", f"{name!r} asked for this work and may not decide about it", "reviewer")


def _claims_role(item: Item, decision: Decision) -> bool:
    """Whether a verified token says that the sender has a role which may decide."""
    return any(f"role:{role}" in item.approval.reviewers for role in roles_of(decision.token))


def _judge_edit(item: Item, decision: Edit) -> None:
    approval = item.approval
    name, args = edited_call(item, decision)
    if name != approval.name and (not item.tool_change or name not in item.schemas):
        why = "there is no such tool to change to" if item.tool_change else "an edit may not name another tool"
        raise refusal_of(item, "invalid_edit", f"{why}: the call is of '{approval.name}'", "edited_action", "name")
    editable = item.plan.editable_args if name == approval.name else None
    kept = {key for key in args if editable is not None and key not in editable and _alike(args, approval.args, key)}
    # What may not be changed is not the reviewer's to get right: the tool has read it as the model sent it.
    problems = [one for one in check(item.schemas.get(name, {"type": "object"}), args) if not kept & set(one[0][:1])]
    if problems:
        text = "; ".join(sentence for _, sentence in problems[:5])
        raise refusal_of(
            item,
            "invalid_edit",
            f"the arguments do not fit '{name}': {text}",
            "edited_action",
            "args",
            *problems[0][0],
        )
    if editable is not None:
        for key in {**args, **approval.args}:
            if key not in editable and not _alike(args, approval.args, key):
                may = ", ".join(editable) or "none"
                raise refusal_of(
                    item,
                    "invalid_edit",
                    f"argument '{key}' may not be changed: {may} may",
                    "edited_action",
                    "args",
                    key,
                )


def _alike(one: Json, other: Json, key: str) -> bool:
    """Whether an argument is the same in both, or missing in both."""
    return (key in one) == (key in other) and _json(one.get(key)) == _json(other.get(key))


def settles(item: Item, decision: Decision) -> bool:
    """Say whether the decision settles the approval, or is one vote of a quorum."""
    required = item.approval.quorum.required
    if required <= 1 or decision.type in ("reject", "answer"):
        return True
    ballot = ballot_of(item, decision)
    same = {name for name, cast in item.ballots.items() if cast == ballot} | {decision.reviewer or ""}
    return len(same) >= required


def edited_call(item: Item, decision: Edit) -> tuple[str, Json]:
    """The call that an edit means; a masked secret that comes back stands for the original."""
    action = decision.edited_action
    name, args = (action.name, action.args) if action else (item.approval.name, decision.args or {})
    if name == item.approval.name:
        original = item.approval.args
        args = {
            key: original[key] if key in item.plan.secret_args and value == SECRET and key in original else value
            for key, value in args.items()
        }
    return name, args


def ballot_of(item: Item, decision: Decision) -> str:
    """What a vote is for; votes for the same thing count together."""
    if isinstance(decision, Edit):
        return f"run:{digest_of(*edited_call(item, decision))}"
    if isinstance(decision, Approve):
        proposal = item.approval.proposal
        return f"run:{proposal.digest if proposal else item.approval.digest}"
    if isinstance(decision, Respond):
        return "respond:" + hashlib.sha256(decision.message.encode()).hexdigest()
    return decision.type


def _same(item: Item, resolution: Resolution, decision: Decision) -> bool:
    """The same type, arguments, answer or response text; reasons and comments don't count."""
    if isinstance(decision, Edit):
        name, args = edited_call(item, decision)
        return resolution.type == "edit" and _json(resolution.edited_action) == _json({"name": name, "args": args})
    proposal = item.approval.proposal
    if isinstance(decision, Approve) and proposal and resolution.type == "edit":
        return decision.digest in (None, proposal.digest)
    if decision.type != resolution.type:
        return False
    if isinstance(decision, Respond):
        return decision.message == resolution.message
    if isinstance(decision, Answer):
        return _json(decision.value) == _json(resolution.value)
    return True


def _json(value: Any) -> str:
    """The value as text to compare: 5.0 is 5, which is all that a client in JavaScript can send, and True is not 1."""
    return json.dumps(_whole(value), sort_keys=True)


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    return [_whole(item) for item in value] if isinstance(value, list) else value


def may_remember(item: Item, decision: Decision | None) -> bool:
    plan = item.plan
    able = plan.allow_remember and plan.quorum <= 1 and item.approval.type is ApprovalType.TOOL
    return able and (decision is None or decision.type in ("approve", "reject"))


def eligible(item: Item) -> set[str]:
    return named_by(item.approval.reviewers, item.roles)


def named_by(reviewers: Sequence[str], roles: dict[str, list[str]]) -> set[str]:
    """The people that names and roles stand for."""
    names: set[str] = set()
    for reviewer in reviewers:
        names |= set(roles.get(reviewer[5:], [])) if reviewer.startswith("role:") else {reviewer}
    return names


def rule_covers(rule: Rule, item: Item) -> bool:
    """A rule never settles a call that its maker could not have decided."""
    approval, plan = item.approval, item.plan
    if not item.open or rule.tool != approval.name or not may_remember(item, None):
        return False
    if rule.match == "args" and rule.digest != approval.digest:
        return False
    if rule.type not in approval.allowed_decisions:
        return False
    if approval.reviewers and rule.by not in eligible(item):
        return False
    asker = approval.context.requested_by
    return plan.allow_self_approval or asker is None or (rule.by is not None and rule.by != asker)


def refusal_of(item: Item, code: str, message: str, *path: str | int) -> RefusedError:
    approval_id = item.approval.id
    return refuse(code, f"approval {approval_id!r}: {message}", *path, approval_id=approval_id)


def _who_decided(approval: Approval, resolution: Resolution) -> str:
    who = resolution.reviewer or "somebody who gave no name"
    if resolution.by == "rule":
        who = f"a remembered rule of {who}"
    at = f" at {_clock(resolution.at)}" if resolution.at else ""
    return f"it was {SETTLED_AS[resolution.type].value} by {who}{at}; nothing was changed"


def _clock(moment: datetime | None) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC") if moment else "an unknown time"
