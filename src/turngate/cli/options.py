"""Options that several commands share. Light: nothing here loads Temporal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter

from turngate.errors import TurngateError

if TYPE_CHECKING:
    from turngate.client import TurngateClient


class UsageError(TurngateError):
    """The command line makes no sense, in a way that only its command can tell."""


Words = Annotated[str, Parameter(allow_leading_hyphen=True)]
"""What people write in their own words, which may begin with a dash."""
_SERVER = Group("Server", sort_key=90)
DATA_CONVERTER = "TURNGATE_DATA_CONVERTER"


@Parameter(name="*")
@dataclass(frozen=True)
class Server:
    """Where the Temporal server is."""

    address: Annotated[str | None, Parameter(group=_SERVER)] = None
    """host:port of the Temporal server."""
    namespace: Annotated[str | None, Parameter(group=_SERVER)] = None
    """The namespace."""
    profile: Annotated[str | None, Parameter(group=_SERVER)] = None
    """The profile of temporal.toml."""
    task_queue: Annotated[str, Parameter(group=_SERVER, env_var="TURNGATE_TASK_QUEUE")] = "turngate"
    """The task queue of the workers."""
    data_converter: Annotated[str | None, Parameter(group=_SERVER, env_var=DATA_CONVERTER)] = None
    """module:attribute of a DataConverter, where payloads are encrypted or kept elsewhere."""

    async def client(self) -> TurngateClient:
        """Connect."""
        from turngate.client import TurngateClient
        from turngate.loading import load_data_converter

        return await TurngateClient.connect(
            task_queue=self.task_queue,
            address=self.address,
            namespace=self.namespace,
            profile=self.profile,
            data_converter=load_data_converter(self.data_converter),
        )


HERE = Server()


@Parameter(name="*")
@dataclass(frozen=True)
class Sender:
    """Who decides, and why."""

    reviewer: Annotated[str | None, Parameter(env_var="TURNGATE_REVIEWER")] = None
    """Your name for the record; where reviewers are set, a decision without one is refused."""
    comment: Words | None = None
    """A note for the record, which the model does not read."""
    digest: str | None = None
    """The digest of the call that you saw: refused if another one waits."""
    remember: Annotated[
        str | None, Parameter(help="Remember the decision: turn:args, turn:tool, thread:args or thread:tool.")
    ] = None

    def fields(self) -> dict[str, object]:
        """Return what is set, as fields of a decision."""
        found = {"reviewer": self.reviewer, "comment": self.comment, "digest": self.digest}
        given: dict[str, object] = {key: value for key, value in found.items() if value is not None}
        if self.remember is not None:
            scope, _, match = self.remember.partition(":")
            given["remember"] = {"scope": scope, "match": match or "args"}
        return given


NOBODY = Sender()

Notifiers = Annotated[
    str | None,
    Parameter(
        env_var="TURNGATE_NOTIFIERS",
        help="module:attribute of the mapping from the names that agents use to notifiers.",
    ),
]
Json = Annotated[bool, Parameter(name="--json", help="Print JSON, for scripts.")]
Yes = Annotated[bool, Parameter(name=["--yes", "-y"], help="Don't ask before sending.")]
