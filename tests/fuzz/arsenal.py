"""What attackers, typos and other people's programs might send, made from a seed.

Nothing in here may ever be a good decision: every message is one that the run has to refuse.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

from temporalio.api.common.v1 import Payload

from tests.fuzz.sending import Channel, Shot

Json = dict[str, Any]

DEEP = 20_000
_REFERENCE = {"encoding": b"json/protobuf", "messageType": b"temporal.api.sdk.v1.ExternalStorageReference"}
_TYPES = (
    b"google.protobuf.Struct",
    b"google.protobuf.Any",
    b"google.protobuf.Duration",
    b"temporal.api.common.v1.Payload",
    b"temporal.api.common.v1.Payloads",
    b"temporal.api.sdk.v1.ExternalStorageReference",
    b"temporal.api.failure.v1.Failure",
    b"no.such.Type",
    b"\xff\xfe",
    b"",
)
_ENCODINGS = (
    b"json/plain",
    b"json/protobuf",
    b"json/external-storage-reference",
    b"binary/null",
    b"binary/plain",
    b"binary/protobuf",
    b"binary/encrypted",
    b"binary/undecodable",
    b"binary/zlib",
    b"JSON/PLAIN",
    b"",
    b"\xff",
    b"x" * 5000,
)
_TEXTS = (
    "",
    "x",
    "\x00",
    "\ud7ff",
    "é" * 500,
    "'; DROP TABLE",
    "{{7*7}}",
    "\u202e",
    "null",
    "🐍" * 50,
    "../..",
    "a" * 3000,
)
_NUMBERS = (0, -1, 1, 2**31, 2**63, 10**30, -(10**300), 0.1, -0.0, 1e308, 5e-324, True, False, None)
_UPDATES = ("decide", "stop", "reassign", "revoke_rule", "send", "close", "nothing", "__temporal_x", "a" * 900)
_SIGNALS = (
    "decide",
    "decide",
    "stop",
    "revoke_rule",
    "approve",
    "Decide",
    "decide ",
    "__temporal_x",
    "é\x00\n",
    "a" * 900,
)
_QUERIES = ("pending", "approvals", "messages", "status", "rules", "refused", "call_args", "__stack_trace", "nothing")


class Arsenal:
    """Makes messages for one run; `approval` is one that waits there."""

    def __init__(self, seed: int, approval: Json) -> None:
        self._random = random.Random(seed)
        self._approval = approval

    def shots(self, count: int) -> list[Shot]:
        """Return so many messages; every twentieth is large."""
        return [self.large() if number % 20 == 19 else self.shot() for number in range(count)]

    def shot(self) -> Shot:
        """Return one message to a run."""
        channel: Channel = self._random.choice(("signal", "signal", "update", "update", "query"))
        name = self._name(channel)
        label, payloads = self._payloads(name)
        return Shot(label, channel, name, payloads, headers=self._headers())

    def large(self) -> Shot:
        """Return a message over our limit, over the server's for one payload, or just below that of gRPC."""
        size = self._random.choice((300_000, 300_000, 2_100_000, 3_900_000))
        channel: Channel = self._random.choice(("signal", "update"))
        body = {**self._wrong(), "comment": "x" * size}
        return Shot(f"{size} bytes", channel, self._random.choice(("decide", "nothing", "stop")), [plain(body)])

    def start(self) -> Shot:
        """Return the start of a run that can't become a turn, or that becomes one in spite of what comes with it."""
        name = self._random.choice(("AgentTurn", "AgentTurn", "AgentThread"))
        label, payloads = self._random.choice((self._bad_start, self._bad_start, self._good_start))()
        extra = {"memo": {"m": self._raw()}, "headers": self._headers(), "summary": self._raw()}
        kept = {key: value for key, value in extra.items() if self._random.random() < 0.3}
        return Shot(label, "start", name, payloads, **kept)

    # --- Names and arguments ---------------------------------------------------------------------------------------

    def _name(self, channel: Channel) -> str:
        return self._random.choice({"signal": _SIGNALS, "update": _UPDATES}.get(channel, _QUERIES))

    def _payloads(self, name: str) -> tuple[str, list[Payload]]:
        makers: Sequence[Callable[[str], tuple[str, list[Payload]]]] = (
            self._nearly,
            self._nearly,
            self._any_value,
            self._broken_text,
            self._broken_bytes,
            self._odd_payload,
            self._arity,
        )
        return self._random.choice(makers)(name)

    def _nearly(self, name: str) -> tuple[str, list[Payload]]:
        """A decision about the real approval that is wrong in one way."""
        label, value = self._random.choice(list(self._near_misses().items()))
        if self._random.random() < 0.2:
            return f"{label}, quoted", [plain(json.dumps(value))]
        return label, [plain(value)]

    def _any_value(self, name: str) -> tuple[str, list[Payload]]:
        return "any value", [plain(_harmless(self._value(4)))]

    def _broken_text(self, name: str) -> tuple[str, list[Payload]]:
        label, text = self._random.choice(list(_broken_texts().items()))
        return label, [Payload(metadata={"encoding": b"json/plain"}, data=text)]

    def _broken_bytes(self, name: str) -> tuple[str, list[Payload]]:
        """A wrong decision with some bytes changed: two faults in it, so that no change makes it right."""
        data = bytearray(json.dumps(self._wrong()).encode())
        for _ in range(self._random.randint(1, 4)):
            place = self._random.randrange(len(data))
            if self._random.random() < 0.5:
                data[place] = self._random.randrange(256)
            else:
                del data[place]
        return "changed bytes", [Payload(metadata={"encoding": b"json/plain"}, data=bytes(data))]

    def _odd_payload(self, name: str) -> tuple[str, list[Payload]]:
        return "odd payload", [self._raw()]

    def _arity(self, name: str) -> tuple[str, list[Payload]]:
        count = self._random.choice((0, 2, 3, 50))
        return f"{count} arguments", [self._random.choice((plain(self._wrong()), self._raw())) for _ in range(count)]

    def _headers(self) -> dict[str, Payload]:
        return {"h": self._raw(), "": self._raw()} if self._random.random() < 0.1 else {}

    # --- Parts -------------------------------------------------------------------------------------------------------

    def _wrong(self) -> Json:
        return {"approval_id": self._approval["id"], "type": "approve", "digest": "0" * 16, "x": 1}

    def _near_misses(self) -> Json:
        mine = self._approval["id"]
        run = mine.rpartition("/")[0]
        base = {"approval_id": mine, "type": "approve", "reviewer": "alice", "digest": self._approval["digest"]}
        edit = {**base, "type": "edit"}
        nest: Any = 1
        for _ in range(300):
            nest = [nest]
        return {
            "wrong digest": {**base, "digest": "f" * 16},
            "digest is a number": {**base, "digest": 1},
            "long digest": {**base, "digest": "f" * 1000},
            "unknown id": {**base, "approval_id": f"{run}/zzzzzz-9"},
            "id to come, no digest": {"approval_id": f"{mine}9", "type": "approve"},
            "id of a list": {**base, "approval_id": [mine]},
            "empty id": {**base, "approval_id": ""},
            "no type": {"approval_id": mine},
            "unknown type": {**base, "type": "allow"},
            "type of an object": {**base, "type": {"approve": True}},
            "long reviewer": {**base, "reviewer": "r" * 300},
            "reviewer of a number": {**base, "reviewer": 7},
            "long comment": {**base, "comment": "c" * 9000},
            "unknown field": {**base, "k" * 5000: 1},
            "many unknown fields": {**base, **{f"k{number}": None or number for number in range(3000)}},
            "edit without action": edit,
            "edit of another tool": {**edit, "edited_action": {"name": "no_such_tool", "args": {}}},
            "edit that does not fit": {**edit, "edited_action": {"name": "pay", "args": {"amount": "much"}}},
            "edit with a huge number": {
                **edit,
                "edited_action": {"name": "pay", "args": {"amount": 10**4000 + 1, "b": 1}},
            },
            "edit with many fields": {**edit, "args": {f"a{number}": number for number in range(5000)}},
            "edit nested deep": {**edit, "args": {"amount": nest}},
            "both spellings": {**edit, "args": {"amount": 1}, "edited_action": {"name": "pay", "args": {"amount": 1}}},
            "respond without message": {**base, "type": "respond"},
            "answer without a value": {**base, "type": "answer"},
            "remember for ever": {**base, "remember": {"scope": "turn", "match": "tool", "expires_in": 1e300}},
            "remember a huge integer": {**base, "remember": {"scope": "turn", "match": "tool", "expires_in": 10**400}},
            "remember backwards": {**base, "remember": {"scope": "turn", "match": "tool", "expires_in": "-5d"}},
            "no decisions": {"decisions": []},
            "decisions of an object": {"decisions": {mine: {"type": "approve"}}},
            "the same twice": {"decisions": [base, base]},
            "one good, one unknown": {"decisions": [base, {"approval_id": "nobody/1-1", "type": "approve"}]},
            "one good, one without id": {"decisions": [base, {"type": "approve"}]},
            "too many": {"decisions": [{"approval_id": f"a/b-{number}", "type": "reject"} for number in range(3000)]},
            "a map with the id twice": {mine: {"approval_id": mine, "type": "approve"}},
            "a map with an unknown id": {mine: {"type": "approve"}, "nobody/1-1": {"type": "approve"}},
            "shared reviewer of a list": {"decisions": [base], "reviewer": ["alice"]},
            "reviewer in both places": {"decisions": [base], "reviewer": "bob"},
            "reassign to nobody": {"approval_id": mine, "reviewers": []},
            "reassign to numbers": {"approval_id": mine, "reviewers": [1, 2]},
            "reassign to a crowd": {"approval_id": mine, "reviewers": [f"r{number}" for number in range(5000)]},
            "a rule that is none": {"rule_id": "none"},
            "a rule of any shape": {"tool": {"a": [1]}, "rule_id": None},
        }

    def _value(self, depth: int) -> Any:
        kind = self._random.randrange(6 if depth else 3)
        if kind < 2:
            return self._random.choice(_TEXTS)
        if kind == 2:
            return self._random.choice(_NUMBERS)
        if kind == 3:
            return [self._value(depth - 1) for _ in range(self._random.randrange(6))]
        return {self._key(): self._value(depth - 1) for _ in range(self._random.randrange(6))}

    def _key(self) -> str:
        known = ("approval_id", "type", "decisions", "reviewer", "edited_action", "args", "start", "limit", "number")
        return self._random.choice((*known, *_TEXTS))

    def _raw(self) -> Payload:
        """A payload that is no JSON, or says so."""
        encoding = self._random.choice(_ENCODINGS)
        metadata = {"encoding": encoding}
        if self._random.random() < 0.4:
            metadata["messageType"] = self._random.choice(_TYPES)
        if self._random.random() < 0.2:
            metadata = dict(_REFERENCE)
        if self._random.random() < 0.1:
            metadata["__temporal_external_storage_reference"] = b"true"
        if self._random.random() < 0.1:
            metadata["encryption-key-id"] = self._random.choice((b"k1", b"nobody", b"\xff" * 100))
        if self._random.random() < 0.05:
            metadata |= {f"m{number}": b"x" for number in range(2000)}
        data = self._random.choice(
            (
                b"",
                b"[1, 2]",
                b"\xff\x00\xfe",
                b'{"driverName": "nobody", "claimData": {"a": "b"}}',
                b'{"a":' * DEEP,
                self._random.randbytes(self._random.randrange(200)),
            )
        )
        return Payload(metadata=metadata, data=data)

    # --- Starts ------------------------------------------------------------------------------------------------------

    def _good_start(self) -> tuple[str, list[Payload]]:
        return "good start", [plain({"agent": "main", "input": "go"})]

    def _bad_start(self) -> tuple[str, list[Payload]]:
        label, value = self._random.choice(list(_bad_starts().items()))
        return self._random.choice(
            ((label, [plain(value)]), self._odd_payload(""), self._broken_text(""), self._arity(""))
        )


