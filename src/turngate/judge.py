"""The verdict on one proposed call: may it run, must a person decide, is it refused, or does it make no sense.

The order: a call that can't be read, an unknown tool, arguments that are too large or that the tool can't read: none
of these is put up. Then the rules of `interrupt_on`, the policies, the default; and whoever started the turn may ask
for more review, never for less. Whatever fails on the way means review.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from langchain_core.tools import BaseTool

from turngate import interrupts, policy, texts, usercode
from turngate.agent import Agent
from turngate.agent_options import STRICTER
from turngate.contracts import DECISION_LIMIT, DESCRIPTION_LIMIT, KIB, CallPlan, Json, Verdict, digest_of, json_size
from turngate.interrupts import REVIEW, InterruptOnConfig, Rules
from turngate.plain import whole_text
from turngate.policy import PolicyContext
from turngate.toolbox import Toolbox
from turngate.tools import HumanTool, Interrupted, TaskTool

TOLD_LIMIT = 16 * KIB
"""Bytes of what the model is told of a call that does not run."""
HIDDEN = "(hidden)"
"""Stands in the default description for the arguments in `secret_args`."""


@dataclass(frozen=True)
class Scene:
    """The turn in which a call was proposed. `messages` are LangChain's, for functions written for LangChain."""

    step: int = 1
    turn_id: str = ""
    thread_id: str | None = None
    context: Json = field(default_factory=dict)
    requested_by: str | None = None
    metadata: Json = field(default_factory=dict)
    review_also: Sequence[str] = ()
    messages: Sequence[Any] = ()


@dataclass(frozen=True)
class Runtime:
    """What a function in LangChain's form finds under `runtime`. There is no graph here: store and writer are empty."""

    state: Json
    context: Json
    tool_call_id: str | None
    config: Json
    store: None = None
    stream_writer: Callable[..., None] = field(default=lambda *_: None)


@dataclass(frozen=True)
class ToolCallRequest:
    """What `when(request)` gets: the same attributes as LangChain's ToolCallRequest."""

    tool_call: Json
    tool: BaseTool
    state: Json
    runtime: Runtime


@dataclass(frozen=True)
class _Ruling:
    verdict: Verdict
    config: InterruptOnConfig = REVIEW
    tags: tuple[str, ...] = ()
    reason: str | None = None
    warnings: tuple[str, ...] = ()


async def judge(agent: Agent, tools: Toolbox, call: Json, scene: Scene, *, position: int = 0) -> CallPlan:
    """Return the plan for a readable call, given as LangChain's tool call (`name`, `args`, `id`).

    `call["args"]` must be strict JSON; `position` is its place in the AI message.
    """
    name, args = call["name"], call["args"]
    plan = CallPlan(call=position, verdict=Verdict.INVALID, digest=digest_of(name, args))
    tool = tools.get(name)
    if tool is None:
        return plan.model_copy(update={"message": _told(texts.unknown_tool(name, tools.names))})
    if message := _refusal(agent, tools, tool, args):
        return plan.model_copy(update={"message": _told(message), "tool_description": tool.description})
    return await _Case(agent, tools, tool, call, scene).plan(plan)


def _told(text: str) -> str:
    """What the model is told may quote anything: it is cut, and made text that can be recorded."""
    return texts.cut(whole_text(text), TOLD_LIMIT)


def _refusal(agent: Agent, tools: Toolbox, tool: BaseTool, args: Json) -> str | None:
    if (size := json_size(args)) > DECISION_LIMIT:
        return texts.too_large(tool.name, size, DECISION_LIMIT)
    if isinstance(tool, TaskTool):
        wanted = args.get("subagent_type")
        if isinstance(wanted, str) and wanted not in agent.subagents:
            return texts.unknown_subagent(wanted, agent.subagents)
    problems = tools.problems(tool.name, args)
    return texts.invalid_args(tool.name, problems) if problems else None


