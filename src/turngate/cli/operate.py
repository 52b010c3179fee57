"""Commands to run Turngate: the dev server, workers, the server's setup."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from turngate.cli.options import DATA_CONVERTER, HERE, Json, Notifiers, Server, Yes


async def setup(*, json: Json = False, server: Server = HERE) -> None:
    """Register Turngate's search attributes in the namespace, so that the inbox is quick."""
    from turngate import attributes
    from turngate.cli import output

    client = await server.client()
    added = await attributes.register(client.temporal)
    if json:
        output.print_json({"registered": added})
    elif added:
        output.say(f"Registered in {client.temporal.namespace}: {', '.join(added)}")
    else:
        output.say(f"Everything is registered in {client.temporal.namespace}.")


async def check(references: tuple[str, ...], /, *, dangerous: tuple[str, ...] = (), json: Json = False) -> int:
    """Build agents as a worker would, and say what they do with each tool. Needs no server.

    Fails where a dangerous tool runs without being asked about, or where an entry can never match.

    Parameters
    ----------
    references
        module:attribute of an Agent, a list of agents, or a function that returns either.
    dangerous
        A name or pattern of tools that must not run by themselves, such as 'delete_*'; may be repeated. Tools can
        say so themselves, by metadata {"dangerous": True} or the tag "dangerous".
    """
    from turngate.checking import check_agents
    from turngate.cli import output
    from turngate.loading import load_agents

    found = await check_agents(load_agents(references), dangerous=dangerous)
    if json:
        output.print_json([agent.to_json() for agent in found])
    else:
        output.check_report(found)
    return 1 if any(agent.problems for agent in found) else 0


async def worker(
    references: Annotated[tuple[str, ...], Parameter(env_var="TURNGATE_AGENTS")],
    /,
    *,
    notifiers: Notifiers = None,
    log_level: str = "INFO",
    server: Server = HERE,
) -> None:
    """Run a worker for agents until Ctrl-C or SIGTERM.

    It then takes no new work, and running tools get 30 seconds to finish.

    Parameters
    ----------
    references
        module:attribute of an Agent, a list of agents, or a function that returns either.
    log_level
        Lines to log: DEBUG, INFO, WARNING or ERROR.
    """
    import logging

    from turngate.loading import load_agents, load_notifiers
    from turngate.worker import run_worker

    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    agents = load_agents(references)
    told = load_notifiers(notifiers)
    client = await server.client()
    await run_worker(client.temporal, agents, task_queue=server.task_queue, notifiers=told)


async def dev(
    references: tuple[str, ...] = (),
    /,
    *,
    db: Path = Path(".turngate/dev.db"),
    memory: bool = False,
    port: int = 7233,
    ui_port: int = 8233,
    ip: str = "127.0.0.1",
    namespace: str = "default",
    notifiers: Notifiers = None,
    data_converter: Annotated[str | None, Parameter(env_var=DATA_CONVERTER)] = None,
) -> None:
    """Run a Temporal server for development, with its web UI, and a worker for agents, until Ctrl-C.

    Paused turns go on where they were when it is started again: the state is in a file.

    Parameters
    ----------
    references
        module:attribute of an Agent, a list of agents, or a function that returns either; without, there is no worker.
    db
        The file that keeps its state over restarts.
    memory
        Keep the state in memory instead.
    port
        Where clients and workers connect.
    ui_port
        Where the web UI is.
    ip
        The address to listen on.
    namespace
        The namespace to create.
    data_converter
        module:attribute of a DataConverter for the worker, for payload encryption or external storage.
    """
    import asyncio
    import contextlib

    from turngate.cli import output
    from turngate.devserver import DevServer
    from turngate.loading import load_agents, load_data_converter, load_notifiers

    agents, told, converter = load_agents(references), load_notifiers(notifiers), load_data_converter(data_converter)
    server = DevServer(db=None if memory else db, port=port, ui_port=ui_port, ip=ip, namespace=namespace)
    async with server:
        output.say(f"Temporal server at {server.address}, UI at {server.ui_url}. Ctrl-C stops it.")
        if agents:
            from turngate.worker import run_worker

            names = ", ".join(agent.name for agent in agents)
            await run_worker(
                await server.client(data_converter=converter),
                agents,
                notifiers=told,
                on_polling=lambda: output.say(f"A worker runs {names}."),
            )
        else:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()


async def codec_server(
    *,
    origin: tuple[str, ...] = ("http://localhost:8233", "http://127.0.0.1:8233"),
    host: str = "127.0.0.1",
    port: int = 8234,
) -> None:
    """Let the Temporal UI show encrypted payloads, until Ctrl-C.

    The keys come from TURNGATE_ENCRYPTION_KEYS; with TURNGATE_CODEC_TOKEN every request must carry that token.

    Parameters
    ----------
    origin
        An address of the UI, exactly as the browser shows it.
    host
        The address to listen on; beyond this machine it needs a token.
    port
        The port to listen on.
    """
    import asyncio
    import os
    import threading

    from turngate.cli import output
    from turngate.codec import VARIABLE, EncryptionCodec
    from turngate.codec_server import CodecServer
    from turngate.errors import ConfigError

    codec = EncryptionCodec.from_environment()
    if codec is None:
        raise ConfigError(f"there are no keys: set {VARIABLE} to 'id:base64' entries")
    token = os.environ.get("TURNGATE_CODEC_TOKEN") or None
    with CodecServer(codec, origins=origin, host=host, port=port, token=token) as server:
        output.say(f"Codec server at {server.url}: set it as the codec endpoint of the UI. Ctrl-C stops it.")
        # In a thread that ends with us: waiting for it would leave Ctrl-C without effect.
        threading.Thread(target=server.serve_forever, daemon=True).start()
        await asyncio.Event().wait()


async def demo(*, yes: Yes = False, model: str | None = None, folder: Path | None = None) -> int:
    """See an agent's dangerous calls wait, and decide them. Needs no server and no API key.

    Parameters
    ----------
    yes
        Let the demo decide by itself: one edit, one rejection, one approval.
    model
        A model for init_chat_model, such as openai:gpt-5, in place of the scripted one.
    folder
        Where the database, the archive and a log go; by default a new temporary folder.
    """
    from turngate.cli.editing import interactive
    from turngate.errors import ConfigError

    if not yes and not interactive():
        raise ConfigError("the demo asks for decisions in a terminal, and this is none: add --yes to let it decide")

    # Only now, for it brings everything with it.
    from turngate.demo.run import run

    return await run(yes=yes, model=model, folder=folder)
