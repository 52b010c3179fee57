"""Where it is measured: one server in memory, a worker process a side, and turns of both sides driven alike."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import sys
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle

from turngate.devserver import DevServer

Handle = WorkflowHandle[Any, Any]
_TICKS = os.sysconf("SC_CLK_TCK")
_STOP_SECONDS = 30.0
_LINE_SECONDS = 300.0


@dataclass(frozen=True)
class Side:
    """One of the two sides: how its turns are started and decided. Neither uses a client library or a query."""

    name: str
    queue: str
    _numbers: itertools.count[int] = field(default_factory=itertools.count, compare=False)

    @property
    def by_hand(self) -> bool:
        """Whether this is hand-written code."""
        return self.name in ("raw", "seen", "langchain")

    async def start(self, client: Client) -> Handle:
        """Start a turn that will wait for a decision."""
        turn_id = f"{self.name}-{next(self._numbers)}"
        if self.by_hand:
            kind = "RawSeenTurn" if self.name == "seen" else "RawTurn"
            return await client.start_workflow(kind, "go", id=turn_id, task_queue=self.queue)
        request = {"agent": self.name, "input": "go"}
        return await client.start_workflow("AgentTurn", request, id=turn_id, task_queue=self.queue)

    async def decide(self, handle: Handle) -> None:
        """Approve the call that waits, by update."""
        if self.by_hand:
            await handle.execute_update("decide_by_update", "approve")
            return
        approval_id = f"{handle.id}/{str(handle.first_execution_run_id)[-6:]}-1"
        await handle.execute_update("decide", {"approval_id": approval_id, "type": "approve"})

    async def said(self, handle: Handle) -> str:
        """Wait for the end, and return what was said there."""
        result = await handle.result()
        return str(result if self.by_hand else result["output"])


RAW = Side("raw", "raw")
SEEN = Side("seen", "raw")
LANGCHAIN = Side("langchain", "langchain")
GATED = Side("gated", "ours")
BARE = Side("bare", "ours")


async def paused(handle: Handle) -> None:
    """Wait until the turn waits for its decision. Asks the history, which neither side's worker has to answer."""
    answered = False
    async for event in handle.fetch_history_events(wait_new_event=True):
        answered = answered or event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED
        if answered and event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
            return
    raise RuntimeError(f"{handle.id!r} ended without a pause")


class Program:
    """A module of ours in a process of its own, with the machine's accounts of it. It talks in lines."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._command = (sys.executable, "-m", module, *arguments)
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """The id of the process."""
        assert self._process is not None, "the worker runs"
        return self._process.pid

    @property
    def cpu(self) -> float:
        """Seconds of processor time that it has used."""
        return cpu_of(self.pid)

    @property
    def memory(self) -> int:
        """Bytes of memory that it holds."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("the machine keeps no account of memory")

    async def launch(self) -> None:
        """Start the process and wait for nothing."""
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(*self._command, stdin=pipe, stdout=pipe)

    async def ready(self) -> None:
        """Wait until it can be used: a worker polls then."""
        if await self.line() != "ready":
            raise RuntimeError(f"it did not start: {' '.join(self._command)}")

    async def line(self) -> str:
        """Wait for the next line that it says; nothing where it has ended."""
        assert self._process is not None
        assert self._process.stdout is not None
        return (await asyncio.wait_for(self._process.stdout.readline(), _LINE_SECONDS)).decode().strip()

    async def ask(self, *words: str) -> str:
        """Say a line to it, and return the one that it answers."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{' '.join(words)}\n".encode())
        if not (answer := await self.line()):
            raise RuntimeError(f"it ended at {words[0]!r}: {' '.join(self._command)}")
        return answer

    async def stop(self) -> None:
        """Ask it to end and wait until it has."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _STOP_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()

    async def kill(self) -> None:
        """Kill it without warning."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            await process.wait()

    async def __aenter__(self) -> Self:
        await self.launch()
        try:
            await self.ready()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()


class Process(Program):
    """A worker process of one side."""

    def __init__(self, side: str, server: DevServer, *, queue: str | None = None, cached: int = 1000) -> None:
        super().__init__("bench.worker", side, server.address, queue or side, str(cached))


def cpu_of(pid: int) -> float:
    """Return the seconds of processor time that a process has used."""
    return sum(_ticks(pid)[:2]) / _TICKS


def family_cpu_of(pid: int) -> float:
    """Return the seconds that a process and its children have used, those that have ended included."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return (sum(_ticks(pid)) + sum(sum(_ticks(int(child))) for child in children)) / _TICKS


def _ticks(pid: int) -> list[int]:
    """Return its own time outside and inside of the kernel, then the same of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return [int(field) for field in fields[11:15]]


@dataclass
class Stage:
    """A server with one worker of each side."""

    server: DevServer
    client: Client
    workers: dict[str, Process]
    metrics: int

    def worker_of(self, side: Side) -> Process:
        """Return the process that runs the turns of a side."""
        return self.workers[side.queue]

    @property
    def server_cpu(self) -> float:
        """Seconds of processor time that the server has used."""
        assert self.server.pid is not None
        return cpu_of(self.server.pid)

    async def actions(self) -> int:
        """Return the billable actions that the server has counted; it brings its counts up to date now and then."""
        seen, same = -1, 0
        while same < 8:
            found = await asyncio.to_thread(_counted, self.metrics)
            seen, same = found, same + 1 if found == seen else 0
            await asyncio.sleep(0.25)
        return seen


def _counted(port: int) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    ours = [line for line in lines if line.startswith("action{") and 'namespace="default"' in line]
    return sum(int(float(line.rpartition(" ")[2])) for line in ours)


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.asynccontextmanager
async def stage(*sides: Side, search_attributes: bool = True) -> AsyncIterator[Stage]:
    """Set up a server and the workers of these sides, and warm them up."""
    metrics = free_port()
    arguments = ["--metrics-port", str(metrics)]
    async with DevServer(ui=False, extra_args=arguments, search_attributes=search_attributes) as server:
        client, workers = await server.client(), {side.queue: Process(side.queue, server) for side in sides}
        async with contextlib.AsyncExitStack() as open_workers:
            for worker in workers.values():
                await open_workers.enter_async_context(worker)
            for side in sides * 3:
                await one_turn(client, side)
            yield Stage(server, client, workers, metrics)


async def one_turn(client: Client, side: Side) -> Handle:
    """Run one turn from start to end."""
    handle = await side.start(client)
    await paused(handle)
    await side.decide(handle)
    await side.said(handle)
    return handle
