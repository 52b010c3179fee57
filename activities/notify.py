"""Tell people about an approval, through one of the worker's notifiers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from turngate.activities import conversation
from turngate.agent import Registry
from turngate.contracts import Approval, Json
from turngate.errors import ConfigError, NotifierError
from turngate.notifiers import Notification, Notifier


def checked(registry: Registry, notifiers: Mapping[str, Notifier]) -> Mapping[str, Notifier]:
    """Return the notifiers of a worker. Raises ConfigError where they don't serve its agents."""
    for name, notifier in notifiers.items():
        if not callable(getattr(notifier, "notify", None)):
            raise ConfigError(f"notifiers[{name!r}]: {notifier!r} has no method `notify`")
    for agent in registry.agents:
        for name in agent.notifiers:
            if name not in notifiers:
                known = ", ".join(repr(each) for each in notifiers) or "none"
                raise ConfigError(f"agent {agent.key!r} names the notifier {name!r}, and the worker has {known}")
    return notifiers


class Notify:
    """The activity `notify` with the notifiers of a worker.

    One activity tells through one notifier: of several, each is tried again on its own, and those that have told
    people are not asked again because another one failed.
    """

    def __init__(self, notifiers: Mapping[str, Notifier]) -> None:
        self._notifiers = dict(notifiers)

    @activity.defn(name="notify")
    async def notify(self, data: dict[str, Any]) -> None:
        """Tell people of one event: `{"key", "kind", "notifier", "approval"}`.

        A long approval comes as `{"index": n}` instead, its place among the approvals of the run.
        """
        name = data["notifier"]
        notifier = self._find(name)
        notification = Notification.of(data["key"], data["kind"], await _approval(data["approval"]))
        try:
            await notifier.notify(notification)
        except NotifierError as error:
            delay = None if error.retry_after is None else timedelta(seconds=error.retry_after)
            raise _failed(f"notifier {name!r}: {error}", permanent=error.permanent, delay=delay) from None
        except Exception as error:
            # Its words may hold an address with a secret in it, and history keeps them for ever.
            activity.logger.warning("notifier %r failed", name, exc_info=True)
            raise _failed(f"notifier {name!r} failed: {type(error).__name__}; the worker's log says more") from None

    def _find(self, name: str) -> Notifier:
        if name not in self._notifiers:
            known = ", ".join(repr(each) for each in self._notifiers) or "none"
            raise ApplicationError(
                f"this worker has no notifier {name!r}; it has {known}", type="UnknownNotifier", non_retryable=True
            )
        return self._notifiers[name]


async def _approval(given: Json) -> Approval:
    if "index" in given:
        page = await conversation.ask_own_run("approvals", {"start": given["index"], "limit": 1})
        given = page["approvals"][0]
    return Approval.model_validate(given)


def _failed(message: str, *, permanent: bool = False, delay: timedelta | None = None) -> ApplicationError:
    return ApplicationError(message, type="NotifierFailed", non_retryable=permanent, next_retry_delay=delay)
