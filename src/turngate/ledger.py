"""The ledger of a turn: it owns the approvals and decides what a submitted payload does.

A plain object without Temporal, a clock or randomness: time comes in as an argument, so the same calls give the same
ledger at every replay. `examine` changes nothing and raises what is wrong; `submit` applies what `examine` let pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

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
    Refused,
    Resolution,
    Rule,
    Vote,
    digest_of,
    json_size,
)
from turngate.decisions import Answer, Approve, Decision, Edit, Entry, Reject, Respond
from turngate.errors import Refusal, RefusedError, refuse
from turngate.items import Held, Item, LedgerState, Notice, Rejections, masked_resolution, view
from turngate.judging import (
    SETTLED_AS,
    ballot_of,
    edited_call,
    eligible,
    judge,
    may_remember,
    named_by,
    refusal_of,
    rule_covers,
    silence,
)
from turngate.verifier import REASSIGN

# What is kept for the record goes over continue-as-new, so whoever may send must not be able to make it grow for ever.
HELD_BYTES = 512 * KIB
REASSIGNED_LIMIT = 50
REVIEWERS_LIMIT = 50


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
        self.turned_away: list[RefusedError] = []
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
        # What counts as the same call is the model's own, also where a reviewer put another tool in.
        earlier = state.rejections.get(plan.digest or digest)
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
        return Effect(entry, entry.decision, item, judge(item, entry.decision, now, signed=self.state.signed))

    def _early(self, entry: Entry, decision: Decision) -> Effect:
        if not (decision.digest and self._may_come(entry.approval_id or "")):
            raise refuse(
                "unknown_approval",
                f"there is no approval {entry.approval_id!r} in this run: look at what waits with the query 'pending'",
                "approval_id",
                approval_id=entry.approval_id,
            )
        return Effect(entry, decision, None, Outcome.HELD)

    def _may_come(self, approval_id: str) -> bool:
        """Whether an approval of this id may still be raised: only numbers as we write them can ever be met."""
        prefix, _, number = approval_id.rpartition("-")
        written = number.isascii() and number.isdigit() and not number.startswith("0")
        return written and prefix == self.state.prefix and int(number) > self.state.number

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
            resolution=masked_resolution(item),
            expires_at=approval.expires_at,
        )

    def _vote(self, item: Item, decision: Decision, now: datetime) -> None:
        approval = item.approval
        ballot = ballot_of(item, decision)
        name = decision.reviewer or ""
        if item.ballots.get(name) == ballot and approval.quorum.required > 1:
            return
        if isinstance(decision, Edit) and approval.quorum.required > 1:
            tool, args = edited_call(item, decision)
            approval.proposal = Proposal(name=tool, args=args, digest=digest_of(tool, args), by=decision.reviewer)
        item.ballots[name] = ballot
        approval.votes.append(Vote(reviewer=decision.reviewer, type=decision.type, comment=decision.comment, at=now))
        approval.quorum.received = sum(cast == ballot for cast in item.ballots.values())

    def _resolution(self, item: Item, decision: Decision, now: datetime) -> Resolution:
        resolution = Resolution(type=decision.type, reviewer=decision.reviewer, comment=decision.comment, at=now)
        proposal = item.approval.proposal
        if isinstance(decision, Edit):
            name, args = edited_call(item, decision)
            resolution.edited_action = {"name": name, "args": args}
        elif isinstance(decision, Approve) and proposal:
            resolution.type = "edit"
            resolution.edited_action = {"name": proposal.name, "args": proposal.args}
        elif isinstance(decision, (Reject, Respond)):
            resolution.message = decision.message
        elif isinstance(decision, Answer):
            resolution.value = decision.value
        return resolution

    def _close(self, item: Item) -> None:
        del self._open[item.approval.id]
        # Nobody edits it any more, and where the tool may change these are the schemas of all tools: they would go over
        # continue-as-new once for every approval of the turn.
        item.schemas = {}

    def _settle(self, item: Item, resolution: Resolution) -> None:
        approval = item.approval
        self._close(item)
        approval.resolution = resolution
        approval.status = SETTLED_AS[resolution.type]
        if resolution.by == "deadline" and resolution.type == "reject":
            approval.status = ApprovalStatus.EXPIRED
        if resolution.type == "reject" and resolution.by in ("reviewer", "rule") and approval.type is ApprovalType.TOOL:
            self.count_rejection(item.plan.digest or approval.digest, approval.id)
        kind = "expired" if resolution.by == "deadline" else "resolved"
        self.notices.append(Notice(kind, item))

    def _apply_held(self, item: Item, now: datetime) -> None:
        mine = [held for held in self.state.held if held.payload.get("approval_id") == item.approval.id]
        self.state.held = [held for held in self.state.held if held not in mine]
        for held in mine:
            try:
                if self.state.signed and not held.verified:
                    raise refusal_of(item, "not_a_reviewer", "the decision came early and was not verified", "token")
                self.submit(held.payload, now)
            except RefusedError as error:
                self.turn_away(held, error, now)

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
        covering = [rule for rule in (self.rules(now) if rules is None else rules) if rule_covers(rule, item)]
        if not covering:
            return
        # Where people have remembered different things, the same arguments say more than the tool, and a no wins.
        rule = min(covering, key=lambda rule: (rule.match != "args", rule.type != "reject"))
        self._settle(
            item,
            Resolution(type=rule.type, by="rule", reviewer=rule.by, message=rule.message, rule_id=rule.id, at=now),
        )

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
            raise refusal_of(
                item, "malformed", f"'reviewers' must be a list of 1 to {REVIEWERS_LIMIT} names", "reviewers"
            )
        by = data.get("reviewer")
        if by is not None and not _is_name(by):
            raise refusal_of(item, "malformed", "'reviewer' must be a text of at most 256 characters", "reviewer")
        if len(item.approval.reassigned) >= REASSIGNED_LIMIT:
            raise refusal_of(item, "not_allowed", f"it was handed on {REASSIGNED_LIMIT} times; no more")
        if not item.open or (item.approval.expires_at and now >= item.approval.expires_at):
            raise refusal_of(item, "closed", f"it does not wait any more (it is {item.approval.status})")
        may = eligible(item) | set(self.state.admins) | set(item.plan.escalate_to)
        if (item.approval.reviewers or self.state.admins) and by not in may:
            raise refusal_of(
                item, "not_a_reviewer", f"{by!r} may not hand it on: {', '.join(sorted(may))} may", "reviewer"
            )
        self._enough_people(item, to)
        return item, to, by

    def _enough_people(self, item: Item, to: list[str]) -> None:
        """Refuse reviewers of whom too few can decide; people whose roles come with a signature can't be counted."""
        unknown = [name for name in to if name.startswith("role:") and name[5:] not in item.roles]
        if unknown and not self.state.signed:
            raise refusal_of(item, "malformed", f"nobody has the role {unknown[0][5:]!r}", "reviewers")
        people = named_by(to, item.roles)
        if not item.plan.allow_self_approval:
            people.discard(item.approval.context.requested_by or "")
        needed = item.approval.quorum.required
        if len(people) < needed and not unknown:
            raise refusal_of(
                item,
                "malformed",
                f"{needed} must be able to decide, and of these {len(people)} can: name at least as many",
                "reviewers",
            )

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
        words = silence(item.plan, item.approval)
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
        self._close(item)
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

    def turn_away(self, held: Held, error: RefusedError, now: datetime) -> None:
        """Refuse a decision that was held: whoever sent it waits for no answer any more."""
        self.state.held = [one for one in self.state.held if one is not held]
        self.refuse(error, now, by=held.payload.get("reviewer"))
        self.turned_away.append(error)

    # --- Showing ---------------------------------------------------------------------------------------------

    def view(self, item: Item) -> Approval:
        """Return the approval as people see it: with its response schema while it waits, secrets masked."""
        return view(item, remember=may_remember(item, None))


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 256


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


def _after(now: datetime, seconds: float | None) -> datetime | None:
    return None if seconds is None else now + timedelta(seconds=seconds)
