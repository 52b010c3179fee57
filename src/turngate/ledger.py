"""The ledger of a turn: it owns the approvals and decides what a submitted payload does.

A plain object without Temporal, a clock or randomness: time comes in as an argument, so the same calls give the same
ledger at every replay. `examine` changes nothing and raises what is wrong; `submit` applies what `examine` let pass.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pydantic import Field

from turngate import decisions
from turngate.contracts import (
    HELD_LIMIT,
    KIB,
    REFUSED_KEPT,
    Approval,
    ApprovalContext,
    ApprovalStatus,
    ApprovalType,
    CallPlan,
    Executed,
    Json,
    Outcome,
    Proposal,
    Quorum,
    Reassignment,
    Receipt,
    Recorded,
    Refused,
    Resolution,
    Rule,
    Vote,
    digest_of,
    json_size,
)
from turngate.decisions import Answer, Approve, Decision, Edit, Entry, Reject, Respond
from turngate.errors import Refusal, RefusedError, refuse
from turngate.schemas import check, response_schema
from turngate.verifier import REASSIGN, roles_of

# What is kept for the record goes over continue-as-new, so whoever may send must not be able to make it grow for ever.
HELD_BYTES = 512 * KIB
VOTES_LIMIT = 100
REASSIGNED_LIMIT = 50
REVIEWERS_LIMIT = 50

SECRET = "[secret]"
"""Stands for the value of a secret argument wherever people look; sent back in an edit it means the original."""

_SETTLED_AS = {
    "approve": ApprovalStatus.APPROVED,
    "edit": ApprovalStatus.EDITED,
    "reject": ApprovalStatus.REJECTED,
    "respond": ApprovalStatus.RESPONDED,
    "answer": ApprovalStatus.ANSWERED,
}


class Item(Recorded):
    """One approval with what is needed to judge a decision about it."""

    approval: Approval = Field(default_factory=Approval)
    plan: CallPlan = Field(default_factory=CallPlan)
    schemas: dict[str, Json] = Field(default_factory=dict)
    roles: dict[str, list[str]] = Field(default_factory=dict)
    tool_change: bool = False
    batch: int = 0
    """Approvals of the same number form the batch that a list without ids answers; 0 is none."""
    call: int = 0
    """The number of the call in the turn: what waits is listed in the order of the calls."""
    ballots: dict[str, str] = Field(default_factory=dict)
    remind_at: datetime | None = None
    escalate_at: datetime | None = None
    reminders: int = 0

    @property
    def open(self) -> bool:
        """Whether it still waits."""
        return self.approval.status is ApprovalStatus.PENDING


class Held(Recorded):
    """A decision that came before its call, with the digest of the call it means."""

    payload: Json = Field(default_factory=dict)
    channel: str = "decide"
    verified: bool = False
    """Whether its signature was verified, where the agent asks for one."""


class Rejections(Recorded):
    """How often the same call was rejected, and the approval of the first time."""

    count: int = 0
    first: str = ""


class LedgerState(Recorded):
    """Everything that continue-as-new carries."""

    prefix: str = ""
    number: int = 0
    items: list[Item] = Field(default_factory=list)
    held: list[Held] = Field(default_factory=list)
    refused: list[Refused] = Field(default_factory=list)
    refused_count: int = 0
    rules: list[Rule] = Field(default_factory=list)
    rule_number: int = 0
    rejections: dict[str, Rejections] = Field(default_factory=dict)
    admins: list[str] = Field(default_factory=list)
    signed: bool = False
    """Only verified decisions get here, so that the roles in their tokens count."""


@dataclass(frozen=True)
class Notice:
    """Something that people may want to be told. The key is the same at every replay."""

    kind: str
    item: Item
    ordinal: int = 1

    @property
    def key(self) -> str:
        """Approval id, kind and ordinal."""
        return f"{self.item.approval.id}/{self.kind}-{self.ordinal}"


@dataclass(frozen=True)
class Effect:
    """What one decision will do: `item` is None where the decision is held."""

    entry: Entry
    decision: Decision
    item: Item | None
    outcome: Outcome

    @property
    def payload(self) -> Json:
        """The decision on its own, with the id of its approval."""
        return _payload(self.entry, self.decision)


class Ledger:
    """Approvals, votes, rules, held decisions and refusals of one turn."""

    def __init__(self, prefix: str, state: LedgerState | None = None) -> None:
        self.state = state or LedgerState(prefix=prefix)
        self.state.prefix = prefix
        self.notices: list[Notice] = []
        self._by_id = {item.approval.id: item for item in self.state.items}
        self._open = {item.approval.id: item for item in self.state.items if item.open}

    # --- Looking ---------------------------------------------------------------------------------------------

    @property
    def items(self) -> Sequence[Item]:
        """All approvals in the order they were raised."""
        return self.state.items

    def waiting(self) -> list[Item]:
        """The approvals that wait, in the order of their calls."""
        return sorted(self._open.values(), key=lambda item: item.call)

    def __getitem__(self, approval_id: str) -> Item:
        return self._by_id[approval_id]

    def next_moment(self) -> datetime | None:
        """When the clock matters next to a pause: the nearest deadline, reminder, escalation or end of a rule."""
        moments = [
            moment
            for item in self._open.values()
            for moment in (item.approval.expires_at, item.remind_at, item.escalate_at)
            if moment is not None
        ]
        if self._open:
            moments += [rule.expires_at for rule in self.state.rules if rule.expires_at is not None]
        return min(moments, default=None)

    def rules(self, now: datetime) -> list[Rule]:
        """The rules in force."""
        return [rule for rule in self.state.rules if rule.expires_at is None or now < rule.expires_at]

    # --- Raising ---------------------------------------------------------------------------------------------

    def open(
        self,
        plan: CallPlan,
        *,
        name: str,
        args: Json,
        digest: str,
        tool_call_id: str | None,
        context: ApprovalContext,
        now: datetime,
        kind: ApprovalType = ApprovalType.TOOL,
        question: Any = None,
        schemas: dict[str, Json] | None = None,
        roles: dict[str, list[str]] | None = None,
        tool_change: bool = False,
        batch: int = 0,
        call: int = 0,
    ) -> Item:
        """Raise an approval. A held decision or a rule may settle it at once."""
        state = self.state
        state.number += 1
        earlier = state.rejections.get(digest)
        approval = Approval(
            id=f"{state.prefix}-{state.number}",
            type=kind,
            digest=digest,
            tool_call_id=tool_call_id,
            name=name,
            args=args,
            tool_description=plan.tool_description,
            description=plan.description,
            question=question,
            tags=plan.tags,
            warnings=plan.warnings,
            repeat_of=earlier.first if earlier else None,
            allowed_decisions=plan.allowed_decisions,
            requested_at=now,
            expires_at=_after(now, plan.timeout_s),
            reviewers=plan.reviewers,
            quorum=Quorum(required=plan.quorum),
            context=context,
        )
        item = Item(
            approval=approval,
            plan=plan,
            schemas=schemas or {},
            roles=roles or {},
            tool_change=tool_change,
            batch=batch,
            call=call,
            remind_at=_after(now, plan.remind_every_s),
            escalate_at=_after(now, plan.escalate_after_s) if plan.escalate_to else None,
        )
        state.items.append(item)
        self._by_id[approval.id] = self._open[approval.id] = item
        self._apply_held(item, now)
        if item.open:
            self._apply_rules(item, now)
        if item.open:
            self.notices.append(Notice("requested", item))
        return item

    def repeat_is_denied(self, plan: CallPlan) -> bool:
        """Whether the call was rejected before and the policy says not to put it up again."""
        return plan.repeat_rejected == "deny" and plan.digest in self.state.rejections

    def count_rejection(self, digest: str, approval_id: str) -> None:
        """Count one more rejection of the same call."""
        known = self.state.rejections.setdefault(digest, Rejections(first=approval_id))
        known.count += 1

    def rejections(self, digest: str) -> int:
        """How often the call with this digest was rejected in the turn."""
        known = self.state.rejections.get(digest)
        return known.count if known else 0

    # --- Deciding --------------------------------------------------------------------------------------------

    def examine(self, payload: Any, now: datetime) -> list[Effect]:
        """Check a whole request. Raises RefusedError with one refusal a faulty decision; changes nothing."""
        submission = decisions.parse(payload)
        entries = self._placed(submission.entries) if submission.positional else submission.entries
        effects: list[Effect] = []
        refusals: list[Refusal] = []
        for entry in entries:
            try:
                effects.append(self._effect(entry, now))
            except RefusedError as error:
                refusals.extend(error.refusals)
        if refusals:
            raise RefusedError.of(refusals)
        self._room_to_hold([effect for effect in effects if effect.item is None])
        return effects

    def submit(self, payload: Any, now: datetime) -> list[Receipt]:
        """Check and apply a whole request: all of it or, raising RefusedError, nothing."""
        self.tick(now)
        effects = self.examine(payload, now)
        receipts = [self._apply(effect, now) for effect in effects]
        for effect in effects:
            if effect.item and effect.decision.remember and effect.outcome is Outcome.APPLIED:
                self._remember(effect.item, effect.decision, now)
        return receipts

    def _room_to_hold(self, early: Sequence[Effect]) -> None:
        """Bound what is held, in number and in bytes: it goes over continue-as-new with everything else."""
        if not early:
            return
        held = self.state.held
        if len(held) + len(early) > HELD_LIMIT:
            raise refuse("unknown_approval", f"more than {HELD_LIMIT} decisions for calls that do not exist yet")
        size = sum(json_size(one.payload) for one in held)
        size += sum(json_size(effect.payload) for effect in early)
        if size > HELD_BYTES:
            raise refuse("too_large", f"decisions for calls that do not exist yet have more than {HELD_BYTES} bytes")

    def _placed(self, entries: Sequence[Entry]) -> list[Entry]:
        """Give the decisions of a list without ids the ids of the one open batch, by position."""
        open_batches = {item.batch for item in self.waiting() if item.batch}
        if len(open_batches) != 1:
            raise refuse(
                "malformed",
                "a list without ids answers a whole batch, and none waits: give each decision an 'approval_id'",
                "decisions",
            )
        batch = [item for item in self.state.items if item.batch in open_batches]
        if len(batch) != len(entries):
            raise refuse(
                "malformed",
                f"the batch has {len(batch)} calls and the list has {len(entries)} decisions: send one for each",
                "decisions",
            )
        return [
            Entry(
                item.approval.id,
                entry.decision,
                entry.refusal
                and Refusal(entry.refusal.code, entry.refusal.message, entry.refusal.path, item.approval.id),
                entry.sender,
            )
            for entry, item in zip(entries, batch, strict=True)
        ]

    def _effect(self, entry: Entry, now: datetime) -> Effect:
        if entry.refusal or entry.decision is None or entry.approval_id is None:
            raise RefusedError.of([entry.refusal or Refusal("malformed", "this is no decision")])
        item = self._by_id.get(entry.approval_id)
        if item is None:
            return self._early(entry, entry.decision)
        return Effect(entry, entry.decision, item, self._judge(item, entry.decision, now))

    def _early(self, entry: Entry, decision: Decision) -> Effect:
        prefix, _, number = (entry.approval_id or "").rpartition("-")
        expected = prefix == self.state.prefix and number.isdigit() and int(number) > self.state.number
        if not (expected and decision.digest):
            raise refuse(
                "unknown_approval",
                f"there is no approval {entry.approval_id!r} in this run: look at what waits with the query 'pending'",
                "approval_id",
                approval_id=entry.approval_id,
            )
        return Effect(entry, decision, None, Outcome.HELD)

    def _judge(self, item: Item, decision: Decision, now: datetime) -> Outcome:
        """Say what the decision does to this approval, or raise why it may not."""
        approval = item.approval
        self._judge_digest(item, decision)
        if not item.open:
            return self._judge_late(item, decision)
        if approval.expires_at and now >= approval.expires_at:
            raise _refusal(item, "expired", f"time ran out at {_clock(approval.expires_at)}: nothing was changed")
        if decision.type not in approval.allowed_decisions:
            allowed = ", ".join(approval.allowed_decisions)
            raise _refusal(
                item,
                "not_allowed",
                f"'{decision.type}' is not allowed for '{approval.name}': allowed are {allowed}",
                "type",
            )
        if decision.remember and not _may_remember(item, decision):
            raise _refusal(
                item, "not_allowed", f"a '{decision.type}' of '{approval.name}' can't be remembered", "remember"
            )
        self._judge_sender(item, decision)
        if isinstance(decision, Edit):
            self._judge_edit(item, decision)
        if self._settles(item, decision):
            return Outcome.APPLIED
        if len(approval.votes) >= VOTES_LIMIT:
            raise _refusal(item, "not_allowed", f"{VOTES_LIMIT} votes were cast: only one that settles it counts now")
        return Outcome.VOTE_RECORDED

    def _judge_digest(self, item: Item, decision: Decision) -> None:
        approval = item.approval
        proposal = approval.proposal
        if item.open and proposal:
            good = {proposal.digest} if decision.type != "reject" else {proposal.digest, approval.digest}
        else:
            good = {approval.digest} | ({proposal.digest} if proposal else set())
        if decision.digest is None and item.open and proposal:
            raise _refusal(
                item,
                "digest_mismatch",
                f"an edit by {proposal.by} is proposed: a vote must carry its digest {proposal.digest!r}",
                "digest",
            )
        if decision.digest is not None and decision.digest not in good:
            wanted = proposal.digest if item.open and proposal else approval.digest
            raise _refusal(
                item,
                "digest_mismatch",
                f"the decision is about another call: its digest is {decision.digest!r}, and {wanted!r} waits",
                "digest",
            )

    def _judge_late(self, item: Item, decision: Decision) -> Outcome:
        approval, resolution = item.approval, item.approval.resolution
        if approval.status is ApprovalStatus.CANCELLED:
            raise _refusal(item, "cancelled", "the call was called off: nothing was changed")
        if resolution is None or resolution.by == "deadline":
            at = f" at {_clock(approval.expires_at)}" if approval.expires_at else ""
            raise _refusal(item, "expired", f"time ran out{at}: nothing was changed")
        if _same(item, resolution, decision):
            return Outcome.ALREADY_RESOLVED
        raise _refusal(item, "already_decided_conflict", _who_decided(approval, resolution))

    def _judge_sender(self, item: Item, decision: Decision) -> None:
        approval, plan = item.approval, item.plan
        name = decision.reviewer or ""
        asker = approval.context.requested_by
        named = bool(approval.reviewers) or plan.quorum > 1 or (not plan.allow_self_approval and asker is not None)
        if named and not name:
            raise _refusal(
                item, "not_a_reviewer", "say who you are in 'reviewer': this call needs a named reviewer", "reviewer"
            )
        if approval.reviewers and name not in _eligible(item) and not self._claims_role(item, decision):
            who = ", ".join(approval.reviewers)
            raise _refusal(
                item, "not_a_reviewer", f"{name!r} may not decide about '{approval.name}': {who} may", "reviewer"
            )
        if not plan.allow_self_approval and name and name == asker:
            raise _refusal(
                item, "self_approval", f"{name!r} asked for this work and may not decide about it", "reviewer"
            )

    def _claims_role(self, item: Item, decision: Decision) -> bool:
        """Whether a verified token says that the sender has a role which may decide."""
        return self.state.signed and any(f"role:{role}" in item.approval.reviewers for role in roles_of(decision.token))

    def _judge_edit(self, item: Item, decision: Edit) -> None:
        approval = item.approval
        name, args = _edited(item, decision)
        if name != approval.name and (not item.tool_change or name not in item.schemas):
            why = "there is no such tool to change to" if item.tool_change else "an edit may not name another tool"
            raise _refusal(item, "invalid_edit", f"{why}: the call is of '{approval.name}'", "edited_action", "name")
        problems = check(item.schemas.get(name, {"type": "object"}), args)
        if problems:
            text = "; ".join(sentence for _, sentence in problems[:5])
            raise _refusal(
                item,
                "invalid_edit",
                f"the arguments do not fit '{name}': {text}",
                "edited_action",
                "args",
                *problems[0][0],
            )
        editable = item.plan.editable_args
        if editable is not None and name == approval.name:
            for key in {**args, **approval.args}:
                if key not in editable and (key in args, args.get(key)) != (
                    key in approval.args,
                    approval.args.get(key),
                ):
                    may = ", ".join(editable) or "none"
                    raise _refusal(
                        item,
                        "invalid_edit",
                        f"argument '{key}' may not be changed: {may} may",
                        "edited_action",
                        "args",
                        key,
                    )

    # --- Applying --------------------------------------------------------------------------------------------

    def _apply(self, effect: Effect, now: datetime) -> Receipt:
        item, decision = effect.item, effect.decision
        if item is None:
            self.state.held.append(Held(payload=effect.payload, verified=self.state.signed))
            return Receipt(approval_id=effect.entry.approval_id or "", outcome=Outcome.HELD)
        if effect.outcome is not Outcome.ALREADY_RESOLVED:
            self._vote(item, decision, now)
            if effect.outcome is Outcome.APPLIED:
                self._settle(item, self._resolution(item, decision, now))
        approval = item.approval
        return Receipt(
            approval_id=approval.id,
            outcome=effect.outcome,
            status=approval.status,
            resolution=_masked_resolution(item),
            expires_at=approval.expires_at,
        )

    def _settles(self, item: Item, decision: Decision) -> bool:
        required = item.approval.quorum.required
        if required <= 1 or decision.type in ("reject", "answer"):
            return True
        ballot = _ballot(item, decision)
        same = {name for name, cast in item.ballots.items() if cast == ballot} | {decision.reviewer or ""}
        return len(same) >= required

    def _vote(self, item: Item, decision: Decision, now: datetime) -> None:
        approval = item.approval
        ballot = _ballot(item, decision)
        name = decision.reviewer or ""
        if item.ballots.get(name) == ballot and approval.quorum.required > 1:
            return
        if isinstance(decision, Edit) and approval.quorum.required > 1:
            tool, args = _edited(item, decision)
            approval.proposal = Proposal(name=tool, args=args, digest=digest_of(tool, args), by=decision.reviewer)
        item.ballots[name] = ballot
        approval.votes.append(Vote(reviewer=decision.reviewer, type=decision.type, comment=decision.comment, at=now))
        approval.quorum.received = sum(cast == ballot for cast in item.ballots.values())

    def _resolution(self, item: Item, decision: Decision, now: datetime) -> Resolution:
        resolution = Resolution(type=decision.type, reviewer=decision.reviewer, comment=decision.comment, at=now)
        proposal = item.approval.proposal
        if isinstance(decision, Edit):
            name, args = _edited(item, decision)
            resolution.edited_action = {"name": name, "args": args}
        elif isinstance(decision, Approve) and proposal:
            resolution.type = "edit"
            resolution.edited_action = {"name": proposal.name, "args": proposal.args}
        elif isinstance(decision, (Reject, Respond)):
            resolution.message = decision.message
        elif isinstance(decision, Answer):
            resolution.value = decision.value
        return resolution

    def _settle(self, item: Item, resolution: Resolution) -> None:
        approval = item.approval
        del self._open[approval.id]
        approval.resolution = resolution
        approval.status = _SETTLED_AS[resolution.type]
        if resolution.by == "deadline" and resolution.type == "reject":
            approval.status = ApprovalStatus.EXPIRED
        if resolution.type == "reject" and resolution.by in ("reviewer", "rule") and approval.type is ApprovalType.TOOL:
            self.count_rejection(approval.digest, approval.id)
        kind = "expired" if resolution.by == "deadline" else "resolved"
        self.notices.append(Notice(kind, item))

    def _apply_held(self, item: Item, now: datetime) -> None:
        mine = [held for held in self.state.held if held.payload.get("approval_id") == item.approval.id]
        self.state.held = [held for held in self.state.held if held not in mine]
        for held in mine:
            try:
                if self.state.signed and not held.verified:
                    raise _refusal(item, "not_a_reviewer", "the decision came early and was not verified", "token")
                self.submit(held.payload, now)
            except RefusedError as error:
                self.refuse(error, now, by=held.payload.get("reviewer"))

    # --- Rules -----------------------------------------------------------------------------------------------

    def _remember(self, item: Item, decision: Decision, now: datetime) -> None:
        remember = decision.remember
        if remember is None:
            return
        state = self.state
        state.rule_number += 1
        rule = Rule(
            id=f"{state.prefix}-rule-{state.rule_number}",
            scope=remember.scope,
            match=remember.match,
            tool=item.approval.name,
            digest=item.approval.digest if remember.match == "args" else None,
            type="approve" if decision.type == "approve" else "reject",
            message=decision.message if isinstance(decision, Reject) else None,
            by=decision.reviewer,
            at=now,
            expires_at=_after(now, remember.expires_in),
        )
        state.rules.append(rule)
        if remember.apply_to_pending:
            for other in self.waiting():
                self._apply_rules(other, now, [rule])

    def _apply_rules(self, item: Item, now: datetime, rules: Sequence[Rule] | None = None) -> None:
        for rule in self.rules(now) if rules is None else rules:
            if _rule_covers(rule, item):
                resolution = Resolution(
                    type=rule.type, by="rule", reviewer=rule.by, message=rule.message, rule_id=rule.id, at=now
                )
                self._settle(item, resolution)
                return

    def revoke_rule(self, payload: Any, now: datetime) -> list[Rule]:
        """Take rules back by `rule_id` or by `tool`; returns what was taken back."""
        doomed = self.examine_revoke(payload, now)
        self.state.rules = [rule for rule in self.state.rules if rule not in doomed]
        return doomed

    def examine_revoke(self, payload: Any, now: datetime) -> list[Rule]:
        """Check a request to take back rules. Raises RefusedError."""
        data = _only(payload, "rule_id", "tool", "reviewer")
        rule_id, tool = data.get("rule_id"), data.get("tool")
        if (rule_id is None) == (tool is None):
            raise refuse("malformed", "name the rule with one of 'rule_id' and 'tool'", "rule_id")
        if self.state.admins and data.get("reviewer") not in self.state.admins:
            raise refuse(
                "not_a_reviewer", "only an admin may take back a rule: say who you are in 'reviewer'", "reviewer"
            )
        doomed = [rule for rule in self.rules(now) if rule.id == rule_id or (tool is not None and rule.tool == tool)]
        if not doomed:
            raise refuse("unknown_approval", f"there is no rule {rule_id or tool!r}: the query 'rules' lists them")
        return doomed

    # --- People and time ---------------------------------------------------------------------------------------

    def examine_reassign(self, payload: Any, now: datetime) -> tuple[Item, list[str], str | None]:
        """Check a request to hand an approval to other reviewers. Raises RefusedError."""
        data = _only(payload, "approval_id", "reviewers", "reviewer", "type", "digest", "token")
        if data.get("type", REASSIGN) != REASSIGN:
            raise refuse("malformed", f"'type' is {REASSIGN!r} here, or left out", "type")
        item = self._by_id.get(str(data.get("approval_id", "")))
        if item is None:
            raise refuse(
                "unknown_approval", f"there is no approval {data.get('approval_id')!r} in this run", "approval_id"
            )
        to = data.get("reviewers")
        if not isinstance(to, list) or not 0 < len(to) <= REVIEWERS_LIMIT or not all(map(_is_name, to)):
            raise _refusal(
                item, "malformed", f"'reviewers' must be a list of 1 to {REVIEWERS_LIMIT} names", "reviewers"
            )
        by = data.get("reviewer")
        if by is not None and not _is_name(by):
            raise _refusal(item, "malformed", "'reviewer' must be a text of at most 256 characters", "reviewer")
        if len(item.approval.reassigned) >= REASSIGNED_LIMIT:
            raise _refusal(item, "not_allowed", f"it was handed on {REASSIGNED_LIMIT} times; no more")
        if not item.open or (item.approval.expires_at and now >= item.approval.expires_at):
            raise _refusal(item, "closed", f"it does not wait any more (it is {item.approval.status})")
        may = _eligible(item) | set(self.state.admins) | set(item.plan.escalate_to)
        if (item.approval.reviewers or self.state.admins) and by not in may:
            raise _refusal(
                item, "not_a_reviewer", f"{by!r} may not hand it on: {', '.join(sorted(may))} may", "reviewer"
            )
        if len(set(to)) < item.approval.quorum.required and not any(name.startswith("role:") for name in to):
            raise _refusal(
                item,
                "malformed",
                f"{item.approval.quorum.required} people must approve: name at least as many",
                "reviewers",
            )
        return item, to, by

    def reassign(self, payload: Any, now: datetime) -> Item:
        """Hand an approval to other reviewers; votes that were given stay on record and count."""
        item, to, by = self.examine_reassign(payload, now)
        item.approval.reviewers = to
        item.approval.reassigned.append(Reassignment(by=by, to=to, at=now))
        self.notices.append(Notice("requested", item, 1 + len(item.approval.reassigned)))
        return item

    def tick(self, now: datetime) -> None:
        """Do what the clock demands: expire, escalate, remind, and forget rules that ran out."""
        if any(rule.expires_at is not None for rule in self.state.rules):
            self.state.rules = self.rules(now)
        for item in self.waiting():
            if item.approval.expires_at and now >= item.approval.expires_at:
                self._expire(item, now)
                continue
            if item.escalate_at and now >= item.escalate_at:
                self._escalate(item, now)
            if item.remind_at and now >= item.remind_at:
                self._remind(item, now)

    def _expire(self, item: Item, now: datetime) -> None:
        words = item.plan.on_timeout or {"type": "reject"}
        resolution = Resolution(
            type=words.get("type", "reject"),
            by="deadline",
            message=words.get("message"),
            value=words.get("value"),
            at=now,
        )
        if resolution.type not in ("approve", "reject", "respond", "answer"):
            resolution.type = "reject"
        self._settle(item, resolution)

    def _escalate(self, item: Item, now: datetime) -> None:
        item.escalate_at = None
        if item.approval.reviewers:
            item.approval.reviewers = list(dict.fromkeys([*item.approval.reviewers, *item.plan.escalate_to]))
        item.approval.reassigned.append(Reassignment(to=list(item.plan.escalate_to), at=now))
        self.notices.append(Notice("escalated", item))

    def _remind(self, item: Item, now: datetime) -> None:
        every = item.plan.remind_every_s or 0.0
        while item.remind_at is not None and item.remind_at <= now:
            item.reminders += 1
            self.notices.append(Notice("reminder", item, item.reminders))
            item.remind_at = _after(item.remind_at, every) if every > 0 else None

    def cancel(self, item: Item, now: datetime) -> None:
        """Close one approval as cancelled."""
        del self._open[item.approval.id]
        item.approval.status = ApprovalStatus.CANCELLED
        item.approval.resolution = Resolution(type="cancelled", by="stop", at=now)
        self.notices.append(Notice("cancelled", item))

    def cancel_all(self, now: datetime) -> None:
        """Close everything that waits as cancelled."""
        for item in self.waiting():
            self.cancel(item, now)

    def executed(self, item: Item, name: str, args: Json, outcome: Any, now: datetime) -> None:
        """Record what ran under this approval."""
        item.approval.executed = Executed(name=name, args=args, outcome=outcome, at=now)

    # --- Refusals --------------------------------------------------------------------------------------------

    def refuse(self, error: RefusedError, now: datetime, *, signal: str = "decide", by: str | None = None) -> None:
        """Keep a refused signal for people to see; the last 20 are kept."""
        for refusal in error.refusals:
            self.state.refused.append(
                Refused(
                    code=refusal.code,
                    message=refusal.message[:1000],
                    path=list(refusal.path),
                    approval_id=refusal.approval_id,
                    by=by,
                    signal=signal[:200],
                    at=now,
                )
            )
            self.state.refused_count += 1
        del self.state.refused[:-REFUSED_KEPT]

    # --- Showing ---------------------------------------------------------------------------------------------

    def view(self, item: Item) -> Approval:
        """Return the approval as people see it: with its response schema while it waits, secrets masked."""
        approval = item.approval.model_copy(deep=False)
        if item.open:
            approval.response_schema = response_schema(
                approval.name,
                approval.allowed_decisions,
                item.schemas.get(approval.name),
                remember=_may_remember(item, None),
                other_tools=[name for name in item.schemas if name != approval.name] if item.tool_change else None,
            )
        if item.plan.secret_args:
            approval.args = mask(approval.args, item.plan.secret_args)
            approval.resolution = _masked_resolution(item)
            if approval.executed:
                approval.executed = approval.executed.model_copy(
                    update={"args": mask(approval.executed.args, item.plan.secret_args)}
                )
            if approval.proposal:
                approval.proposal = approval.proposal.model_copy(
                    update={"args": mask(approval.proposal.args, item.plan.secret_args)}
                )
        return approval


# --- Judgements that need no ledger --------------------------------------------------------------------------------


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 256


def mask(args: Json, secret: Sequence[str]) -> Json:
    """Return the arguments with the secret ones hidden."""
    return {key: SECRET if key in secret else value for key, value in args.items()}


def _masked_resolution(item: Item) -> Resolution | None:
    resolution = item.approval.resolution
    if resolution is None or resolution.edited_action is None or not item.plan.secret_args:
        return resolution
    action = resolution.edited_action
    return resolution.model_copy(
        update={"edited_action": {**action, "args": mask(action.get("args", {}), item.plan.secret_args)}}
    )


def _edited(item: Item, decision: Edit) -> tuple[str, Json]:
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


def _ballot(item: Item, decision: Decision) -> str:
    """What a vote is for; votes for the same thing count together."""
    if isinstance(decision, Edit):
        return f"run:{digest_of(*_edited(item, decision))}"
    if isinstance(decision, Approve):
        proposal = item.approval.proposal
        return f"run:{proposal.digest if proposal else item.approval.digest}"
    if isinstance(decision, Respond):
        return "respond:" + hashlib.sha256(decision.message.encode()).hexdigest()
    return decision.type


def _same(item: Item, resolution: Resolution, decision: Decision) -> bool:
    """The same type, arguments, answer or response text; reasons and comments don't count."""
    if isinstance(decision, Edit):
        name, args = _edited(item, decision)
        return resolution.type == "edit" and _json(resolution.edited_action) == _json({"name": name, "args": args})
    if isinstance(decision, Approve) and item.approval.proposal and resolution.type == "edit":
        return True
    if decision.type != resolution.type:
        return False
    if isinstance(decision, Respond):
        return decision.message == resolution.message
    if isinstance(decision, Answer):
        return _json(decision.value) == _json(resolution.value)
    return True


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _may_remember(item: Item, decision: Decision | None) -> bool:
    plan = item.plan
    able = plan.allow_remember and plan.quorum <= 1 and item.approval.type is ApprovalType.TOOL
    return able and (decision is None or decision.type in ("approve", "reject"))


