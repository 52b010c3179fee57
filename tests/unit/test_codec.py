"""The encryption codec: what it hides, what it lets through, how keys change."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload

from turngate.codec import KEY_ID, DecryptionError, EncryptionCodec, new_key
from turngate.errors import ConfigError
from turngate.tolerant import UNDECODABLE, TolerantCodec

OLD, NEW = b"o" * 32, b"n" * 32
SECRET = Payload(metadata={"encoding": b"json/plain", "extra": b"kept"}, data=b'{"query": "DROP TABLE orders"}')


async def test_a_payload_comes_back_whole() -> None:
    """Metadata and data survive, and nothing of either can be seen in between."""
    codec = EncryptionCodec({"k1": OLD})
    [hidden] = await codec.encode([SECRET])
    assert hidden.metadata == {"encoding": b"binary/encrypted", KEY_ID: b"k1"}
    assert b"DROP" not in hidden.data
    assert b"json" not in hidden.data
    assert await codec.decode([hidden]) == [SECRET]


async def test_the_same_payload_never_looks_the_same() -> None:
    """A nonce of its own hides that two payloads are equal."""
    codec = EncryptionCodec({"k1": OLD})
    first, second = await codec.encode([SECRET, SECRET])
    assert first.data != second.data


async def test_plain_payloads_pass_through_decode() -> None:
    """A client without the codec can still talk to the run."""
    plain = Payload(metadata={"encoding": b"json/plain"}, data=b"{}")
    assert await EncryptionCodec({"k1": OLD}).decode([plain]) == [plain]


async def test_the_first_key_encrypts_and_all_decrypt() -> None:
    """Between adding a key and using it every process reads what any other writes."""
    before, added, moved = (
        EncryptionCodec(keys) for keys in ({"k1": OLD}, {"k1": OLD, "k2": NEW}, {"k2": NEW, "k1": OLD})
    )
    [by_old] = await before.encode([SECRET])
    [by_new] = await moved.encode([SECRET])
    assert by_old.metadata[KEY_ID] == b"k1"
    assert by_new.metadata[KEY_ID] == b"k2"
    assert await added.decode([by_old, by_new]) == [SECRET, SECRET]
    with pytest.raises(DecryptionError, match="'k2', which is not among ours"):
        await before.decode([by_new])


@pytest.mark.parametrize(
    "payload",
    [
        Payload(metadata={"encoding": b"binary/encrypted"}, data=b"x" * 50),
        Payload(metadata={"encoding": b"binary/encrypted", KEY_ID: b"k1"}),
        Payload(metadata={"encoding": b"binary/encrypted", KEY_ID: b"k1"}, data=b"short"),
        Payload(metadata={"encoding": b"binary/encrypted", KEY_ID: b"k1"}, data=b"x" * 100),
        Payload(metadata={"encoding": b"binary/encrypted", KEY_ID: b"\xff" * 5000}, data=b"x" * 100),
    ],
    ids=["no key id", "no data", "too short", "damaged", "a key id of bytes"],
)
async def test_what_cannot_be_read_raises_one_error(payload: Payload) -> None:
    """A forged payload can't raise anything else, and a tolerant worker turns it into a value."""
    codec = EncryptionCodec({"k1": OLD})
    with pytest.raises(DecryptionError):
        await codec.decode([payload])
    [read] = await TolerantCodec(codec).decode([payload])
    assert read.metadata["encoding"] == UNDECODABLE


async def test_a_good_payload_beside_a_bad_one_is_read() -> None:
    """A tolerant worker loses only what can't be read."""
    codec = EncryptionCodec({"k1": OLD})
    [good] = await codec.encode([SECRET])
    bad = Payload(metadata={"encoding": b"binary/encrypted", KEY_ID: b"k9"}, data=b"?")
    read = await TolerantCodec(codec).decode([bad, good])
    assert [one.metadata["encoding"] for one in read] == [UNDECODABLE, b"json/plain"]


async def test_keys_are_read_from_text() -> None:
    """Commas and spaces may stand between, and the first key encrypts."""
    codec = EncryptionCodec.parse(f" k2:{new_key()}, k1:{base64.b64encode(OLD).decode()}\n")
    [hidden] = await codec.encode([SECRET])
    assert hidden.metadata[KEY_ID] == b"k2"
    assert await codec.decode(await EncryptionCodec({"k1": OLD}).encode([SECRET])) == [SECRET]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "at least one key"),
        ("c2VjcmV0", "entry 1"),
        ("k1:AAAA k1:AAAA", "entry 2"),
        ("k1:not*base64", "'k1' is not base64"),
        ("k1:c2VjcmV0", "6 bytes"),
    ],
)
def test_bad_keys_are_named_but_not_shown(text: str, says: str) -> None:
    """A key never ends up in a log by way of an error."""
    with pytest.raises(ConfigError, match=says) as caught:
        EncryptionCodec.parse(text)
    assert "c2VjcmV0" not in str(caught.value)


@pytest.mark.parametrize("keys", [{"k1": "x" * 32}, {1: b"x" * 32}, [("k1", b"x" * 32)]])
def test_keys_of_another_kind_are_refused_by_name(keys: Any) -> None:
    """The likeliest: base64 where its bytes are wanted."""
    with pytest.raises(ConfigError, match="key"):
        EncryptionCodec(keys)


def test_the_environment_brings_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the variable there is no codec."""
    monkeypatch.delenv("TURNGATE_ENCRYPTION_KEYS", raising=False)
    assert EncryptionCodec.from_environment() is None
    monkeypatch.setenv("TURNGATE_ENCRYPTION_KEYS", f"k1:{new_key()}")
    assert isinstance(EncryptionCodec.from_environment(), EncryptionCodec)
