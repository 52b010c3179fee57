"""A real server with its UI, a real worker, a real browser, and Temporal's own TypeScript client."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from uuid import uuid4

import pytest

from tests.ui.agents import clerk, records
from tests.ui.node import HERE, NodeScript
from turngate.client import Paused, TurngateClient
from turngate.devserver import DevServer
from turngate.worker import build_worker

EXAMPLE = HERE.parents[1] / "examples" / "typescript"
StartPaused = Callable[..., Awaitable[Paused]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.server)


@pytest.fixture(scope="session")
async def ui_server() -> AsyncIterator[DevServer]:
    """A development server with its UI, and a worker that serves it."""
    async with DevServer() as server, build_worker(await server.client(), [clerk, records]):
        yield server


@pytest.fixture(scope="session")
async def turngate(ui_server: DevServer) -> TurngateClient:
    """Our own client, to see what became of what others sent."""
    return TurngateClient(await ui_server.client())


@pytest.fixture
def start_paused(turngate: TurngateClient) -> StartPaused:
    """Start a turn of an agent and wait until it waits."""

    async def start(agent: str = "clerk", text: str = "Pay the four invoices.", **options: str) -> Paused:
        given = {"turn_id": f"turn-{uuid4().hex[:6]}", **options}
        paused = await turngate.run_turn(agent, text, **given)
        assert isinstance(paused, Paused)
        return paused

    return start


@pytest.fixture(scope="session")
async def chromium() -> AsyncIterator[NodeScript]:
    """A Chromium to ask things of, see browser.mjs."""
    async with NodeScript("browser.mjs", _program("chromium")) as script:
        yield script


@pytest.fixture
async def browser(chromium: NodeScript) -> AsyncIterator[NodeScript]:
    """The Chromium, which leaves its page at the end: one that stays open goes on asking and drawing."""
    yield chromium
    await chromium.ask("leave")


@pytest.fixture(scope="session")
async def sdk(ui_server: DevServer) -> AsyncIterator[NodeScript]:
    """Temporal's TypeScript client, see sdk.mjs."""
    async with NodeScript("sdk.mjs", ui_server.address, EXAMPLE) as script:
        yield script


def _program(name: str) -> str:
    found = shutil.which(name)
    assert found, f"{name} is not installed: .ci/run names the package"
    return found
