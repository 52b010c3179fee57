"""One tool call, exactly as decided, at most once an attempt.

Whatever the tool does comes back as a result: only what could be run again without harm fails the activity.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, Tool
from pydantic import ValidationError
from temporalio import activity
from temporalio.exceptions import ApplicationError

from turngate import texts, usercode
from turngate.activities import conversation, results
from turngate.activities.heartbeats import REGULAR, beating
from turngate.agent import Agent, Registry
from turngate.contracts import DECISION_LIMIT, KIB, Json, Message, ToolInput, ToolOutcome, Verdict, json_size
from turngate.judge import Scene, judge
from turngate.plain import WIRE_LIMIT, cleaned, whole_text, wire_size
from turngate.toolbox import Toolbox, from_runtime, sentences
from turngate.tools import CurrentCall, HumanTool, Interrupted, TaskTool, serving

CANCEL_GRACE = 5.0
"""Seconds that a tool has to end in order after its call was called off."""


class CallTool:
    """The activity `call_tool` for the agents of a worker."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    @activity.defn(name="call_tool")
    async def call_tool(self, data: dict[str, Any]) -> dict[str, Any]:
        """Run one tool call: ToolInput in, ToolOutcome out, both as plain JSON."""
        request = ToolInput.model_validate(data)
        with beating(min(REGULAR, request.options.heartbeat_s / 3)):
            outcome = await self._outcome(request)
        return outcome.compact()

    async def _outcome(self, request: ToolInput) -> ToolOutcome:
        if request.args is None:
            rest = await conversation.ask_own_run("call_args", {"number": request.number})
            request = ToolInput.model_validate({**request.compact(), **rest})
        work = _Work(request, request.args or {})
        agent = self._registry.get(request.agent)
        if agent is None:
            return work.refused(texts.unknown_tool(request.name, []))
        tool = agent.find_tool(request.name)
        if tool is None or request.edited:
            try:
                tools = await agent.toolbox()
            except Exception as error:
                words = f"the tools could not be loaded: {usercode.words_of(error)}"
                return work.refused(texts.tool_error(request.name, words))
            tool = tools.get(request.name)
            if tool is None:
                return work.refused(texts.unknown_tool(request.name, tools.names))
            if request.edited and (stopped := await work.judged(agent, tools)):
                return stopped
        if request.judge_only:
            return ToolOutcome(kind="cleared", ran=False)
        if isinstance(tool, HumanTool | TaskTool):
            return work.refused(texts.tool_error(tool.name, "it has no code that a changed call could run"))
        return await work.run(tool)


