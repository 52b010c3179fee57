"""How each option of an agent is read: checked, brought into one form, or refused with the place and the value."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from langchain_core.messages import SystemMessage
from langchain_core.tools import BaseTool

from turngate import interrupts, options
from turngate.errors import ConfigError
from turngate.interrupts import InterruptOnConfig
from turngate.options import Duration
from turngate.tools import TaskTool

LateTools = Callable[[], Awaitable[Iterable[BaseTool]]]
"""An async function without parameters that returns tools, such as `client.get_tools` of langchain-mcp-adapters."""

STRICTER = {"run": 0, "review": 1, "deny": 2}
"""The values of `default`, by how much they let through."""


@dataclass(frozen=True, kw_only=True)
class ToolOptions:
    """How calls of one tool run. A mapping with the same keys does as well.

    `retry_safe=True` says that running the call twice does no harm: only then is it retried, with 3 attempts unless
    `max_attempts` says otherwise. `start_to_close` is the time for one attempt. A worker that sends no sign of life
    for `heartbeat` counts as lost. `task_queue` names the queue of the workers that have the tool.
    """

    retry_safe: bool = False
    max_attempts: int | None = None
    start_to_close: Duration = "10m"
    heartbeat: Duration = "30s"
    task_queue: str | None = None


def read_name(name: Any) -> str:
    if not isinstance(name, str) or not name or "/" in name or len(name) > 100:
        raise ConfigError(f"agent name {name!r}: give a text of at most 100 characters without '/'")
    return name


def read_default(place: str, given: Any, parents: str) -> str:
    """Return the stricter of the agent's own default and its parent's."""
    return max(options.one_of(place, given, tuple(STRICTER)), parents, key=STRICTER.__getitem__)


def read_model(place: str, model: Any) -> Any:
    if isinstance(model, str):
        _need_langchain(place, model)
    elif not callable(getattr(model, "ainvoke", None)):
        raise ConfigError(f"{place}: {model!r} is neither a LangChain chat model nor a text such as 'openai:gpt-5'")
    return model


def _need_langchain(place: str, model: str) -> None:
    try:
        from langchain.chat_models import init_chat_model  # noqa: F401
    except ImportError:
        raise ConfigError(
            f"{place}: the text {model!r} needs the package langchain: install turngate[langchain], or give a model"
        ) from None


def read_verifier(place: str, given: Any) -> Any:
    """Return what verifies signed decisions, or None."""
    if given is not None and not callable(getattr(given, "verify", None)):
        raise ConfigError(f"{place}: {given!r} has no method `verify`; give a DecisionVerifier")
    return given


def read_system_prompt(place: str, given: Any) -> SystemMessage | None:
    if given is None or isinstance(given, SystemMessage):
        return given
    return SystemMessage(options.text(place, given))


def read_roles(place: str, given: Any) -> dict[str, tuple[str, ...]]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ConfigError(f"{place}: {given!r} is not a mapping of roles to people")
    return {
        options.name(place, role): options.names(f"{place}[{role!r}]", people, may_be_empty=False)
        for role, people in given.items()
    }


def read_rules(place: str, given: Any) -> dict[str, InterruptOnConfig | None]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ConfigError(f"{place}: {given!r} is not a mapping of tools to True, False or InterruptOnConfig")
    for key in given:
        options.text(f"{place} has a key that is no tool's name", key)
    return {key: interrupts.read_entry(f"{place}[{key!r}]", value) for key, value in given.items()}


def read_tools(place: str, given: Any) -> tuple[dict[str, BaseTool], list[LateTools]]:
    items = [given] if _is_factory(given) else given
    if isinstance(items, str | Mapping | BaseTool) or not isinstance(items, Iterable):
        raise ConfigError(f"{place}: {given!r} is neither a list of tools nor an async function that returns one")
    static: dict[str, BaseTool] = {}
    factories: list[LateTools] = []
    for item in items:
        if _is_factory(item):
            factories.append(item)
        elif not isinstance(item, BaseTool):
            raise ConfigError(
                f"{place}: {item!r} is no LangChain tool; put @tool (langchain_core.tools) over the function"
            )
        elif item.name in static:
            raise ConfigError(f"{place}: two tools are named {item.name!r}")
        elif not isinstance(item, TaskTool):
            static[item.name] = item
    return static, factories


def _is_factory(item: Any) -> bool:
    if isinstance(item, BaseTool) or not inspect.iscoroutinefunction(item):
        return False
    needed = [one for one in inspect.signature(item).parameters.values() if one.default is one.empty]
    return not [one for one in needed if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]


_TOOL_OPTIONS = tuple(field.name for field in fields(ToolOptions))


def read_tool_option(place: str, given: Any) -> ToolOptions:
    if isinstance(given, Mapping):
        options.only_known(place, given, _TOOL_OPTIONS)
        given = ToolOptions(**given)
    if not isinstance(given, ToolOptions):
        raise ConfigError(f"{place}: {given!r} is neither ToolOptions nor a mapping of them")
    retry_safe = options.flag(f"{place}.retry_safe", given.retry_safe)
    if given.max_attempts is not None:
        attempts = options.whole(f"{place}.max_attempts", given.max_attempts)
        if attempts > 1 and not retry_safe:
            raise ConfigError(
                f"{place}: 'max_attempts' over 1 needs 'retry_safe=True': running the call twice must do no harm"
            )
    options.seconds(f"{place}.start_to_close", given.start_to_close)
    options.seconds(f"{place}.heartbeat", given.heartbeat)
    if given.task_queue is not None:
        options.name(f"{place}.task_queue", given.task_queue)
    return given


def check_human(place: str, config: InterruptOnConfig | None) -> None:
    if config is None:
        raise ConfigError(f"{place}: a person as a tool has no code, so it can't run without being asked")
    if config is not interrupts.REVIEW and "respond" not in config.allowed_decisions:
        raise ConfigError(f"{place}: a person as a tool is answered by 'respond'; allow it")
    if config.on_timeout and config.on_timeout["type"] == "approve":
        raise ConfigError(f"{place}.on_timeout: a person as a tool has no code that an approval could run")


def read_tool_options(place: str, given: Any) -> dict[str, ToolOptions]:
    """Return the options of each tool or pattern."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ConfigError(f"{place}: {given!r} is not a mapping of tools to ToolOptions")
    return {options.name(place, key): read_tool_option(f"{place}[{key!r}]", value) for key, value in given.items()}
