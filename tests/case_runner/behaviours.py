"""The small functions of a case: for `when`, `description`, policies and tags."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.case_runner.templates import fill
from turngate import Deny
from turngate.testing import Journal

Json = dict[str, Any]


def build_behaviour(name: str, spec: Json | None, journal: Journal) -> Callable[..., Any]:
    """Return the function that `{"$fn": name}` stands for; one that is not described answers True."""
    spec = spec or {"kind": "returns", "value": True}

    def behave(subject: Any, *more: Any) -> Any:
        with journal.lock:
            count = journal.count("behaviour", name=name)
            journal.write("behaviour", name=name)
        return _KINDS[spec["kind"]](spec, subject, count)

    async def behave_async(subject: Any, *more: Any) -> Any:
        return behave(subject, *more)

    function = behave_async if spec.get("async") else behave
    function.__name__ = name
    return function


def _call(subject: Any) -> tuple[str, Json]:
    """Return name and arguments of the call that a function was asked about, whatever it was given."""
    if hasattr(subject, "tool_call"):
        subject = subject.tool_call
    if isinstance(subject, dict):
        return subject.get("name", ""), subject["args"]
    return subject.tool_name, subject.args


def _args(subject: Any) -> Json:
    return _call(subject)[1]


def _returns(spec: Json, subject: Any, count: int) -> Any:
    return spec["value"]


def _flips(spec: Json, subject: Any, count: int) -> Any:
    return spec["values"][min(count, len(spec["values"]) - 1)]


def _raises(spec: Json, subject: Any, count: int) -> Any:
    raise RuntimeError(spec.get("message", "the behaviour raises"))


def _arg_startswith(spec: Json, subject: Any, count: int) -> bool:
    return bool(_args(subject)[spec["arg"]].startswith(spec["value"]))


def _arg_over(spec: Json, subject: Any, count: int) -> bool:
    return bool(_args(subject)[spec["arg"]] > spec["value"])


def _by_amount(spec: Json, subject: Any, count: int) -> Any:
    amount = _args(subject)[spec["arg"]]
    band = next(band for band in spec["bands"] if "up_to" not in band or amount <= band["up_to"])
    verdict = band["verdict"]
    return Deny(verdict["deny"]) if isinstance(verdict, dict) and "deny" in verdict else verdict


def _context_tags(spec: Json, subject: Any, count: int) -> list[str]:
    return [str(_field(subject, path)) for path in spec["fields"]]


def _tags_by_tool(spec: Json, subject: Any, count: int) -> list[str]:
    return list(spec["tags"].get(_call(subject)[0], []))


def _text(spec: Json, subject: Any, count: int) -> Any:
    return fill(spec["text"], _args(subject))


def _field(subject: Any, path: str) -> Any:
    for name in path.split("."):
        subject = subject.get(name) if isinstance(subject, dict) else getattr(subject, name)
    return subject


_KINDS: dict[str, Callable[[Json, Any, int], Any]] = {
    "returns": _returns,
    "flips": _flips,
    "raises": _raises,
    "arg_startswith": _arg_startswith,
    "arg_over": _arg_over,
    "by_amount": _by_amount,
    "context_tags": _context_tags,
    "tags_by_tool": _tags_by_tool,
    "text": _text,
}
