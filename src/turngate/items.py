"""The approvals of a turn as data: what the ledger owns, and what continue-as-new carries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pydantic import Field

from turngate.contracts import Approval, ApprovalStatus, CallPlan, Json, Recorded, Refused, Resolution, Rule
from turngate.schemas import response_schema

SECRET = "[secret]"
"""Stands for the value of a secret argument wherever people look; sent back in an edit it means the original."""


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


def view(item: Item, *, remember: bool) -> Approval:
    """Return the approval as people see it: with its response schema while it waits, secrets masked."""
    approval = item.approval.model_copy()
    if item.open:
        approval.response_schema = response_schema(
            approval.name,
            approval.allowed_decisions,
            item.schemas.get(approval.name),
            remember=remember,
            other_tools=[name for name in item.schemas if name != approval.name] if item.tool_change else None,
        )
    secret = item.plan.secret_args
    if secret:
        approval.args = mask(approval.args, secret)
        approval.resolution = masked_resolution(item)
        if approval.executed:
            approval.executed = approval.executed.model_copy(update={"args": mask(approval.executed.args, secret)})
        if approval.proposal:
            approval.proposal = approval.proposal.model_copy(update={"args": mask(approval.proposal.args, secret)})
    return approval


def mask(args: Json, secret: Sequence[str]) -> Json:
    """Return the arguments with the secret ones hidden."""
    return {key: SECRET if key in secret else value for key, value in args.items()}


def masked_resolution(item: Item) -> Resolution | None:
    """Return how the approval was settled, with the secret arguments of an edit hidden."""
    resolution = item.approval.resolution
    if resolution is None or resolution.edited_action is None or not item.plan.secret_args:
        return resolution
    action = resolution.edited_action
    return resolution.model_copy(
        update={"edited_action": {**action, "args": mask(action.get("args", {}), item.plan.secret_args)}}
    )
