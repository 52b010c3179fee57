"""Turn whatever a tool returned into a tool message that can be recorded: strict JSON, within the limit."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, ItemsView, KeysView, Mapping, ValuesView
from typing import Any

from langchain_core.messages import ToolMessage
from langchain_core.messages.tool import ToolOutputMixin
from langchain_core.tools import BaseTool

from turngate import texts
from turngate.contracts import Message, json_size
from turngate.plain import cleaned, is_strict, text_of_bytes, whole_text

Content = str | list[Any]
_LISTED = (set, frozenset, range, map, filter, zip, KeysView, ValuesView, ItemsView)
"""What has an end and would be written as `<map object at ...>`."""


def readable(tool: BaseTool) -> BaseTool:
    """Return the tool with results that LangChain would write as `<generator object ...>` made readable.

    Only a function inside a tool can be wrapped so; a tool class of its own answers for itself.
    """
    wrapped = {
        field: _wrapped(function, tool.response_format == "content_and_artifact")
        for field in ("func", "coroutine")
        if inspect.isroutine(function := getattr(tool, field, None))
    }
    return tool.model_copy(update=wrapped) if wrapped else tool


def _wrapped(function: Callable[..., Any], with_artifact: bool) -> Callable[..., Any]:
    def presented(result: Any) -> Any:
        if with_artifact and isinstance(result, tuple) and len(result) == 2:
            return _presented(result[0]), result[1]
        return _presented(result)

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def run_async(*args: Any, **kwargs: Any) -> Any:
            try:
                return presented(await function(*args, **kwargs))
            except (SystemExit, KeyboardInterrupt) as error:
                # LangChain runs this in a task of its own, where these two would end the worker.
                raise RuntimeError(f"{type(error).__name__}: {error}") from None

        return run_async

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        return presented(function(*args, **kwargs))

    return run


def _presented(result: Any) -> Any:
    if inspect.isgenerator(result) or isinstance(result, _LISTED):
        return list(result)
    if inspect.iscoroutine(result):
        # Nothing of it has run; written as "<coroutine object>" it would pass for a success.
        result.close()
        raise TypeError("its function returned a coroutine that nobody awaits: give async code as `coroutine`")
    if isinstance(result, bytes | bytearray):
        return text_of_bytes(bytes(result))
    return result


def tool_message(result: Any, *, name: str, tool_call_id: str, limit: int) -> Message:
    """Return a tool's result as the JSON of a ToolMessage of at most about `limit` bytes of content."""
    found = _as_message(result)
    content = _within(_content(found.content), limit)
    message = ToolMessage(content=content, tool_call_id=tool_call_id, name=name, status=found.status, id=found.id)
    message.artifact = _artifact(found.artifact, limit)
    for extra in ("additional_kwargs", "response_metadata"):
        kept = cleaned(getattr(found, extra))
        setattr(message, extra, kept if json_size(kept) <= limit else {})
    recorded: Message = cleaned(message.model_dump())
    return recorded


def error_message(text: str, *, name: str, tool_call_id: str) -> Message:
    """Return an error as the JSON of a ToolMessage."""
    message = ToolMessage(content=whole_text(text), tool_call_id=tool_call_id, name=name, status="error")
    recorded: Message = cleaned(message.model_dump())
    return recorded


def _as_message(result: Any) -> ToolMessage:
    if isinstance(result, ToolMessage):
        return result
    if (inner := _message_in_command(result)) is not None:
        return inner
    if isinstance(result, list) and any(isinstance(item, ToolOutputMixin) for item in result):
        result = "\n".join(texts.as_json(cleaned(_as_message(item).content)) for item in result)
    text = result if isinstance(result, str) else texts.as_json(cleaned(result))
    return ToolMessage(content=text, tool_call_id="")


def _message_in_command(result: Any) -> ToolMessage | None:
    """Find the tool message in a LangGraph Command: there is no graph here for the rest of it."""
    update = getattr(result, "update", None)
    messages = update.get("messages") if isinstance(update, Mapping) else None
    found = [one for one in messages or () if isinstance(one, ToolMessage)]
    return found[-1] if found else None


def _content(content: Any) -> Content:
    if isinstance(content, list):
        return [cleaned(block) for block in content] or "[]"
    return whole_text(content) if isinstance(content, str) else texts.as_json(cleaned(content))


def _within(content: Content, limit: int) -> Content:
    if isinstance(content, str):
        return texts.cut(content, limit)
    if json_size(content) <= limit:
        return content
    return texts.cut("\n".join(_block_text(block) for block in content), limit)


def _block_text(block: Any) -> str:
    if isinstance(block, str):
        return block
    text = block.get("text") if isinstance(block, dict) else None
    if isinstance(text, str):
        return text
    kind = block.get("type", "unknown") if isinstance(block, dict) else type(block).__name__
    return f"[left out: a block of type {kind}, {json_size(block)} bytes]"


def _artifact(artifact: Any, limit: int) -> Any:
    """Return the artifact if it can be recorded as it is, else a note in its place; models never see it."""
    if artifact is None:
        return None
    if not is_strict(artifact):
        return {"left_out": f"the artifact is no plain JSON ({type(artifact).__name__})"}
    if (size := json_size(artifact)) > limit:
        return {"left_out": f"the artifact has {size} bytes, the limit is {limit} bytes"}
    return artifact
