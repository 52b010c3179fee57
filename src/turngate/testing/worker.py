"""The program of `turngate_worker_process`: `python -m turngate.testing.worker ADDRESS QUEUE module:agent...`."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta

from turngate.connect import connect
from turngate.loading import load_agents
from turngate.worker import run_worker

_DRAIN = timedelta(seconds=1)


async def serve(address: str, task_queue: str, *references: str) -> None:
    """Run the agents until a signal ends the process."""
    agents = load_agents(references)
    client = await connect(address=address, config_file=None, tls=False)
    print("ready", flush=True)  # WorkerProcess waits for it
    await run_worker(client, agents, task_queue=task_queue, graceful_shutdown_timeout=_DRAIN)


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
