"""Turngate: LLM agents whose dangerous tool calls wait, durably, for a person.

Layers, each importing only what stands left of it (`tests/unit/test_layers.py` checks this):

    contracts, errors, texts <- schemas, decisions, ledger <- workflows      orchestration: deterministic, no user code
    contracts, errors, texts <- policy <- agent <- activities                user code, and everything with an effect

The two meet in what travels between them, and in `worker` and `plugin`. `client` imports contracts only. The names
below are loaded when they are first used, so that `import turngate.client` brings no LangChain with it.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turngate.agent import Agent as Agent
    from turngate.agent_options import ToolOptions as ToolOptions
    from turngate.client import TurngateClient as TurngateClient
    from turngate.codec import EncryptionCodec as EncryptionCodec
    from turngate.contracts import (
        Approval as Approval,
        ApprovalContext as ApprovalContext,
        ApprovalStatus as ApprovalStatus,
        ApprovalType as ApprovalType,
        Executed as Executed,
        Outcome as Outcome,
        Proposal as Proposal,
        Quorum as Quorum,
        Receipt as Receipt,
        Refused as Refused,
        Resolution as Resolution,
        Rule as Rule,
        TurnRequest as TurnRequest,
        TurnResult as TurnResult,
        TurnStatus as TurnStatus,
        Vote as Vote,
    )
    from turngate.devserver import DevServer as DevServer
    from turngate.errors import (
        AlreadyDecidedError as AlreadyDecidedError,
        BusyError as BusyError,
        CancelledApprovalError as CancelledApprovalError,
        ClosedError as ClosedError,
        ConfigError as ConfigError,
        DigestMismatchError as DigestMismatchError,
        ExpiredError as ExpiredError,
        InvalidEditError as InvalidEditError,
        MalformedError as MalformedError,
        NotAllowedError as NotAllowedError,
        NotAReviewerError as NotAReviewerError,
        NotifierError as NotifierError,
        NoWorkerError as NoWorkerError,
        Refusal as Refusal,
        RefusedError as RefusedError,
        SelfApprovalError as SelfApprovalError,
        ServerError as ServerError,
        TooLargeError as TooLargeError,
        TurnAlreadyStartedError as TurnAlreadyStartedError,
        TurnFailedError as TurnFailedError,
        TurngateError as TurngateError,
        UnknownApprovalError as UnknownApprovalError,
    )
    from turngate.events import Event as Event
    from turngate.handles import Paused as Paused, TurnHandle as TurnHandle
    from turngate.interrupts import InterruptOnConfig as InterruptOnConfig
    from turngate.notifiers import (
        AppriseNotifier as AppriseNotifier,
        Notification as Notification,
        Notifier as Notifier,
        WebhookNotifier as WebhookNotifier,
    )
    from turngate.plugin import TurngatePlugin as TurngatePlugin
    from turngate.policy import (
        ABSTAIN as ABSTAIN,
        Allowlist as Allowlist,
        Deny as Deny,
        Denylist as Denylist,
        PolicyContext as PolicyContext,
        Predicate as Predicate,
    )
    from turngate.storage import folder_storage as folder_storage
    from turngate.threads import ThreadHandle as ThreadHandle
    from turngate.tools import current_call as current_call, human_tool as human_tool, interrupt as interrupt
    from turngate.verifier import DecisionVerifier as DecisionVerifier, sign_decision as sign_decision
    from turngate.worker import build_worker as build_worker, run_worker as run_worker

# A checkout without symbolic links has a small text file in place of each of these folders.
for _linked in ("workflows", "activities"):
    if (Path(__file__).parent / _linked).is_file():
        raise ImportError(
            f"turngate/{_linked} is a file, not a folder: this checkout has no symbolic links; "
            "check it out again with `git clone -c core.symlinks=true` (on Windows: with developer mode on)"
        )

_MODULES = {
    "agent": ("Agent",),
    "agent_options": ("ToolOptions",),
    "client": ("TurngateClient",),
    "codec": ("EncryptionCodec",),
    "contracts": (
        "Approval",
        "ApprovalContext",
        "ApprovalStatus",
        "ApprovalType",
        "Executed",
        "Outcome",
        "Proposal",
        "Quorum",
        "Receipt",
        "Refused",
        "Resolution",
        "Rule",
        "TurnRequest",
        "TurnResult",
        "TurnStatus",
        "Vote",
    ),
    "devserver": ("DevServer",),
    "errors": (
        "AlreadyDecidedError",
        "BusyError",
        "CancelledApprovalError",
        "ClosedError",
        "ConfigError",
        "DigestMismatchError",
        "ExpiredError",
        "InvalidEditError",
        "MalformedError",
        "NoWorkerError",
        "NotAReviewerError",
        "NotAllowedError",
        "NotifierError",
        "Refusal",
        "RefusedError",
        "SelfApprovalError",
        "ServerError",
        "TooLargeError",
        "TurnAlreadyStartedError",
        "TurnFailedError",
        "TurngateError",
        "UnknownApprovalError",
    ),
    "events": ("Event",),
    "handles": ("Paused", "TurnHandle"),
    "interrupts": ("InterruptOnConfig",),
    "notifiers": ("AppriseNotifier", "Notification", "Notifier", "WebhookNotifier"),
    "plugin": ("TurngatePlugin",),
    "policy": ("ABSTAIN", "Allowlist", "Deny", "Denylist", "PolicyContext", "Predicate"),
    "storage": ("folder_storage",),
    "threads": ("ThreadHandle",),
    "tools": ("current_call", "human_tool", "interrupt"),
    "verifier": ("DecisionVerifier", "sign_decision"),
    "worker": ("build_worker", "run_worker"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'turngate' has no attribute {name!r}")
    found = getattr(import_module(f"turngate.{_HOME[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
