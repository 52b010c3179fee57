"""Policies: rules in code about which calls wait, beside the table `interrupt_on`.

A policy is any function of a PolicyContext, sync or async. It answers

* False or []: the call may run;
* True: a person decides; a list of texts: the same, and these are the tags of the approval;
* Deny("why"): the call is refused and nobody is asked;
* ABSTAIN: no opinion, so the next policy is asked, and the agent's `default` at last.

A policy that raises, takes too long or answers anything else means review, with a warning on the approval: None
among them, for a function that forgets to `return` must not open a gate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from turngate import options, usercode
from turngate.contracts import Json, Verdict
from turngate.errors import ConfigError
from turngate.interrupts import InterruptOnConfig, matching

__all__ = [
    "ABSTAIN",
    "Allowlist",
    "Deny",
    "Denylist",
    "InterruptOnConfig",
    "Opinion",
    "Policy",
    "PolicyContext",
    "Predicate",
]


@dataclass(frozen=True)
class PolicyContext:
    """What a policy knows about a call. `args` is a copy: changing it changes nothing."""

    tool_name: str
    tool_description: str
    args: Json
    agent_name: str
    step: int = 1
    thread_id: str | None = None
    context: Json = field(default_factory=dict)
    turn_id: str = ""
    tool_call_id: str | None = None
    requested_by: str | None = None
    metadata: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Deny:
    """A policy's answer: the call must not run, and nobody is asked. The model is told `reason`."""

    reason: str | None = None


class _Abstain(Enum):
    """A policy's answer: no opinion; the next policy is asked."""

    ABSTAIN = "abstain"


ABSTAIN = _Abstain.ABSTAIN

Policy = Callable[[PolicyContext], Any]
Tags = Sequence[str] | Callable[[PolicyContext], Any]


@dataclass(frozen=True)
class Allowlist:
    """Gate the tools that are listed, by name or pattern; say nothing about the others.

    `tags` go on the approval: a list, or a function of the PolicyContext.
    """

    tools: Sequence[str]
    tags: Tags = ()

    async def __call__(self, context: PolicyContext) -> Any:
        listed = any(matching(key, [context.tool_name]) for key in self.tools)
        return await _tagged(self.tags, context) if listed else ABSTAIN


@dataclass(frozen=True)
class Denylist:
    """Gate every tool that is not listed; the listed ones, by name or pattern, may run."""

    tools: Sequence[str]
    tags: Tags = ()

    async def __call__(self, context: PolicyContext) -> Any:
        listed = any(matching(key, [context.tool_name]) for key in self.tools)
        return False if listed else await _tagged(self.tags, context)


async def _tagged(tags: Tags, context: PolicyContext) -> Any:
    found = await usercode.call(tags, context) if callable(tags) else tags
    return read_tags(found) or True


@dataclass(frozen=True)
class Predicate:
    """Let a function of the PolicyContext decide; see the top of this module for its answers."""

    function: Policy

    async def __call__(self, context: PolicyContext) -> Any:
        return await usercode.call(self.function, context)


@dataclass(frozen=True)
class Opinion:
    """What the policies say about a call."""

    verdict: Verdict
    tags: tuple[str, ...] = ()
    reason: str | None = None
    warnings: tuple[str, ...] = ()


def read_policies(place: str, value: Any) -> tuple[Policy, ...]:
    """Return the policies given as None, one policy or a list of them."""
    if value is None:
        return ()
    policies = tuple(value) if isinstance(value, list | tuple) else (value,)
    for policy in policies:
        if not callable(policy) or isinstance(policy, type):
            raise ConfigError(
                f"{place}: {policy!r} is no policy; give a function, Allowlist, Denylist, Predicate or a list"
            )
        if isinstance(policy, Predicate) and not callable(policy.function):
            raise ConfigError(f"{place}: Predicate needs a function, not {policy.function!r}")
        if isinstance(policy, Allowlist | Denylist):
            _check_list(f"{place}: {type(policy).__name__}", policy)
    return policies


def _check_list(place: str, policy: Allowlist | Denylist) -> None:
    options.names(f"{place}.tools", policy.tools)
    if not callable(policy.tags):
        options.names(f"{place}.tags", policy.tags)


def check_policies(place: str, policies: Sequence[Policy], names: Sequence[str]) -> None:
    """Refuse lists that name a tool which does not exist."""
    for policy in policies:
        if isinstance(policy, Allowlist | Denylist):
            for key in policy.tools:
                if not matching(key, names):
                    raise options.unmatched(f"{place}: {type(policy).__name__}", key, names)


async def ask(policies: Sequence[Policy], context: PolicyContext, timeout: float) -> Opinion | None:
    """Return the first opinion that one of the policies has, or None."""
    for policy in policies:
        opinion = await _ask_one(policy, context, timeout)
        if opinion is not None:
            return opinion
    return None


async def _ask_one(policy: Policy, context: PolicyContext, timeout: float) -> Opinion | None:
    try:
        return read_answer(await usercode.call_within(timeout, policy, context))
    except Exception as error:  # fail closed: whatever went wrong, a person decides
        return Opinion(
            Verdict.REVIEW, warnings=(f"the policy failed ({usercode.words_of(error)}), so a person decides",)
        )


def read_answer(answer: Any) -> Opinion | None:
    """Turn a policy's answer into an opinion. Raises TypeError for an answer that means nothing."""
    if answer is ABSTAIN:
        return None
    if isinstance(answer, Deny):
        return Opinion(Verdict.DENY, reason=None if answer.reason is None else str(answer.reason))
    if isinstance(answer, bool):
        return Opinion(Verdict.REVIEW if answer else Verdict.RUN)
    tags = read_tags(answer)
    return Opinion(Verdict.REVIEW, tags=tags) if tags else Opinion(Verdict.RUN)


def read_tags(value: Any) -> tuple[str, ...]:
    """Return a list of tags. Raises TypeError for anything else."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise TypeError(f"it answered {value!r}")
    tags = tuple(value)
    if not all(isinstance(tag, str) for tag in tags):
        raise TypeError(f"it answered {value!r}")
    return tuple(dict.fromkeys(tags))
