"""Workers and the plugin: what they add to a user's own client, and how they end."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import BaseTool, tool
from temporalio.api.common.v1 import Payload
from temporalio.api.workflowservice.v1 import DescribeWorkerDeploymentRequest
from temporalio.client import Client, WorkflowHistory
from temporalio.common import RawValue
from temporalio.converter import DataConverter, PayloadCodec
from temporalio.service import RPCError
from temporalio.worker import Interceptor, Replayer, Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from tests.integration.own_workflow import Mine, of_mine
from turngate import Agent, ConfigError, DevServer, Paused, TurngateClient, TurngatePlugin, TurnResult, build_worker
from turngate.contracts import Approval
from turngate.plugin import PASSTHROUGH
from turngate.testing import ScriptedModel
from turngate.worker import cache_size, memory_limit

pytestmark = pytest.mark.server
ROOT = Path(__file__).parents[2]

ENCRYPTED = b"binary/mine"


@tool
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


def agent(name: str = "main", tools: Sequence[BaseTool] = (pay,)) -> Agent:
    """Return an agent whose model pays once, which a person must allow."""
    call = {"id": "call_1", "name": "pay", "args": {"amount": 5}}
    return Agent(name, model=ScriptedModel([{"tool_calls": [call]}, "done"]), tools=tools, interrupt_on={"pay": True})


@pytest.fixture(scope="module")
async def server() -> AsyncIterator[DevServer]:
    """Run one server for the module."""
    async with DevServer(ui=False) as running:
        yield running


@pytest.fixture
async def client(server: DevServer) -> Client:
    """Connect a client of this test's own."""
    return await server.client()


@pytest.fixture
def queue() -> str:
    """Return a task queue of this test's own."""
    return f"queue-{uuid.uuid4().hex[:8]}"


async def paused(client: Client, queue: str) -> tuple[TurngateClient, Approval]:
    """Start a turn and return its approval."""
    turns = TurngateClient(client, task_queue=queue)
    found = await turns.run_turn("main", "Pay, please.")
    assert isinstance(found, Paused)
    return turns, found.approvals[0]


async def approved(turns: TurngateClient, approval: Approval) -> TurnResult:
    """Approve and wait for the end."""
    await turns.approve(approval.id, digest=approval.digest)
    return await turns.turn(approval.context.turn_id).result()


async def until(condition: Any, patience: float = 20.0) -> Any:
    """Poll until the condition holds, and return what it returned."""
    async with asyncio.timeout(patience):
        while not (found := await condition()):
            await asyncio.sleep(0.02)
        return found


# --- build_worker --------------------------------------------------------------------------------------------------


async def test_worker_runs_a_gated_turn(client: Client, queue: str) -> None:
    """The defaults are enough for a turn that pauses and goes on."""
    async with build_worker(client, [agent()], task_queue=queue):
        result = await approved(*await paused(client, queue))
    assert result.output == "done"
    assert result.approvals[0].executed is not None
    assert result.approvals[0].executed.outcome == "succeeded"


async def test_given_client_is_not_changed(server: DevServer, queue: str) -> None:
    """Converter, codec and interceptors of the user's client are what they were."""
    client = await server.client(data_converter=DataConverter(payload_codec=MyCodec()))
    before = client.config(active_config=True)
    worker = build_worker(client, [agent()], task_queue=queue)
    assert client.config(active_config=True) == before
    assert worker.client is not client


async def test_defaults_suit_long_pauses(client: Client, queue: str) -> None:
    """The values that the design names are set, and a worker's option beats them."""
    config = build_worker(client, [agent()], task_queue=queue).config()
    assert config["sticky_queue_schedule_to_start_timeout"] == timedelta(seconds=2)
    assert config["graceful_shutdown_timeout"] == timedelta(seconds=30)
    assert config["max_heartbeat_throttle_interval"] == timedelta(seconds=1)
    assert config["disable_payload_error_limit"] is False
    assert config["max_cached_workflows"] == cache_size(memory_limit())
    assert config["build_id"] == f"turngate-{version('turngate')}", (
        "not the SDK's hash over all modules, which takes long"
    )
    mine = build_worker(client, [agent()], task_queue=f"{queue}-2", max_cached_workflows=7).config()
    assert mine["max_cached_workflows"] == 7


def test_cache_is_bounded_by_memory() -> None:
    """A quarter of the memory at 200 kB a run, within bounds."""
    assert cache_size(400_000_000) == 500
    assert cache_size(0) == 100
    assert cache_size(10**12) == 2000


async def test_worker_without_agents_is_refused(client: Client) -> None:
    """A worker that could do nothing is a mistake."""
    with pytest.raises(ConfigError, match="at least one Agent"):
        build_worker(client, [])


async def test_half_a_version_is_refused(client: Client) -> None:
    """A deployment without a build would be versioned by chance."""
    with pytest.raises(ConfigError, match="'deployment' and 'build_id' go together"):
        build_worker(client, [agent()], deployment="agents")
    with pytest.raises(ConfigError, match="'sometimes' is unknown"):
        build_worker(client, [agent()], deployment="agents", build_id="1", versioning="sometimes")  # type: ignore[arg-type]


