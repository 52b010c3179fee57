"""Notifiers: they tell people that a decision is wanted, and what became of it.

An agent names its notifiers (`Agent(notifiers=["ops"])`), a worker brings them (`build_worker(..., notifiers={"ops":
WebhookNotifier(...)})`): so addresses and secrets stay in the worker and never get into Temporal's history.
Nothing here waits for an answer, and no message holds a link that decides something when it is opened.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import http.client
import json
import re
import shlex
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, field_serializer

from turngate.contracts import Approval, Json
from turngate.errors import ConfigError, NotifierError

Kind = Literal["requested", "reminder", "escalated", "resolved", "expired", "cancelled"]
LONGEST_RETRY_AFTER = 600.0
"""Seconds. A receiver that asks for more is asked again sooner: its message would come too late to be of use."""
TEXT_LIMIT = 3000
"""Characters of arguments in a message for people; chats cut, or refuse, long ones."""


class Notification(BaseModel):
    """One event about one approval.

    `key` is the same whenever the same event is told again (after a crash, say): tell people once a key. `reply` is
    the safest decision, a rejection, ready to be sent as update or signal `decide`; None where nothing waits any more
    or the call can't be rejected. `replies` has one entry an allowed decision, texts and values left empty. Add
    `reviewer` where the approval names reviewers. Secret arguments are masked.
    """

    model_config = ConfigDict(frozen=True)

    key: str
    kind: Kind
    approval: Approval
    reply: Json | None = None
    replies: list[Json] = Field(default_factory=list)

    @classmethod
    def of(cls, key: str, kind: Kind, approval: Approval) -> Notification:
        """Build the notification of an event, with the replies that can be given."""
        replies = _replies(approval) if approval.status == "pending" else []
        reply = next((reply for reply in replies if reply["type"] == "reject"), None)
        return cls(key=key, kind=kind, approval=approval, reply=reply, replies=replies)

    @field_serializer("approval")
    def _approval(self, approval: Approval) -> Json:
        return approval.to_json()

    def to_json(self) -> Json:
        """Return plain JSON; the approval in it is the one that queries and the inbox show."""
        return self.model_dump(mode="json")


class Notifier(Protocol):
    """Something that can tell people. Any object with this method will do."""

    async def notify(self, notification: Notification) -> None:
        """Tell people. Raise NotifierError, or anything else, where that failed: Temporal then tries again.

        Of other exceptions only the class is recorded, for their words may hold addresses and secrets.
        """
        ...


class WebhookNotifier:
    """POST each notification as JSON to a URL.

    With a `secret` the request is signed as https://www.standardwebhooks.com describes, so that receivers find ready
    libraries in many languages: `webhook-id` (the notification's key, percent-encoded), `webhook-timestamp`, and
    `webhook-signature`: "v1," and the base64 of HMAC-SHA256 over "<id>.<timestamp>.<body>". A secret that begins with
    "whsec_" is base64, any other is taken as it is. `Idempotency-Key` repeats the id. `check_signature` is the
    receiver's side of it.

    `timeout` is in seconds, for the whole request. 5xx, 408, 425, 429 (its Retry-After counts, up to 10 minutes) and
    broken connections are tried again; any other answer but 2xx is final, redirects included.
    """

    def __init__(
        self, url: str, *, secret: str | None = None, timeout: float = 10.0, headers: Mapping[str, str] | None = None
    ) -> None:
        self._host = _host(url)
        if secret is not None:
            _secret_bytes(secret)
        self._url, self._secret, self._timeout = url, secret, timeout
        self._headers = dict(headers or {})
        for name, value in self._headers.items():
            if not (name and all(isinstance(one, str) and _FIELD.fullmatch(one) for one in (name, value))):
                raise ConfigError(f"header {name!r} of a webhook: names and values are printable ASCII text")

    def __repr__(self) -> str:
        # Whoever knows the path of a webhook may use it: it is a secret too.
        return f"<WebhookNotifier: {self._host}>"

    async def notify(self, notification: Notification) -> None:
        """POST the notification. Raises NotifierError."""
        body = json.dumps(notification.to_json(), separators=(",", ":")).encode()
        request = urllib.request.Request(self._url, body, self._headers_of(notification.key, body), method="POST")
        try:
            async with asyncio.timeout(self._timeout):
                await asyncio.to_thread(self._send, request)
        except TimeoutError:
            raise NotifierError(f"{self._host} did not answer within {self._timeout:g} s") from None

    def _headers_of(self, key: str, body: bytes) -> dict[str, str]:
        message_id = urllib.parse.quote(key, safe="/:@~")
        found = {"Content-Type": "application/json", "User-Agent": "turngate", **self._headers}
        found |= {"Idempotency-Key": message_id, "webhook-id": message_id}
        if self._secret is not None:
            timestamp = str(int(datetime.now(UTC).timestamp()))
            found["webhook-timestamp"] = timestamp
            found["webhook-signature"] = _signature(self._secret, message_id, timestamp, body)
        return found

    # One POST: the standard library does that, in a thread. httpx and its successor httpx2 both come with the
    # LangChain packages of today, and which of them stays is open, so that neither is worth a dependency here.
    def _send(self, request: urllib.request.Request) -> None:
        try:
            with _OPENER.open(request, timeout=self._timeout):
                return
        except urllib.error.HTTPError as error:
            with error:
                raise self._failure(error.code, error.headers.get("Retry-After")) from None
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "reason", None) or error
            raise NotifierError(f"{self._host} can't be reached: {type(why).__name__}") from None

    def _failure(self, status: int, retry_after: str | None) -> NotifierError:
        if status >= 500 or status in (408, 425, 429):
            return NotifierError(f"{self._host} answered {status}", retry_after=_seconds(retry_after))
        hint = ": give the address that it leads to" if 300 <= status < 400 else ""
        return NotifierError(f"{self._host} answered {status}{hint}", permanent=True)


class AppriseNotifier:
    """Send a short text through Apprise: Slack, Teams, e-mail and a hundred other services.

    One URL in Apprise's form ("slack://...", "mailto://..."): a notifier is tried again as a whole, so that two
    services under one name would be told twice when one of them fails. Give a second one a name of its own.

    Needs `pip install "turngate[notify]"`. Raises ConfigError for a URL that Apprise does not know.
    """

    def __init__(self, url: str, *, timeout: float = 20.0) -> None:
        try:
            import apprise
        except ImportError:
            raise ConfigError('AppriseNotifier needs more packages: run `pip install "turngate[notify]"`') from None
        self._service = url.partition(":")[0]
        self._timeout = timeout
        self._apprise = apprise.Apprise()
        self._text = apprise.NotifyFormat.TEXT
        if not self._apprise.add(url) or len(self._apprise) != 1:
            raise ConfigError(
                f"Apprise can't use this {self._service!r} URL: see https://github.com/caronc/apprise/wiki"
            )

    def __repr__(self) -> str:
        return f"<AppriseNotifier: {self._service}>"

    async def notify(self, notification: Notification) -> None:
        """Send the text. Raises NotifierError."""
        title, body = subject(notification), text(notification)
        try:
            async with asyncio.timeout(self._timeout):
                sent = await asyncio.to_thread(self._apprise.notify, body, title=title, body_format=self._text)
        except TimeoutError:
            raise NotifierError(f"{self._service} did not answer within {self._timeout:g} s") from None
        if not sent:
            raise NotifierError(f"{self._service} did not take the message: the worker's log may say why")


# --- Texts for people -------------------------------------------------------------------------------------------------

_SUBJECTS: dict[str, str] = {
    "requested": "{name} waits for a decision",
    "reminder": "{name} still waits for a decision",
    "escalated": "{name} waits for a decision, and now for you",
    "resolved": "{name} was {status}{by}",
    "expired": "{name}: nobody decided in time",
    "cancelled": "{name} was called off",
}


def subject(notification: Notification) -> str:
    """Return one line that says what happened."""
    approval = notification.approval
    by = approval.resolution.reviewer if approval.resolution else None
    line = _SUBJECTS[notification.kind].format(
        name=approval.name, status=approval.status.value, by=f" by {by}" if by else ""
    )
    return " ".join(f"{approval.context.agent}: {line}".split())


def text(notification: Notification) -> str:
    """Return what a reviewer needs to know, and how to answer, as plain text."""
    approval, proposal = notification.approval, notification.approval.proposal
    command = f"turngate show {shlex.quote(approval.id)}"
    lines = [
        approval.description[:TEXT_LIMIT],
        f"Arguments: {_arguments(approval.args)}",
        f"In its place {proposal.by or 'somebody'} proposes: {proposal.name or approval.name}"
        f" {_arguments(proposal.args)}"
        if proposal
        else "",
        f"Question: {_arguments(approval.question)}" if approval.type == "question" else "",
        "\n".join(f"Warning: {warning}" for warning in approval.warnings),
        f"Reviewers: {', '.join(approval.reviewers)}" if approval.reviewers else "",
        f"Until: {approval.expires_at:%Y-%m-%d %H:%M} UTC" if approval.expires_at and notification.replies else "",
        f"Look at it and decide: {command}" if notification.replies else f"Approval: {approval.id}",
    ]
    return "\n\n".join(line for line in lines if line)


def _arguments(value: Any) -> str:
    written = json.dumps(value, ensure_ascii=False, indent=2)
    return written if len(written) <= TEXT_LIMIT else f"{written[:TEXT_LIMIT]} … ({len(written)} characters in all)"


# --- The receiver's side ----------------------------------------------------------------------------------------------


def check_signature(
    secret: str, headers: Mapping[str, str], body: bytes, *, tolerance: float = 300.0, now: datetime | None = None
) -> bool:
    """Tell whether a request is from a WebhookNotifier with this secret, and not older than `tolerance` seconds.

    `body` are the bytes as they came. Refuse ids (`webhook-id`) that were seen before: a copy has a good signature.
    """
    found = {name.lower(): value for name, value in headers.items()}
    timestamp = found.get("webhook-timestamp", "")
    if not re.fullmatch("[0-9]{1,12}", timestamp):
        return False
    age = abs((now or datetime.now(UTC)).timestamp() - int(timestamp))
    expected = _signature(secret, found.get("webhook-id", ""), timestamp, body)
    given = found.get("webhook-signature", "").split()
    return age <= tolerance and any(hmac.compare_digest(one.encode(), expected.encode()) for one in given)


# --- Parts ------------------------------------------------------------------------------------------------------------


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirected POST would be sent again as a GET without its body, and perhaps to another host."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


_ADDRESS = re.compile("[!-~]+")
_FIELD = re.compile("[ -~]*")
_OPENER = urllib.request.build_opener(_NoRedirect)


def _host(url: str) -> str:
    try:
        parts = urllib.parse.urlsplit(url)
        if parts.username is not None:
            raise ConfigError("a name and a password do not go into the address of a webhook: send them as a header")
        good = _ADDRESS.fullmatch(url) and parts.port != 0  # reading a port that is none raises
        if good and parts.scheme in ("http", "https") and parts.hostname:
            return parts.hostname
    except (AttributeError, TypeError, ValueError):
        pass
    raise ConfigError("a WebhookNotifier needs the address of a receiver: https://..., in ASCII, percent-encoded")


def _replies(approval: Approval) -> list[Json]:
    name, args, digest = approval.name, approval.args, approval.digest
    if proposal := approval.proposal:
        name, args, digest = proposal.name or name, proposal.args, proposal.digest
    given: dict[str, Json] = {
        "edit": {"edited_action": {"name": name, "args": args}},
        "respond": {"message": ""},
        "answer": {"value": None},
    }
    return [
        {"approval_id": approval.id, "digest": digest, "type": kind, **given.get(kind, {})}
        for kind in approval.allowed_decisions
    ]


def _signature(secret: str, message_id: str, timestamp: str, body: bytes) -> str:
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(_secret_bytes(secret), signed, hashlib.sha256).digest()).decode()


def _secret_bytes(secret: str) -> bytes:
    if not isinstance(secret, str) or not secret:
        raise ConfigError("the secret of a webhook is a text: leave it out to send without a signature")
    if not secret.startswith("whsec_"):
        return secret.encode()
    try:
        if found := base64.b64decode(secret.removeprefix("whsec_"), validate=True):
            return found
    except ValueError:
        pass
    raise ConfigError("the secret of the webhook begins with 'whsec_', and what follows is not base64")


def _seconds(retry_after: str | None) -> float | None:
    if retry_after is None or not retry_after.isdecimal():
        return None
    return min(float(retry_after), LONGEST_RETRY_AFTER)
