"""What both sides of the crash comparison go through: the calls of a turn, where it dies, and what people say."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool, tool

from tests.crash.effects import Effects

Json = dict[str, Any]
PAY_A: Json = {"id": "call-a", "name": "pay", "args": {"ref": "a", "amount": 5}}
PAY_B: Json = {"id": "call-b", "name": "pay", "args": {"ref": "b", "amount": 6}}
SHIP_B: Json = {"id": "call-b", "name": "ship", "args": {"ref": "b", "amount": 1}}
PROCESS = "process"
"""The ref of traps that lie outside of tools."""
TAKEN, STARTING, REPORT, MODEL = "answer taken", "tool starting", "report", "next model call"


@dataclass(frozen=True)
class Build:
    """What a deploy can change."""

    gates: tuple[str, ...] = ("pay", "ship")
    tools: tuple[str, ...] = ("pay", "ship")


@dataclass(frozen=True)
class Moment:
    """One row of the table.

    `traps` are laid once the turn waits, as pairs of a call's ref and a place. `right` is how often each call may run,
    by what people decided. `answered` is how the answers get there: once, by two people at once, or once more later.
    """

    title: str
    right: Mapping[str, int]
    traps: Sequence[tuple[str, str]] = ()
    steps: Sequence[Sequence[Json]] = ((PAY_A,),)
    answers: Mapping[str, str] = field(default_factory=lambda: {"a": "approve"})
    before: Build = Build()
    after: Build = Build()
    stays_alive: bool = False
    answered: str = "once"

    @property
    def ungated(self) -> list[str]:
        """The calls of the first step that nobody is asked about."""
        return [call["args"]["ref"] for call in self.steps[0] if call["name"] not in self.before.gates]


MOMENTS = [
    Moment("killed while the call waits, before anybody has answered", {"a": 1}),
    Moment("another process answers than the one that paused; nothing dies", {"a": 1}, stays_alive=True),
    Moment("the answer was handed over; killed as it takes it", {"a": 1}, [(PROCESS, TAKEN)]),
    Moment("killed with the answer taken, right before the tool begins", {"a": 1}, [(PROCESS, STARTING)]),
    Moment("killed in the tool, before its effect", {"a": 1}, [("a", "die before")]),
    Moment("killed in the tool, after its effect", {"a": 1}, [("a", "die after")]),
    Moment("killed when the tool has returned and its result is not stored", {"a": 1}, [(PROCESS, REPORT)]),
    Moment("killed when the result is stored, as the model is asked again", {"a": 1}, [(PROCESS, MODEL)]),
    Moment(
        "two calls of one step are approved; killed in the second one's tool, after its effect",
        {"a": 1, "b": 1},
        [("b", "die after")],
        steps=((PAY_A, PAY_B),),
        answers={"a": "approve", "b": "approve"},
    ),
    Moment(
        "killed as in row 8; when the next call waits, the sender, who got no reply, sends the first answer again",
        {"a": 1, "b": 0},
        [(PROCESS, MODEL)],
        steps=((PAY_A,), (PAY_B,)),
        answers={"a": "approve", "b": "reject"},
        answered="again",
    ),
    Moment("two people approve at the same time; nothing dies", {"a": 1}, answered="by two"),
    Moment(
        "killed while it waits; the deploy takes the gate away; the call is rejected",
        {"a": 0},
        answers={"a": "reject"},
        after=Build(gates=()),
    ),
    Moment(
        "killed while it waits; the deploy moves the gate from `pay` to `ship`; `pay` is rejected",
        {"a": 0, "b": 1},
        steps=((PAY_A, SHIP_B),),
        answers={"a": "reject", "b": "approve"},
        before=Build(gates=("pay",)),
        after=Build(gates=("ship",)),
    ),
    Moment(
        "killed while it waits; the deploy puts a gate on the step's other call; the first is approved",
        {"a": 1, "b": 1},
        steps=((PAY_A, SHIP_B),),
        answers={"a": "approve", "b": "approve"},
        before=Build(gates=("pay",)),
    ),
    Moment(
        "killed while it waits; the deploy takes the tool away; the call is approved",
        {"a": 0},
        after=Build(gates=("ship",), tools=("ship",)),
    ),
]


@dataclass
class Outcome:
    """What became of one try.

    `asked_again` counts answers that a person had to give once more, `asked_to_look` the questions whether a call took
    effect, `told` what a sender heard, and `errors` what was raised in place of a result.
    """

    effects: Counter[str] = field(default_factory=Counter)
    asked_again: int = 0
    asked_to_look: int = 0
    ended: bool = False
    errors: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def is_right(self, moment: Moment) -> bool:
        """Whether each call ran as often as it may."""
        return all(self.effects[ref] == times for ref, times in moment.right.items())


def effects_in(folder: Path) -> Effects:
    """Return the database of one try."""
    return Effects(folder / "effects.db")


def tools_of(
    effects: Effects, names: Sequence[str], key: Callable[[str], str] = lambda ref: f"call-{ref}"
) -> list[BaseTool]:
    """Return the tools, which are the same functions on all sides."""

    @tool
    def pay(ref: str, amount: int) -> str:
        """Pay an amount."""
        effects.work("pay", ref, amount, key=key(ref))
        return f"paid {amount}"

    @tool
    def ship(ref: str, amount: int) -> str:
        """Ship parcels."""
        effects.work("ship", ref, amount, key=key(ref))
        return f"shipped {amount}"

    return [one for one in (pay, ship) if one.name in names]


class ScriptOnDisk(BaseChatModel):
    """Follows the steps of its file. Where it is it sees from the conversation, so no crash can confuse it."""

    folder: str

    @property
    def _llm_type(self) -> str:
        return "script"

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
        folder = Path(self.folder)
        effects_in(folder).pass_by(PROCESS, MODEL)
        steps = json.loads((folder / "steps.json").read_text())
        done = sum(isinstance(message, AIMessage) for message in messages)
        answer = AIMessage("", tool_calls=steps[done]) if done < len(steps) else AIMessage("done")
        return ChatResult(generations=[ChatGeneration(message=answer)])


def prepare(moment: Moment, folder: Path) -> Effects:
    """Lay out the folder of one try, and return the database of its effects."""
    (folder / "steps.json").write_text(json.dumps(moment.steps))
    return effects_in(folder)


def lay_traps(moment: Moment, effects: Effects) -> None:
    """Lay the traps of a moment; done once the turn waits."""
    for ref, at in moment.traps:
        effects.trap(ref, at)


def check_traps(moment: Moment, effects: Effects) -> None:
    """See that the process died where it was meant to, for otherwise the row shows something else."""
    missed = [trap for trap in moment.traps if not effects.sprung(trap[0])]
    if missed:
        raise RuntimeError(f"nothing died at {missed}: {moment.title}")


def counted(effects: Effects) -> Counter[str]:
    """Return how often each call took effect."""
    return Counter(ref for _, ref, _ in effects.all())
