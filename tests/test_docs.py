"""The documentation is true: its Python runs, its commands exist, its tables are complete, its site builds.

Every page is run from top to bottom against one real server. Scripts stand in for the models. What sets a page's scene,
and what looks at the outcome, is Python in comments of the page that begin with `<!-- test`.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from temporalio.client import Client

import turngate
import turngate.testing
from tests.docs.pages import DOCS, ROOT, blocks, commands, name_of, pages, tables
from tests.docs.stage import Stage, call, run_page
from turngate import Agent, InterruptOnConfig, ToolOptions, decisions, errors
from turngate.cli.app import app
from turngate.testing import dev_server, pass_time

PAGES = pages()
WITH_PYTHON = [page for page in PAGES if any(block.language == "python" for block in blocks(page))]
OPTIONS = DOCS / "reference" / "options.md"
TUTORIAL = DOCS / "tutorial.md"


@pytest.fixture(scope="module")
async def temporal() -> AsyncIterator[Client]:
    """A client of the one server for all pages, on which time can pass on demand."""
    async with dev_server(time_skipping=True) as server:
        yield await server.client()


@pytest.mark.server
@pytest.mark.parametrize("page", [page for page in WITH_PYTHON if page != TUTORIAL], ids=name_of)
async def test_python_runs(page: Path, temporal: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The snippets of a page run in their order, as they stand there."""
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal.service_client.config.target_host)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    stage = Stage(temporal)
    try:
        await run_page(page, tmp_path, play=stage.play, call=call, temporal=temporal, pass_time=pass_time)
    finally:
        await stage.close()


# --- What is not Python ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_exist(page: Path) -> None:
    """Every `turngate` and `worker.py` command line has a command and options that exist."""
    for line, text in commands(page):
        words = shlex.split(text)
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words.pop(0)
        if words[0] == "turngate" and len(words) > 1:
            _parses(app, words[1:], f"{name_of(page)}:{line}")
        elif words[:2] == ["python", "worker.py"]:
            _parses(_worker_app(), words[2:], f"{name_of(page)}:{line}")
        elif words[0] == "make":
            assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE), text


def _parses(program: Any, words: list[str], place: str) -> None:
    if words == ["--help"]:
        return
    try:
        program.parse_args(words, exit_on_error=False, print_error=False)
    except Exception as error:
        raise AssertionError(f"{place}: {shlex.join(words)}: {error}") from error


def _worker_app() -> Any:
    sys.path.insert(0, str(ROOT))
    try:
        import worker
    finally:
        sys.path.remove(str(ROOT))
    return worker.app


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_data_is_readable(page: Path) -> None:
    """JSON, YAML and TOML parse, and what looks like a decision is one."""
    for block in blocks(page):
        if block.language == "json":
            value = json.loads(block.code)
            if isinstance(value, dict) and ("approval_id" in value or "decisions" in value) and "name" not in value:
                for entry in decisions.parse(value).entries:
                    assert entry.refusal is None, f"{name_of(page)}:{block.line}: {entry.refusal}"
        elif block.language == "yaml":
            yaml.safe_load(block.code)
        elif block.language == "toml":
            tomllib.loads(block.code)


def test_typescript_is_that_of_the_example() -> None:
    """The functions that a page shows are those of the tested example, word by word."""
    example = (ROOT / "examples" / "typescript" / "src" / "turngate.ts").read_text("utf-8")
    shown = [block for page in PAGES for block in blocks(page) if block.language == "ts"]
    assert shown
    for block in shown:
        for part in block.code.strip().split("\n\n"):
            assert part in example, part


# --- Tables ----------------------------------------------------------------------------------------------------------


def _defaults(where: Any) -> dict[str, Any]:
    if dataclasses.is_dataclass(where):
        return {field.name: field.default for field in dataclasses.fields(where)}
    parameters = inspect.signature(where.__init__).parameters.values()
    return {
        one.name: one.default for one in parameters if one.kind is one.KEYWORD_ONLY and not one.name.startswith("_")
    }


def _options() -> dict[str, dict[str, str]]:
    """The tables of the options' page: for each heading its options with their defaults."""
    found: dict[str, dict[str, str]] = {}
    heading = ""
    for line in OPTIONS.read_text("utf-8").splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ").strip().strip("`")
        elif cells := re.match(r"^\| `(\w+)` \| ([^|]+) \|", line):
            found.setdefault(heading, {})[cells[1]] = cells[2].strip()
    return found


@pytest.mark.parametrize("where", [Agent, InterruptOnConfig, ToolOptions], ids=lambda where: where.__name__)
def test_options_are_complete(where: type) -> None:
    """Every option stands in the table with the default that it has."""
    listed = _options()[where.__name__]
    real = _defaults(where)
    assert sorted(listed) == sorted(real)
    for name, default in real.items():
        if default is inspect.Parameter.empty:
            assert listed[name] == "needed", name
        elif listed[name].startswith("`"):
            assert ast_value(listed[name].strip("`")) == _plain(default), name
        else:
            # A default that takes words: they must not stand where a value would do.
            assert name in ("description_prefix", "edit_notice", "allowed_decisions"), (name, listed[name])


def ast_value(text: str) -> Any:
    """Return the value of a Python literal, tuples as lists."""
    import ast

    return _plain(ast.literal_eval(text))


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def test_error_codes_are_complete() -> None:
    """Every refusal code stands in the reference with its class."""
    found = {
        row[0].strip("`"): row[1].strip("`") for table in tables(DOCS / "reference" / "errors.md") for row in table
    }
    for code, kind in errors.REFUSALS.items():
        assert found.get(code) == kind.__name__, code


def test_api_is_complete() -> None:
    """Every public name stands in the generated reference."""
    text = "\n".join(page.read_text("utf-8") for page in (DOCS / "reference").glob("api*.md"))
    listed = {name.rpartition(".")[2] for name in re.findall(r"^(?::::|\s+- )\s*([\w.]+)$", text, re.MULTILINE)}
    assert set(turngate.__all__) - listed == set()
    assert set(turngate.testing.__all__) - listed == set()


# --- The site --------------------------------------------------------------------------------------------------------


def test_every_page_is_in_the_navigation() -> None:
    """Pages, and the records of decisions, can be found."""
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    missing = [str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if str(page.relative_to(DOCS)) not in text]
    assert missing == [], "add these to `nav` in mkdocs.yml"


@pytest.mark.slow
def test_the_site_builds(tmp_path: Path) -> None:
    """Without a warning: no dead link, no dead anchor, no name that is not there."""
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "site" / "reference" / "api" / "index.html").stat().st_size > 10_000
