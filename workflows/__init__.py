"""Deterministic orchestration: no user code, no LangChain, nothing that a deploy of an agent could change."""

from turngate.workflows.agent_thread import AgentThread
from turngate.workflows.agent_turn import AgentTurn

__all__ = ["AgentThread", "AgentTurn"]
