"""The codec server as a browser meets it: real HTTP, real encryption."""

from __future__ import annotations

import base64
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from turngate.codec import EncryptionCodec, new_key
from turngate.codec_server import CodecServer
from turngate.errors import ConfigError, ServerError

UI = "http://127.0.0.1:8233"
PLAIN = {"payloads": [{"metadata": {"encoding": base64.b64encode(b"json/plain").decode()}, "data": "MQ=="}]}


@pytest.fixture
def server() -> Iterator[CodecServer]:
    with CodecServer(EncryptionCodec.parse(f"k1:{new_key()}"), origins=[UI], port=0, token="s3cret") as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


def ask(server: CodecServer, path: str, body: Any = None, method: str = "POST", **headers: str) -> tuple[int, Any, Any]:
    """Return status, headers and JSON of an answer."""
    sent = {"Authorization": "Bearer s3cret", "Origin": UI, **headers}
    data = json.dumps(body).encode() if body is not None else b""
    request = urllib.request.Request(server.url + path, data, sent, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.headers, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        return error.code, error.headers, None


def test_what_was_encrypted_comes_back(server: CodecServer) -> None:
    """With and without the namespace in the path, and the UI's question mark behind it."""
    _, _, encrypted = ask(server, "/default/encode", PLAIN)
    assert encrypted["payloads"][0]["data"] != "MQ=="
    status, headers, decoded = ask(server, "/decode?preserveStorageRefs=true", encrypted)
    assert (status, decoded) == (200, PLAIN)
    assert headers["Access-Control-Allow-Origin"] == UI


def test_what_can_not_be_decoded_stays_as_it_is(server: CodecServer) -> None:
    """One payload of another key does not hide the others."""
    _, _, encrypted = ask(server, "/encode", PLAIN)
    foreign = json.loads(json.dumps(encrypted["payloads"][0]))
    foreign["metadata"]["encryption-key-id"] = base64.b64encode(b"k9").decode()
    _, _, decoded = ask(server, "/decode", {"payloads": [foreign, encrypted["payloads"][0]]})
    assert decoded["payloads"] == [foreign, PLAIN["payloads"][0]]


def test_only_the_ui_and_only_with_the_token(server: CodecServer) -> None:
    """A page of another origin gets no permission, and nobody gets anything without the token."""
    status, headers, _ = ask(server, "/decode", method="OPTIONS")
    assert (status, headers["Access-Control-Allow-Headers"]) == (204, "content-type,x-namespace,authorization")
    assert ask(server, "/decode", method="OPTIONS", Origin="http://evil.test")[1]["Access-Control-Allow-Origin"] is None
    assert ask(server, "/decode", PLAIN, Authorization="Bearer guess")[0] == 401
    assert ask(server, "/other", PLAIN)[0] == 404
    assert ask(server, "/decode", {"payloads": 5})[0] == 400


def test_what_makes_no_sense_is_said(server: CodecServer) -> None:
    """No open server for everybody, and a port in use is named."""
    codec = EncryptionCodec.parse(f"k1:{new_key()}")
    with pytest.raises(ConfigError, match="token"):
        CodecServer(codec, host="0.0.0.0")
    with pytest.raises(ServerError, match="port"):
        CodecServer(codec, port=server.server_address[1])
