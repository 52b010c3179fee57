"""LangChain's `interrupt_on`: which tools wait for a person, and how.

A key is the name of a tool or a pattern as in file names (`mcp__*`, `read_?`). For one tool one entry counts: the
exact name before any pattern; among patterns the one with the most literal characters; then the one written first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from typing import Any

from turngate import durations, options
from turngate.contracts import DECISIONS, Json
from turngate.errors import ConfigError
from turngate.options import Duration


@dataclass(frozen=True, kw_only=True)
class InterruptOnConfig:
    """How calls of one tool are put up. A mapping with the same keys does as well; it must name `allowed_decisions`.

    `when(request)` narrows the gate to some calls, as in LangChain: False lets the call run, anything but True or
    False means review. `description` is a text, or a function of the call (`f(tool_call)`, or LangChain's
    `f(tool_call, state, runtime)`). `tags` is a list, or a function of the PolicyContext. `args_schema` (JSON Schema
    or a pydantic model) replaces the tool's own for edits. Functions may be async.

    `reviewers` are names or `role:x`; `quorum` is the number of people who must agree. Where `allow_remember` is not
    set, a decision may be remembered unless there is a quorum; with one it can't be set to True. Time spans are
    timedeltas, seconds or texts ("1h"). `on_timeout` is what happens at the deadline: `{"type": "approve"}`,
    `{"type": "respond", "message": ...}` or the default `{"type": "reject", "message"?: ...}`.
    """

    allowed_decisions: Sequence[str] = DECISIONS
    description: str | Callable[..., Any] | None = None
    when: Callable[..., Any] | None = None
    args_schema: Any = None
    tags: Sequence[str] | Callable[..., Any] = ()
    reviewers: Sequence[str] = ()
    quorum: int = 1
    allow_self_approval: bool = True
    allow_remember: bool | None = None
    timeout: Duration | None = None
    on_timeout: Mapping[str, Any] | None = None
    remind_every: Duration | None = None
    escalate_after: Duration | None = None
    escalate_to: Sequence[str] = ()
    editable_args: Sequence[str] | None = None
    secret_args: Sequence[str] = ()
    repeat_rejected: str | None = None
    max_rejections: int | None = None


REVIEW = InterruptOnConfig()
"""What `True`, a policy or a default of "review" stands for: all four decisions, by anybody, without a deadline."""

_KEYS = tuple(field.name for field in fields(InterruptOnConfig))


def read_entry(place: str, value: Any) -> InterruptOnConfig | None:
    """Return the checked config of one entry, or None where the entry is False and lets every call run."""
    if isinstance(value, bool):
        return REVIEW if value else None
    if isinstance(value, InterruptOnConfig):
        return _checked(place, value)
    if isinstance(value, Mapping):
        options.only_known(place, value, _KEYS)
        if value.get("allowed_decisions") is None:
            raise ConfigError(f"{place}: 'allowed_decisions' is missing; name at least one of {', '.join(DECISIONS)}")
        return _checked(place, InterruptOnConfig(**value))
    raise ConfigError(f"{place}: {value!r} is neither True, False nor an InterruptOnConfig")


def _checked(place: str, given: InterruptOnConfig) -> InterruptOnConfig:
    def at(key: str) -> str:
        return f"{place}.{key}"

    def span(key: str) -> float | None:
        value = getattr(given, key)
        return None if value is None else options.seconds(at(key), value)

    def function(key: str, value: Any) -> Any:
        if value is not None and not callable(value):
            raise ConfigError(f"{at(key)}: {value!r} is not a function")
        return value

    reviewers = given.reviewers if given.reviewers == () else _some(at("reviewers"), given.reviewers)
    config = replace(
        given,
        allowed_decisions=_decisions(at("allowed_decisions"), given.allowed_decisions),
        description=given.description
        if isinstance(given.description, str)
        else function("description", given.description),
        when=function("when", given.when),
        tags=given.tags if callable(given.tags) else options.names(at("tags"), given.tags),
        reviewers=reviewers,
        quorum=options.whole(at("quorum"), given.quorum),
        allow_self_approval=options.flag(at("allow_self_approval"), given.allow_self_approval),
        allow_remember=_remember(at("allow_remember"), given),
        timeout=span("timeout"),
        on_timeout=_on_timeout(at("on_timeout"), given),
        remind_every=span("remind_every"),
        escalate_after=span("escalate_after"),
        escalate_to=options.names(at("escalate_to"), given.escalate_to),
        editable_args=None if given.editable_args is None else options.names(at("editable_args"), given.editable_args),
        secret_args=options.names(at("secret_args"), given.secret_args),
        repeat_rejected=None
        if given.repeat_rejected is None
        else options.one_of(at("repeat_rejected"), given.repeat_rejected, ("ask", "deny")),
        max_rejections=None
        if given.max_rejections is None
        else options.whole(at("max_rejections"), given.max_rejections),
    )
    _refuse_contradictions(place, config)
    return config


def _some(place: str, value: Any) -> tuple[str, ...]:
    return options.names(place, value, may_be_empty=False)


def _decisions(place: str, value: Any) -> tuple[str, ...]:
    return tuple(options.one_of(place, word, DECISIONS) for word in _some(place, value))


def _remember(place: str, given: InterruptOnConfig) -> bool:
    if given.allow_remember is None:
        return given.quorum == 1
    return options.flag(place, given.allow_remember)


def _on_timeout(place: str, given: InterruptOnConfig) -> Json | None:
    if given.on_timeout is None:
        return None
    if not isinstance(given.on_timeout, Mapping):
        raise ConfigError(f"{place}: {given.on_timeout!r} is no decision; give {{'type': 'reject'}} or the like")
    options.only_known(place, given.on_timeout, ("type", "message"))
    decision = dict(given.on_timeout)
    kind = options.one_of(place, decision.get("type"), ("approve", "reject", "respond"))
    if kind != "reject" and kind not in given.allowed_decisions:
        raise ConfigError(
            f"{place}: {kind!r} is not among the allowed decisions, and a deadline may do no more than people"
        )
    if kind == "respond" or decision.get("message") is not None:
        options.text(f"{place}.message", decision.get("message"))
    if kind == "approve" and "message" in decision:
        raise ConfigError(f"{place}: an approval has no 'message'")
    return decision


def _refuse_contradictions(place: str, config: InterruptOnConfig) -> None:
    if config.on_timeout is not None and config.timeout is None:
        raise ConfigError(f"{place}: 'on_timeout' means nothing without 'timeout'")
    if config.escalate_to and config.escalate_after is None:
        raise ConfigError(f"{place}: 'escalate_to' means nothing without 'escalate_after'")
    if config.escalate_after is not None and not config.escalate_to:
        raise ConfigError(f"{place}: 'escalate_after' means nothing without 'escalate_to'")
    end, escalation = config.timeout, config.escalate_after
    if end is not None and escalation is not None and durations.seconds(escalation) >= durations.seconds(end):
        raise ConfigError(f"{place}: 'escalate_after' is not before the 'timeout', after which nobody can decide")
    if config.allow_remember and config.quorum > 1:
        raise ConfigError(
            f"{place}: 'allow_remember' does not go with a 'quorum': a rule would let one person settle what takes "
            f"{config.quorum}; leave one of them out"
        )


def check_people(place: str, config: InterruptOnConfig, roles: Mapping[str, Sequence[str]], *, claims: bool) -> None:
    """Refuse reviewers that nobody can be, and a quorum that can't be reached.

    `claims` says that signed decisions may bring roles of their own, which can't be counted here.
    """
    named = (*config.reviewers, *config.escalate_to)
    wanted = [name.removeprefix("role:") for name in named if name.startswith("role:")]
    unknown = [role for role in wanted if role not in roles]
    if unknown and not claims:
        raise ConfigError(f"{place}: nobody has the role {unknown[0]!r}; add it to the agent's `roles`")
    if not config.reviewers or unknown:
        return
    people = {name for name in named if not name.startswith("role:")}.union(*(roles[role] for role in wanted))
    if len(people) < config.quorum:
        raise ConfigError(f"{place}: a 'quorum' of {config.quorum} can't be reached by {len(people)} reviewers")


def is_pattern(key: str) -> bool:
    """Tell whether a key stands for several names."""
    return any(char in key for char in "*?[")


def matching(key: str, names: Iterable[str]) -> list[str]:
    """Return the names that a key stands for."""
    return [name for name in names if name == key or fnmatchcase(name, key)]


def best_key(name: str, keys: Iterable[str]) -> str | None:
    """Return the key that counts for a tool, see the top of this module."""
    found = [key for key in keys if key == name or (is_pattern(key) and fnmatchcase(name, key))]
    return max(found, key=lambda key: (key == name, _literal_length(key)), default=None)


def _literal_length(key: str) -> int:
    return len(re.sub(r"\[[^]]*]|[*?]", "", key))


class Rules:
    """The entries of one agent over those of its parent.

    Leaving a tool out opens nothing, and neither does a `when` that says False: then the parent's rules are asked.
    Only an explicit False opens what the parent gates.
    """

    def __init__(self, entries: Mapping[str, InterruptOnConfig | None], parent: Rules | None = None) -> None:
        self.own = dict(entries)
        self.parent = parent
        self._all: dict[str, InterruptOnConfig | None] = {**(parent._all if parent else {}), **self.own}

    def find(self, name: str) -> tuple[str, InterruptOnConfig | None] | None:
        """Return the key and the entry for a tool, or None where nothing is said about it."""
        key = best_key(name, self._all)
        return None if key is None else (key, self._all[key])

    def config(self, name: str) -> InterruptOnConfig:
        """Return the config under which calls of a tool are put up, whoever wants that."""
        found = self.find(name)
        return (found and found[1]) or REVIEW

    def below(self, key: str) -> Rules | None:
        """Return the rules to ask when the `when` of this entry says no."""
        return self.parent if key in self.own else (self.parent.below(key) if self.parent else None)
