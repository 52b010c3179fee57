"""The tools of a case, built from their descriptions."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Callable
from typing import Any

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool

from tests.case_runner.execution import Execution, Log
from tests.case_runner.schemas import CONFIG, build_model
from turngate import human_tool

Json = dict[str, Any]


def build_tool(name: str, spec: Json, log: Log) -> BaseTool:
    """Return the tool of this name."""
    description = spec.get("description", f"The tool {name}.")
    schema = _schema(name, spec)
    if spec.get("kind") == "human":
        return human_tool(name, schema, description=description)
    model = schema if isinstance(schema, type) else None

    def start(args: Json) -> Execution:
        return Execution(name, spec, model, log, args)

    options: Json = {
        "name": name,
        "description": description,
        "args_schema": schema,
        "return_direct": spec.get("return_direct", False),
        "response_format": "content_and_artifact" if "artifact" in spec else "content",
    }
    if spec.get("kind") == "class":
        return _ClassTool(start=start, **options)
    if spec.get("kind") == "async":
        return StructuredTool(coroutine=_async_code(start), **options)
    return StructuredTool(func=_code(start, spec), **options)


def _schema(name: str, spec: Json) -> Any:
    if "schema" in spec:
        return copy.deepcopy(spec["schema"])
    injected = tuple(spec.get("injected", ()))
    return build_model(f"{name}_args", spec["params"], validator=spec.get("validator"), injected=injected)


class _ClassTool(BaseTool):
    """A tool written as a class of its own."""

    start: Any

    def _run(self, **args: Any) -> Any:
        return _run(self.start(args))


def _code(start: Callable[[Json], Execution], spec: Json) -> Callable[..., Any]:
    """Return the code of a sync tool, with a `config` parameter where the runtime is to supply one."""

    def plain(**args: Any) -> Any:
        return _run(start(args))

    def with_config(config: RunnableConfig, **args: Any) -> Any:
        return _run(start(args))

    return with_config if CONFIG in spec.get("injected", ()) else plain


def _async_code(start: Callable[[Json], Execution]) -> Callable[..., Any]:
    async def code(**args: Any) -> Any:
        execution = start(args)
        try:
            for pause in execution.work():
                await asyncio.sleep(pause)
        except asyncio.CancelledError:
            execution.note(cancelled=True)
            raise
        finally:
            execution.end()
        return execution.result

    return code


def _run(execution: Execution) -> Any:
    try:
        for pause in execution.work():
            time.sleep(pause)
    finally:
        execution.end()
    return execution.result
