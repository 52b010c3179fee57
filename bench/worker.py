"""The worker processes that are measured: `python -m bench.worker raw|langchain|ours ADDRESS QUEUE [CACHED RUNS]`.

Each side has a process of its own, so that the machine's accounts can be read for each. `raw` is the yardstick;
`langchain` is the same workflow with activities that call the model and the tool through LangChain, as ours do.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker

from bench.raw_long import RawLongTurn, raw_long_model, raw_long_tool
from bench.raw_seen import RawSeenTurn
from bench.raw_temporal import RawTurn


@activity.defn(name="raw_model")
async def echoing_model(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Answer as `raw_model` does, and at the end with what the tool said: it is the time at which it began."""
    if len(messages) > 1:
        return {"type": "ai", "content": messages[-1]["content"]}
    call = {"id": "c1", "name": "send_mail", "args": {"to": "a@x.test", "body": "hi"}}
    return {"type": "ai", "content": "", "tool_calls": [call]}


@activity.defn(name="raw_tool")
async def stamping_tool(call: dict[str, Any]) -> str:
    """Say when this began."""
    return str(time.monotonic_ns())


@activity.defn(name="raw_model")
async def langchain_model(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Ask LangChain's model as one would by hand."""
    from bench.scripted import Mailing
    from turngate.message_json import to_langchain

    return (await Mailing().ainvoke(to_langchain(messages))).model_dump()


@activity.defn(name="raw_tool")
async def langchain_tool(call: dict[str, Any]) -> str:
    """Call LangChain's tool as one would by hand."""
    from bench.scripted import send_mail

    return str((await send_mail.ainvoke({**call, "type": "tool_call"})).text)


def langchain_worker(client: Client, queue: str, cached: int) -> Worker:
    """Return the hand-written side that uses LangChain."""
    return Worker(
        client,
        task_queue=queue,
        workflows=[RawTurn],
        activities=[langchain_model, langchain_tool],
        max_cached_workflows=cached,
    )


def raw_worker(client: Client, queue: str, cached: int) -> Worker:
    """Return the hand-written side, with the SDK's own defaults."""
    return Worker(
        client,
        task_queue=queue,
        workflows=[RawTurn, RawSeenTurn, RawLongTurn],
        activities=[echoing_model, stamping_tool, raw_long_model, raw_long_tool],
        max_cached_workflows=cached,
    )


def our_worker(client: Client, queue: str, cached: int) -> Worker:
    """Return Turngate's side, with Turngate's defaults."""
    # Imported here, so that the other side's process holds none of it.
    from bench.scripted import agents
    from turngate import build_worker

    return build_worker(client, agents(), task_queue=queue, max_cached_workflows=cached)


SIDES = {"raw": raw_worker, "langchain": langchain_worker, "ours": our_worker}


async def main(side: str, address: str, queue: str, cached: str = "1000") -> None:
    """Serve until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    client = await _connected(side, address)
    worker = SIDES[side](client, queue, int(cached))
    async with worker:
        print("ready", flush=True)
        await stop.wait()


async def _connected(side: str, address: str) -> Client:
    if side != "ours":
        return await Client.connect(address)
    from turngate.connect import connect

    return await connect(address=address, namespace="default", tls=False, config_file=None)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
    from turngate.leaving import leave

    leave(0)
