"""Encrypt what Temporal stores: AES-GCM over every payload, with keys that can be changed while turns wait.

The wire form is the one of Temporal's own encryption samples (encoding `binary/encrypted`, the key's id beside it, a
nonce of 12 bytes before the ciphertext), so that their codecs in other languages read it. Not encrypted: ids, names of
workflows, activities and signals, and search attributes; error texts only with
`DefaultFailureConverterWithEncodedAttributes`.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from typing import Self

from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadCodec

from turngate.errors import ConfigError, TurngateError

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
except ImportError as error:
    raise ConfigError("encryption needs a library: run `pip install 'turngate[crypto]'`") from error

ENCODING = b"binary/encrypted"
KEY_ID = "encryption-key-id"
VARIABLE = "TURNGATE_ENCRYPTION_KEYS"
_NONCE = 12
_KEY_SIZES = (16, 24, 32)


class DecryptionError(TurngateError):
    """A payload can't be decrypted: its key is not among ours, or it was changed on the way."""


class EncryptionCodec(PayloadCodec):
    """Encrypt with the first key, decrypt with whichever key was used.

    `keys` maps key ids to 16, 24 or 32 random bytes; the first one encrypts. To change keys, add the new one at the
    end everywhere, then move it to the front everywhere, and take the old one away once no run that was started
    with it is kept any more: a paused turn reads its own history for as long as it lives.

    What is not encrypted passes through `decode` as it is: plain JSON from another client, the UI or the CLI goes on
    working. What is encrypted and can't be read raises DecryptionError; Turngate's workers make a refusal of it.
    The codec hides content from the server; it does not prove who sent something.

    Raises ConfigError for keys that are none.
    """

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        if not isinstance(keys, Mapping) or not keys:
            raise ConfigError("an encryption codec needs at least one key")
        for key_id, key in keys.items():
            if not isinstance(key_id, str) or not isinstance(key, bytes):
                raise ConfigError(f"encryption key {key_id!r}: an id is a text, and a key is bytes")
            if len(key) not in _KEY_SIZES:
                raise ConfigError(f"encryption key {key_id!r} has {len(key)} bytes; AES takes 16, 24 or 32")
        self._ciphers = {key_id.encode(): AESGCM(key) for key_id, key in keys.items()}
        self._active = next(iter(self._ciphers))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read keys from `id:base64` entries with spaces or commas between; the first one encrypts."""
        keys: dict[str, bytes] = {}
        for number, entry in enumerate(text.replace(",", " ").split(), 1):
            key_id, colon, encoded = entry.partition(":")
            # The entry itself is a secret and stays out of the message.
            if not (key_id and colon) or key_id in keys:
                raise ConfigError(f"entry {number} of the encryption keys is not 'id:base64' with an id of its own")
            try:
                keys[key_id] = base64.b64decode(encoded, validate=True)
            except binascii.Error:
                raise ConfigError(f"encryption key {key_id!r} is not base64") from None
        return cls(keys)

    @classmethod
    def from_environment(cls) -> Self | None:
        """Return the codec for the keys in TURNGATE_ENCRYPTION_KEYS, or None where that is not set."""
        text = os.environ.get(VARIABLE, "").strip()
        return cls.parse(text) if text else None

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Encrypt each payload whole, its metadata too."""
        return [self._encrypted(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decrypt what is encrypted. Raises DecryptionError."""
        return [
            self._decrypted(payload) if payload.metadata.get("encoding") == ENCODING else payload
            for payload in payloads
        ]

    def _encrypted(self, payload: Payload) -> Payload:
        nonce = os.urandom(_NONCE)
        data = nonce + self._ciphers[self._active].encrypt(nonce, payload.SerializeToString(), None)
        return Payload(metadata={"encoding": ENCODING, KEY_ID: self._active}, data=data)

    def _decrypted(self, payload: Payload) -> Payload:
        key_id = payload.metadata.get(KEY_ID, b"")
        if (cipher := self._ciphers.get(key_id)) is None:
            name = key_id[:100].decode("utf-8", "replace")
            raise DecryptionError(f"the payload was encrypted with the key {name!r}, which is not among ours")
        try:
            plain = cipher.decrypt(payload.data[:_NONCE], payload.data[_NONCE:], None)
            return Payload.FromString(plain)
        except (InvalidTag, ValueError) as error:
            raise DecryptionError("the payload is damaged, or was encrypted with another key of this id") from error


def new_key() -> str:
    """Return a fresh key for AES-256 in base64, to be put after an id: `k1:...`."""
    return base64.b64encode(os.urandom(32)).decode("ascii")
