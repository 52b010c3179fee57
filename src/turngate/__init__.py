"""Turngate: LLM agents whose dangerous tool calls wait, durably, for a person.

Layers, each importing only what stands left of it (a test checks this):

    contracts, errors, texts <- schemas, decisions, ledger <- workflows            orchestration, deterministic
    contracts, errors, texts <- policy <- agent <- activities                      user code and effects

The two meet in what travels between them, and in `worker`. `client` imports contracts only. The names below are
loaded when they are first used, so that `import turngate.client` brings no langchain with it.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turngate.agent import Agent as Agent
    from turngate.agent import ToolOptions as ToolOptions

# A checkout without symbolic links has a small text file in place of each of these folders.
for _linked in ("workflows", "activities"):
    if (Path(__file__).parent / _linked).is_file():
        raise ImportError(
            f"turngate/{_linked} is a file, not a folder: this checkout has no symbolic links; "
            "check it out again with `git clone -c core.symlinks=true` (on Windows: with developer mode on)"
        )

_MODULES = {
    "agent": ("Agent", "ToolOptions"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'turngate' has no attribute {name!r}")
    return getattr(import_module(f"turngate.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
