"""Every row of the migration page: what it says becomes of an option or a decision does become of it."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from temporalio.client import Client

import turngate
from tests.docs.pages import DOCS, tables
from tests.docs.stage import Stage, call
from turngate import (
    ABSTAIN,
    Agent,
    Allowlist,
    ConfigError,
    Deny,
    Denylist,
    InterruptOnConfig,
    InvalidEditError,
    Paused,
    PolicyContext,
    Predicate,
    TurngateClient,
    TurnResult,
    current_call,
)
from turngate.contracts import CallPlan
from turngate.decisions import Edit, Reject, parse
from turngate.judge import Scene, judge
from turngate.testing import ScriptedModel, dev_server

PAGE = DOCS / "migration.md"
ROWS: dict[str, Callable[[Any], Awaitable[None]]] = {}


def row(there: str) -> Callable[[Any], Any]:
    """Make a function the test of the row that begins with this text."""

    def register(function: Any) -> Any:
        assert there not in ROWS, there
        ROWS[there] = function
        return function

    return register


@tool
def pay(to: str, amount: int) -> str:
    """Pay somebody."""
    return f"paid {amount} to {to}"


@tool
def look(what: str) -> str:
    """Look something up."""
    return f"{what} is fine"


@tool(return_direct=True)
def finish(text: str) -> str:
    """Say the last word."""
    return text


PAY, LOOK = {"to": "ann", "amount": 5}, {"what": "it"}


def agent(**options: Any) -> Agent:
    """An agent with a script to come."""
    return Agent("main", **{"model": ScriptedModel(), "tools": [pay, look, finish], **options})


async def plan(of: Agent, name: str = "pay", context: dict[str, Any] | None = None, **args: Any) -> CallPlan:
    """Return what an agent's rules say about a call."""
    asked = {"name": name, "args": args or (PAY if name == "pay" else LOOK), "id": "c1"}
    scene = Scene(step=2, thread_id="t1", context=context or {}, messages=[HumanMessage("go")])
    return await judge(of, await of.toolbox(), asked, scene)


@dataclass
class Scenery:
    """A server, and a worker for the agent of a row."""

    stage: Stage
    client: TurngateClient

    async def paused(self, of: Agent, *answers: Any, **options: Any) -> Paused:
        """Start a turn of the agent and wait until it waits."""
        await self.stage.play(of, *answers)
        found = await self.client.run_turn(of.name, "go", **options)
        assert isinstance(found, Paused)
        return found


@pytest.fixture(scope="module")
async def temporal() -> AsyncIterator[Client]:
    async with dev_server() as server:
        yield await server.client()


@pytest.fixture
async def scenery(temporal: Client) -> AsyncIterator[Scenery]:
    stage = Stage(temporal)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(stage.close)
        yield Scenery(stage, TurngateClient(temporal))


def results(result: TurnResult) -> list[str]:
    """What the model read as results of its calls."""
    return [str(message["content"]) for message in result.messages or [] if message["type"] == "tool"]


# --- LangChain: options ----------------------------------------------------------------------------------------------


@row("`create_agent(model, tools, system_prompt=...)`")
async def _create_agent(scenery: Scenery) -> None:
    made = agent(system_prompt="Be kind.")
    await scenery.stage.play(made, call("look", what="it"), "done")
    assert (await scenery.client.run_turn("main", "go")).output == "done"
    assert made.model.inputs()[0][0]["content"] == "Be kind."


@row("`checkpointer=...`")
async def _checkpointer(scenery: Scenery) -> None:
    paused = await scenery.paused(agent(interrupt_on={"pay": True}), call("pay", **PAY), "done")
    await scenery.stage.close()  # Nothing of ours runs any more.
    await scenery.stage.play(agent(interrupt_on={"pay": True}), "done")
    [waiting] = await scenery.client.turn(paused.turn.id).pending()
    assert waiting.id == paused.approvals[0].id


@row('`interrupt_on={"tool": True}`')
async def _true(_: Scenery) -> None:
    found = await plan(agent(interrupt_on={"pay": True}))
    assert (found.verdict, found.allowed_decisions) == ("review", ["approve", "edit", "reject", "respond"])


