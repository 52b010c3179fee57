"""The servers that cases run on: one that most share, others on demand, all ended at the end."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

from temporalio.client import Client

from tests.case_runner.loading import Case, Json
from tests.crash.nursery import Nursery
from turngate.devserver import DevServer
from turngate.testing import dev_server

# What these ask for depends on all runs of a server.
_OVER_ALL_RUNS = ("list", "cli")


@dataclass(frozen=True)
class Needs:
    """What a case needs of its server; `alone` names the case that wants it for itself."""

    search_attributes: bool = True
    continue_as_new_at: int | None = None
    time_skipping: bool = False
    alone: str | None = None


def needs_of(case: Case) -> Needs:
    """Return what this case needs."""
    wanted = case.given.get("server", {})
    return Needs(
        search_attributes=wanted.get("search_attributes") != "none",
        continue_as_new_at=wanted.get("suggest_continue_as_new_at_events"),
        time_skipping=any("advance_time" in step["do"] for step in case.steps),
        alone=case.id if any(_over_all_runs(step) for step in case.steps) else None,
    )


def _over_all_runs(step: Json) -> bool:
    same = step["expect"].get("surface", {}).get("same_object", ())
    return any(kind in step["do"] for kind in _OVER_ALL_RUNS) or bool({"list", "cli"} & set(same))


class ServerPool:
    """Starts servers, and where killed workers come from, as they are needed."""

    def __init__(self) -> None:
        self._stack = contextlib.AsyncExitStack()
        self._servers: dict[Needs, asyncio.Task[tuple[DevServer, Client]]] = {}
        self._nursery: asyncio.Task[Nursery] | None = None

    async def __aenter__(self) -> ServerPool:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @contextlib.asynccontextmanager
    async def server(self, needs: Needs):  # type: ignore[no-untyped-def]
        """Give a server and a client of it, for as long as the block lasts."""
        if needs.alone:
            async with _start(needs) as server:
                yield server, await server.client()
            return
        if needs not in self._servers:
            self._servers[needs] = asyncio.create_task(self._shared(needs))
        yield await asyncio.shield(self._servers[needs])

    async def nursery(self) -> Nursery:
        """Return where workers in processes of their own come from."""
        if self._nursery is None:
            start = self._stack.enter_async_context(Nursery("tests.case_runner.workers", "turngate.plugin"))
            self._nursery = asyncio.create_task(start)
        return await asyncio.shield(self._nursery)

    async def _shared(self, needs: Needs) -> tuple[DevServer, Client]:
        server = await self._stack.enter_async_context(_start(needs))
        return server, await server.client()


def _start(needs: Needs) -> contextlib.AbstractAsyncContextManager[DevServer]:
    suggest = needs.continue_as_new_at
    config = [f"limit.historyCount.suggestContinueAsNew={suggest}"] if suggest else []
    return dev_server(
        search_attributes=needs.search_attributes, time_skipping=needs.time_skipping, dynamic_config=config
    )
