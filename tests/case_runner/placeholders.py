"""What the product's own texts must convey. The wording is the product's: each check looks for ideas, not for words.

A check takes the text and the values of the placeholder, and returns what is missing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

Check = Callable[[str, dict[str, Any]], list[str]]


def text_of(value: Any) -> str:
    """Return a content's text, with the text blocks of block content joined."""
    if isinstance(value, str):
        return value
    return "".join(block if isinstance(block, str) else str(block.get("text", "")) for block in value)


def _ideas(**ideas: str) -> Callable[[str], list[str]]:
    """Build a check for ideas, each a regular expression over the lower-case text with plain apostrophes and spaces."""

    def check(text: str) -> list[str]:
        plain = re.sub(r"\s+", " ", text.lower().replace("\u2019", "'"))
        missing = [idea.replace("_", " ") for idea, words in ideas.items() if not re.search(words, plain)]
        return [f"it does not say: {idea}" for idea in missing]

    return check


def _any(*words: str) -> str:
    return "|".join(words)


_PERSON = _any("reviewer", "person", "human", "people", "operator", "somebody", "someone", "user")
_RUN = r"(run|executed|started|performed|carried out|taken place)"
_NOT_RUN = _any(
    rf"(not|n't|never)( been| be)? {_RUN}",
    r"never ran",
    r"no (tool|code) ran",
    r"nothing (ran|was run|happened)",
    r"without running",
)
_NOT_AGAIN = (
    r"(do not|don't|must not|should not|shouldn't|never|not to|without)[^.]{0,60}"
    r"(repeat|retry|again|re-?issue|re-?send|resubmit|same call|try)"
)
_UNLESS_ASKED = (
    r"(unless|until|except|only if|only when|if)[^.]{0,60}user[^.]{0,60}(ask|request|want|tell|say|instruct)"
)
_NO_PERSON = _any(
    r"(no|not a|not by a|without a|without any|never a) (person|human|reviewer|body)",
    r"nobody",
    r"no[- ]one",
    r"(not|n't) (a )?(person|human|reviewer)",
)
_DECLINED = _any("declin", "reject", "refus", "denied", "turned down", "disapprov", "not approve", "said no", "vetoed")
_BEFORE = r"(before|already|earlier|previous)"

_declined = _ideas(
    a_reviewer=_PERSON,
    declined=_DECLINED,
    it_did_not_run=_NOT_RUN,
    not_again=_NOT_AGAIN,
    unless_the_user_asks=_UNLESS_ASKED,
)
_changed = _ideas(a_reviewer=_PERSON, changed_it=r"chang|edit|modif|replac|alter|amend|adjust")
_expired = _ideas(
    nobody_decided_in_time=r"in time|time ran out|timed out|time-?out|deadline|expired|too late|waiting time",
    it_did_not_run=_NOT_RUN,
    no_person_refused=_NO_PERSON,
)
_cancelled = _ideas(
    called_off=r"called off|cancel|stopped|aborted|interrupted|withdrawn",
    no_person_refused=_NO_PERSON,
)
_denied = _ideas(
    a_rule=r"rule|polic(y|ies)|configur",
    forbids=r"forbid|forbad|den(y|ied|ies)|not allow|not permit|block|prohibit|disallow|refus",
    nobody_was_asked=_NO_PERSON,
)
_repeat_denied = _ideas(
    rejected_before=rf"({_DECLINED})[^.]*{_BEFORE}|{_BEFORE}[^.]*({_DECLINED})",
    not_put_up_again=_any(
        r"not (been )?(put up|asked|sent|submitted|raised|shown|presented|reviewed|put to)",
        r"(no one|nobody) was asked",
        r"without asking",
    ),
    not_again=_NOT_AGAIN,
    unless_the_user_asks=_UNLESS_ASKED,
)
_unreadable = _ideas(
    could_not_be_read=_any(
        r"(not|n't)( be)? (read|pars|understood|decod|valid|interpret)",
        r"unreadable|unparsable|invalid|malformed",
    ),
    it_did_not_run=_NOT_RUN,
    send_it_again=r"again|re-?send|retry|repeat|anew|once more",
)
_too_large = _ideas(
    too_large=r"larg|big|long|exceed|over the limit|more than",
    it_did_not_run=_NOT_RUN,
    the_limit=r"[0-9]",
)
_invalid_args = _ideas(
    do_not_fit=_any(
        r"(not|n't) (fit|match|valid|accepted|conform)",
        r"invalid|missing|required|wrong|mismatch|unexpected|validation",
    )
)
_no_such_tool = _ideas(
    no_such_tool=_any(
        r"no (such )?tool",
        r"unknown",
        r"(not|n't) (exist|found|available|a |one of)",
        r"no longer",
    )
)
_failed = _ideas(the_tool_failed=r"fail|error|raise|exception|went wrong")
_unknown_outcome = _ideas(
    not_known=_any(
        r"(not|n't|cannot) (be )?(known|know|tell|say|certain)",
        r"unknown|unclear|uncertain",
        r"(nobody|no one) (can )?know",
    ),
    treat_as_failed=r"fail|did not happen|not done",
    a_reviewer=_PERSON,
)