@dataclass(frozen=True)
class _Work:
    """One call on its way: the request, and the arguments that may have come by reference."""

    request: ToolInput
    args: Json

    def refused(self, text: str) -> ToolOutcome:
        """Answer without running anything. The model must know if the call that is refused is not its own."""
        return ToolOutcome(message=self._noticed(self._error(text)), succeeded=False, ran=False)

    async def judged(self, agent: Agent, tools: Toolbox) -> ToolOutcome | None:
        """Judge an edited call by the rules, which bind reviewers too; None where it may run.

        An edit of the same tool is not put up again: its reviewer is the one who would be asked.
        """
        request = self.request
        scene = Scene(
            step=request.step,
            turn_id=request.turn_id,
            thread_id=request.thread_id,
            context=request.context,
            requested_by=request.requested_by,
            metadata=request.metadata,
            review_also=request.review_also,
        )
        call = {"name": request.name, "args": self.args, "id": request.tool_call_id, "type": "tool_call"}
        plan = await judge(agent, tools, call, scene)
        if plan.verdict is Verdict.INVALID:
            return ToolOutcome(message=self._noticed(self._error(plan.message or "")), succeeded=False, ran=False)
        if plan.message is not None:
            return self.refused(plan.message)
        changed = request.name != (request.original_name or request.name)
        if plan.verdict is not Verdict.REVIEW or not changed or request.reviewed:
            return None
        schema = tools.schema(request.name).schema
        return ToolOutcome(kind="review", plan=plan, schemas={request.name: schema} if schema else {}, ran=False)

    async def run(self, tool: BaseTool) -> ToolOutcome:
        """Run the tool, and make an outcome of whatever it does."""
        current = self._current()
        try:
            with serving(current):
                result = await _run(tool, self._tool_call(tool), self._config(current), current)
        except Interrupted as question:
            return self._question(question.payload)
        except asyncio.CancelledError:
            raise
        except ValidationError as error:
            return self._invalid(tool, error) if _is_about_arguments(tool, error) else self._failed(error)
        except Exception as error:
            return self._failed(error)
        except BaseException as error:  # left to the SDK it would look like a lost call, about which people are asked
            asked = _question_in(error)
            return self._question(asked.payload) if asked else self._failed(error)
        message = self._message(result)
        return ToolOutcome(message=message, succeeded=message["status"] != "error")

    # --- What the tool is given ---

    def _tool_call(self, tool: BaseTool) -> Json:
        # LangChain would hand on what a model made up for an argument that only the runtime may supply.
        hidden = from_runtime(tool)
        # An id even where the model gave none: without one LangChain would not make a ToolMessage.
        return {
            "type": "tool_call",
            "name": self.request.name,
            "args": {key: value for key, value in self.args.items() if key not in hidden},
            "id": self.request.tool_call_id,
        }

    def _current(self) -> CurrentCall:
        request = self.request
        return CurrentCall(
            key=request.key,
            name=request.name,
            agent=request.agent,
            attempt=activity.info().attempt,
            decision=request.decision,
            reviewer=request.reviewer,
            thread_id=request.thread_id,
            turn_id=request.turn_id,
            step=request.step,
            number=request.number,
            tool_call_id=request.tool_call_id,
            requested_by=request.requested_by,
            context=request.context,
            metadata=request.metadata,
            _answers=list(request.answers),
        )

    def _config(self, current: CurrentCall) -> RunnableConfig:
        return {
            "configurable": {"thread_id": self.request.thread_id, "turngate": current.as_dict()},
            "metadata": {"turn_id": self.request.turn_id, "agent": self.request.agent},
        }

    # --- What comes of it ---

    def _question(self, payload: Any) -> ToolOutcome:
        question = cleaned(payload)
        if (size := json_size(question)) > DECISION_LIMIT:
            return self._failed(ValueError(f"its question has {size} bytes, the limit is {DECISION_LIMIT} bytes"))
        return ToolOutcome(kind="question", question=question)

    def _invalid(self, tool: BaseTool, error: ValidationError) -> ToolOutcome:
        """The tool's own validator spoke before its body ran."""
        return self.refused(texts.invalid_args(tool.name, sentences(error)))

    def _failed(self, error: BaseException) -> ToolOutcome:
        words = whole_text(usercode.words_of(error))
        options = self.request.options
        if options.retry_safe and activity.info().attempt < options.max_attempts:
            raise ApplicationError(words, type="ToolFailed") from None
        message = self._noticed(self._error(texts.tool_error(self.request.name, words)))
        return ToolOutcome(message=message, succeeded=False, error=words)

    def _error(self, text: str) -> Message:
        return results.error_message(text, name=self.request.name, tool_call_id=self.request.tool_call_id)

    def _noticed(self, message: Message) -> Message:
        """Put in front of an edited call's result that a reviewer changed it, and what ran."""
        if not self.request.edited or self.request.edit_notice is None:
            return message
        notice = texts.edit_notice(self.request.edit_notice, self.request.name, self.args)
        return {**message, "content": texts.with_notice(notice, message["content"])}

    def _message(self, result: Any) -> Message:
        """Return the result as a message that the server takes: cut further where escaping doubles its size."""
        limit = self.request.options.max_result_bytes
        stored_outside = _has_external_storage()
        while True:
            message = results.tool_message(
                result, name=self.request.name, tool_call_id=self.request.tool_call_id, limit=limit
            )
            message = self._noticed(message)
            if stored_outside or limit < KIB or wire_size(message) <= WIRE_LIMIT:
                return message
            limit //= 2


def _question_in(error: BaseException) -> Interrupted | None:
    """Find the question that a tool asked inside a task group, which hands it on in a group of errors."""
    if isinstance(error, BaseExceptionGroup):
        return next((found for one in error.exceptions if (found := _question_in(one))), None)
    return error if isinstance(error, Interrupted) else None


def _has_external_storage() -> bool:
    try:
        return activity.client().data_converter.external_storage is not None
    except RuntimeError:  # no client: a unit test
        return False


def _is_about_arguments(tool: BaseTool, error: ValidationError) -> bool:
    """Tell the check of the arguments from a validation error in the tool's own code."""
    return error.title == getattr(tool.args_schema, "__name__", None)


async def _run(tool: BaseTool, call: Json, config: RunnableConfig, current: CurrentCall) -> Any:
    """Run the tool to its end; when the call is called off, tell the tool and give it a short time to end."""
    tool = results.readable(tool)
    work: asyncio.Future[Any]
    if _is_async(tool):
        work = asyncio.ensure_future(usercode.contained(tool.ainvoke(call, config), "the tool"))
    else:
        work = usercode.in_thread(tool.invoke, call, config)
    try:
        await asyncio.wait({work})
    except asyncio.CancelledError:
        current.cancel()
        if _is_async(tool):
            work.cancel()
        await asyncio.wait({work}, timeout=CANCEL_GRACE)
        if not work.done() or work.cancelled():
            raise
    return work.result()


def _is_async(tool: BaseTool) -> bool:
    """Tell whether the tool has async code of its own; LangChain runs the others in a thread of its small pool."""
    if isinstance(tool, StructuredTool | Tool):
        return tool.coroutine is not None
    return type(tool)._arun is not BaseTool._arun