def plain(value: Any) -> Payload:
    """Return the payload that every Temporal client makes of JSON."""
    data = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return Payload(metadata={"encoding": b"json/plain"}, data=data)


def _harmless(value: Any) -> Any:
    """Keep any value from being a good `stop`, which is any object with nothing unknown in it."""
    return {**value, "🐍": 1} if isinstance(value, dict) else value


def _broken_texts() -> dict[str, bytes]:
    keys = ",".join(f'"{number:x}":1' for number in range(20_000))
    return {
        "nothing": b"",
        "white space": b" \n\t",
        "null": b"null",
        "half an object": b'{"approval_id":',
        "two values": b"{} {}",
        "a comment": b"{} // yes",
        "single quotes": b"{'type': 'approve'}",
        "a byte order mark": b'\xef\xbb\xbf{"a": 1}',
        "UTF-16": '{"a": 1}'.encode("utf-16"),
        "no UTF-8": b'{"a": "\xff\xfe"}',
        "half a character": b'{"type": "approve", "comment": "\\ud800"}',
        "half a character as a key": b'{"\\udfff": 1}',
        "NaN": b'{"a": NaN}',
        "Infinity": b'{"a": -Infinity}',
        "too large a number": b'{"a": 1e999}',
        "5,000 digits": b'{"a": ' + b"9" * 5000 + b"}",
        "many numbers that grow": b'{"a": [' + b"1e15," * 50_000 + b"1]}",
        "lists nested deep": b"[" * DEEP + b"]" * DEEP,
        "objects nested deep": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
        "quoted five times": _quoted({"a": 1}, 5),
        "the same key twice": b'{"type": "approve", "type": "reject"}',
        "the last of 20,000 keys twice": f'{{{keys},"4e1f":2}}'.encode(),
        "80,000 objects": b'{"decisions": [' + b"{}," * 80_000 + b"{}]}",
        "24,000 ids": ("{" + ",".join(f'"{number:x}":{{}}' for number in range(24_000)) + "}").encode(),
        "120,000 numbers": b"[" + b"1," * 120_000 + b"1]",
    }


