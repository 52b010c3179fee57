"""The layers drawn at the top of `turngate/__init__.py` hold, import by import."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from turngate.plugin import PASSTHROUGH

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "turngate"

WIRE = {"contracts", "errors", "texts"}
RULES_OF_THE_GATE = {"schemas", "decisions", "items", "judging", "ledger", "durations", "verifier"}
USER_CODE = {"policy", "agent", "activities"}
OUTSIDE = {"client", "worker", "plugin", "cli", "testing", "demo"}


@dataclass
class Imports:
    """What one module imports: `at_once` when it is loaded, `later` inside functions or for type checkers."""

    at_once: set[str] = field(default_factory=set)
    later: set[str] = field(default_factory=set)

    @property
    def all(self) -> set[str]:
        return self.at_once | self.later


def _name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "turngate"


@cache
def files() -> dict[str, Path]:
    """Return the file of every module of the package, named without the leading `turngate.`."""
    folders = [PACKAGE, PACKAGE / "workflows", PACKAGE / "activities"]
    paths = {path for folder in folders for path in folder.rglob("*.py")}
    return {_name(path): path for path in sorted(paths)}


@cache
def modules() -> dict[str, Imports]:
    """Return the imports of every module."""
    return {name: _imports(ast.parse(path.read_text())) for name, path in files().items()}


def _imports(tree: ast.Module) -> Imports:
    found = Imports()
    for node, at_once in _walk(tree, True):
        (found.at_once if at_once else found.later).update(_imported(node))
    return found


def _walk(node: ast.AST, at_once: bool) -> Iterator[tuple[ast.AST, bool]]:
    for child in ast.iter_child_nodes(node):
        lazy = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) or (
            isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
        )
        yield child, at_once and not lazy
        yield from _walk(child, at_once and not lazy)


def _imported(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if not isinstance(node, ast.ImportFrom):
        return set()
    assert node.level == 0, f"a relative import of {node.module}: write turngate.... in full"
    assert node.module
    if node.module == "turngate":
        return {f"turngate.{alias.name}" for alias in node.names}
    return {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}


def ours(names: set[str]) -> set[str]:
    """Return those names that are modules of the package, without the leading `turngate.`."""
    known = modules()
    return {name.removeprefix("turngate.") for name in names if name.removeprefix("turngate.") in known}


def below(start: str, *, at_once: bool = False) -> set[str]:
    """Return all modules that `start` brings with it, directly or not."""
    seen: set[str] = set()
    todo = [start]
    while todo:
        imports = modules()[todo.pop()]
        new = ours(imports.at_once if at_once else imports.all) - seen
        seen |= new
        todo += new
    return seen


def top(names: set[str]) -> set[str]:
    """Return the first parts of dotted names."""
    return {name.partition(".")[0] for name in names}


def in_folder(folder: str) -> list[str]:
    return [name for name in files() if name.partition(".")[0] == folder]


def test_wire_depends_on_nothing_else() -> None:
    """Contracts, errors and texts import one another and libraries only."""
    for name in WIRE:
        assert ours(modules()[name].all) <= WIRE, name


@pytest.mark.parametrize("name", sorted(WIRE | RULES_OF_THE_GATE))
def test_rules_of_the_gate_know_no_temporal(name: str) -> None:
    """The ledger and its like are plain code: no Temporal, no LangChain, nothing of the other layers."""
    imports = modules()[name].all
    assert ours(imports) <= WIRE | RULES_OF_THE_GATE
    assert not {"temporalio", "langchain", "langchain_core", "asyncio"} & top(imports)


@pytest.mark.parametrize("name", in_folder("workflows"))
def test_workflows_hold_no_user_code(name: str) -> None:
    """Workflow code imports neither policy nor agent nor activities, nor LangChain, not even inside a function."""
    imports = modules()[name].all
    allowed = WIRE | RULES_OF_THE_GATE
    assert {each for each in ours(imports) if each.partition(".")[0] != "workflows"} <= allowed
    assert not {each for each in top(imports) if each.startswith("langchain")}


def test_workflows_import_modules_that_pass_the_sandbox() -> None:
    """What workflow code uses of the package is not loaded again for each run."""
    used = {each for name in in_folder("workflows") for each in ours(modules()[name].all)}
    assert {f"turngate.{each}" for each in used if not each.startswith("workflows")} <= set(PASSTHROUGH)


@pytest.mark.parametrize("name", [*in_folder("activities"), "agent", "policy"])
def test_user_code_knows_no_orchestration(name: str) -> None:
    """Activities, agents and policies know neither the workflows nor what stands above them."""
    assert not top(below(name)) & ({"workflows"} | OUTSIDE), name


def test_policy_stands_below_agent_and_agent_below_activities() -> None:
    """Policy does not know agents; agents do not know activities."""
    assert not top(below("policy")) & {"agent", "activities"}
    assert "activities" not in top(below("agent"))


def test_client_knows_contracts_only() -> None:
    """The client loads neither side of the worker."""
    assert not top(below("client", at_once=True)) & (USER_CODE | {"workflows", "worker", "plugin", "ledger"})


def test_client_brings_no_langchain() -> None:
    """`import turngate.client` loads no LangChain, which takes longer than all the rest."""
    code = "import sys, turngate.client; print([name for name in sys.modules if name.startswith('langchain')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_nothing_imports_the_flat_names() -> None:
    """The folders at the top are `turngate.workflows` and `turngate.activities` for everybody."""
    roots = [ROOT / name for name in ("src", "workflows", "activities", "tests", "examples", "bench", "docs")]
    paths = [ROOT / "worker.py", *(path for root in roots for path in root.rglob("*.py"))]
    guilty = [
        str(path.relative_to(ROOT))
        for path in paths
        for node in ast.walk(ast.parse(path.read_text()))
        if top(_flat(node)) & {"workflows", "activities", "src"}
    ]
    assert guilty == []


def _flat(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    return {node.module} if isinstance(node, ast.ImportFrom) and node.module and not node.level else set()
