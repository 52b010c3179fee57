"""Add Turngate to a Temporal client and worker that you have already."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from temporalio import activity, workflow
from temporalio.plugin import SimplePlugin
from temporalio.worker import ReplayerConfig, Worker, WorkerConfig, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from turngate import attributes, verifier
from turngate.runner import careful
from turngate.tolerant import composed, tolerant, tolerant_client

if TYPE_CHECKING:
    from turngate.agent import Agent

logger = logging.getLogger(__name__)

PASSTHROUGH = (
    "turngate.contracts",
    "turngate.decisions",
    "turngate.durations",
    "turngate.errors",
    "turngate.items",
    "turngate.judging",
    "turngate.ledger",
    "turngate.schemas",
    "turngate.texts",
    "turngate.verifier",
    # Our own workflows keep nothing outside a run (the stored histories prove it), and loading them again for each run
    # and each replay took a third of its time.
    "turngate.workflows",
    # Rust and pydantic: too slow, or impossible, to load again for every run.
    "annotated_types",
    "jsonschema_rs",
    "pydantic",
    "pydantic_core",
)
"""Modules that workflow code uses without loading them again for each run: they hold no state and no surprises."""


class TurngatePlugin(SimplePlugin):
    """Add Turngate's workflows, activities and safeguards to your own client and worker; nothing is replaced.

    Give it to `Client.connect(plugins=[...])`, and every worker of that client has it; or to one `Worker`. It adds

    * the workflows `AgentTurn` and `AgentThread` and the activities of `agents`;
    * an interceptor that turns a bad signal into a recorded refusal;
    * decoding that does not raise for what clients sent, around your codec and converter, on the worker's own copy
      of the client;
    * a filter in front of our workflows that leaves updates unanswered which are too large for any answer;
    * modules to your sandbox's pass-through list.

    It changes no other option of your worker. `turngate.build_worker` sets these too, and the reasons hold for yours:
    `sticky_queue_schedule_to_start_timeout` of 2 s (after a killed worker a decision otherwise waits 10 s),
    `max_heartbeat_throttle_interval` of 1 s (a stop reaches a running tool with a heartbeat),
    `graceful_shutdown_timeout` of 30 s.

    Without `agents` a worker only runs the workflows. Raises ConfigError for agents that don't go together.
    """

    def __init__(self, agents: Sequence[Agent] = (), *, notifiers: Mapping[str, Any] | None = None) -> None:
        self._present = attributes.Presence()
        self._ours = _activities(agents, self._present, notifiers)
        super().__init__(
            "turngate.TurngatePlugin",
            data_converter=composed,
            workflows=_with_workflows,
            activities=self._with_activities,
            interceptors=[_signal_guard()],
            workflow_runner=_with_passthrough,
        )

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """Add what the worker needs."""
        config = super().configure_worker(config)
        config["client"] = tolerant_client(config["client"])
        config["workflow_runner"] = careful(config["workflow_runner"])
        config["unsandboxed_workflow_runner"] = careful(config["unsandboxed_workflow_runner"])
        return config

    def configure_replayer(self, config: ReplayerConfig) -> ReplayerConfig:
        """Replay reads payloads as the worker read them."""
        config = super().configure_replayer(config)
        config["data_converter"] = tolerant(config["data_converter"])
        return config

    async def run_worker(self, worker: Worker, next: Callable[[Worker], Awaitable[None]]) -> None:  # noqa: A002
        """Look once, before the first task, whether the namespace has the search attributes."""
        await self._present.check(worker.client)
        await super().run_worker(worker, next)

    def _with_activities(self, existing: Sequence[Callable[..., Any]] | None) -> list[Callable[..., Any]]:
        known = {_activity_name(each) for each in existing or ()}
        return [*(existing or ()), *(ours for ours in self._ours if _activity_name(ours) not in known)]


def _activities(
    agents: Sequence[Agent], present: attributes.Presence, notifiers: Mapping[str, Any] | None
) -> list[Callable[..., Any]]:
    if not agents:
        return []
    # Imported here: a plugin that only serves a client needs no langchain.
    from turngate import activities
    from turngate.agent import Registry

    registry = Registry(agents)
    for agent in registry.agents:
        if agent.verifier is not None:
            # Update validators run in workflow code, which knows no agents.
            verifier.register(agent.key, agent.verifier)
    return activities.build(registry, search_attributes=present, notifiers=notifiers)


def _signal_guard() -> Any:
    from turngate.workflows.guard import SignalGuard

    return SignalGuard()


def _with_workflows(existing: Sequence[type] | None) -> list[type]:
    from turngate.workflows import AgentThread, AgentTurn

    known = {_workflow_name(each) for each in existing or ()}
    return [*(existing or ()), *(ours for ours in (AgentTurn, AgentThread) if _workflow_name(ours) not in known)]


def _with_passthrough(runner: WorkflowRunner | None) -> WorkflowRunner:
    runner = runner or SandboxedWorkflowRunner()
    if isinstance(runner, SandboxedWorkflowRunner):
        return replace(runner, restrictions=runner.restrictions.with_passthrough_modules(*PASSTHROUGH))
    return runner


def _activity_name(fn: Callable[..., Any]) -> str | None:
    definition = activity._Definition.from_callable(fn)
    return definition.name if definition is not None else None


def _workflow_name(cls: type) -> str | None:
    definition = workflow._Definition.from_class(cls)
    return definition.name if definition is not None else None
