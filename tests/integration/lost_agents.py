"""An agent for a worker process that is killed while its tool runs."""

from __future__ import annotations

import os
import time
from pathlib import Path

from langchain_core.tools import tool

from turngate import Agent
from turngate.testing import Journal, ScriptedModel


@tool
def work() -> str:
    """Begin, and never end."""
    folder().joinpath("begun").touch()
    while True:
        time.sleep(0.05)


def folder() -> Path:
    """Return the folder of the test."""
    return Path(os.environ["LOST_FOLDER"])


def main() -> Agent:
    """Return the agent; its script goes on where the worker before was killed."""
    call = {"id": "c1", "name": "work", "args": {}}
    model = ScriptedModel([{"tool_calls": [call]}, "done"], journal=Journal(folder() / "journal"))
    return Agent("main", model=model, tools=[work], tool_options={"work": {"heartbeat": "1s"}})
