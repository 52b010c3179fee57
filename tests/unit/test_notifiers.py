"""Notifiers: what they send, how they sign it, and which failures are worth another try."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from tests.unit.fakes import make_agent
from turngate import notifiers
from turngate.activities.notify import Notify, checked
from turngate.agent import Registry
from turngate.contracts import Approval, ApprovalContext, ApprovalStatus, Json, Proposal, Resolution
from turngate.errors import ConfigError, NotifierError
from turngate.notifiers import AppriseNotifier, Notification, WebhookNotifier, check_signature

SECRET = "a-shared-secret"
APPROVAL = Approval(
    id="turn-1/abc123-1",
    digest="3f0a77c1e2b94d10",
    name="pay",
    args={"amount": 5, "iban": "[secret]"},
    description="A tool call waits for your decision",
    allowed_decisions=["approve", "edit", "reject", "respond"],
    reviewers=["ann", "role:cfo"],
    warnings=["over budget"],
    requested_at=datetime(2026, 1, 1, tzinfo=UTC),
    expires_at=datetime(2026, 1, 2, tzinfo=UTC),
    context=ApprovalContext(agent="books", turn_id="turn-1", run_id="r"),
)


def notification(kind: Any = "requested", key: str = "turn-1/abc123-1/requested-1", **changes: Any) -> Notification:
    return Notification.of(key, kind, APPROVAL.model_copy(update=changes))


class Receiver:
    """A web server that answers as told and notes what it got."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, dict[str, str]]] = []
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.hangs = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append((dict(self.headers), body))
                status, headers = receiver.answers.pop(0) if receiver.answers else (200, {})
                if status == 0:
                    receiver.hangs.wait(10)
                    return
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_GET(self) -> None:
                receiver.got.append(({}, b"GET"))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook/s3cret-path"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def close(self) -> None:
        self.hangs.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    running = Receiver()
    yield running
    running.close()


# --- What is told ---------------------------------------------------------------------------------------------------


def test_the_approval_is_the_one_that_everybody_sees() -> None:
    """The same JSON as in queries and the inbox."""
    assert notification().to_json()["approval"] == APPROVAL.to_json()


def test_replies_are_ready_to_be_sent() -> None:
    """One an allowed decision, with id and digest; the safest one is a rejection."""
    told = notification()
    assert told.reply == {"approval_id": APPROVAL.id, "digest": APPROVAL.digest, "type": "reject"}
    assert [one["type"] for one in told.replies] == APPROVAL.allowed_decisions
    assert told.replies[1]["edited_action"] == {"name": "pay", "args": APPROVAL.args}


def test_replies_are_decisions() -> None:
    """Each of them is one of the documented forms."""
    from turngate.decisions import parse

    told = notification(allowed_decisions=["approve", "edit", "reject", "respond", "answer"])
    assert all(parse(one).entries[0].refusal is None for one in told.replies)


def test_replies_mean_what_is_proposed_now() -> None:
    """With an edit proposed for a quorum, an answer carries the digest of the proposal; people read what it is."""
    told = notification(proposal=Proposal(digest="f" * 16, name="refund", args={"amount": 1}, by="bob"))
    assert {one["digest"] for one in told.replies} == {"f" * 16}
    assert told.replies[1]["edited_action"] == {"name": "refund", "args": {"amount": 1}}
    assert 'bob proposes: refund {\n  "amount": 1\n}' in notifiers.text(told)


def test_ids_and_names_of_any_kind_do_no_harm() -> None:
    """A command to paste holds one word for the id, a subject is one line, and 0 is a question."""
    told = notification(id="a; b/abc123-1", type="question", question=0)
    assert "turngate show 'a; b/abc123-1'" in notifiers.text(told)
    assert "Question: 0" in notifiers.text(told)
    settled = notification("resolved", status=ApprovalStatus.REJECTED, resolution=Resolution(reviewer="ann\nBcc: bob"))
    assert notifiers.subject(settled).splitlines() == ["books: pay was rejected by ann Bcc: bob"]


@pytest.mark.parametrize("kind", ["resolved", "expired", "cancelled"])
def test_nothing_is_to_be_answered_afterwards(kind: str) -> None:
    """What is settled has no replies."""
    told = notification(kind, status="rejected")
    assert told.reply is None
    assert told.replies == []


def test_without_reject_no_reply_is_the_safest() -> None:
    """Nobody is handed an approval as the thing to send back."""
    assert notification(allowed_decisions=["approve"]).reply is None


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("requested", "books: pay waits for a decision"),
        ("reminder", "books: pay still waits for a decision"),
        ("escalated", "books: pay waits for a decision, and now for you"),
        ("resolved", "books: pay was rejected by ann"),
        ("expired", "books: pay: nobody decided in time"),
        ("cancelled", "books: pay was called off"),
    ],
)
def test_subjects_say_what_happened(kind: str, line: str) -> None:
    """One line for each kind of event."""
    changes = {"status": "rejected", "resolution": Resolution(reviewer="ann")} if kind == "resolved" else {}
    told = Notification.of("k", kind, Approval.model_validate({**APPROVAL.model_dump(), **changes}))  # type: ignore[arg-type]
    assert notifiers.subject(told) == line