def _quoted(value: Any, times: int) -> bytes:
    for _ in range(times):
        value = json.dumps(value)
    return json.dumps(value).encode()


def _bad_starts() -> Json:
    go = {"agent": "main", "input": "go"}
    many: list[Any] = [{"type": "tool", "tool_call_id": "x" * 50, "content": ""}] * 10_000
    return {
        "no agent": {"input": "go"},
        "no input": {"agent": "main"},
        "input and messages": {**go, "messages": [{"type": "human", "content": "go"}]},
        "no messages": {"agent": "main", "messages": []},
        "unknown agent": {"agent": "nobody", "input": "go"},
        "agent of zeros": {"agent": "\x00", "input": "go"},
        "unknown field": {**go, "x" * 5000: 1},
        "context of 1.9 MB": {**go, "context": {"a": "x" * 1_900_000}},
        "metadata of 100 kB": {**go, "metadata": {"a": "x" * 100_000}},
        "review_also of numbers": {**go, "review_also": [1]},
        "carried from nowhere": {"turngate": 1, "carried": "c" * 1000},
        "messages of numbers": {"agent": "main", "messages": [1, 2]},
        "messages without type": {"agent": "main", "messages": [{}]},
        "messages of odd types": {"agent": "main", "messages": [{"type": ["ai"], "content": "x"}]},
        "calls of a number": {"agent": "main", "messages": [{"type": "ai", "tool_calls": 5, "content": ""}]},
        "calls of texts": {"agent": "main", "messages": [{"type": "ai", "tool_calls": ["a"], "content": ""}]},
        "content of numbers": {"agent": "main", "messages": [{"type": "human", "content": [5, None]}]},
        "500,000 messages": {"agent": "main", "messages": [{}] * 500_000},
        "10,000 results of nothing": {"agent": "main", "messages": many},
    }
