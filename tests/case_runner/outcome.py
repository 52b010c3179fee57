"""What the sender of a step was told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from temporalio.client import WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from turngate.contracts import Receipt
from turngate.errors import ConfigError, Refusal, RefusedError, TurngateError

Json = dict[str, Any]


@dataclass
class Outcome:
    """The receipts, or the refusals, of one sender; several senders in `others`."""

    receipts: list[Receipt] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    others: list[Outcome] = field(default_factory=list)
    listed: list[Any] | None = None
    exit_code: int | None = None
    output: str = ""

    @property
    def words(self) -> list[str]:
        """One word per sender: its outcome or its error code."""
        if self.others:
            return [word for other in self.others for word in other.words]
        if self.refusals:
            return [self.refusals[0].code]
        return [str(self.receipts[0].outcome)] if self.receipts else ["accepted"]

    @staticmethod
    def of(answer: Any) -> Outcome:
        """Read what a `decide` answered."""
        if isinstance(answer, dict):
            answer = answer.get("receipts", [])
        return Outcome(receipts=[Receipt.model_validate(one) if isinstance(one, dict) else one for one in answer or []])


def refused(error: Exception) -> Outcome:
    """Return the outcome of a sender that got this error. Raises what is no refusal."""
    if isinstance(error, RefusedError):
        return Outcome(receipts=list(getattr(error, "receipts", ())), refusals=list(error.refusals))
    if isinstance(error, WorkflowUpdateFailedError) and isinstance(error.cause, ApplicationError):
        return Outcome(refusals=refusals_of(error.cause))
    if isinstance(error, ConfigError):
        return Outcome(refusals=[Refusal("config", str(error))])
    if isinstance(error, RPCError):
        return Outcome(refusals=[Refusal(_code_of(error), error.message)])
    if isinstance(error, TurngateError):
        return Outcome(refusals=[Refusal(type(error).__name__, str(error))])
    raise error


def refusals_of(cause: ApplicationError) -> list[Refusal]:
    """Read the refusals that an update's error carries."""
    details = cause.details[0] if cause.details else {}
    entries = details.get("refusals", []) if isinstance(details, dict) else []
    found = [Refusal.from_json(entry) for entry in entries]
    return found or [Refusal(cause.type or "error", cause.message)]


def _code_of(error: RPCError) -> str:
    """What the server itself says where the run is not there any more, in the contract's words."""
    if error.status is RPCStatusCode.NOT_FOUND:
        return "closed" if "already completed" in error.message else "unknown_approval"
    return str(error.status.name).lower()