def _verbatim(text: str, *wanted: str | None) -> list[str]:
    return [f"{one!r} is not in it" for one in wanted if one and one not in text]


def _arguments(text: str, args: dict[str, Any]) -> list[str]:
    """Each argument's name and value: as JSON, or escaped in another legible way."""
    return [
        f"argument {name} = {value!r} is not in it"
        for name, value in args.items()
        if name not in text or not any(form in text for form in _legible(value))
    ]


def _legible(value: Any) -> set[str]:
    forms = {json.dumps(value, ensure_ascii=False), json.dumps(value), str(value), repr(value)}
    if not isinstance(value, str):
        compact = (",", ":")
        forms |= {
            json.dumps(value, ensure_ascii=False, separators=compact),
            json.dumps(value, indent=2, ensure_ascii=False),
        }
    if isinstance(value, dict):
        forms.add(json.dumps(value, sort_keys=True, ensure_ascii=False))
    return forms


def _reject(text: str, given: dict[str, Any]) -> list[str]:
    return _verbatim(text, given.get("name"), given.get("message")) + _declined(text)


def _edit_notice(text: str, given: dict[str, Any]) -> list[str]:
    result = given.get("result", "")
    notice = text.removesuffix(result) if result else text
    late = [f"it does not end with the result {result!r} after a notice"] if result and notice == text else []
    return late + _changed(notice) + _verbatim(notice, given["name"]) + _arguments(notice, given["args"])


def _with_name(ideas: Callable[[str], list[str]], *more: str) -> Check:
    """Build the check of a text that holds some ideas, and the name and these values word for word."""

    def check(text: str, given: dict[str, Any]) -> list[str]:
        return ideas(text) + _verbatim(text, given.get("name"), *(given.get(key) for key in more))

    return check


def _names_fields(text: str, given: dict[str, Any]) -> list[str]:
    return _invalid_args(text) + _verbatim(text, given["name"], *given["fields"])


def _names_tools(text: str, given: dict[str, Any]) -> list[str]:
    return _no_such_tool(text) + _verbatim(text, given["name"], *given["known"])


def _cut(text: str, given: dict[str, Any]) -> list[str]:
    """The text stays within the limit, and a number at its end says how much is missing of the whole."""
    size, total = len(text.encode("utf-8", "replace")), given["total_bytes"]
    problems = (
        [f"{size} bytes are kept, more than {given['kept_at_most']}"] if size > given["kept_at_most"] + 500 else []
    )
    mark = re.sub(r"(?<=\d)[,_ ](?=\d{3})", "", text[-300:])
    numbers = [int(number) for number in re.findall(r"\d{1,18}", mark)]
    if not any(number == total or abs(total - number - size) <= 500 for number in numbers):
        problems.append(f"no mark at its end says how much of {total} bytes is missing")
    return problems


def _default_description(text: str, given: dict[str, Any]) -> list[str]:
    return _verbatim(text, given.get("prefix"), given["name"]) + _arguments(text, given["args"])


PLACEHOLDERS: dict[str, Check] = {
    "$reject_default": _reject,
    "$reject_reason": _reject,
    "$edit_notice": _edit_notice,
    "$expired": _with_name(_expired),
    "$cancelled": _with_name(_cancelled),
    "$denied": _with_name(_denied, "reason"),
    "$repeat_denied": _with_name(_repeat_denied),
    "$invalid_call": _with_name(_unreadable),
    "$too_large": _with_name(_too_large),
    "$invalid_args": _names_fields,
    "$unknown_tool": _names_tools,
    "$tool_error": _with_name(_failed, "error"),
    "$unknown_outcome": _with_name(_unknown_outcome, "message"),
    "$cut": _cut,
    "$default_description": _default_description,
}
