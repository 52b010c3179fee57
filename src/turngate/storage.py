"""Keep large payloads in a folder, for development and tests: a driver for `temporalio`'s external storage.

For production use a driver for shared storage, such as the SDK's for S3 (`temporalio.contrib.aws.s3driver`): every
client and every worker must see the same files. Nothing here is ever deleted.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    ExternalStorage,
    StorageDriver,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
)

from turngate.contracts import KIB
from turngate.errors import TurngateError

_NAME = re.compile(r"[0-9a-f]{64}")


class MissingPayloadError(TurngateError):
    """A payload is not, or not whole, in the storage folder that its reference names."""


def folder_storage(folder: str | Path, *, threshold: int = 256 * KIB) -> ExternalStorage:
    """Return external storage in `folder` for payloads from `threshold` bytes on.

    Give it to both sides: `dataclasses.replace(data_converter, external_storage=folder_storage(...))`.
    """
    return ExternalStorage(drivers=[FolderDriver(folder)], payload_size_threshold=threshold)


class FolderDriver(StorageDriver):
    """Store each payload under the hash of its content: the same payload takes room once, and a file never changes.

    With an encrypting codec in front the same payload never looks the same twice.
    """

    def __init__(self, folder: str | Path, *, name: str = "turngate-folder") -> None:
        self._folder = Path(folder).absolute()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._driver_name = name

    def name(self) -> str:
        """Return the name that references carry: the same on every client and worker."""
        return self._driver_name

    def type(self) -> str:
        """Return the name of this kind of driver."""
        return "turngate.local-folder"

    async def store(self, context: StorageDriverStoreContext, payloads: Sequence[Payload]) -> list[StorageDriverClaim]:
        """Write the payloads. Raises OSError where the folder can't be written; Temporal tries again."""
        return [await asyncio.to_thread(self._write, payload) for payload in payloads]

    async def retrieve(
        self, context: StorageDriverRetrieveContext, claims: Sequence[StorageDriverClaim]
    ) -> list[Payload]:
        """Read payloads back. Raises MissingPayloadError for what is not there, OSError where reading fails."""
        return [await asyncio.to_thread(self._read, claim) for claim in claims]

    def _write(self, payload: Payload) -> StorageDriverClaim:
        content = payload.SerializeToString(deterministic=True)
        digest = hashlib.sha256(content).hexdigest()
        path = self._path(digest)
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            _write_whole(path, content)
        return StorageDriverClaim({"sha256": digest})

    def _read(self, claim: StorageDriverClaim) -> Payload:
        digest = claim.claim_data.get("sha256", "")
        # A reference comes from outside: whatever is no hash could lead out of the folder.
        if not _NAME.fullmatch(digest):
            raise MissingPayloadError("the reference names no payload of this storage")
        try:
            content = self._path(digest).read_bytes()
        except FileNotFoundError:
            if not self._folder.is_dir():
                raise  # not mounted, perhaps: that heals
            raise MissingPayloadError(f"the payload {digest} is not in {self._folder}") from None
        if hashlib.sha256(content).hexdigest() != digest:
            raise MissingPayloadError(f"the payload {digest} in {self._folder} is damaged")
        return Payload.FromString(content)

    def _path(self, digest: str) -> Path:
        return self._folder / digest[:2] / digest


def _write_whole(path: Path, content: bytes) -> None:
    """Write a file so that nobody ever sees a part of it."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
