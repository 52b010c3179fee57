"""The shapes that a history can have: what is started, what is decided, and where it is left."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from langchain_core.tools import tool
from pydantic import BaseModel

from turngate import Agent, InterruptOnConfig, TurngateClient, human_tool, interrupt
from turngate.contracts import Approval
from turngate.handles import TurnHandle
from turngate.notifiers import Notification
from turngate.testing import ScriptedModel

PAY = {"id": "c1", "name": "pay", "args": {"to": "acme", "amount": 5}}
PAY_MORE = {"id": "c2", "name": "pay", "args": {"to": "acme", "amount": 900}}
READ = {"id": "c3", "name": "read", "args": {"page": 1}}


@tool
def pay(to: str, amount: int) -> str:
    """Pay an invoice."""
    return f"paid {amount} to {to}"


@tool
def read(page: int) -> str:
    """Read a page."""
    return f"page {page}"


@tool
def confirm(action: str) -> str:
    """Ask whether to go on."""
    return f"answer: {interrupt({'question': f'really {action}?'})}"


@tool
def broken(x: int) -> str:
    """Fail."""
    raise ValueError("boom")


ask_desk = human_tool("ask_desk", {"question": str}, description="Ask the desk.")


class Receipt(BaseModel):
    """What an agent with an output schema owes."""

    paid: int


class Silent:
    """A notifier that tells nobody."""

    async def notify(self, notification: Notification) -> None:
        """Do nothing."""


NOTIFIERS: Mapping[str, Any] = {"silent": Silent()}
Script = Callable[[TurngateClient, TurnHandle], Awaitable[None]]


async def left_alone(client: TurngateClient, turn: TurnHandle) -> None:
    """Leave the run where it waits."""


async def everything_approved(client: TurngateClient, turn: TurnHandle) -> None:
    """Approve whatever waits, in the turn and its subagents, until it is done."""
    await client.wait(turn, on_approval=answer)


def answer(approval: Approval) -> dict[str, Any]:
    """The first decision that is allowed."""
    kind = "respond" if approval.type == "recovery" else approval.allowed_decisions[0]
    extra: dict[str, Any] = {"answer": {"value": "yes"}, "respond": {"message": "blue"}}.get(kind, {})
    return {"type": kind, **extra, "reviewer": "ann"}


def decide(**decision: Any) -> Script:
    """Decide about the first approval so, and wait for the end or the next pause."""

    async def script(client: TurngateClient, turn: TurnHandle) -> None:
        first = (await turn.pending())[0]
        await client.decide({"approval_id": first.id, "reviewer": "ann", **decision})
        await client.wait(turn)

    return script


async def stopped(client: TurngateClient, turn: TurnHandle) -> None:
    """Stop the turn while it waits."""
    await turn.stop("recorded")
    await turn.result()


async def junk_then_approve(client: TurngateClient, turn: TurnHandle) -> None:
    """Send signals that are refused until the run goes on in a new one, then approve."""
    handle = client.temporal.get_workflow_handle(turn.id)
    first = (await handle.describe()).run_id
    while (await handle.describe()).run_id == first:
        await handle.signal("decide", {"approval_id": "nobody", "type": "approve"})
    await client.wait(turn, on_approval=answer)


@dataclass(frozen=True)
class Shape:
    """One history to record."""

    name: str
    calls: list[dict[str, Any]]
    script: Script = everything_approved
    options: Mapping[str, Any] = field(default_factory=dict)
    tools: tuple[Any, ...] = (pay, read, confirm, broken, ask_desk)
    thread: bool = False
    continues: bool = False
    says: tuple[str, ...] = ("done",)

    def agent(self) -> Agent:
        """Build the agent of this shape."""
        called: list[Any] = [{"tool_calls": self.calls}] if self.calls else []
        model = ScriptedModel([*called, *({"text": text} for text in self.says)])
        return Agent(self.name, model=model, tools=self.tools, **{"interrupt_on": {"pay": True}, **self.options})


def _subagent() -> Agent:
    script = [{"tool_calls": [PAY]}, {"text": "sub done"}]
    return Agent("worker", description="pays", model=ScriptedModel(script), tools=[pay])


TASK = {"id": "t1", "name": "task", "args": {"description": "pay acme", "subagent_type": "worker"}}
EDIT = {"type": "edit", "edited_action": {"name": "pay", "args": {"to": "acme", "amount": 4}}}
QUORUM = {"interrupt_on": {"pay": InterruptOnConfig(quorum=2, reviewers=["ann", "bob"])}}
TIMED = {"interrupt_on": {"pay": InterruptOnConfig(timeout="30d", remind_every="10d", reviewers=["ann"])}}

SHAPES = [
    Shape("answered", []),
    Shape("paused", [PAY], left_alone),
    Shape("approved", [PAY]),
    Shape("edited", [PAY], decide(**EDIT)),
    Shape("rejected", [PAY], decide(type="reject", message="no")),
    Shape("responded", [PAY], decide(type="respond", message="done by hand")),
    Shape("mixed", [PAY, READ, PAY_MORE]),
    Shape("mixed_half_decided", [PAY, READ, PAY_MORE], decide(type="approve")),
    Shape("batched", [PAY, READ, PAY_MORE], options={"interrupt_mode": "batched"}),
    Shape("question", [{"id": "q1", "name": "confirm", "args": {"action": "deploy"}}]),
    Shape("person", [{"id": "h1", "name": "ask_desk", "args": {"question": "colour?"}}]),
    Shape("recovered", [{"id": "b1", "name": "broken", "args": {"x": 1}}], options={"on_tool_error": "ask"}),
    Shape("stopped", [PAY], stopped),
    Shape("quorum_one_vote", [PAY], decide(type="approve"), options=QUORUM),
    Shape("deadline_paused", [PAY], left_alone, options=TIMED),
    Shape("notified", [PAY], options={"notifiers": ["silent"]}),
    Shape("quiet_timeline", [PAY], options={"timeline_timer": False}),
    Shape("subagent", [TASK], options={"subagents": [_subagent()]}),
    Shape("subagent_paused", [TASK], left_alone, options={"subagents": [_subagent()]}),
    Shape("remembered", [PAY], decide(type="approve", remember={"scope": "turn", "match": "tool"})),
    Shape("thread", [PAY], thread=True),
    Shape("thread_paused", [PAY], left_alone, thread=True),
    Shape(
        "output_retried", [PAY], options={"output_schema": Receipt}, says=("done", '{"paid": "much"}', '{"paid": 5}')
    ),
    Shape("continued", [PAY, READ], continues=True),
    Shape("continued_while_paused", [PAY], junk_then_approve, continues=True),
]
