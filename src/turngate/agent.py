"""Agents: a model, its tools, and the rules under which calls of the tools wait for a person.

Everything that can be wrong with an agent is refused here, when it is built, with the name of the tool and the key.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.messages import SystemMessage
from langchain_core.tools import BaseTool
from pydantic import BaseModel

from turngate import agent_options as read, interrupts, options
from turngate.agent_options import LateTools, ToolOptions
from turngate.contracts import (
    DECISION_LIMIT,
    EDIT_NOTICE,
    INLINE_LIMIT,
    TASK_TOOL,
    StepSettings,
    ToolSettings,
)
from turngate.errors import ConfigError
from turngate.interrupts import InterruptOnConfig, Rules
from turngate.options import Duration
from turngate.outputs import read_output_schema
from turngate.policy import Policy, check_policies, read_policies
from turngate.texts import DESCRIPTION_PREFIX
from turngate.toolbox import Toolbox, prepared
from turngate.tools import HumanTool, task_tool

__all__ = ["Agent", "LateTools", "Registry", "ToolOptions"]

LATE_TOOLS_KEPT = 30.0
"""Seconds for which the tools of a factory are taken as they were: a step with many calls asks the factory once."""

_INHERITED = (
    "description_prefix",
    "interrupt_mode",
    "edit_notice",
    "max_rejections",
    "on_tool_error",
    "max_result_bytes",
    "admins",
    "notifiers",
    "policy_timeout",
    "repeat_rejected",
    "inline_limit",
    "timeline_timer",
    "verifier",
    "max_depth",
)
"""Options about the gate and about running: a subagent has its parent's where it does not set its own."""