async def test_worker_takes_part_in_versioning(client: Client, queue: str) -> None:
    """With deployment and build id the server knows this build."""
    request = DescribeWorkerDeploymentRequest(namespace=client.namespace, deployment_name=f"agents-{queue}")

    async def known() -> list[str]:
        try:
            answer = await client.workflow_service.describe_worker_deployment(request)
        except RPCError:
            return []
        return [each.deployment_version.build_id for each in answer.worker_deployment_info.version_summaries]

    async with build_worker(client, [agent()], task_queue=queue, deployment=f"agents-{queue}", build_id="b1"):
        assert await until(known) == ["b1"]


# --- Search attributes ---------------------------------------------------------------------------------------------


async def test_namespace_without_search_attributes_is_told_and_works(
    queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker says once what to run, and turns do without."""
    async with DevServer(ui=False, search_attributes=False) as bare:
        client = await bare.client()
        with caplog.at_level(logging.WARNING, "turngate"):
            async with build_worker(client, [agent()], task_queue=queue):
                result = await approved(*await paused(client, queue))
    assert result.output == "done"
    assert [record.message for record in caplog.records if "turngate setup" in record.message]


async def test_registered_search_attributes_list_a_paused_turn(client: Client, queue: str) -> None:
    """Where they are there, a paused turn can be found by its tool."""
    async with build_worker(client, [agent()], task_queue=queue):
        turns, approval = await paused(client, queue)
        query = f"TurngateStatus = 'waiting' AND TurngateWaiting = 'tool:pay' AND TaskQueue = '{queue}'"

        async def listed() -> list[str]:
            return [found.id async for found in client.list_workflows(query)]

        assert await until(listed) == [approval.context.turn_id]
        await approved(turns, approval)


# --- What clients send ---------------------------------------------------------------------------------------------


class MyCodec(PayloadCodec):
    """Stands for encryption: refuses what it did not write, unlike the tolerant codec of our own."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [Payload(metadata={"encoding": ENCRYPTED}, data=each.SerializeToString()) for each in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [self._decoded(each) for each in payloads]

    def _decoded(self, payload: Payload) -> Payload:
        if payload.metadata["encoding"] != ENCRYPTED:
            raise ValueError("this was not written by us")
        return Payload.FromString(payload.data)


async def test_undecodable_signal_is_refused_and_the_turn_lives(server: DevServer, queue: str) -> None:
    """A codec that raises would stall the run for ever; here its failure is one more refused signal."""
    client = await server.client(data_converter=DataConverter(payload_codec=MyCodec()))
    plain = await server.client()
    async with build_worker(client, [agent()], task_queue=queue):
        turns, approval = await paused(client, queue)
        turn = turns.turn(approval.context.turn_id)
        await plain.get_workflow_handle(turn.id).signal("decide", {"approval_id": approval.id, "type": "approve"})
        [refused] = await until(turn.refused)
        assert (refused.code, refused.signal) == ("malformed", "decide")
        assert (await approved(turns, approval)).output == "done"


async def test_two_malformed_arguments_are_refused_and_the_turn_lives(client: Client, queue: str) -> None:
    """With two arguments there are no type hints, and neither can be decoded."""
    broken = RawValue(Payload(metadata={"encoding": b"json/plain"}, data=b"{"))
    async with build_worker(client, [agent()], task_queue=queue):
        turns, approval = await paused(client, queue)
        turn = turns.turn(approval.context.turn_id)
        await client.get_workflow_handle(turn.id).signal("decide", args=[broken, broken])
        [refused] = await until(turn.refused)
        assert "2 were sent" in refused.message
        assert (await approved(turns, approval)).output == "done"


async def test_oversized_update_is_refused_and_the_turn_lives(client: Client, queue: str) -> None:
    """An update of 2 to 4 MB stalls a run where the SDK's own check is on."""
    payload = {"approval_id": "x/y-1", "type": "reject", "message": "x" * 2_500_000}
    async with build_worker(client, [agent()], task_queue=queue):
        turns, approval = await paused(client, queue)
        handle = client.get_workflow_handle(approval.context.turn_id)
        with pytest.raises(Exception, match=r"[Uu]pdate|large|limit"):
            await handle.execute_update("decide", payload, rpc_timeout=timedelta(seconds=5))
        assert (await approved(turns, approval)).output == "done"


# --- The plugin ----------------------------------------------------------------------------------------------------


class Noticing(Interceptor):
    """A user's own interceptor."""


async def test_plugin_adds_to_a_workers_own_parts(client: Client, queue: str) -> None:
    """A user's workflow and a gated turn run beside one another, on a worker with nothing else changed."""
    worker = Worker(
        client,
        task_queue=queue,
        workflows=[Mine],
        activities=[of_mine],
        interceptors=[Noticing()],
        plugins=[TurngatePlugin([agent()])],
    )
    config = worker.config(active_config=True)
    assert config["disable_payload_error_limit"] is False
    assert config["graceful_shutdown_timeout"] == timedelta()
    assert [type(each).__name__ for each in config["interceptors"]] == ["Noticing", "SignalGuard"]
    async with worker:
        assert await client.execute_workflow(Mine.run, id=f"mine-{queue}", task_queue=queue) == "mine"
        assert (await approved(*await paused(client, queue))).output == "done"


async def test_plugin_on_the_client_reaches_its_workers(server: DevServer, queue: str) -> None:
    """Given to the client once, every worker of that client has it, and has it once."""
    client = await server.client(plugins=[TurngatePlugin([agent()])])
    worker = Worker(client, task_queue=queue)
    names = [each.__name__ for each in worker.config(active_config=True)["workflows"]]
    assert names == ["AgentTurn", "AgentThread"]
    async with worker:
        assert (await approved(*await paused(client, queue))).output == "done"


async def test_build_worker_on_a_client_with_the_plugin_is_refused(server: DevServer) -> None:
    """Two sets of agents on one worker would hide one another."""
    client = await server.client(plugins=[TurngatePlugin([agent()])])
    with pytest.raises(ConfigError, match="this client has a TurngatePlugin"):
        build_worker(client, [agent()])


async def test_plugin_adds_to_the_sandbox(client: Client, queue: str) -> None:
    """The user's own pass-through modules stay."""
    runner = SandboxedWorkflowRunner()
    restrictions = runner.restrictions.with_passthrough_modules("mine_alone")
    worker = Worker(
        client,
        task_queue=queue,
        workflow_runner=SandboxedWorkflowRunner(restrictions=restrictions),
        plugins=[TurngatePlugin([agent()])],
    )
    used = worker.config(active_config=True)["workflow_runner"]
    assert isinstance(used, SandboxedWorkflowRunner)
    assert {"mine_alone", *PASSTHROUGH} <= used.restrictions.passthrough_modules


async def test_replayer_takes_the_plugin(client: Client, queue: str) -> None:
    """A recorded turn replays with the plugin alone."""
    async with build_worker(client, [agent()], task_queue=queue):
        turns, approval = await paused(client, queue)
        await approved(turns, approval)
    history: WorkflowHistory = await client.get_workflow_handle(approval.context.turn_id).fetch_history()
    await Replayer(workflows=[], plugins=[TurngatePlugin()]).replay_workflow(history)


# --- worker.py -----------------------------------------------------------------------------------------------------

SLOW = """
import pathlib, time
from langchain_core.tools import tool
from turngate import Agent
from turngate.testing import ScriptedModel

@tool
def work() -> str:
    "Work until told to finish."
    pathlib.Path("started").touch()
    while not pathlib.Path("finish").exists():
        time.sleep(0.02)
    return "worked"

call = {"id": "c", "name": "work", "args": {}}
main = Agent("main", model=ScriptedModel([{"tool_calls": [call]}, "done"]), tools=[work])
"""


class Program:
    """`python worker.py` in a folder of its own."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._folder = folder
        self._arguments = arguments
        self.lines: list[str] = []

    async def __aenter__(self) -> Program:
        (self._folder / "slow_agents.py").write_text(SLOW)
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(ROOT / "worker.py"),
            *self._arguments,
            cwd=self._folder,
            stderr=asyncio.subprocess.PIPE,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    async def said(self, words: str) -> None:
        """Read the log up to a line with these words."""
        assert self.process.stderr is not None
        async with asyncio.timeout(60):
            while line := (await self.process.stderr.readline()).decode():
                self.lines.append(line)
                if words in line:
                    return
        raise AssertionError(f"the worker never said {words!r} but {''.join(self.lines)}")


async def test_program_drains_on_sigterm(server: DevServer, client: Client, queue: str, tmp_path: Path) -> None:
    """A deploy lets the running tool finish, and its result is recorded."""
    arguments = ("--agents", "slow_agents:main", "--address", server.address, "--task-queue", queue)
    turns = TurngateClient(client, task_queue=queue)
    async with Program(tmp_path, *arguments) as program:
        await program.said("worker serves task queue")
        turn = await turns.start_turn("main", "Work.")

        async def started() -> bool:
            return (tmp_path / "started").exists()

        await until(started)
        program.process.send_signal(signal.SIGTERM)
        await program.said("worker drains")
        (tmp_path / "finish").touch()
        await program.said("worker stopped")
        assert await program.process.wait() == 0
    history = await client.get_workflow_handle(turn.id).fetch_history()
    results = [event.activity_task_completed_event_attributes.result for event in history.events]
    assert [result for result in results if b"worked" in result.SerializeToString()]


async def test_program_names_what_is_missing(tmp_path: Path) -> None:
    """A mistake ends the program with one sentence, not with a stack trace."""
    async with Program(tmp_path, "--agents", "slow_agents:main", "--address", "127.0.0.1:1") as program:
        await program.said("no Temporal server answers at 127.0.0.1:1")
        assert await program.process.wait() == 1
    assert not [line for line in program.lines if "Traceback" in line]
