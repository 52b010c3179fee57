"""Agents are found by name, and what is wrong with a name is said."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from turngate.errors import ConfigError
from turngate.loading import load, load_agents

MODULE = """
from turngate import Agent
from turngate.testing import ScriptedModel

one = Agent("one", model=ScriptedModel())
many = [Agent("two", model=ScriptedModel()), Agent("three", model=ScriptedModel())]

def built():
    return Agent("four", model=ScriptedModel())

number = 7
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in a folder with a module of agents."""
    (tmp_path / "agents_of_mine.py").write_text(MODULE)
    (tmp_path / "broken_module.py").write_text("import not_installed_anywhere")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "agents_of_mine", raising=False)


def test_agents_lists_and_functions_are_taken() -> None:
    """A reference may name an agent, a list of them, or a function."""
    agents = load_agents(["agents_of_mine:one", "agents_of_mine:many", "agents_of_mine:built"])
    assert [agent.name for agent in agents] == ["one", "two", "three", "four"]


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("agents_of_mine", "give module:attribute"),
        ("agents_of_mine:nothing", "has no 'nothing'"),
        ("nowhere.at_all:x", "no module 'nowhere.at_all'"),
        ("agents_of_mine:number", "is int, not an Agent"),
    ],
)
def test_mistakes_are_named(reference: str, said: str) -> None:
    """Each part of a reference can be wrong, and the message says which."""
    with pytest.raises(ConfigError, match=said):
        load_agents([reference])


def test_missing_import_inside_the_module_is_not_hidden() -> None:
    """A module that exists but lacks a dependency shows the dependency's error."""
    with pytest.raises(ModuleNotFoundError, match="not_installed_anywhere"):
        load("broken_module:x")
