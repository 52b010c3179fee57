"""What `turngate check` says of an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turngate.agent import Agent


def facts(agent: Agent) -> dict[str, Any]:
    """Return the agent's name and what its gate does with each of its tools."""
    gate = getattr(agent, "interrupt_on", None) or {}
    tools = {str(getattr(tool, "name", tool)): _what(gate, str(getattr(tool, "name", tool))) for tool in _tools(agent)}
    return {"name": agent.name, "tools": tools}


def _tools(agent: Agent) -> list[Any]:
    tools = getattr(agent, "tools", ())
    return list(tools.values()) if isinstance(tools, dict) else list(tools) if not callable(tools) else []


def _what(gate: Any, name: str) -> str:
    entry = gate.get(name) if hasattr(gate, "get") else None
    if entry is None or entry is False:
        return "runs by itself"
    allowed = getattr(entry, "allowed_decisions", None)
    return f"waits for people ({', '.join(allowed)})" if allowed else "waits for people"
