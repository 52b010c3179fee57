"""Connect to a Temporal server, with settings from where Temporal keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio.client import Client, Plugin
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DataConverter
from temporalio.envconfig import ClientConfigProfile, ClientConfigTLS
from temporalio.service import RPCError

from turngate.errors import ConfigError, ServerError

DEFAULT_ADDRESS = "localhost:7233"
_PATIENCE = timedelta(seconds=10)


async def connect(
    *,
    address: str | None = None,
    namespace: str | None = None,
    profile: str | None = None,
    config_file: str | None = None,
    api_key: str | None = None,
    tls: bool | None = None,
    data_converter: DataConverter = pydantic_data_converter,
    plugins: Sequence[Plugin] = (),
    lazy: bool = False,
    **options: Any,
) -> Client:
    """Return a Temporal client.

    Settings come from `temporalio.envconfig`: the file `temporal.toml` with its profiles, then the variables
    `TEMPORAL_ADDRESS`, `TEMPORAL_NAMESPACE`, `TEMPORAL_API_KEY`, `TEMPORAL_TLS...`. What is given here beats both.
    Without any of them it is `localhost:7233`, namespace `default`. `options` go to `Client.connect`.

    The data converter is the SDK's for pydantic: it keeps the order of keys, which people read in arguments.
    With `lazy` the connection is made by the first call.

    Raises ConfigError for settings that make no sense, ServerError where no server answers.
    """
    settings = _settings(profile, config_file)
    settings = replace(
        settings,
        address=address or settings.address or DEFAULT_ADDRESS,
        namespace=namespace or settings.namespace or "default",
        api_key=api_key or settings.api_key,
        tls=settings.tls if tls is None else replace(settings.tls or ClientConfigTLS(), disabled=not tls),
    )
    target = _checked(settings.address)
    try:
        return await Client.connect(
            **{"connect_timeout": _PATIENCE, **settings.to_client_connect_config(), **options},
            data_converter=data_converter,
            plugins=plugins,
            lazy=lazy,
        )
    except (RuntimeError, RPCError) as error:
        raise unreachable(target, error) from error


def unreachable(address: str, error: Exception) -> ServerError:
    """Build the error for a server that does not answer at `address`."""
    return ServerError(
        f"no Temporal server answers at {address} ({_reason(error)}): start one with `turngate dev`, "
        "or name another with --address, TEMPORAL_ADDRESS or a profile in temporal.toml"
    )


def _settings(profile: str | None, config_file: str | None) -> ClientConfigProfile:
    source = Path(config_file) if config_file is not None else None
    try:
        return ClientConfigProfile.load(profile=profile, config_source=source)
    except (RuntimeError, OSError, ValueError) as error:
        raise ConfigError(f"the Temporal settings can't be read: {error}") from error


def _checked(address: str | None) -> str:
    assert address is not None
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdigit():
        raise ConfigError(f"{address!r} is not an address: give host:port, for example {DEFAULT_ADDRESS!r}")
    return address


def _reason(error: Exception) -> str:
    """Shorten the transport's error to the part that a person can use."""
    text = str(error)
    for known in ("Connection refused", "dns error", "timed out", "certificate", "Unauthorized"):
        if known.lower() in text.lower():
            return {"dns error": "the host name is unknown"}.get(known, known.lower())
    return text.removeprefix("Failed client connect: ")[:300]
