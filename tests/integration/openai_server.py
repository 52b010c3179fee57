"""A small server that speaks OpenAI's chat completions: scripted, as strict about conversations as the real one.

It answers whole or streamed, as the request asks, and keeps what it was sent.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

Json = dict[str, Any]
USAGE = {"prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30}


@dataclass(frozen=True)
class Says:
    """An answer: text and tool calls, each as (id, name, arguments); arguments as text go out as they are."""

    text: str | None = None
    calls: tuple[tuple[str, str, Any], ...] = ()


@dataclass(frozen=True)
class Fails:
    """An HTTP error with OpenAI's error object."""

    status: int
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)


class OpenAIServer:
    """Serves the script while the `with` block lasts, at `base_url`. `requests` holds the bodies that came in."""

    def __init__(self, script: Iterable[Says | Fails]) -> None:
        self.requests: list[Json] = []
        self.problems: list[str] = []
        self._script = list(script)
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,))

    @property
    def base_url(self) -> str:
        """What `base_url` of a client, or OPENAI_BASE_URL, is set to."""
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def sent(self, request: int) -> list[Json]:
        """Return the messages of a request."""
        messages: list[Json] = self.requests[request]["messages"]
        return messages

    def next(self, body: Json) -> Says | Fails:
        """Return the next entry of the script, or the refusal that a conversation deserves."""
        with self._lock:
            self.requests.append(body)
            problem = problem_of(body["messages"])
            if problem is None and len(self.requests) > len(self._script):
                problem = "the script has no more answers"
            if problem is not None:
                self.problems.append(problem)
                return Fails(400, problem)
            return self._script[len(self.requests) - 1]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path != "/v1/chat/completions":
                    answer: Says | Fails = Fails(404, f"unknown path {self.path}")
                else:
                    answer = server.next(body)
                if isinstance(answer, Fails):
                    error = {"message": answer.message, "type": "error", "param": None, "code": None}
                    self._send(answer.status, json.dumps({"error": error}), "application/json", answer.headers)
                elif body.get("stream"):
                    events = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks(answer, body))
                    self._send(200, f"{events}data: [DONE]\n\n", "text/event-stream")
                else:
                    self._send(200, json.dumps(whole(answer, body)), "application/json")

            def _send(self, status: int, text: str, kind: str, headers: Mapping[str, str] | None = None) -> None:
                data = text.encode()
                self.send_response(status)
                for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **(headers or {})}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: Any) -> None:
                """Say nothing."""

        return Handler


def problem_of(messages: list[Json]) -> str | None:
    """Return what OpenAI would refuse a conversation for: every call is answered, right after it, and nothing else."""
    open_calls: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_calls:
                return f"a tool message answers {message['tool_call_id']!r}, which is no open call"
            open_calls.remove(message["tool_call_id"])
        elif open_calls:
            return f"tool calls without a tool message: {open_calls}"
        open_calls += [call["id"] for call in message.get("tool_calls") or []]
    return f"tool calls without a tool message: {open_calls}" if open_calls else None


def whole(answer: Says, body: Json) -> Json:
    """Return a chat completion."""
    message: Json = {"role": "assistant", "content": answer.text, "refusal": None}
    if answer.calls:
        message["tool_calls"] = [_call(*call) for call in answer.calls]
    choice = {"index": 0, "message": message, "finish_reason": _reason(answer), "logprobs": None}
    return {**_head(body, "chat.completion"), "choices": [choice], "usage": USAGE}


def chunks(answer: Says, body: Json) -> Iterator[Json]:
    """Return the pieces of a streamed chat completion: word by word, arguments in two halves."""
    head = _head(body, "chat.completion.chunk")

    def piece(delta: Json, reason: str | None = None) -> Json:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}]}

    yield piece({"role": "assistant", "content": "" if answer.text else None})
    for word in (answer.text or "").split(" ") if answer.text else []:
        yield piece({"content": f"{word} "})
    for index, call in enumerate(answer.calls):
        full = _call(*call)
        arguments = full["function"]["arguments"]
        yield piece({"tool_calls": [{"index": index, **full, "function": {**full["function"], "arguments": ""}}]})
        for half in (arguments[: len(arguments) // 2], arguments[len(arguments) // 2 :]):
            yield piece({"tool_calls": [{"index": index, "function": {"arguments": half}}]})
    yield piece({}, _reason(answer))
    if (body.get("stream_options") or {}).get("include_usage"):
        yield {**head, "choices": [], "usage": USAGE}


def _head(body: Json, kind: str) -> Json:
    return {"id": "chatcmpl-1", "object": kind, "created": 1735689600, "model": body["model"]}


def _call(call_id: str, name: str, arguments: Any) -> Json:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


def _reason(answer: Says) -> str:
    return "tool_calls" if answer.calls else "stop"
