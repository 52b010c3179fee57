"""One model step: ask the model, and ask the agent's rules about each call that it proposes.

Both in one activity, so that answer and verdicts are recorded together: from then on the record is the authority.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from temporalio import activity
from temporalio.exceptions import ApplicationError

from turngate import texts, usercode
from turngate.activities import answers, conversation
from turngate.activities.heartbeats import beating
from turngate.activities.model_client import ModelClient
from turngate.activities.remembered import Remembered
from turngate.agent import Agent, Registry
from turngate.contracts import (
    KIB,
    RESULT_LIMIT,
    CallPlan,
    Json,
    Message,
    ModelInput,
    ModelStep,
    ToolSettings,
    Verdict,
    json_size,
    text_of,
)
from turngate.errors import ConfigError
from turngate.judge import Scene, judge
from turngate.outputs import Output
from turngate.plain import WIRE_LIMIT, whole_text, wire_size
from turngate.toolbox import Toolbox
from turngate.tools import TaskTool

STREAM_EVERY = 0.2
TARGETS_LIMIT = 256 * KIB
STREAMED_KEPT = 64 * KIB


class CallModel:
    """The activity `call_model` for the agents of a worker."""

    def __init__(self, registry: Registry, search_attributes: Callable[[], bool]) -> None:
        self._registry = registry
        self._search_attributes = search_attributes
        self._remembered = Remembered()

    @activity.defn(name="call_model")
    async def call_model(self, data: dict[str, Any]) -> dict[str, Any]:
        """Run one model step: ModelInput in, ModelStep out, both as plain JSON."""
        request = ModelInput.model_validate(data)
        agent = self._agent(request.agent)
        with beating():
            messages = await conversation.resolve(request.conversation, self._remembered)
            tools = await _tools_of(agent)
        answer = await _answer(agent, tools, messages, request)
        with beating():
            step = await self._step(agent, tools, messages, request, answer)
        return _within_limit(step)

    def _agent(self, key: str) -> Agent:
        agent = self._registry.get(key)
        if agent is None:
            known = ", ".join(repr(name) for name in self._registry) or "none"
            raise ApplicationError(
                f"this worker has no agent {key!r}; it has {known}", type="UnknownAgent", non_retryable=True
            )
        return agent

    async def _step(
        self, agent: Agent, tools: Toolbox, messages: list[Message], request: ModelInput, answer: AIMessage
    ) -> ModelStep:
        try:
            message = answers.recorded(answer)
        except Exception as error:
            raise ApplicationError(
                f"the answer of the model of agent {agent.key!r} can't be recorded: {usercode.words_of(error)}",
                type="ModelFailed",
                non_retryable=True,
            ) from None
        output = await _output_of(agent, message)
        plans = await _plans(agent, tools, message, _scene(request, messages, message))
        schemas = _schemas(agent, tools, message, plans, known=request.schemas_known)
        return ModelStep(
            message=message,
            plans=plans,
            schemas=schemas,
            tool_settings=_tool_settings(agent, tools, schemas),
            settings=agent.settings(search_attributes=self._search_attributes()),
            output=output.text,
            output_problem=output.problem and texts.cut(output.problem, 4 * KIB),
        )


async def _tools_of(agent: Agent) -> Toolbox:
    try:
        return await agent.toolbox()
    except ConfigError as error:
        raise ApplicationError(str(error), type="ToolsUnavailable", non_retryable=True) from None
    except Exception as error:
        raise ApplicationError(
            f"the tools of agent {agent.key!r} could not be loaded: {usercode.words_of(error)}", type="ToolsUnavailable"
        ) from None


async def _answer(agent: Agent, tools: Toolbox, messages: list[Message], request: ModelInput) -> AIMessage:
    prompt = [agent.prompt] if agent.prompt else []
    conversed: list[BaseMessage] = [*prompt, *conversation.to_langchain(messages)]
    client = ModelClient(agent, tools.tools)
    if request.stream:
        return await _streamed(client, conversed, request.step)
    with beating():
        return await client.answer(conversed)


async def _streamed(client: ModelClient, messages: Sequence[BaseMessage], step: int) -> AIMessage:
    """Ask the model piece by piece; the signs of life carry the text that has come so far."""
    so_far: AIMessage | None = None

    def details() -> Json | None:
        if so_far is None:
            return None
        text = whole_text(text_of({"content": so_far.content}))
        return {"step": step, "text": text.encode()[:STREAMED_KEPT].decode("utf-8", "ignore")}

    with beating(STREAM_EVERY, details):
        async for piece in client.stream(messages):
            so_far = piece
            await asyncio.sleep(0)  # a model that yields without waiting must not keep the signs of life from running
    if so_far is None:
        raise ApplicationError("the model streamed nothing at all", type="ModelFailed", non_retryable=True)
    activity.heartbeat(details())
    return so_far


async def _output_of(agent: Agent, message: Message) -> Output:
    """Read the final answer of an agent that owes one of a certain shape; nothing where this is not the final one."""
    if agent.output_schema is None or message["tool_calls"] or message["invalid_tool_calls"]:
        return Output()
    return await agent.output_schema.read(text_of(message))


def _scene(request: ModelInput, messages: list[Message], answer: Message) -> Scene:
    return Scene(
        step=request.step,
        turn_id=request.turn_id,
        thread_id=request.thread_id,
        context=request.context,
        requested_by=request.requested_by,
        metadata=request.metadata,
        review_also=request.review_also,
        messages=conversation.AsLangchain([*messages, answer]),
    )


async def _plans(agent: Agent, tools: Toolbox, message: Message, scene: Scene) -> list[CallPlan]:
    """Judge all calls side by side: a rule that asks another service takes its time once, not once a call."""
    readable = [
        judge(agent, tools, call, scene, position=position) for position, call in enumerate(message["tool_calls"])
    ]
    unreadable = [
        answers.unreadable_plan(position, call) for position, call in enumerate(message["invalid_tool_calls"])
    ]
    return [*await asyncio.gather(*readable), *unreadable]


def _schemas(
    agent: Agent, tools: Toolbox, message: Message, plans: Sequence[CallPlan], *, known: bool
) -> dict[str, Json]:
    """Return the schemas that edits of this step are checked against: of the gated calls, and of possible targets."""
    gated = [
        message["tool_calls"][plan.call]["name"]
        for plan in plans
        if plan.verdict is Verdict.REVIEW and "edit" in plan.allowed_decisions
    ]
    found = {name: schema for name in gated if (schema := tools.schema(name).schema) is not None}
    if agent.allow_tool_change and not known:
        _add_targets(found, tools)
    return found


def _tool_settings(agent: Agent, tools: Toolbox, schemas: Container[str]) -> dict[str, ToolSettings]:
    """Return how each tool is executed that a reviewer may put in the place of another: those with a schema here."""
    if not agent.allow_tool_change:
        return {}
    return {tool.name: agent.tool_settings(tool) for tool in tools.tools if tool.name in schemas}


def _add_targets(found: dict[str, Json], tools: Toolbox) -> None:
    """Add the schemas of the tools that an edit may change to, as long as there is room in the step.

    A tool without its schema here can't be changed to. A subagent is no target: it is started by a call of its own.
    """
    room = TARGETS_LIMIT
    for tool in tools.tools:
        schema = None if isinstance(tool, TaskTool) or tool.name in found else tools.schema(tool.name).schema
        if schema is not None and (size := json_size(schema)) <= room:
            found[tool.name] = schema
            room -= size


def _within_limit(step: ModelStep) -> Json:
    """Return the step as JSON. Without it fitting there is nothing to record, and no retry would make it smaller."""
    result = step.compact()
    size = json_size(result)
    if size > RESULT_LIMIT or wire_size(result) > WIRE_LIMIT:
        raise ApplicationError(
            f"the model's answer with its plans takes {size} bytes, more than the limit of {RESULT_LIMIT} bytes",
            type="ModelAnswerTooLarge",
            non_retryable=True,
        )
    return result
