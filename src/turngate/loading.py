"""Find objects by name, as command lines give them: `module:attribute`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turngate.errors import ConfigError

if TYPE_CHECKING:
    from temporalio.converter import DataConverter

    from turngate.agent import Agent


def load(reference: str) -> Any:
    """Return the object that `module:attribute` names; modules of the current folder are found too.

    Raises ConfigError that names the part which is missing.
    """
    module_name, colon, path = reference.partition(":")
    if not (module_name and colon and path):
        raise ConfigError(f"{reference!r} is not a reference: give module:attribute, for example 'myapp.agents:main'")
    found: Any = _import(module_name)
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise ConfigError(f"{reference!r}: {module_name!r} has no {path!r}") from None
    return found


def load_agents(references: Iterable[str]) -> list[Agent]:
    """Return the agents that the references name: an Agent each, a list of them, or a function that returns either.

    Raises ConfigError for anything else.
    """
    return [agent for reference in references for agent in _agents(reference)]


def load_data_converter(reference: str | None) -> DataConverter:
    """Return the data converter that a reference names, or that a function returns; without one our usual one."""
    from temporalio.contrib.pydantic import pydantic_data_converter
    from temporalio.converter import DataConverter

    if reference is None:
        return pydantic_data_converter
    converter: DataConverter = _one(reference, DataConverter, "a temporalio DataConverter")
    return converter


def load_notifiers(reference: str | None) -> Mapping[str, Any] | None:
    """Return the mapping of notifiers that a reference names, or that a function returns."""
    if reference is None:
        return None
    notifiers: Mapping[str, Any] = _one(reference, Mapping, "a mapping from names to notifiers")
    return notifiers


def _agents(reference: str) -> Sequence[Agent]:
    # Here, because it brings langchain.
    from turngate.agent import Agent

    found = _made(reference, Agent)
    agents = [found] if isinstance(found, Agent) else found
    if not isinstance(agents, (list, tuple)) or not all(isinstance(each, Agent) for each in agents):
        raise ConfigError(f"{reference!r} is {type(found).__name__}, not an Agent or a list of agents")
    return agents


def _one(reference: str, kind: type[Any], words: str) -> Any:
    found = _made(reference, kind)
    if not isinstance(found, kind):
        raise ConfigError(f"{reference!r} is {type(found).__name__}, not {words}")
    return found


def _made(reference: str, kind: type[Any]) -> Any:
    """Return what a reference names; of a function, what it returns."""
    found = load(reference)
    return found() if callable(found) and not isinstance(found, kind) else found


def _import(name: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        # The module itself is missing, or one that it imports: these are different mistakes.
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigError(f"there is no module {name!r} here or among the installed packages") from None
        raise
