"""How a refusal crosses the wire to the sender of an update."""

from __future__ import annotations

from temporalio.exceptions import ApplicationError

from turngate.errors import RefusedError


class _Refusal(ApplicationError):
    """Travels without a stack: the UI would show whoever mistyped a word where the worker keeps its files."""

    # A plain None would not do: contextlib assigns to it.
    __traceback__ = property(lambda self: None, lambda self, value: None)


def as_failure(error: RefusedError) -> ApplicationError:
    """Return the failure that carries the refusals: its type is the first code, its details hold all of them."""
    details = {"refusals": [refusal.to_json() for refusal in error.refusals][:100]}
    return _Refusal(str(error)[:4000], details, type=error.code, non_retryable=True)
