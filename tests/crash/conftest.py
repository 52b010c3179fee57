from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.crash.agents import Spec
from tests.crash.nursery import Nursery
from tests.crash.scene import Scene
from turngate import DevServer, TurngateClient


@pytest.fixture(scope="session")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DevServer]:
    """One server for the tests of this folder, with its state in a file."""
    async with DevServer(db=tmp_path_factory.mktemp("server") / "temporal.db", ui=False) as running:
        yield running


@pytest.fixture(scope="session")
async def nursery() -> AsyncIterator[Nursery]:
    """Where all workers come from."""
    async with Nursery("tests.crash.agents", "turngate.plugin") as running:
        yield running


@pytest.fixture
async def scene(server: DevServer, nursery: Nursery, tmp_path: Path) -> AsyncIterator[Scene]:
    """A stage on the shared server; its workers are killed at the end, and what happened is replayed."""
    queue = f"crash-{uuid.uuid4().hex[:8]}"
    client = TurngateClient(await server.client(), queue)
    stage = Scene(server.address, queue, client, nursery, Spec(str(tmp_path)))
    yield stage
    await stage.all_die()
    await stage.replay()
