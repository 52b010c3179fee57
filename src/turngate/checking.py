"""A static check of agents, for CI: what happens with calls of each tool, and what is probably not meant so.

Nothing is asked and nothing runs, but for the functions that load late tools. Conditions and policies that are
functions can't be foreseen: calls that they decide about count as gated, and the report says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from langchain_core.tools import BaseTool

from turngate import usercode
from turngate.agent import Agent
from turngate.contracts import Json
from turngate.errors import ConfigError
from turngate.interrupts import InterruptOnConfig, Rules, is_pattern, matching
from turngate.loading import load_agents
from turngate.policy import Allowlist, Denylist, Policy
from turngate.toolbox import Toolbox
from turngate.tools import HumanTool

Outcome = Literal["review", "run", "deny", "depends"]
_MARKS = ("dangerous", "destructiveHint")
"""Keys of a tool's metadata that mark it as dangerous when they are True; the second is MCP's annotation."""


@dataclass(frozen=True)
class ToolCheck:
    """What happens with calls of one tool. `why` is the entry, policy or default that says so."""

    name: str
    outcome: Outcome
    why: str
    dangerous: bool = False
    allowed_decisions: tuple[str, ...] = ()
    reviewers: tuple[str, ...] = ()
    quorum: int = 1
    timeout_s: float | None = None

    @property
    def what(self) -> str:
        """One line for people."""
        if self.outcome in ("run", "deny"):
            return f"{'runs by itself' if self.outcome == 'run' else 'is denied'} ({self.why})"
        for_whom = f" for {', '.join(self.reviewers)}" if self.reviewers else ""
        count = f", {self.quorum} of them" if self.quorum > 1 else ""
        maybe = "may wait" if self.outcome == "depends" else "waits"
        return f"{maybe}{for_whom}{count}: {', '.join(self.allowed_decisions)} ({self.why})"


@dataclass(frozen=True)
class AgentCheck:
    """One agent: its tools, what fails the check, and what is worth a look."""

    name: str
    tools: tuple[ToolCheck, ...]
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def to_json(self) -> Json:
        """Return plain JSON."""
        tools = {tool.name: {**asdict(tool), "what": tool.what} for tool in self.tools}
        return {"name": self.name, "tools": tools, "problems": list(self.problems), "warnings": list(self.warnings)}


async def check_agents(target: str | Sequence[Agent], *, dangerous: Sequence[str] = ()) -> list[AgentCheck]:
    """Check agents (or what `module:attribute` names), each followed by its subagents.

    An agent has problems where a tool marked as dangerous runs without being asked about, or where an entry can never
    match. A tool is dangerous by its metadata (`{"dangerous": True}`, MCP's `destructiveHint`), by a tag "dangerous",
    or by one of the names and patterns in `dangerous`.

    Raises ConfigError where agents can't be built or their tools not be loaded.
    """
    agents = load_agents([target]) if isinstance(target, str) else target
    return [report for agent in agents for report in await _tree(agent, dangerous)]


async def _tree(agent: Agent, dangerous: Sequence[str]) -> list[AgentCheck]:
    family = [(one, await _tools(one)) for one in _family(agent)]
    unused = {key for one, _ in family for key in _unused(one, family)}
    reports = []
    for one, tools in family:
        checks = tuple(_check(one, tools, tool, dangerous) for tool in tools.tools)
        open_ = [
            f"{check.name!r} is marked as dangerous and {check.what}: gate it in `interrupt_on`"
            for check in checks
            if check.dangerous and check.outcome == "run"
        ]
        idle = [text for name, text in sorted(unused) if name == one.key]
        warnings = tuple(f"{name!r}: {text}" for name in tools.names if (text := tools.schema(name).warning))
        reports.append(AgentCheck(one.key, checks, (*open_, *idle), warnings))
    return reports


def _family(agent: Agent) -> Iterator[Agent]:
    yield agent
    for sub in agent.subagents.values():
        yield from _family(sub)


async def _tools(agent: Agent) -> Toolbox:
    try:
        return await agent.toolbox()
    except ConfigError:
        raise
    except Exception as error:  # whatever the function raises
        words = usercode.words_of(error)
        raise ConfigError(f"the tools of agent {agent.key!r} can't be loaded: {words}") from None


# --- What happens with a call -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Ruling:
    outcome: Outcome
    why: str
    config: InterruptOnConfig | None = None


def _check(agent: Agent, tools: Toolbox, tool: BaseTool, dangerous: Sequence[str]) -> ToolCheck:
    ruling = _ruling(agent, tools, tool)
    config = ruling.config or agent.rules.config(tool.name)
    asks = ruling.outcome in ("review", "depends")
    decisions = ("respond",) if isinstance(tool, HumanTool) else tuple(config.allowed_decisions)
    return ToolCheck(
        name=tool.name,
        outcome=ruling.outcome,
        why=ruling.why,
        dangerous=_is_dangerous(tool, dangerous),
        allowed_decisions=decisions if asks else (),
        reviewers=tuple(config.reviewers) if asks else (),
        quorum=config.quorum if asks else 1,
        timeout_s=_seconds(config) if asks else None,
    )


def _seconds(config: InterruptOnConfig) -> float | None:
    return config.timeout if isinstance(config.timeout, int | float) else None


def _is_dangerous(tool: BaseTool, patterns: Sequence[str]) -> bool:
    metadata = tool.metadata or {}
    marked = any(metadata.get(mark) is True for mark in _MARKS) or "dangerous" in (tool.tags or ())
    return marked or any(matching(pattern, [tool.name]) for pattern in patterns)


def _ruling(agent: Agent, tools: Toolbox, tool: BaseTool) -> _Ruling:
    found = _by_rules(agent.rules, tool.name) or _by_policies(agent, tool.name) or _by_default(agent, tools, tool)
    if isinstance(tool, HumanTool) and found.outcome != "deny":
        return _Ruling("review", "a person is the tool", found.config)
    return found


def _by_rules(rules: Rules | None, name: str) -> _Ruling | None:
    found = rules.find(name) if rules else None
    if rules is None or found is None:
        return None
    key, config = found
    why = f"interrupt_on[{key!r}]"
    if config is None:
        return _Ruling("run", why)
    if config.when is None:
        return _Ruling("review", why, config)
    otherwise = _by_rules(rules.below(key), name)
    if otherwise and otherwise.outcome == "review":
        return otherwise
    return _Ruling("depends", f"{why}, where its condition says so", config)


def _by_policies(agent: Agent, name: str) -> _Ruling | None:
    """What the policies of the agent and of its parents say: the strictest counts, as in a turn."""
    opinions = [opinion for layer in agent.policy_layers if (opinion := _by_layer(layer, name))]
    strictness = {"run": 0, "depends": 1, "review": 2, "deny": 3}
    return max(opinions, key=lambda opinion: strictness[opinion.outcome], default=None)


def _by_layer(policies: Sequence[Policy], name: str) -> _Ruling | None:
    for policy in policies:
        if isinstance(policy, Allowlist | Denylist):
            listed = any(matching(key, [name]) for key in policy.tools)
            if isinstance(policy, Denylist):
                return _Ruling("run" if listed else "review", "policy Denylist")
            if listed:
                return _Ruling("review", "policy Allowlist")
        else:
            function = getattr(policy, "function", policy)
            return _Ruling("depends", f"policy {getattr(function, '__name__', type(function).__name__)}")
    return None


def _by_default(agent: Agent, tools: Toolbox, tool: BaseTool) -> _Ruling:
    if agent.default == "run" and tool.name in tools.late:
        return _Ruling("review", "a late tool")
    outcomes: dict[str, Outcome] = {"run": "run", "review": "review", "deny": "deny"}
    return _Ruling(outcomes[agent.default], "default")


# --- Entries that can never match -------------------------------------------------------------------------------------

_Family = Sequence[tuple[Agent, Toolbox]]


def _unused(agent: Agent, family: _Family) -> Iterator[tuple[str, str]]:
    """Yield the agent's key and a sentence for each of its entries that no call can ever reach."""
    below = [(one, tools) for one, tools in family if one is agent or one.key.startswith(f"{agent.key}/")]
    names = list(dict.fromkeys(name for _, tools in below for name in tools.names))
    for key in agent.rules.own:
        if not any(_reaches(one.rules, name, agent.rules, key) for one, tools in below for name in tools.names):
            yield agent.key, _sentence(f"interrupt_on[{key!r}]", key, names, "another entry is nearer")
    parent = next((one for one, _ in family if one.key == agent.key.rpartition("/")[0]), None)
    for key in agent.tool_options.keys() - (parent.tool_options.keys() if parent else set()):
        if not matching(key, names):
            yield agent.key, _sentence(f"tool_options[{key!r}]", key, names, "")
    for policy in agent.policies:
        for key in policy.tools if isinstance(policy, Allowlist) else ():
            asked = [name for one, tools in below for name in tools.names if one.rules.find(name) is None]
            if not matching(key, asked):
                yield agent.key, _sentence(f"policy Allowlist: {key!r}", key, names, "`interrupt_on` has an entry")


def _reaches(rules: Rules | None, name: str, owner: Rules, key: str) -> bool:
    """Whether a call of this tool may come to an entry; where a condition says no, the parent's rules follow."""
    while rules is not None and (found := rules.find(name)):
        if found[0] == key and _owner(rules, key) is owner:
            return True
        if found[1] is None or found[1].when is None:
            return False
        rules = rules.below(found[0])
    return False


def _owner(rules: Rules, key: str) -> Rules | None:
    found: Rules | None = rules
    while found is not None and key not in found.own:
        found = found.parent
    return found


def _sentence(place: str, key: str, names: Sequence[str], nearer: str) -> str:
    matched = matching(key, names)
    if not matched:
        return f"{place} can never match: there is no such tool among {', '.join(names) or 'none'}"
    those = "the tools that it matches" if is_pattern(key) else repr(key)
    return f"{place} can never match: for {those} {nearer}"
