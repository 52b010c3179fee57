"""The public API is what `turngate.__all__` lists; a change of it is a decision, made here."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import turngate

NAMES = """
    Agent InterruptOnConfig ToolOptions
    ABSTAIN Allowlist Denylist Predicate PolicyContext Deny
    human_tool interrupt current_call
    TurngateClient TurnHandle ThreadHandle Paused Event
    TurngatePlugin build_worker run_worker DevServer
    Notifier Notification WebhookNotifier AppriseNotifier DecisionVerifier sign_decision EncryptionCodec folder_storage
    Approval ApprovalContext ApprovalStatus ApprovalType Executed Outcome Proposal Quorum Receipt Refused Resolution
    Rule TurnRequest TurnResult TurnStatus Vote
    TurngateError ConfigError ServerError NoWorkerError TurnAlreadyStartedError TurnFailedError RefusedError Refusal
    AlreadyDecidedError BusyError CancelledApprovalError ClosedError DigestMismatchError ExpiredError InvalidEditError
    MalformedError NotAReviewerError NotAllowedError NotifierError SelfApprovalError TooLargeError UnknownApprovalError
"""
PUBLIC = NAMES.split()


def test_list_is_frozen() -> None:
    """Names come and go on purpose only."""
    assert sorted(turngate.__all__) == sorted(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_name_has_a_docstring(name: str) -> None:
    """Every public name says what it is for."""
    found = getattr(turngate, name)
    assert inspect.getdoc(found)
    # Not one that it has only inherited.
    assert not inspect.isclass(found) or found.__doc__


@pytest.mark.parametrize("name", PUBLIC)
def test_methods_have_docstrings(name: str) -> None:
    """Every public method that a public class defines says what it does."""
    found = getattr(turngate, name)
    public = (
        {key: each for key, each in vars(found).items() if not key.startswith("_")} if inspect.isclass(found) else {}
    )
    assert [key for key, each in public.items() if inspect.isfunction(each) and not inspect.getdoc(each)] == []


def test_type_checkers_see_the_same_names() -> None:
    """The imports for type checkers and the table for run time agree."""
    tree = ast.parse(Path(inspect.getfile(turngate)).read_text())
    seen = {
        alias.asname
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("turngate.")
        for alias in node.names
    }
    assert seen == set(turngate.__all__)


def test_unknown_name_is_an_attribute_error() -> None:
    """A typo in a name is told as for any module."""
    with pytest.raises(AttributeError, match="no attribute 'Agnet'"):
        _ = turngate.Agnet


def test_dir_lists_what_is_not_loaded_yet() -> None:
    """Completion in a shell finds the lazy names."""
    assert set(PUBLIC) <= set(dir(turngate))