@dataclass(frozen=True)
class _Case:
    """One call before the rules of its agent."""

    agent: Agent
    tools: Toolbox
    tool: BaseTool
    call: Json
    scene: Scene

    async def plan(self, plan: CallPlan) -> CallPlan:
        ruling = self._as_wished(self._for_people(await self._ruling()))
        found: dict[str, Any] = {
            "verdict": ruling.verdict,
            "tool_description": self.tool.description,
            "options": self.agent.tool_settings(self.tool),
            "human": isinstance(self.tool, HumanTool),
        }
        if isinstance(self.tool, TaskTool):
            found["subagent"] = self.agent.subagents[self.call["args"]["subagent_type"]].key
            found["judge_edits"] = True
        if ruling.verdict is Verdict.DENY:
            found["message"] = _told(texts.denied(self.tool.name, ruling.reason))
        if ruling.verdict is Verdict.REVIEW:
            found |= await self._review(ruling)
        return plan.model_copy(update=found)

    # --- The verdict ---

    async def _ruling(self) -> _Ruling:
        ruled = await self._by_rules(self.agent.rules)
        return ruled or await self._by_policies() or self._by_default()

    async def _by_rules(self, rules: Rules | None) -> _Ruling | None:
        found = rules.find(self.tool.name) if rules else None
        if rules is None or found is None:
            return None
        key, config = found
        if config is None:
            return _Ruling(Verdict.RUN)
        wanted, warning = await self._wanted(config)
        if wanted:
            tags, tag_warning = await self._tags(config)
            warnings = tuple(one for one in (warning, tag_warning) if one)
            return _Ruling(Verdict.REVIEW, config, tags, warnings=warnings)
        return await self._by_rules(rules.below(key)) or _Ruling(Verdict.RUN)

    async def _wanted(self, config: InterruptOnConfig) -> tuple[bool, str | None]:
        if config.when is None:
            return True, None
        try:
            answer = await self._ask(config.when, self._request())
        except (Exception, Interrupted) as error:
            return True, f"the condition failed ({usercode.words_of(error)}), so a person decides"
        if isinstance(answer, bool):
            return answer, None
        return True, f"the condition answered {_short(answer)} in place of True or False, so a person decides"

    async def _tags(self, config: InterruptOnConfig) -> tuple[tuple[str, ...], str | None]:
        if not callable(config.tags):
            return tuple(config.tags), None
        try:
            return policy.read_tags(await self._ask(config.tags, self._context())), None
        except (Exception, Interrupted) as error:
            return (), f"the function for tags failed ({usercode.words_of(error)})"

    async def _by_policies(self) -> _Ruling | None:
        """Ask the agent's policies, then its parents': of all opinions the strictest counts."""
        strictest: policy.Opinion | None = None
        for layer in self.agent.policy_layers:
            opinion = await policy.ask(layer, self._context(), self.agent.policy_timeout)
            if opinion and (strictest is None or STRICTER[opinion.verdict] > STRICTER[strictest.verdict]):
                strictest = opinion
        if strictest is None:
            return None
        return _Ruling(strictest.verdict, REVIEW, strictest.tags, strictest.reason, strictest.warnings)

    def _by_default(self) -> _Ruling:
        if self.agent.default == "run" and self.tool.name in self.tools.late:
            return _Ruling(Verdict.REVIEW)
        return _Ruling(Verdict(self.agent.default))

    def _for_people(self, ruling: _Ruling) -> _Ruling:
        """A person as a tool has nothing to run: the call is put up in any case, and only `respond` answers it."""
        if not isinstance(self.tool, HumanTool) or ruling.verdict is Verdict.DENY:
            return ruling
        config = replace(self.agent.rules.config(self.tool.name), allowed_decisions=("respond",), editable_args=None)
        return replace(ruling, verdict=Verdict.REVIEW, config=config)

    def _as_wished(self, ruling: _Ruling) -> _Ruling:
        """Review what the caller wants reviewed too, under the tool's own config: a `when` that let the call run must
        not hand it to people, or to decisions, that the config does not name."""
        wished = any(interrupts.matching(key, [self.tool.name]) for key in self.scene.review_also)
        if not wished or ruling.verdict is not Verdict.RUN:
            return ruling
        return _Ruling(Verdict.REVIEW, self.agent.rules.config(self.tool.name))

    # --- What is put up ---

    async def _review(self, ruling: _Ruling) -> Json:
        config = ruling.config
        warnings = list(ruling.warnings)
        decisions = list(config.allowed_decisions)
        if "edit" in decisions and (warning := self.tools.schema(self.tool.name).warning):
            decisions.remove("edit")
            warnings.append(warning)
        description, warning = await self._description(config)
        if warning:
            warnings.append(warning)
        return {
            # Where editing was all that was allowed, somebody must still be able to answer.
            "allowed_decisions": decisions or ["reject"],
            "description": texts.cut(whole_text(description), DESCRIPTION_LIMIT),
            "tags": [whole_text(tag) for tag in ruling.tags],
            "warnings": [whole_text(one) for one in warnings],
            "editable_args": None if config.editable_args is None else list(config.editable_args),
            "secret_args": list(config.secret_args),
            "reviewers": list(config.reviewers),
            "quorum": config.quorum,
            "allow_self_approval": config.allow_self_approval,
            "allow_remember": config.allow_remember is not False,
            "timeout_s": config.timeout,
            "on_timeout": config.on_timeout,
            "remind_every_s": config.remind_every,
            "escalate_after_s": config.escalate_after,
            "escalate_to": list(config.escalate_to),
            "repeat_rejected": config.repeat_rejected or self.agent.repeat_rejected,
            "max_rejections": config.max_rejections or self.agent.max_rejections,
        }

    async def _description(self, config: InterruptOnConfig) -> tuple[str, str | None]:
        if isinstance(config.description, str):
            return config.description, None
        if config.description is None:
            return self._default_description(config), None
        request = self._request()
        args = (request.tool_call, request.state, request.runtime)
        try:
            answer = await self._ask(config.description, *args[: _taken(config.description, len(args))])
            if not isinstance(answer, str):
                raise TypeError(f"it answered {_short(answer)}")
        except (Exception, Interrupted) as error:
            return self._default_description(config), f"the description failed ({usercode.words_of(error)})"
        return answer, None

    def _default_description(self, config: InterruptOnConfig) -> str:
        shown = {key: HIDDEN if key in config.secret_args else value for key, value in self.call["args"].items()}
        return texts.default_description(self.agent.description_prefix, self.tool.name, shown)

    # --- What the user's functions get ---

    async def _ask(self, function: Callable[..., Any], *args: Any) -> Any:
        return await usercode.call_within(self.agent.policy_timeout, function, *args)

    def _context(self) -> PolicyContext:
        return PolicyContext(
            tool_name=self.tool.name,
            tool_description=self.tool.description,
            args=copy.deepcopy(self.call["args"]),
            agent_name=self.agent.key,
            step=self.scene.step,
            thread_id=self.scene.thread_id,
            context=copy.deepcopy(self.scene.context),
            turn_id=self.scene.turn_id,
            tool_call_id=self.call.get("id"),
            requested_by=self.scene.requested_by,
            metadata=copy.deepcopy(self.scene.metadata),
        )

    def _request(self) -> ToolCallRequest:
        call = {
            "name": self.tool.name,
            "args": copy.deepcopy(self.call["args"]),
            "id": self.call.get("id"),
            "type": "tool_call",
        }
        state = {"messages": list(self.scene.messages)}
        config = {"configurable": {"thread_id": self.scene.thread_id}}
        runtime = Runtime(state, copy.deepcopy(self.scene.context), call["id"], config)
        return ToolCallRequest(call, self.tool, state, runtime)


def _taken(function: Callable[..., Any], most: int) -> int:
    """Return how many arguments a description function is given: LangChain's take three, ours take one."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin without a signature
        return 1
    if any(one.kind is one.VAR_POSITIONAL for one in parameters):
        return most
    needed = [one for one in parameters if one.default is one.empty and one.kind is not one.KEYWORD_ONLY]
    return most if len([one for one in needed if one.kind is not one.VAR_KEYWORD]) > 1 else 1


def _short(value: Any) -> str:
    return repr(value)[:100]
