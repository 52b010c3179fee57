"""The agents of a case, built from `given`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langchain_core.tools import BaseTool

from tests.case_runner.behaviours import build_behaviour
from tests.case_runner.execution import Log
from tests.case_runner.script import CaseModel, read_script
from tests.case_runner.templates import expand
from tests.case_runner.tools import build_tool
from turngate import Agent, Allowlist, Denylist, Predicate
from turngate.testing import Journal

Json = dict[str, Any]
NOTIFIER = "test"


@dataclass
class Builder:
    """Builds what `given` describes. Everything that happens in it goes to one journal file."""

    given: Json
    journal_path: Path
    prefix: str = ""
    _functions: dict[str, Callable[..., Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.journal = Journal(self.journal_path)
        self.log = Log(self.journal, self.journal_path.with_suffix(".release"))
        self.more = {run: read_script(script) for run, script in self.given.get("more_models", {}).items()}

    def agents(self) -> list[Agent]:
        """Return the agents of the worker."""
        others = [
            self.agent(more["agent"], name=name, script=more["model"])
            for name, more in self.given.get("more_agents", {}).items()
        ]
        return [self.agent(self.given["agent"], script=self.given.get("model", [])), *others]

    def agent(
        self, options: Json, *, name: str = "main", script: Iterable[Json] = (), duplicate: str | None = None
    ) -> Agent:
        """Return an agent. `duplicate` names a tool that it gets twice."""
        given = self._functions_in(expand(options))
        name = given.pop("name", name)
        given["tools"] = self._tools(given.pop("tools", None), duplicate)
        if "subagents" in given:
            given["subagents"] = [self._subagent(sub) for sub in given["subagents"]]
        if "policy" in given:
            given["policy"] = _policy(given["policy"])
        if "notifier" in self.given:
            given.setdefault("notifiers", [NOTIFIER])
        return Agent(name, model=self._model(name, script), **given)

    def notifiers(self) -> dict[str, Any]:
        """Return the notifiers of the worker."""
        return {NOTIFIER: Notifier(self.journal, self.given["notifier"])} if "notifier" in self.given else {}

    def _subagent(self, options: Json) -> Agent:
        options = dict(options)
        name, script = options.pop("name"), options.pop("model")
        tools = self._tools(options.pop("tools"), None)
        return Agent(name, model=self._model(name, script, subagent=True), tools=tools, **options)

    def _model(self, agent: str, script: Iterable[Json], subagent: bool = False) -> CaseModel:
        return CaseModel(
            read_script(list(script)),
            journal=self.journal,
            agent=agent,
            subagent=subagent,
            prefix=self.prefix,
            more=self.more,
        )

    def _tools(self, names: Iterable[str] | None, duplicate: str | None) -> list[Any]:
        specs = self.given["tools"]
        wanted = list(specs if names is None else names) + ([duplicate] if duplicate else [])
        at_once = [name for name in wanted if not specs[name].get("late")]
        late = [name for name in wanted if specs[name].get("late")]
        tools: list[Any] = [build_tool(name, specs[name], self.log) for name in at_once]
        return [*tools, self._factory(late)] if late else tools

    def _factory(self, names: list[str]) -> Callable[[], Any]:
        async def late_tools() -> list[BaseTool]:
            return [build_tool(name, self.given["tools"][name], self.log) for name in names]

        return late_tools

    def _functions_in(self, value: Any) -> Any:
        """Put behaviours in the place of `{"$fn": name}`."""
        if isinstance(value, list):
            return [self._functions_in(entry) for entry in value]
        if not isinstance(value, dict):
            return value
        if set(value) == {"$fn"}:
            return self._function(value["$fn"])
        return {key: self._functions_in(inner) for key, inner in value.items()}

    def _function(self, name: str) -> Callable[..., Any]:
        if name not in self._functions:
            spec = self.given.get("behaviours", {}).get(name)
            self._functions[name] = build_behaviour(name, spec, self.journal)
        return self._functions[name]


def _policy(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "predicate" in value:
        return Predicate(value["predicate"])
    kind = {"allowlist": Allowlist, "denylist": Denylist}
    ((word, make),) = [(word, make) for word, make in kind.items() if word in value]
    return make(value[word], **{key: inner for key, inner in value.items() if key != word})


@dataclass(frozen=True)
class Notifier:
    """Writes down what it is told."""

    journal: Journal
    spec: Json

    async def notify(self, notification: Any) -> None:
        """Take one notification."""
        data = notification if isinstance(notification, dict) else notification.model_dump(mode="json")
        self.journal.write("notified", notification=data)
        if self.spec.get("fails"):
            raise RuntimeError("the notifier fails")
