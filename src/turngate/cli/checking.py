"""What `turngate check` says of an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from turngate.errors import ConfigError

if TYPE_CHECKING:
    from turngate.agent import Agent
    from turngate.toolbox import Toolbox


async def facts(agent: Agent) -> list[dict[str, Any]]:
    """Return, for an agent and then its subagents, what happens with calls of each tool. Loads late tools.

    Raises ConfigError where they can't be loaded.
    """
    try:
        tools = await agent.toolbox()
    except ConfigError:
        raise
    except Exception as error:  # whatever the factory raises
        raise ConfigError(f"the tools of agent {agent.key!r} can't be loaded: {error}") from None
    own = {
        "name": agent.key,
        "tools": {name: _what(agent, tools, name) for name in tools.names},
        "warnings": [text for name in tools.names if (text := tools.schema(name).warning)],
    }
    below = [each for sub in agent.subagents.values() for each in await facts(sub)]
    return [own, *below]


def _what(agent: Agent, tools: Toolbox, name: str) -> str:
    found = agent.rules.find(name)
    if found is None:
        return _unnamed(agent, late=name in tools.late)
    config = found[1]
    if config is None:
        return "runs by itself"
    people = f" for {', '.join(config.reviewers)}" if config.reviewers else ""
    quorum = f", {config.quorum} of them" if config.quorum > 1 else ""
    condition = " where its condition says so" if config.when else ""
    return f"waits{people}{quorum}{condition} ({', '.join(config.allowed_decisions)})"


def _unnamed(agent: Agent, *, late: bool) -> str:
    """What happens with a tool that `interrupt_on` says nothing about."""
    default = "review" if late and agent.default == "run" else agent.default
    otherwise = {"run": "runs by itself", "review": "waits", "deny": "is denied"}[default]
    return f"as the policy says; else it {otherwise}" if any(agent.policy_layers) else otherwise
