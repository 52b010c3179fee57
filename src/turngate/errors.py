"""Every error Turngate raises, as one tree:

TurngateError
├── ConfigError            an agent, tool or worker option makes no sense (raised at construction)
├── RefusedError           a request was refused; `refusals` says why, field by field
│   ├── UnknownApprovalError, AlreadyDecidedError, NotAllowedError, InvalidEditError, ...
│   └── (one class a refusal code, see `REFUSALS`)
├── TurnAlreadyStartedError  the turn id is in use
├── TurnFailedError        the turn ended as failed, cancelled, terminated or timed out
├── NotifierError          a notifier could not tell people; `permanent` says whether to try again
└── ServerError            the Temporal server can't be reached or lacks something
    └── NoWorkerError      no worker answered in time
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar


class TurngateError(Exception):
    """The root of Turngate's errors."""


class ConfigError(TurngateError):
    """An option makes no sense. The message names the tool, the key or the value, and the way out."""

    code: ClassVar[str] = "config"


class ServerError(TurngateError):
    """The Temporal server can't be reached, or lacks something that is needed."""


class NoWorkerError(ServerError):
    """No worker answered: start one that serves the run's task queue, then try again."""


class TurnAlreadyStartedError(TurngateError):
    """A turn with this id exists already: choose another id, or pass `on_existing="attach"`."""

    def __init__(self, turn_id: str) -> None:
        super().__init__(
            f"turn {turn_id!r} was started before: choose another id, or pass on_existing='attach' to go on with it"
        )
        self.turn_id = turn_id


class TurnFailedError(TurngateError):
    """The turn did not end normally. `status` is failed, cancelled, terminated or timed_out."""

    def __init__(self, turn_id: str, status: str, reason: str) -> None:
        super().__init__(f"turn {turn_id!r} {status}: {reason}")
        self.turn_id = turn_id
        self.status = status
        self.reason = reason


class NotifierError(TurngateError):
    """A notifier could not tell people. Its words are recorded in history: no addresses, no secrets.

    `permanent` says that trying again is of no use; `retry_after` is when to try again, in seconds.
    """

    def __init__(self, message: str, *, permanent: bool = False, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.permanent = permanent
        self.retry_after = retry_after


_MESSAGE, _ID, _FIELD, _DEPTH = 2000, 2000, 200, 100
"""Characters of a refusal's message, of its approval id and of one part of its path; parts of a path."""


@dataclass(frozen=True)
class Refusal:
    """Why one decision (or a whole request) was refused.

    `code` is one of the refusal codes, `path` the field inside that decision, `approval_id` the approval it
    names where that is known.
    """

    code: str
    message: str
    path: tuple[str | int, ...] = ()
    approval_id: str | None = None

    def __post_init__(self) -> None:
        # It quotes what was sent, and is kept and sent back itself: a field's name of 250 kB must not come along.
        object.__setattr__(self, "message", self.message[:_MESSAGE])
        object.__setattr__(self, "path", tuple(_short(part) for part in self.path[:_DEPTH]))
        if self.approval_id is not None:
            object.__setattr__(self, "approval_id", self.approval_id[:_ID])

    def to_json(self) -> dict[str, Any]:
        """Return the plain JSON form that crosses the wire."""
        return {"code": self.code, "message": self.message, "path": list(self.path), "approval_id": self.approval_id}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Refusal:
        """Read `to_json` back, with a default for everything that is missing."""
        return cls(
            code=str(data.get("code", "malformed")),
            message=str(data.get("message", "")),
            path=tuple(data.get("path") or ()),
            approval_id=data.get("approval_id"),
        )


def _short(part: str | int) -> str | int:
    return part[:_FIELD] if isinstance(part, str) else part


class RefusedError(TurngateError):
    """A request was refused and nothing was changed. `refusals` has one entry a decision that was at fault.

    `receipts` is filled only where one request spoke to several runs: all or none holds within a run, and these are
    the receipts of the runs that took their part.
    """

    def __init__(self, refusals: Sequence[Refusal]) -> None:
        super().__init__("; ".join(refusal.message for refusal in refusals))
        self.refusals = tuple(refusals)
        self.receipts: tuple[Any, ...] = ()

    @property
    def code(self) -> str:
        """The code of the first refusal."""
        return self.refusals[0].code

    @staticmethod
    def of(refusals: Sequence[Refusal]) -> RefusedError:
        """Build the error class that fits the first refusal."""
        return REFUSALS.get(refusals[0].code, RefusedError)(refusals)


class MalformedError(RefusedError):
    """The request is not one of the documented forms."""


class TooLargeError(RefusedError):
    """The request is larger than 256 KiB."""


class UnknownApprovalError(RefusedError):
    """There is no such approval in this run, or no such run."""


class AlreadyDecidedError(RefusedError):
    """The approval was settled otherwise; the message says who decided what and when."""


class NotAllowedError(RefusedError):
    """This kind of decision is not allowed here."""


class InvalidEditError(RefusedError):
    """The edited call does not fit the recorded schema, or may not be changed so."""


class NotAReviewerError(RefusedError):
    """The sender may not decide about this call."""


class SelfApprovalError(RefusedError):
    """The sender asked for the work and may not decide about it."""


class ExpiredError(RefusedError):
    """Time ran out before the decision came."""


class CancelledApprovalError(RefusedError):
    """The call was called off."""


class ClosedError(RefusedError):
    """The run has ended."""


class DigestMismatchError(RefusedError):
    """The decision is about another call than the one that waits."""


class BusyError(RefusedError):
    """The thread has an open turn."""


REFUSALS: dict[str, type[RefusedError]] = {
    "malformed": MalformedError,
    "too_large": TooLargeError,
    "unknown_approval": UnknownApprovalError,
    "already_decided_conflict": AlreadyDecidedError,
    "not_allowed": NotAllowedError,
    "invalid_edit": InvalidEditError,
    "not_a_reviewer": NotAReviewerError,
    "self_approval": SelfApprovalError,
    "expired": ExpiredError,
    "cancelled": CancelledApprovalError,
    "closed": ClosedError,
    "digest_mismatch": DigestMismatchError,
    "busy": BusyError,
}


def refuse(code: str, message: str, *path: str | int, approval_id: str | None = None) -> RefusedError:
    """Build the error for a single refusal."""
    return RefusedError.of([Refusal(code, message, tuple(path), approval_id)])