@row('`interrupt_on={"tool": False}`')
async def _false(_: Scenery) -> None:
    assert (await plan(agent(interrupt_on={"pay": False}, default="review"))).verdict == "run"


@row("a tool without an entry runs")
async def _no_entry(_: Scenery) -> None:
    async def late() -> list[Any]:
        return [look]

    assert (await plan(agent())).verdict == "run"
    assert (await plan(agent(default="review"))).verdict == "review"
    assert (await plan(agent(default="deny"))).verdict == "deny"
    assert (await plan(agent(tools=[pay, late]), "look")).verdict == "review"


@row('`{"allowed_decisions": [...]}`')
async def _allowed(_: Scenery) -> None:
    found = await plan(agent(interrupt_on={"pay": {"allowed_decisions": ["approve", "reject"]}}))
    assert found.allowed_decisions == ["approve", "reject"]
    with pytest.raises(ConfigError):
        agent(interrupt_on={"pay": {"description": "no decisions"}})
    assert len((await plan(agent(interrupt_on={"pay": InterruptOnConfig()}))).allowed_decisions) == 4


@row('`{"description": "..."}`')
async def _description(_: Scenery) -> None:
    found = await plan(agent(interrupt_on={"pay": InterruptOnConfig(description="Really?")}))
    assert found.description == "Really?"


@row('`{"description": f(tool_call, state, runtime)}`')
async def _description_function(_: Scenery) -> None:
    def three(tool_call: Any, state: Any, runtime: Any) -> str:
        return f"{tool_call['args']['to']} {len(state['messages'])} {runtime.context['who']}"

    given = {"context": {"who": "mia"}}
    assert (await plan(agent(interrupt_on={"pay": InterruptOnConfig(description=three)}), **given)).description == (
        "ann 1 mia"
    )
    one = InterruptOnConfig(description=lambda tool_call: tool_call["name"])
    assert (await plan(agent(interrupt_on={"pay": one}))).description == "pay"


@row('`{"when": f(request)}`')
async def _when(_: Scenery) -> None:
    def large(request: Any) -> bool:
        return bool(request.tool_call["args"]["amount"] > 10 and request.tool.name == "pay")

    gated = agent(interrupt_on={"pay": InterruptOnConfig(when=large)})
    assert (await plan(gated)).verdict == "run"
    assert (await plan(gated, to="ann", amount=50)).verdict == "review"
    vague = await plan(agent(interrupt_on={"pay": InterruptOnConfig(when=lambda _: None)}))
    assert (vague.verdict, len(vague.warnings)) == ("review", 1)


@row('`{"args_schema": {...}}`')
async def _args_schema(scenery: Scenery) -> None:
    schema = {"type": "object", "properties": {"amount": {"maximum": 10}}}
    paused = await scenery.paused(
        agent(interrupt_on={"pay": InterruptOnConfig(args_schema=schema)}), call("pay", **PAY)
    )
    with pytest.raises(InvalidEditError):
        await scenery.client.edit(paused.approvals[0].id, {"to": "ann", "amount": 11})


@row('`description_prefix="..."`')
async def _prefix(_: Scenery) -> None:
    found = await plan(agent(interrupt_on={"pay": True}, description_prefix="Look here"))
    assert found.description.startswith("Look here: pay")


@row('`edit_notice="..."`, `edit_notice=None`')
async def _notice(scenery: Scenery) -> None:
    for notice, begins in (("Changed by us.", "Changed by us."), (None, "paid 4")):
        made = agent(interrupt_on={"pay": True}, edit_notice=notice)
        paused = await scenery.paused(made, call("pay", **PAY), "done")
        await scenery.client.edit(paused.approvals[0].id, {"to": "ann", "amount": 4})
        assert results(await paused.turn.result())[0].startswith(begins)


@row('`interrupt_mode="batched"` (the default there)')
async def _batched(scenery: Scenery) -> None:
    made = agent(interrupt_on={"pay": True}, interrupt_mode="batched")
    paused = await scenery.paused(made, [call("look", what="it"), call("pay", **PAY)], "done")
    assert not [event async for event in _started(paused)]


@row('`interrupt_mode="per_call"`')
async def _per_call(scenery: Scenery) -> None:
    paused = await scenery.paused(
        agent(interrupt_on={"pay": True}), [call("look", what="it"), call("pay", **PAY)], "done"
    )
    assert [event async for event in _started(paused)] == ["look"]


