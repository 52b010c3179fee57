"""A stage for the agents of a page: scripts in place of their models, and a worker that runs them."""

from __future__ import annotations

import ast
import inspect
import itertools
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

from temporalio.client import Client

from tests.docs.pages import Block, blocks, name_of
from turngate import Agent, build_worker
from turngate.testing import ScriptedModel

Answer = str | Mapping[str, Any] | Sequence[Mapping[str, Any]]
_IDS = itertools.count(1)


def call(name: str, /, **args: Any) -> dict[str, Any]:
    """Return one tool call of a script."""
    return {"id": f"call_{next(_IDS)}", "name": name, "args": args}


class Stage:
    """One worker on the default task queue for the agents of one page."""

    def __init__(self, temporal: Client) -> None:
        self._temporal = temporal
        self._agents: dict[str, Agent] = {}
        self._options: dict[str, Any] = {}
        self._running = AsyncExitStack()

    async def play(
        self, agent: Agent, *answers: Answer, subagents: Mapping[str, Sequence[Answer]] | None = None, **options: Any
    ) -> None:
        """Give an agent a script, one answer a model call: a text, a call or a list of calls. Then run it.

        `options` go to the worker. An agent of the same name leaves the stage.
        """
        agent.model = _script(answers)
        for name, script in (subagents or {}).items():
            agent.subagents[name].model = _script(script)
        self._agents[agent.name] = agent
        self._options.update(options)
        await self.close()
        worker = build_worker(self._temporal, list(self._agents.values()), **self._options)
        await self._running.enter_async_context(worker)

    async def close(self) -> None:
        """Stop the worker."""
        await self._running.aclose()


def _script(answers: Sequence[Answer]) -> ScriptedModel:
    return ScriptedModel([_answer(answer) for answer in answers])


def _answer(answer: Answer) -> Any:
    if isinstance(answer, str):
        return answer
    return {"tool_calls": [answer] if isinstance(answer, Mapping) else list(answer)}


async def run_page(page: Path, folder: Path, **names: Any) -> dict[str, Any]:
    """Run the Python of a page from top to bottom in one namespace, and write its files into `folder`."""
    # A module of its own: pydantic and LangChain look up annotations where a function says that it is from.
    module = ModuleType(f"docs_{name_of(page).replace('/', '_').removesuffix('.md').replace('-', '_')}")
    sys.modules[module.__name__] = module
    module.__dict__.update(names)
    for block in blocks(page):
        if block.title:
            path = folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.code, "utf-8")
        if block.hidden:
            # What a visible block has named otherwise is itself again.
            module.__dict__.update(names)
        if block.language == "python":
            await _run(page, block, module.__dict__)
    return module.__dict__


async def _run(page: Path, block: Block, names: dict[str, Any]) -> None:
    # Moved down to its line, so that a traceback shows the page.
    code = "\n" * (block.line - 1) + block.code
    compiled = compile(code, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(compiled, names)
    if inspect.iscoroutine(result):
        await result