def test_the_text_says_what_a_reviewer_needs() -> None:
    """Arguments, warnings, people, deadline, and how to answer; no link that decides."""
    text = notifiers.text(notification())
    for part in (
        '"amount": 5',
        "[secret]",
        "over budget",
        "ann, role:cfo",
        "2026-01-02 00:00",
        f"turngate show {APPROVAL.id}",
    ):
        assert part in text
    assert "http" not in text


def test_long_arguments_are_cut_in_the_text() -> None:
    """Chats take a few thousand characters."""
    assert len(notifiers.text(notification(args={"body": "x" * 100_000}))) < 5000


# --- Webhooks -------------------------------------------------------------------------------------------------------


async def test_a_webhook_gets_signed_json(receiver: Receiver) -> None:
    """Body, id and signature, as its receiver checks them."""
    told = notification(key="türn 1/abc-1/requested-1")
    await WebhookNotifier(receiver.url, secret=SECRET, headers={"Authorization": "Bearer x"}).notify(told)
    [(headers, body)] = receiver.got
    assert json.loads(body) == told.to_json()
    assert headers["Idempotency-Key"] == headers["Webhook-Id"] == "t%C3%BCrn%201/abc-1/requested-1"
    assert headers["Authorization"] == "Bearer x"
    assert headers["Content-Type"] == "application/json"
    assert check_signature(SECRET, headers, body)
    assert not check_signature("another", headers, body)
    assert not check_signature(SECRET, headers, body + b" ")
    assert not check_signature(SECRET, headers, body, now=datetime.now(UTC) + timedelta(minutes=6))
    assert not check_signature(SECRET, {**headers, "Webhook-Id": "another"}, body)
    assert not check_signature(SECRET, {}, body)


def test_the_signature_is_the_one_of_standard_webhooks() -> None:
    """The example of the specification's own libraries."""
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,bm9ldHU= v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    when = datetime.fromtimestamp(1614265330, UTC)
    assert check_signature(secret, headers, b'{"test": 2432232314}', now=when)


async def test_without_a_secret_nothing_is_signed(receiver: Receiver) -> None:
    """There is no signature that could be taken for one."""
    await WebhookNotifier(receiver.url).notify(notification())
    assert "Webhook-Signature" not in receiver.got[0][0]


@pytest.mark.parametrize(
    ("status", "headers", "permanent", "retry_after"),
    [
        (500, {}, False, None),
        (503, {"Retry-After": "30"}, False, 30.0),
        (429, {"Retry-After": "86400"}, False, 600.0),
        (429, {"Retry-After": "soon"}, False, None),
        (408, {}, False, None),
        (400, {}, True, None),
        (401, {}, True, None),
        (410, {}, True, None),
        (301, {"Location": "/elsewhere"}, True, None),
        (303, {"Location": "/elsewhere"}, True, None),
        (307, {"Location": "/elsewhere"}, True, None),
    ],
)
async def test_answers_decide_whether_it_is_worth_another_try(
    receiver: Receiver, status: int, headers: dict[str, str], permanent: bool, retry_after: float | None
) -> None:
    """5xx and 429 are tried again, other answers are final, and no redirect is followed."""
    receiver.answers = [(status, headers)]
    with pytest.raises(NotifierError, match=f"127.0.0.1 answered {status}") as caught:
        await WebhookNotifier(receiver.url, secret=SECRET).notify(notification())
    assert (caught.value.permanent, caught.value.retry_after) == (permanent, retry_after)
    assert len(receiver.got) == 1
    assert "s3cret" not in str(caught.value)


async def test_a_receiver_that_is_down_or_silent_is_tried_again(receiver: Receiver) -> None:
    """Nobody listens, or nobody answers in time."""
    receiver.answers = [(0, {})]
    with pytest.raises(NotifierError) as silent:
        await WebhookNotifier(receiver.url, timeout=0.3).notify(notification())
    with pytest.raises(NotifierError, match="can't be reached") as down:
        await WebhookNotifier("http://127.0.0.1:1/hook").notify(notification())
    assert not silent.value.permanent
    assert not down.value.permanent