async def _started(paused: Paused) -> AsyncIterator[str]:
    """The tools that began to run before the turn's first approval was decided."""
    await paused.turn.stop()
    async for event in paused.turn.events():
        if event.type == "tool_started":
            yield event.data["name"]


@row("`@tool(return_direct=True)`")
async def _return_direct(scenery: Scenery) -> None:
    await scenery.stage.play(agent(), call("finish", text="that is it"))
    result = await scenery.client.run_turn("main", "go")
    assert isinstance(result, TurnResult)
    assert (result.status, result.steps, result.output) == ("completed", 1, "that is it")


# --- LangChain: running and deciding ---------------------------------------------------------------------------------


@row('`agent.invoke({"messages": [...]}, config)`')
async def _invoke(scenery: Scenery) -> None:
    await scenery.stage.play(agent(interrupt_on={"pay": True}), call("pay", **PAY), "done")
    found = await scenery.client.run_turn("main", messages=[HumanMessage("hello")])
    assert isinstance(found, Paused)
    await scenery.stage.play(agent(), "hello")
    assert isinstance(await scenery.client.run_turn("main", messages=[HumanMessage("hello")]), TurnResult)


@row('`{"configurable": {"thread_id": "1"}}`')
async def _thread(scenery: Scenery) -> None:
    gate = {
        "pay": InterruptOnConfig(description=lambda call, state, runtime: runtime.config["configurable"]["thread_id"])
    }
    paused = await scenery.paused(agent(interrupt_on=gate), call("pay", **PAY), "done", thread_id="1")
    assert (paused.approvals[0].context.thread_id, paused.approvals[0].description) == ("1", "1")
    await scenery.stage.play(agent(), "hello")
    thread = scenery.client.thread("migrated", agent="main")
    turn = await thread.started(await thread.send("hi"))
    await turn.result()
    turn = await thread.started(await thread.send("hi again"))
    await turn.result()
    assert len(await turn.messages()) == 2, "its own; the thread has the others"


@row("`context=...`, `runtime.context`")
async def _context(scenery: Scenery) -> None:
    @tool
    def who() -> str:
        """Say who asked."""
        return str(current_call().context["who"])

    await scenery.stage.play(agent(tools=[who]), call("who"), "done")
    result = await scenery.client.run_turn("main", "go", context={"who": "mia"})
    assert isinstance(result, TurnResult)
    assert results(result) == ["mia"]


@row('`result.interrupts`, `result["__interrupt__"]`')
@row("`action_requests[i]`: `name`, `args`, `description`")
@row('`review_configs[i]["allowed_decisions"]`')
@row('`{"type": "tool_approval", "tool_call_id", "name", "args", "description"}`')
@row("`interrupt.id`, `interrupt.response_schema`")
async def _approval(scenery: Scenery) -> None:
    asked = call("pay", **PAY)
    gate = {"pay": {"allowed_decisions": ["approve"], "description": "Pay?"}}
    paused = await scenery.paused(agent(interrupt_on=gate), asked, "done")
    [approval] = paused.approvals
    assert (approval.type, approval.tool_call_id, approval.name) == ("tool_approval", asked["id"], "pay")
    assert (approval.args, approval.description, approval.allowed_decisions) == (PAY, "Pay?", ["approve"])
    assert approval.response_schema["properties"]["type"] == {"enum": ["approve"]}
    assert approval.id.startswith(paused.turn.id)


@row('`Command(resume={"decisions": [...]})`')
async def _resume_list(scenery: Scenery) -> None:
    calls = [call("pay", to="ann", amount=1), call("pay", to="bob", amount=2)]
    made = agent(interrupt_on={"pay": True}, interrupt_mode="batched")
    paused = await scenery.paused(made, calls, "done")
    await paused.turn.decide({"decisions": [{"type": "approve"}, {"type": "reject"}]})
    first, second = results(await paused.turn.result())
    assert first == "paid 1 to ann"
    assert "declined" in second
    paused = await scenery.paused(agent(interrupt_on={"pay": True}), calls, "done")
    ids = [approval.id for approval in paused.approvals]
    await paused.turn.decide({"decisions": [{"approval_id": each, "type": "approve"} for each in ids]})
    assert results(await paused.turn.result()) == ["paid 1 to ann", "paid 2 to bob"]


