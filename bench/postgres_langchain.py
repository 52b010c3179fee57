"""LangChain's side of `make postgres`: `create_agent` with its middleware and the checkpointer for PostgreSQL.

    python -m bench.postgres_langchain URL               does what the lines of its standard input say, and answers
    python -m bench.postgres_langchain URL resume 7      does one such thing, and ends

Written after the documentation of LangChain and LangGraph: a saver over a pool of connections, a thread id,
`Command(resume=...)` for an answer. `durability="sync"` keeps each step before the next begins, as Temporal does.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from collections.abc import Sequence
from typing import Annotated, Any

from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph.message import _messages_delta_reducer
from langgraph.types import Command
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from bench.scripted import MAIL, PAGES, Mailing, Reading

POOL = 10
TABLES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
_APPROVE: Any = Command(resume={"decisions": [{"type": "approve"}]})
# What the columns hold that grow with a conversation, before PostgreSQL packs it.
_KEPT = """
    SELECT (SELECT sum(octet_length(checkpoint::text) + octet_length(metadata::text)) FROM checkpoints
             WHERE thread_id = %(thread)s)
         + (SELECT sum(octet_length(blob)) FROM checkpoint_blobs WHERE thread_id = %(thread)s)
         + (SELECT sum(octet_length(blob)) FROM checkpoint_writes WHERE thread_id = %(thread)s) AS bytes
"""
_ON_DISK = f"SELECT {' + '.join(f'pg_total_relation_size({table!r})' for table in TABLES)} AS bytes"


class _Delta(AgentState[Any]):
    """A state of which a step keeps what is new: in beta, and its documentation says this reducer, which is private."""

    messages: Annotated[list[Any], DeltaChannel(_messages_delta_reducer)]


STATES: dict[str, Any] = {"whole": None, "delta": _Delta}


class Threads:
    """What can be done with threads in one database."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._mailing = [self._agent(Mailing(), MAIL)]
        self._numbers = itertools.count()

    def _agent(self, model: BaseChatModel, tools: Sequence[BaseTool], state: Any = None) -> Any:
        gate, saver = HumanInTheLoopMiddleware({"send_mail": True}), AsyncPostgresSaver(self._pool)
        return create_agent(model, tools, middleware=[gate], checkpointer=saver, state_schema=state)

    async def setup(self) -> str:
        """Make the tables."""
        await AsyncPostgresSaver(self._pool).setup()
        return "ready"

    async def pause(self, thread: str, agent: Any = None) -> str:
        """Start a turn, which ends with the question."""
        result = await _invoke(agent or self._mailing[0], _said("go"), thread)
        (interrupt,) = result.interrupts
        return str(interrupt.id)

    async def resume(self, thread: str, agent: Any = None) -> str:
        """Approve what waits, and return what the tool said: the time at which it began."""
        result = await _invoke(agent or self._mailing[0], _APPROVE, thread)
        return str(result.value["messages"][-1].text)

    async def turns(self, count: str, at_once: str, savers: str) -> str:
        """Run turns from start to end, so many at a time, with so many savers, and return the seconds."""
        while len(self._mailing) < int(savers):
            self._mailing.append(self._agent(Mailing(), MAIL))
        agents, room = itertools.cycle(self._mailing[: int(savers)]), asyncio.Semaphore(int(at_once))

        async def turn() -> None:
            async with room:
                thread, agent = f"turn-{next(self._numbers)}", next(agents)
                await self.pause(thread, agent)
                await self.resume(thread, agent)

        began = time.monotonic()
        await asyncio.gather(*(turn() for _ in range(int(count))))
        return str(time.monotonic() - began)

    async def read(self, steps: str, state: str) -> str:
        """Run a long turn, and return the bytes that it left: as written, and what the tables grew on the disk."""
        thread, before = f"read-{steps}-{state}", await self._bytes(_ON_DISK)
        await _invoke(self._agent(Reading(), PAGES, STATES[state]), _said(steps), thread)
        kept, after = await self._bytes(_KEPT, thread=thread), await self._bytes(_ON_DISK)
        return json.dumps({"kept": kept, "on_disk": after - before})

    async def _bytes(self, query: str, **values: str) -> int:
        async with self._pool.connection() as connection:
            row = await (await connection.execute(query, values)).fetchone()
        return int(row["bytes"])


async def _invoke(agent: Any, given: Any, thread: str) -> Any:
    # LangGraph ends a turn after a number of steps; ours may go on here.
    config = {"configurable": {"thread_id": thread}, "recursion_limit": 100_000}
    return await agent.ainvoke(given, config, version="v2", durability="sync")


def _said(text: str) -> Any:
    return {"messages": [{"role": "user", "content": text}]}


async def main(url: str, *words: str) -> None:
    """Do one thing, or one after the other until the input ends."""
    size = 1 if words else POOL
    kwargs = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    async with AsyncConnectionPool(url, min_size=size, max_size=size, kwargs=kwargs) as pool:
        threads = Threads(pool)
        if words:
            await _do(threads, *words)
            return
        await _do(threads, "setup")
        while line := await asyncio.to_thread(sys.stdin.readline):
            await _do(threads, *line.split())


async def _do(threads: Threads, action: str, *arguments: str) -> None:
    print(await getattr(threads, action)(*arguments), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