def _eligible(item: Item) -> set[str]:
    names: set[str] = set()
    for reviewer in item.approval.reviewers:
        names |= set(item.roles.get(reviewer[5:], [])) if reviewer.startswith("role:") else {reviewer}
    return names


def _rule_covers(rule: Rule, item: Item) -> bool:
    """A rule never settles a call that its maker could not have decided."""
    approval, plan = item.approval, item.plan
    if not item.open or rule.tool != approval.name or not _may_remember(item, None):
        return False
    if rule.match == "args" and rule.digest != approval.digest:
        return False
    if rule.type not in approval.allowed_decisions:
        return False
    if approval.reviewers and rule.by not in _eligible(item):
        return False
    asker = approval.context.requested_by
    return plan.allow_self_approval or asker is None or (rule.by is not None and rule.by != asker)


def _payload(entry: Entry, decision: Decision) -> Json:
    data = decision.model_dump(mode="json", exclude_none=True)
    if isinstance(decision, Answer):
        data["value"] = decision.value
    return {**data, "approval_id": entry.approval_id}


def _only(payload: Any, *fields: str) -> Json:
    """The object of a request that has these fields at most."""
    if isinstance(payload, str):
        payload = decisions.loads(payload)
    if not isinstance(payload, dict):
        raise refuse("malformed", f"send a JSON object with {', '.join(fields)}")
    for key in payload:
        if key not in fields:
            raise refuse("malformed", f"unknown field {key[:200]!r}: known are {', '.join(fields)}", key)
    return {key: value for key, value in payload.items() if value is not None}


def _refusal(item: Item, code: str, message: str, *path: str | int) -> RefusedError:
    approval_id = item.approval.id
    return refuse(code, f"approval {approval_id!r}: {message}", *path, approval_id=approval_id)


def _who_decided(approval: Approval, resolution: Resolution) -> str:
    who = resolution.reviewer or "somebody who gave no name"
    if resolution.by == "rule":
        who = f"a remembered rule of {who}"
    at = f" at {_clock(resolution.at)}" if resolution.at else ""
    return f"it was {_SETTLED_AS[resolution.type].value} by {who}{at}; nothing was changed"


def _clock(moment: datetime | None) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC") if moment else "an unknown time"


def _after(now: datetime, seconds: float | None) -> datetime | None:
    return None if seconds is None else now + timedelta(seconds=seconds)