@row("`Command(resume={interrupt_id: {...}})`")
async def _resume_map(scenery: Scenery) -> None:
    calls = [call("pay", to="ann", amount=1), call("pay", to="bob", amount=2)]
    paused = await scenery.paused(agent(interrupt_on={"pay": True}), calls, "done")
    first, second = (approval.id for approval in paused.approvals)
    with pytest.raises(turngate.MalformedError):
        await scenery.client.decide({first: {"type": "approve"}, second: {"type": "aprove"}})
    assert len(await paused.turn.pending()) == 2
    await scenery.client.decide({first: {"type": "approve"}, second: {"type": "respond", "message": "paid by hand"}})
    assert results(await paused.turn.result()) == ["paid 1 to ann", "paid by hand"]


@row('`{"type": "approve"}`')
@row('`{"type": "edit", "edited_action": {"name", "args"}}`')
@row('`{"type": "reject", "message"?}`')
@row('`{"type": "respond", "message"}`')
@row('`{type: "approve"}`, `{type: "reject", message}`, `{type: "respond", message}`')
async def _four(scenery: Scenery) -> None:
    calls = [call("pay", to=name, amount=1) for name in ("ann", "bob", "cem", "dan")]
    paused = await scenery.paused(agent(interrupt_on={"pay": True}), calls, "done")
    ids = [approval.id for approval in paused.approvals]
    strange = {"name": "pay", "args": {"to": "bob", "amount": 2, "currency": "EUR"}}
    with pytest.raises(InvalidEditError):
        await scenery.client.decide({ids[1]: {"type": "edit", "edited_action": strange}})
    edited = {"name": "pay", "args": {"to": "bob", "amount": 2}}
    decisions = [
        {"type": "approve"},
        {"type": "edit", "edited_action": edited},
        {"type": "reject", "message": "Not Cem."},
        {"type": "respond", "message": "Dan was paid."},
    ]
    await scenery.client.decide(dict(zip(ids, decisions, strict=True)))
    approved, changed, rejected, responded = results(await paused.turn.result())
    assert approved == "paid 1 to ann"
    assert changed.endswith("paid 2 to bob")
    assert "Not Cem." in rejected
    assert responded == "Dan was paid."


@row("an edit that names another tool")
async def _other_tool(scenery: Scenery) -> None:
    edit = {"type": "edit", "edited_action": {"name": "look", "args": {"what": "them"}}}
    for options in ({"interrupt_mode": "batched"}, {"allow_tool_change": True}):
        paused = await scenery.paused(agent(interrupt_on={"pay": True}, **options), call("pay", **PAY), "done")
        await scenery.client.decide({paused.approvals[0].id: edit})
        assert results(await paused.turn.result())[0].endswith("them is fine")
    paused = await scenery.paused(agent(interrupt_on={"pay": True}), call("pay", **PAY), "done")
    with pytest.raises(InvalidEditError):
        await scenery.client.decide({paused.approvals[0].id: edit})
    denying = agent(interrupt_on={"pay": True}, policy=lambda context: Deny("never"), allow_tool_change=True)
    paused = await scenery.paused(denying, call("pay", **PAY), "done")
    await scenery.client.decide({paused.approvals[0].id: edit})
    assert "never" in results(await paused.turn.result())[0]


@row("`interrupt(value)` in a tool, `Command(resume=answer)`")
async def _interrupt(scenery: Scenery) -> None:
    @tool
    def ask() -> str:
        """Ask."""
        return str(turngate.interrupt({"question": "which?"}))

    paused = await scenery.paused(agent(tools=[ask]), call("ask"), "done")
    assert paused.approvals[0].question == {"question": "which?"}
    await scenery.client.answer(paused.approvals[0].id, "this one")
    assert results(await paused.turn.result()) == ["this one"]


# --- LangChain JS ----------------------------------------------------------------------------------------------------


