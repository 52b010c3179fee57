"""The agent that the killed workers run, built from data so that a deploy is another worker with other data."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langchain_core.tools import BaseTool, tool
from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from tests.crash.effects import Effects
from turngate import Agent, current_call, interrupt
from turngate.testing import Journal, ScriptedModel

Json = dict[str, Any]
LOST_AFTER = "2s"
"""The heartbeat timeout of the tools here: so long after its worker's death a call counts as interrupted."""


@dataclass(frozen=True)
class Spec:
    """What a build of the agent is made of. `gates` is `interrupt_on`, with `when: true | false` for a predicate."""

    folder: str
    script: list[Json | str] = field(default_factory=list)
    tools: list[str] = field(default_factory=lambda: ["pay", "ship", "read", "confirm"])
    gates: Json = field(default_factory=lambda: {"pay": True, "ship": True})
    options: Json = field(default_factory=dict)
    helper_script: list[Json | str] = field(default_factory=list)
    """With a script there is a subagent "helper"."""

    @property
    def effects(self) -> Effects:
        """The database that all builds share."""
        return Effects(Path(self.folder) / "effects.db")

    @property
    def journal(self) -> Journal:
        """What the model was asked, over all processes."""
        return Journal(Path(self.folder) / "model.jsonl")


def build(data: Json) -> tuple[list[Agent], Json]:
    """Return the agents and the worker's options for a nursery's spec."""
    spec = Spec(**data["spec"])
    return [agent(spec)], {"interceptors": [BeforeReport(spec.effects)]}


def agent(spec: Spec) -> Agent:
    """Build the agent "clerk"."""
    known = _tools(spec.effects)
    options = dict(spec.options)
    given = options.pop("tool_options", {})
    if spec.helper_script:
        model = ScriptedModel(spec.helper_script, journal=spec.journal)
        options["subagents"] = [{"name": "helper", "description": "helps", "model": model}]
    return Agent(
        "clerk",
        model=ScriptedModel(spec.script, journal=spec.journal),
        tools=[known[name] for name in spec.tools],
        tool_options={name: {"heartbeat": LOST_AFTER, **given.get(name, {})} for name in spec.tools},
        interrupt_on={name: _gate(gate) for name, gate in spec.gates.items()},
        **options,
    )


def _gate(gate: bool | Json) -> Any:
    if isinstance(gate, bool) or "when" not in gate:
        return gate
    verdict = gate["when"]
    return {"allowed_decisions": ["approve", "edit", "reject", "respond"], **gate, "when": lambda request: verdict}


def _tools(effects: Effects) -> dict[str, BaseTool]:
    def work(name: str, ref: str, amount: int) -> str:
        call = current_call()
        effects.work(name, ref, amount, key=call.key, attempt=call.attempt, decision=call.decision)
        return f"{name} {ref} {amount}"

    @tool
    def pay(ref: str, amount: int) -> str:
        """Pay an amount."""
        return work("pay", ref, amount)

    @tool
    def ship(ref: str, amount: int = 1) -> str:
        """Ship parcels."""
        return work("ship", ref, amount)

    @tool
    def read(ref: str, amount: int = 1) -> str:
        """Read an account."""
        return work("read", ref, amount)

    @tool
    def confirm(ref: str, amount: int = 1) -> str:
        """Ask before it is done."""
        answer = interrupt({"sure?": ref})
        return f"{work('confirm', ref, amount)} {answer}"

    return {one.name: one for one in (pay, ship, read, confirm)}


class BeforeReport(Interceptor):
    """Dies, where a trap says so, when the call's result is there and the server does not know it yet."""

    def __init__(self, effects: Effects) -> None:
        self.effects = effects

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        return _Reporting(next, self.effects)


class _Reporting(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, effects: Effects) -> None:  # noqa: A002
        super().__init__(next)
        self._effects = effects

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        result = await super().execute_activity(input)
        if activity.info().activity_type == "call_tool":
            self._effects.before_report(input.args[0]["args"]["ref"])
        return result