class Agent:
    """A model with tools, of which some wait for a person.

    Shape of the main options:

    * `model`: a LangChain chat model, or a text for `init_chat_model` such as "openai:gpt-5" (extra `langchain`).
    * `tools`: LangChain tools, `human_tool(...)`, and async functions without parameters that return tools; or one
      such function in place of the list. Tools that come late are reviewed unless a rule says otherwise.
    * `interrupt_on`: LangChain's mapping, tool or pattern -> True | False | InterruptOnConfig.
    * `policy`: a policy or a list of them, asked where `interrupt_on` says nothing; see `turngate.policy`.
    * `default`: "run", "review" or "deny", where neither says anything.
    * `output_schema`: a pydantic model or a JSON Schema that the final answer must fit. The answer is checked; a model
      whose answer does not fit is told why, twice at most, and then the turn fails as InvalidOutput.
    * `subagents`: agents, or mappings of Agent's options, that the model can hand tasks to. A subagent can be stricter
      than its parent; only an explicit False in its `interrupt_on` opens a gate of the parent. What it does not set,
      it has from its parent (a mapping also the model and the tools).

    Time spans are timedeltas, seconds, or texts ("90s", "10m", "1h", "3d").
    Raises ConfigError for everything that makes no sense.
    """

    key: str
    """The name, behind those of the agents above: "main", "main/worker"."""
    default: str
    roles: dict[str, tuple[str, ...]]
    rules: Rules
    policy_layers: tuple[tuple[Policy, ...], ...]
    """The policies of this agent, then those of its parents: the strictest answer counts."""
    tool_options: dict[str, ToolOptions]
    _given: dict[str, Any]

    def __new__(cls, *args: Any, **given: Any) -> Agent:
        """Note what was given: a subagent takes over from its parent only what it does not set itself."""
        self = super().__new__(cls)
        self._given = given
        return self

    def __init__(
        self,
        name: str,
        *,
        model: Any,
        tools: Sequence[BaseTool | LateTools] | LateTools = (),
        interrupt_on: Mapping[str, bool | InterruptOnConfig | Mapping[str, Any]] | None = None,
        policy: Policy | Sequence[Policy] | None = None,
        default: str = "run",
        description_prefix: str = DESCRIPTION_PREFIX,
        interrupt_mode: str = "per_call",
        edit_notice: str | None = EDIT_NOTICE,
        system_prompt: str | SystemMessage | None = None,
        description: str = "",
        allow_tool_change: bool | None = None,
        max_steps: int = 50,
        max_rejections: int = 5,
        max_tokens: int | None = None,
        max_duration: Duration | None = None,
        on_tool_error: str = "message",
        max_result_bytes: int = DECISION_LIMIT,
        tool_options: Mapping[str, ToolOptions | Mapping[str, Any]] | None = None,
        subagents: Sequence[Agent | Mapping[str, Any]] = (),
        roles: Mapping[str, Sequence[str]] | None = None,
        admins: Sequence[str] = (),
        notifiers: Sequence[str] = (),
        policy_timeout: Duration = 10,
        repeat_rejected: str = "ask",
        inline_limit: int = INLINE_LIMIT,
        timeline_timer: bool = True,
        verifier: Any = None,
        output_schema: type[BaseModel] | Mapping[str, Any] | None = None,
        max_depth: int = 3,
        _parent: Agent | None = None,
        **unknown: Any,
    ) -> None:
        self.name = read.read_name(name)
        self.key = f"{_parent.key}/{self.name}" if _parent else self.name
        at = self._at
        options.only_known(f"agent {self.key!r}", unknown, _DEFAULTS)

        self.description = options.text(at("description"), description)
        self.description_prefix = options.text(at("description_prefix"), description_prefix)
        self.interrupt_mode = options.one_of(at("interrupt_mode"), interrupt_mode, ("per_call", "batched"))
        self.edit_notice = None if edit_notice is None else options.text(at("edit_notice"), edit_notice)
        self.allow_tool_change = (
            self.interrupt_mode == "batched"
            if allow_tool_change is None
            else options.flag(at("allow_tool_change"), allow_tool_change)
        )
        self.max_steps = options.whole(at("max_steps"), max_steps)
        self.max_rejections = options.whole(at("max_rejections"), max_rejections)
        self.max_tokens = None if max_tokens is None else options.whole(at("max_tokens"), max_tokens)
        self.max_duration = None if max_duration is None else options.seconds(at("max_duration"), max_duration)
        self.on_tool_error = options.one_of(at("on_tool_error"), on_tool_error, ("message", "fail", "ask"))
        self.max_result_bytes = options.whole(at("max_result_bytes"), max_result_bytes)
        self.policy_timeout = options.seconds(at("policy_timeout"), policy_timeout)
        self.repeat_rejected = options.one_of(at("repeat_rejected"), repeat_rejected, ("ask", "deny"))
        self.inline_limit = options.whole(at("inline_limit"), inline_limit, at_least=0)
        self.timeline_timer = options.flag(at("timeline_timer"), timeline_timer)
        self.max_depth = options.whole(at("max_depth"), max_depth)
        self.verifier = read.read_verifier(at("verifier"), verifier)
        self.admins = options.names(at("admins"), admins)
        self.notifiers = options.names(at("notifiers"), notifiers)
        self.roles = {**(_parent.roles if _parent else {}), **read.read_roles(at("roles"), roles)}
        self.default = read.read_default(at("default"), default, _parent.default if _parent else "run")
        self.model = read.read_model(at("model"), model)
        self.system_prompt = read.read_system_prompt(at("system_prompt"), system_prompt)
        self.output_schema = read_output_schema(at("output_schema"), output_schema)

        self.policies = read_policies(at("policy"), policy)
        self.policy_layers = (self.policies, *(_parent.policy_layers if _parent else ()))
        self.rules = Rules(read.read_rules(at("interrupt_on"), interrupt_on), _parent.rules if _parent else None)
        own_options = read.read_tool_options(at("tool_options"), tool_options)
        self.tool_options = {**(_parent.tool_options if _parent else {}), **own_options}
        self._tools = tools
        static, self._factories = read.read_tools(at("tools"), tools)
        self.subagents = self._read_subagents(subagents)
        self._toolbox = Toolbox(self._with_task(static), self.rules)
        self._late: tuple[float, Toolbox] | None = None
        self._check_names(own_options)
        self._check_rules()

    def __repr__(self) -> str:
        return f"<Agent {self.key!r}: {', '.join(self._toolbox.names) or 'no tools'}>"

    def _at(self, option: str) -> str:
        return f"agent {self.key!r}: {option}"

    # --- Construction ---

    def _read_subagents(self, given: Any) -> dict[str, Agent]:
        place = self._at("subagents")
        if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
            raise ConfigError(f"{place}: {given!r} is not a list of agents")
        found: dict[str, Agent] = {}
        for one in given:
            sub = self._subagent(place, one)
            if sub.name in found:
                raise ConfigError(f"{place}: two subagents are named {sub.name!r}")
            found[sub.name] = sub
        return found

    def _subagent(self, place: str, given: Any) -> Agent:
        """Build a subagent anew, with what it takes over from this agent."""
        if self.key.count("/") + 1 > self.max_depth:
            raise ConfigError(f"{place}: subagents are nested deeper than max_depth={self.max_depth}")
        if isinstance(given, Agent):
            own = {key: value for key, value in given._given.items() if key != "_parent"} | {"name": given.name}
        elif isinstance(given, Mapping):
            own = dict(given)
            if "name" not in own:
                raise ConfigError(f"{place}: a subagent has no 'name'")
            own = {"model": self.model, "tools": self._tools, **own}
        else:
            raise ConfigError(f"{place}: {given!r} is neither an Agent nor a mapping of its options")
        inherited = {key: getattr(self, key) for key in _INHERITED}
        if "allow_tool_change" in self._given:
            inherited["allow_tool_change"] = self.allow_tool_change
        return Agent(**{**inherited, **own}, _parent=self)

    def _with_task(self, static: dict[str, BaseTool]) -> dict[str, BaseTool]:
        if not self.subagents:
            return static
        if TASK_TOOL in static:
            raise ConfigError(f"{self._at('tools')}: {TASK_TOOL!r} is the name of the tool that starts subagents")
        return {**static, TASK_TOOL: task_tool({sub.name: sub.description for sub in self.subagents.values()})}

    def _known_names(self) -> list[str] | None:
        """Return every tool name that a rule can be about, or None where tools come late and nobody can know."""
        if self._factories:
            return None
        names = list(self._toolbox.names)
        for sub in self.subagents.values():
            below = sub._known_names()
            if below is None:
                return None
            names += below
        return list(dict.fromkeys(names))

    def _check_names(self, tool_options: Mapping[str, Any]) -> None:
        names = self._known_names()
        if names is None:
            return
        for option, keys in (("interrupt_on", self.rules.own), ("tool_options", tool_options)):
            for key in keys:
                if not interrupts.matching(key, names):
                    raise options.unmatched(self._at(option), key, names)
        check_policies(self._at("policy"), self.policies, names)

    def _check_rules(self) -> None:
        place = self._at("interrupt_on")
        for key, config in self.rules.own.items():
            here = f"{place}[{key!r}]"
            if isinstance(self._toolbox.get(key), HumanTool):
                read.check_human(here, config)
            if config is not None:
                interrupts.check_people(here, config, self.roles, claims=self.verifier is not None)
                self._check_arguments(here, key, config)

    def _check_arguments(self, place: str, key: str, config: InterruptOnConfig) -> None:
        if config.args_schema is not None and (warning := prepared(config.args_schema).warning):
            raise ConfigError(f"{place}.args_schema: {warning}")
        self._check_declared(place, key, config)
        if config.editable_args is not None and "edit" not in config.allowed_decisions:
            raise ConfigError(f"{place}: 'editable_args' means nothing without 'edit' in 'allowed_decisions'")

    def _check_declared(self, place: str, key: str, config: InterruptOnConfig) -> None:
        matched = interrupts.matching(key, self._toolbox.names)
        declared = [self._toolbox.arguments(name) for name in matched]
        if not matched or None in declared:
            return
        known = {arg for args in declared for arg in args or ()}
        for option in ("editable_args", "secret_args"):
            for arg in getattr(config, option) or ():
                if arg not in known:
                    raise ConfigError(f"{place}.{option}: the tool has no argument {arg!r}; it has {sorted(known)}")

    # --- Use ---

    @property
    def prompt(self) -> SystemMessage | None:
        """What stands in front of every conversation."""
        return self.output_schema.told(self.system_prompt) if self.output_schema else self.system_prompt

    def find_tool(self, name: str) -> BaseTool | None:
        """Return a tool that was there at construction."""
        return self._toolbox.get(name)

    async def toolbox(self) -> Toolbox:
        """Return all tools, the late ones included. Raises whatever a factory raises."""
        if not self._factories:
            return self._toolbox
        if self._late and time.monotonic() - self._late[0] < LATE_TOOLS_KEPT:
            return self._late[1]
        found: dict[str, BaseTool] = {}
        for factory in self._factories:
            for tool in await factory():
                if not isinstance(tool, BaseTool):
                    raise ConfigError(f"{self._at('tools')}: {factory!r} returned {tool!r}, which is no LangChain tool")
                found.setdefault(tool.name, tool)
        box = self._toolbox.with_late(found)
        self._late = (time.monotonic(), box)
        return box

    def settings(self, *, search_attributes: bool = False) -> StepSettings:
        """Return what the workflow needs to know of this agent; recorded with every step."""
        return StepSettings(
            interrupt_mode=self.interrupt_mode,
            allow_tool_change=self.allow_tool_change,
            edit_notice=self.edit_notice,
            max_steps=self.max_steps,
            max_tokens=self.max_tokens,
            max_duration_s=self.max_duration,
            roles={role: list(people) for role, people in self.roles.items()},
            admins=list(self.admins),
            notifiers=list(self.notifiers),
            search_attributes=search_attributes,
            timeline_timer=self.timeline_timer,
            inline_limit=self.inline_limit,
            signed=self.verifier is not None,
        )

    def tool_settings(self, tool: BaseTool) -> ToolSettings:
        """Return how a call of this tool is executed; recorded with the plan."""
        key = interrupts.best_key(tool.name, self.tool_options)
        chosen = self.tool_options[key] if key else ToolOptions()
        return ToolSettings(
            max_attempts=chosen.max_attempts or (3 if chosen.retry_safe else 1),
            retry_safe=chosen.retry_safe,
            start_to_close_s=options.seconds("start_to_close", chosen.start_to_close),
            heartbeat_s=options.seconds("heartbeat", chosen.heartbeat),
            task_queue=chosen.task_queue,
            # A tool's own words would not have the shape that was asked for.
            return_direct=tool.return_direct and self.output_schema is None,
            on_tool_error=self.on_tool_error,
            max_result_bytes=self.max_result_bytes,
        )


_DEFAULTS: dict[str, Any] = {
    name: parameter.default
    for name, parameter in inspect.signature(Agent.__init__).parameters.items()
    if name not in ("self", "_parent", "unknown")
}


class Registry:
    """The agents of a worker with all their subagents, by key: "main", "main/worker"."""

    def __init__(self, agents: Iterable[Agent]) -> None:
        self._agents: dict[str, Agent] = {}
        for agent in agents:
            if not isinstance(agent, Agent):
                raise ConfigError(f"{agent!r} is not an Agent")
            if agent.key in self._agents:
                raise ConfigError(f"two agents are named {agent.name!r}; a name is used once on a worker")
            self._agents.update(_with_subagents(agent))

    def get(self, key: str) -> Agent | None:
        """Return the agent of this key, or None."""
        return self._agents.get(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._agents)

    def __len__(self) -> int:
        return len(self._agents)

    @property
    def agents(self) -> list[Agent]:
        """All agents, each followed by its subagents."""
        return list(self._agents.values())


def _with_subagents(agent: Agent) -> Iterator[tuple[str, Agent]]:
    yield agent.key, agent
    for sub in agent.subagents.values():
        yield from _with_subagents(sub)
