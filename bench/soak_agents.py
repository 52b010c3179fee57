"""The agent of the soak: each turn's calls follow from its number, so that no process has to remember them."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool, tool

from tests.crash.agents import BeforeReport
from tests.crash.effects import Effects
from turngate import Agent, current_call

Json = dict[str, Any]
GATED = ("pay", "ship")
LOST_AFTER = "4s"


def plan(seed: int, turn: int) -> list[list[Json]]:
    """Return the calls of a turn, step by step: one or two steps of one to three calls."""
    dice = random.Random(seed * 1_000_003 + turn)
    return [
        [_call(dice, f"{turn}-{step}-{number}") for number in range(dice.randint(1, 3))]
        for step in range(dice.randint(1, 2))
    ]


def _call(dice: random.Random, ref: str) -> Json:
    args = {"ref": ref, "amount": dice.randint(1, 99)}
    return {"id": f"call-{ref}", "name": dice.choice(["pay", "pay", "ship", "read"]), "args": args}


class PlannedModel(BaseChatModel):
    """Answers with the calls of the plan; the turn's input names it. It keeps nothing, so no crash can confuse it."""

    @property
    def _llm_type(self) -> str:
        return "planned"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, AIMessage]:
        """Take the tools as any chat model does."""
        return self.bind(**kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        asked = json.loads(str(messages[0].content))
        steps = plan(asked["seed"], asked["turn"])
        done = sum(message.type == "ai" for message in messages)
        answer = AIMessage("", tool_calls=steps[done]) if done < len(steps) else AIMessage("done")
        return ChatResult(generations=[ChatGeneration(message=answer)])


def build(data: Json) -> tuple[list[Agent], Json]:
    """Return the agent and the worker's options for a nursery's spec."""
    effects = Effects(Path(data["folder"]) / "effects.db")
    agent = Agent(
        "clerk",
        model=PlannedModel(),
        tools=_tools(effects),
        interrupt_on=dict.fromkeys(GATED, True),
        tool_options={name: {"heartbeat": LOST_AFTER} for name in (*GATED, "read")},
    )
    return [agent], {"interceptors": [BeforeReport(effects)]}


def _tools(effects: Effects) -> list[BaseTool]:
    def work(name: str, ref: str, amount: int) -> str:
        call = current_call()
        # Long enough that a process dies in the middle now and then.
        time.sleep(random.uniform(0, 0.2))
        effects.work(name, ref, amount, key=call.key, attempt=call.attempt, decision=call.decision)
        time.sleep(random.uniform(0, 0.2))
        return f"{name} {ref} {amount}"

    @tool
    def pay(ref: str, amount: int) -> str:
        """Pay an amount."""
        return work("pay", ref, amount)

    @tool
    def ship(ref: str, amount: int) -> str:
        """Ship parcels."""
        return work("ship", ref, amount)

    @tool
    def read(ref: str, amount: int) -> str:
        """Read an account."""
        return work("read", ref, amount)

    return [pay, ship, read]
