"""Connections fail with a sentence that says what to do."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from turngate.connect import connect
from turngate.errors import ConfigError, ServerError


@pytest.fixture
def nobody() -> str:
    """Return an address where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


async def test_server_that_does_not_answer_is_named(nobody: str) -> None:
    """The address, the reason and the way out stand in one sentence."""
    with pytest.raises(ServerError, match=rf"answers at {nobody} \(connection refused\).*turngate dev"):
        await connect(address=nobody)


async def test_address_comes_from_the_environment(nobody: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporal's own variables are read."""
    monkeypatch.setenv("TEMPORAL_ADDRESS", nobody)
    with pytest.raises(ServerError, match=nobody):
        await connect()


async def test_lazy_client_connects_later(nobody: str) -> None:
    """Nothing is asked of the server before the first call."""
    client = await connect(address=nobody, namespace="mine", lazy=True)
    assert client.namespace == "mine"


@pytest.mark.parametrize("address", ["localhost", "http://localhost:7233", ":7233", "localhost:web"])
async def test_nonsense_is_no_address(address: str) -> None:
    """An address without host or port is refused before anything is tried."""
    with pytest.raises(ConfigError, match="give host:port"):
        await connect(address=address)


async def test_profile_that_does_not_exist_is_a_config_error(tmp_path: Path) -> None:
    """A typo in a profile's name does not end at localhost."""
    file = tmp_path / "temporal.toml"
    file.write_text('[profile.default]\naddress = "127.0.0.1:1"\n')
    with pytest.raises(ConfigError, match="settings can't be read"):
        await connect(profile="stagging", config_file=str(file))