@pytest.mark.parametrize(
    "url",
    ["", "ftp://x", "hook.example.com", "http://", "http://[", None]
    + ["http://x:99999", "http://x/a b", "https://\N{LATIN SMALL LETTER U WITH DIAERESIS}.example", "https://me:pw@x"],
)
def test_a_bad_address_is_a_config_error(url: Any) -> None:
    """It is told when the worker starts, not when the first call waits."""
    with pytest.raises(ConfigError, match="address of a"):
        WebhookNotifier(url)


@pytest.mark.parametrize("headers", [{"Authorization": "Bearer x\n"}, {"X": "\N{SNOWMAN}"}, {"": "x"}, {"X": 5}])
def test_a_bad_header_is_a_config_error(headers: Any) -> None:
    """The end of the line is what a token brings that is read from a file."""
    with pytest.raises(ConfigError, match="header"):
        WebhookNotifier("https://hook.example.com", headers=headers)


@pytest.mark.parametrize("secret", ["", "whsec_***", "whsec_", 5])
def test_a_bad_secret_is_a_config_error(secret: Any) -> None:
    """An empty secret would sign for everybody."""
    with pytest.raises(ConfigError, match="secret"):
        WebhookNotifier("https://hook.example.com", secret=secret)


def test_repr_shows_no_secret() -> None:
    """Neither the path of the address nor the secret ends up in logs."""
    assert (
        repr(WebhookNotifier("https://hook.example.com/s3cret", secret=SECRET)) == "<WebhookNotifier: hook.example.com>"
    )


# --- Apprise --------------------------------------------------------------------------------------------------------


async def test_apprise_sends_subject_and_text(receiver: Receiver) -> None:
    """Through its own JSON service, to a real server."""
    await AppriseNotifier(receiver.url.replace("http://", "json://")).notify(notification())
    sent = json.loads(receiver.got[0][1])
    assert sent["title"] == "books: pay waits for a decision"
    assert "over budget" in sent["message"]


async def test_apprise_failures_are_tried_again(receiver: Receiver) -> None:
    """Apprise only says that it failed."""
    receiver.answers = [(500, {})]
    with pytest.raises(NotifierError, match="json did not take") as caught:
        await AppriseNotifier(receiver.url.replace("http://", "json://")).notify(notification())
    assert not caught.value.permanent


@pytest.mark.parametrize("url", ["", "nosuchservice://s3cret", "json://a, json://b"])
def test_apprise_urls_are_checked(url: str) -> None:
    """One service a notifier, and one that Apprise knows; the error does not repeat the address."""
    with pytest.raises(ConfigError) as caught:
        AppriseNotifier(url)
    assert "s3cret" not in str(caught.value)


# --- The activity ---------------------------------------------------------------------------------------------------


class Ops:
    """Notes what it is told, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.told: list[Notification] = []
        self.error = error

    async def notify(self, notification: Notification) -> None:
        self.told.append(notification)
        if self.error:
            raise self.error


def event(**changes: Any) -> Json:
    return {"key": "k", "kind": "requested", "notifier": "ops", "approval": APPROVAL.to_json(), **changes}


async def run(notifier: Any, data: Json) -> None:
    await ActivityEnvironment().run(Notify({"ops": notifier}).notify, data)


async def test_the_activity_tells_the_named_notifier() -> None:
    """Once, with the whole approval."""
    ops = Ops()
    await run(ops, event())
    [told] = ops.told
    assert told.to_json() == notification(key="k").to_json()


async def test_an_unknown_notifier_is_final() -> None:
    """The error names it, and those that there are."""
    with pytest.raises(ApplicationError, match="no notifier 'pager'; it has 'ops'") as caught:
        await run(Ops(), event(notifier="pager"))
    assert caught.value.non_retryable


@pytest.mark.parametrize("permanent", [True, False])
async def test_failures_are_tried_again_unless_final(permanent: bool) -> None:
    """What the notifier says about it is handed to Temporal."""
    with pytest.raises(ApplicationError, match="'ops': closed") as caught:
        await run(Ops(NotifierError("closed", permanent=permanent, retry_after=7)), event())
    assert caught.value.non_retryable is permanent
    assert caught.value.next_retry_delay == timedelta(seconds=7)


async def test_words_of_other_errors_stay_out_of_history() -> None:
    """Libraries put the address into their errors, and the address is often a secret."""
    with pytest.raises(ApplicationError) as caught:
        await run(Ops(RuntimeError("POST https://hook.example.com/s3cret failed")), event())
    assert "s3cret" not in str(caught.value)
    assert "RuntimeError" in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("given", "words"),
    [({}, "names the notifier 'ops', and the worker has none"), ({"ops": object()}, "no method `notify`")],
)
def test_a_worker_without_its_agents_notifiers_is_a_config_error(given: Json, words: str) -> None:
    """It is told when the worker is built."""
    with pytest.raises(ConfigError, match=words):
        checked(Registry([make_agent(notifiers=["ops"])]), given)
