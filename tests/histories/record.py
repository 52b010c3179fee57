"""Record this version's histories: `make histories` (once a release; what is there is never rewritten).

Each shape runs on the real server; the histories of its run, of its children and of the runs that it continued in are
written to `tests/histories/<version>/<shape>[-<part>].json`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from importlib.metadata import version
from pathlib import Path

from temporalio.client import Client, WorkflowHistory

from tests.histories.shapes import NOTIFIERS, SHAPES, Shape
from turngate import TurngateClient, build_worker
from turngate.testing import dev_server

FOLDER = Path(__file__).parent
SUGGEST = "limit.historyCount.suggestContinueAsNew=24"


async def main(wanted: list[str]) -> None:
    """Record the shapes (all, or those named) that have no file yet for this version."""
    folder = FOLDER / version("turngate")
    folder.mkdir(exist_ok=True)
    for continues in (False, True):
        shapes = [shape for shape in SHAPES if shape.continues is continues and (not wanted or shape.name in wanted)]
        async with dev_server(dynamic_config=[SUGGEST] if continues else []) as server:
            client = await server.client()
            for shape in shapes:
                await record(client, shape, folder)


async def record(client: Client, shape: Shape, folder: Path) -> None:
    """Run one shape and write what it left."""
    if list(folder.glob(f"{shape.name}.json")) or list(folder.glob(f"{shape.name}-*.json")):
        print(f"{shape.name}: recorded before, left as it is")
        return
    turns = TurngateClient(client, task_queue=shape.name)
    async with build_worker(client, [shape.agent()], task_queue=shape.name, notifiers=NOTIFIERS):
        if shape.thread:
            thread = turns.thread(f"thread-{shape.name}", shape.name)
            turn = await thread.started(await thread.send("go"))
        else:
            turn = await turns.start_turn(shape.name, "go", turn_id=f"turn-{shape.name}")
        await turns.wait(turn) if shape.calls else await turn.result()
        await shape.script(turns, turn)
        first = turn.id.rpartition("/")[0] or turn.id
        found = [history async for history in family(client, first)]
    for number, history in enumerate(found):
        name = shape.name if number == 0 else f"{shape.name}-{number}"
        events = json.loads(history.to_json())
        (folder / f"{name}.json").write_text(
            json.dumps({"id": history.workflow_id, "history": events}, indent=1) + "\n"
        )
        print(f"{name}: {len(history.events)} events")


async def family(client: Client, workflow_id: str) -> AsyncIterator[WorkflowHistory]:
    """The histories of all runs of this workflow, and of its children."""
    described = await client.get_workflow_handle(workflow_id).describe()
    run_id = described.raw_description.workflow_execution_info.first_run_id
    while run_id:
        history = await client.get_workflow_handle(workflow_id, run_id=run_id).fetch_history()
        yield history
        for event in history.events:
            started = event.child_workflow_execution_started_event_attributes
            if event.HasField("child_workflow_execution_started_event_attributes"):
                async for child in family(client, started.workflow_execution.workflow_id):
                    yield child
        last = history.events[-1]
        run_id = last.workflow_execution_continued_as_new_event_attributes.new_execution_run_id


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