@row("`humanInTheLoopMiddleware({interruptOn})`")
@row("`allowedDecisions`, `argsSchema`")
@row("`descriptionPrefix`, `interruptMode`")
async def _js_options(_: Scenery) -> None:
    gate = {"allowed_decisions": ["approve", "edit"], "args_schema": {"type": "object"}}
    made = agent(interrupt_on={"pay": gate}, description_prefix="Please", interrupt_mode="per_call")
    found = await plan(made)
    assert (found.verdict, found.allowed_decisions) == ("review", ["approve", "edit"])
    assert found.description.startswith("Please")
    with pytest.raises(ConfigError):
        agent(interrupt_on={"pay": {"allowedDecisions": ["approve"]}})


@row('`{type: "edit", editedAction: {name, args}}`')
async def _js_edit(_: Scenery) -> None:
    [entry] = parse({"approval_id": "t/a-1", "type": "edit", "editedAction": {"name": "pay", "args": PAY}}).entries
    assert isinstance(entry.decision, Edit)
    assert entry.decision.edited_action is not None
    assert entry.decision.edited_action.args == PAY


@row("`new Command({resume: {decisions: [...]}})`")
async def _js_resume(scenery: Scenery) -> None:
    made = agent(interrupt_on={"pay": True}, interrupt_mode="batched")
    paused = await scenery.paused(made, call("pay", **PAY), "done")
    payload = {"decisions": [{"type": "edit", "editedAction": {"name": "pay", "args": {"to": "ann", "amount": 4}}}]}
    handle = scenery.client.temporal.get_workflow_handle(paused.turn.id)
    answer = await handle.execute_update("decide", payload)
    assert answer["receipts"][0]["outcome"] == "applied"


# --- Deep Agents -----------------------------------------------------------------------------------------------------


@row("`create_deep_agent(interrupt_on={...})`")
async def _deep(_: Scenery) -> None:
    assert (await plan(agent(interrupt_on={"pay": True, "look": False}))).verdict == "review"


@row('`subagents=[{"name", "description", "system_prompt", "tools", "model"}]`')
@row("the tool `task` with `description` and `subagent_type`")
@row("interrupts of subagents come up at the parent")
async def _subagents(scenery: Scenery) -> None:
    full = {"name": "payer", "description": "Pays.", "system_prompt": "Pay.", "tools": [pay], "model": ScriptedModel()}
    made = agent(subagents=[full, {"name": "bare", "description": "Has all."}], interrupt_on={"pay": True})
    assert made.subagents["payer"].find_tool("look") is None
    assert made.subagents["bare"].find_tool("look") is not None
    assert made.subagents["bare"].model is made.model
    task = call("task", description="Pay Ann.", subagent_type="payer")
    await scenery.stage.play(made, task, "done", subagents={"payer": [call("pay", **PAY), "Ann is paid."]})
    paused = await scenery.client.run_turn("main", "go")
    assert isinstance(paused, Paused)
    [approval] = await paused.turn.pending()
    assert approval.context.path[0] == task["id"]
    await scenery.client.approve(approval.id)
    assert results(await paused.turn.result()) == ["Ann is paid."]


@row('`"interrupt_on"` of a subagent')
async def _subagent_gate(_: Scenery) -> None:
    subs = [
        {"name": "silent"},
        {"name": "open", "interrupt_on": {"pay": False}},
        {"name": "strict", "interrupt_on": {"look": True}},
    ]
    made = agent(interrupt_on={"pay": True}, subagents=subs)
    verdicts = {
        name: ((await plan(sub)).verdict.value, (await plan(sub, "look")).verdict.value)
        for name, sub in made.subagents.items()
    }
    assert verdicts == {"silent": ("review", "run"), "open": ("run", "run"), "strict": ("review", "review")}


@row("dangling tool calls are patched")
async def _dangling(scenery: Scenery) -> None:
    await scenery.stage.play(agent(), "hello")
    dangling = AIMessage("", tool_calls=[{"id": "c9", "name": "pay", "args": PAY}])
    result = await scenery.client.run_turn("main", messages=[HumanMessage("pay"), dangling, HumanMessage("well?")])
    assert isinstance(result, TurnResult)
    assert result.repairs
    assert result.output == "hello"


# --- Warlock ---------------------------------------------------------------------------------------------------------


@row("`Allowlist(tools, tags=...)`")
async def _allowlist(_: Scenery) -> None:
    made = agent(policy=Allowlist(["pay"], tags=["money"]))
    found = await plan(made)
    assert (found.verdict, found.tags) == ("review", ["money"])
    assert (await plan(made, "look")).verdict == "run"


