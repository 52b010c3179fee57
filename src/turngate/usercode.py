"""Call functions that users wrote: sync or async, at their own risk and with our patience.

A sync function runs in a thread of its own, so that it can block without stopping the worker's event loop. Daemon
threads and no pool: a thread that never ends would occupy a place in a pool for ever, and Python waits for a pool's
threads when it exits. How many run at once is bounded by the worker's number of activities.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable
from typing import Any


async def call(function: Callable[..., Any], *args: Any) -> Any:
    """Call a sync or async function and return what it returns."""
    if is_async(function):
        return await contained(function(*args))
    result = await in_thread(function, *args)
    return await contained(result) if inspect.isawaitable(result) else result


async def contained(work: Awaitable[Any], who: str = "it") -> Any:
    """Await code of users; what would end the worker, or look as if we had been called off, becomes an error."""
    try:
        return await work
    except asyncio.CancelledError:
        if (task := asyncio.current_task()) and task.cancelling():
            raise
        raise RuntimeError(f"{who} was cancelled from inside") from None
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"{type(error).__name__}: {error}") from None


async def call_within(timeout: float, function: Callable[..., Any], *args: Any) -> Any:
    """Like `call`, but raise TimeoutError when it takes longer than `timeout` seconds."""
    try:
        return await asyncio.wait_for(call(function, *args), timeout)
    except TimeoutError:
        raise TimeoutError(f"no answer within {timeout:g} s") from None


def is_async(function: Callable[..., Any]) -> bool:
    """Tell whether calling `function` gives something to await."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def in_thread(function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
    """Run a function in a daemon thread that sees the caller's context variables; await the result."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            value, error = context.run(function, *args), None
        except BaseException as raised:  # SystemExit too: a tool must not end the worker
            value, error = None, raised
        with contextlib.suppress(RuntimeError):  # the loop has been closed: nobody waits any more
            loop.call_soon_threadsafe(_settle, future, value, error)

    threading.Thread(target=run, name=f"turngate-{getattr(function, '__name__', 'call')}", daemon=True).start()
    return future


def _settle(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    elif isinstance(error, StopIteration | SystemExit | KeyboardInterrupt | asyncio.CancelledError):
        # None of them may travel through a future: they would end a generator, the loop or the process, or look as if
        # we had been called off.
        future.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))
    else:
        future.set_exception(error)


def words_of(error: BaseException) -> str:
    """Return an error in its own words, on a bounded number of characters."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]  # a task group (MCP clients run in some) hides what went wrong
    try:
        said = str(error)
    except Exception:  # an error whose own __str__ raises
        said = ""
    words = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return words if len(words) <= 2000 else f"{words[:2000]}..."
