"""A codec server: lets the Temporal UI and the `temporal` program show payloads that were encrypted.

The browser of whoever looks sends the payloads here and gets them back readable; Temporal's server never does. So it
belongs where only reviewers reach it, and beyond this machine it wants a token.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import sys
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from google.protobuf.json_format import MessageToJson, Parse, ParseError
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.converter import PayloadCodec

from turngate.contracts import KIB
from turngate.errors import ConfigError, ServerError, TurngateError

logger = logging.getLogger(__name__)

BODY_LIMIT = 16 * 1024 * KIB
_LOCAL = ("127.0.0.1", "::1", "localhost")


class CodecServer(ThreadingHTTPServer):
    """Serve `codec` to browsers of these `origins` (the UI's addresses, exactly as the browser shows them).

    POST `/decode` and `/encode`, each also under `/{namespace}`, as the UI and the `temporal` program ask.
    With `token` every request must carry it (`Authorization: Bearer ...`). `port` 0 takes a free one.
    Raises ConfigError without a token on an address that others reach, ServerError for a port in use.
    """

    daemon_threads = True

    def __init__(
        self,
        codec: PayloadCodec,
        *,
        origins: Sequence[str] = ("http://localhost:8233", "http://127.0.0.1:8233"),
        host: str = "127.0.0.1",
        port: int = 8234,
        token: str | None = None,
    ) -> None:
        if host not in _LOCAL and not token:
            raise ConfigError(f"a codec server on {host} shows everything to everybody: give it a token, or 127.0.0.1")
        self.codec, self.origins, self.token = codec, tuple(origins), token
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise ServerError(f"port {port} can't be used ({error.strerror}): choose another one") from error

    @property
    def url(self) -> str:
        """The address to give to the UI, as its codec endpoint."""
        return f"http://{self.server_address[0]!s}:{self.server_address[1]}"

    def convert(self, way: str, payloads: Payloads) -> Payloads:
        """Encode or decode each payload; one that can't be decoded stays as it is."""
        return Payloads(payloads=[asyncio.run(self._one(way, payload)) for payload in payloads.payloads])

    async def _one(self, way: str, payload: Payload) -> Payload:
        try:
            work = self.codec.encode if way == "encode" else self.codec.decode
            return (await work([payload]))[0]
        except TurngateError as error:
            logger.warning("%s", error)
            return payload

    def handle_error(self, request: object, client_address: object) -> None:
        """Log what broke a connection, without its content."""
        logger.warning("codec request failed: %s", sys.exc_info()[0])


class _Handler(BaseHTTPRequestHandler):
    server: CodecServer
    protocol_version = "HTTP/1.1"

    def do_OPTIONS(self) -> None:
        self._answer(204)

    def do_POST(self) -> None:
        way = self.path.partition("?")[0].rpartition("/")[2]
        size = int(self.headers.get("content-length") or 0)
        if size > BODY_LIMIT:
            self.close_connection = True
            return self._answer(413)
        body = self.rfile.read(size)
        if way not in ("decode", "encode"):
            return self._answer(404)
        if not self._allowed():
            return self._answer(401)
        try:
            payloads = Parse(body.decode(), Payloads())
        except (ParseError, UnicodeDecodeError):
            return self._answer(400)
        return self._answer(200, MessageToJson(self.server.convert(way, payloads)).encode())

    def _allowed(self) -> bool:
        token = self.server.token
        given = self.headers.get("authorization", "")
        return token is None or hmac.compare_digest(given.encode(), f"Bearer {token}".encode())

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        origin = self.headers.get("origin", "")
        if origin in self.server.origins:
            self.send_header("Access-Control-Allow-Origin", origin)
            self.send_header("Access-Control-Allow-Methods", "POST,OPTIONS")
            self.send_header("Access-Control-Allow-Headers", "content-type,x-namespace,authorization")
            self.send_header("Access-Control-Allow-Credentials", "true")
            self.send_header("Access-Control-Allow-Private-Network", "true")
            self.send_header("Vary", "Origin")
        if status != 204:
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Keep quiet: one page of the UI asks dozens of times."""