@row("`Denylist(tools, tags=...)`")
async def _denylist(_: Scenery) -> None:
    made = agent(policy=Denylist(["look"], tags=["money"]))
    found = await plan(made)
    assert (found.verdict, found.tags) == ("review", ["money"])
    assert (await plan(made, "look")).verdict == "run"


@row("`Predicate(fn)`")
async def _predicate(_: Scenery) -> None:
    async def slowly(context: PolicyContext) -> bool:
        return context.tool_name == "pay"

    for function in (slowly, lambda context: context.tool_name == "pay"):
        made = agent(policy=Predicate(function))
        assert (await plan(made)).verdict == "review"
        assert (await plan(made, "look")).verdict == "run"


@row("`fn` answers `True`, `False`, tags, or a denial")
async def _answers(_: Scenery) -> None:
    wanted = [(True, "review"), (False, "run"), ([], "run"), (["a"], "review"), (Deny("x"), "deny"), (ABSTAIN, "run")]
    for answer, verdict in wanted:
        assert (await plan(agent(policy=lambda _, answer=answer: answer))).verdict == verdict, answer
    nothing = await plan(agent(policy=lambda _: None))
    assert nothing.verdict == "review"
    assert nothing.warnings


@row("`PolicyContext`")
async def _policy_context(_: Scenery) -> None:
    seen: list[PolicyContext] = []
    await plan(agent(policy=lambda context: bool(seen.append(context))), context={"a": 1})
    [context] = seen
    told = (context.tool_name, context.tool_description, context.args, context.agent_name, context.step)
    assert told == ("pay", "Pay somebody.", PAY, "main", 2)
    assert (context.thread_id, context.context) == ("t1", {"a": 1})


@row('`{"type": "edit", "args": {...}}`')
async def _edit_args(scenery: Scenery) -> None:
    paused = await scenery.paused(agent(interrupt_on={"pay": True}), call("pay", **PAY), "done")
    await paused.turn.decide(
        {"approval_id": paused.approvals[0].id, "type": "edit", "args": {"to": "ann", "amount": 3}}
    )
    assert results(await paused.turn.result())[0].endswith("paid 3 to ann")


@row('`{"type": "reject", "reason": "..."}`')
async def _reject_reason(_: Scenery) -> None:
    [entry] = parse({"approval_id": "t/a-1", "type": "reject", "reason": "no"}).entries
    assert isinstance(entry.decision, Reject)
    assert entry.decision.message == "no"


@row("a handler in the process that decides")
async def _handler(scenery: Scenery) -> None:
    await scenery.stage.play(agent(interrupt_on={"pay": True}), call("pay", **PAY), "done")
    result = await scenery.client.run_turn("main", "go", on_approval=lambda approval: {"type": "approve"})
    assert isinstance(result, TurnResult)
    assert results(result) == ["paid 5 to ann"]


# --- All of them -----------------------------------------------------------------------------------------------------

WRITTEN = [cells[0] for table in tables(PAGE) for cells in table]


def test_every_row_is_tested() -> None:
    """The page and this module have the same rows."""
    assert sorted(WRITTEN) == sorted(ROWS)


@pytest.mark.server
@pytest.mark.parametrize("there", dict.fromkeys(WRITTEN))
async def test_row(there: str, scenery: Scenery) -> None:
    """What the row says is so."""
    await ROWS[there](scenery)


def test_no_option_of_langchain_is_forgotten() -> None:
    """The options of the installed middleware, and the fields of its decisions, stand on the left side."""
    from langchain.agents.middleware import human_in_the_loop as there

    names = {*inspect.signature(there.HumanInTheLoopMiddleware.__init__).parameters} - {"self"}
    shapes = (there.InterruptOnConfig, there.ToolApprovalRequest, there.ActionRequest, there.HITLResponse)
    decisions = (there.ApproveDecision, there.EditDecision, there.RejectDecision, there.RespondDecision)
    for shape in (*shapes, *decisions):
        names |= set(shape.__annotations__)
    left = " ".join(WRITTEN)
    assert [name for name in sorted(names) if name not in left] == []
