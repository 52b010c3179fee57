"""The folder driver: what it keeps, and what a forged reference can reach."""

from __future__ import annotations

from pathlib import Path

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    DataConverter,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
)

from turngate.storage import FolderDriver, MissingPayloadError, folder_storage

LARGE = Payload(metadata={"encoding": b"json/plain", "a": b"1", "b": b"2"}, data=b'"' + b"x" * 5000 + b'"')
STORE, RETRIEVE = StorageDriverStoreContext(), StorageDriverRetrieveContext()


def files(folder: Path) -> list[Path]:
    """Everything that lies in the folder."""
    return [path for path in folder.rglob("*") if path.is_file()]


async def test_a_payload_comes_back_and_takes_room_once(tmp_path: Path) -> None:
    """The content is the name."""
    driver = FolderDriver(tmp_path)
    claims = await driver.store(STORE, [LARGE, LARGE])
    assert await driver.retrieve(RETRIEVE, claims) == [LARGE, LARGE]
    assert len(files(tmp_path)) == 1


async def test_another_process_finds_it(tmp_path: Path) -> None:
    """Nothing is kept in memory."""
    claims = await FolderDriver(tmp_path).store(STORE, [LARGE])
    assert await FolderDriver(tmp_path).retrieve(RETRIEVE, claims) == [LARGE]


async def test_the_converter_stores_only_what_is_large(tmp_path: Path) -> None:
    """Both sides have the same storage, and small payloads stay where they are."""
    converter = DataConverter(external_storage=folder_storage(tmp_path, threshold=1000))
    small, large = await converter.encode(["small", "x" * 2000])
    assert small.data == b'"small"'
    assert large.ByteSize() < 1000
    assert await converter.decode([small, large]) == ["small", "x" * 2000]
    assert len(files(tmp_path)) == 1


@pytest.mark.parametrize("name", ["", "../secret", "/etc/passwd", "A" * 64, "0" * 63, "0" * 64 + "\n", "0" * 64])
async def test_a_forged_reference_reaches_nothing(tmp_path: Path, name: str) -> None:
    """A reference comes from outside; only the hash of a stored payload opens a file."""
    (tmp_path / "secret").write_text("secret")
    driver = FolderDriver(tmp_path / "store")
    with pytest.raises(MissingPayloadError):
        await driver.retrieve(RETRIEVE, [StorageDriverClaim({"sha256": name})])


async def test_a_reference_without_a_hash_reaches_nothing(tmp_path: Path) -> None:
    """Another driver's reference under our name is refused too."""
    with pytest.raises(MissingPayloadError):
        await FolderDriver(tmp_path).retrieve(RETRIEVE, [StorageDriverClaim({"key": "value"})])


async def test_a_damaged_file_is_noticed(tmp_path: Path) -> None:
    """What comes back is what was stored, or nothing."""
    driver = FolderDriver(tmp_path)
    claims = await driver.store(STORE, [LARGE])
    files(tmp_path)[0].write_bytes(b"other")
    with pytest.raises(MissingPayloadError, match="damaged"):
        await driver.retrieve(RETRIEVE, claims)


async def test_a_failed_write_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk in the middle of a write leaves no file that looks whole."""

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("turngate.storage.os.replace", full)
    with pytest.raises(OSError, match="no space"):
        await FolderDriver(tmp_path).store(STORE, [LARGE])
    assert files(tmp_path) == []


async def test_a_folder_that_is_gone_is_an_outage(tmp_path: Path) -> None:
    """It may be mounted again: then the task is tried again, and nothing counts as lost."""
    driver = FolderDriver(tmp_path / "store")
    claims = await driver.store(STORE, [LARGE])
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    with pytest.raises(FileNotFoundError):
        await driver.retrieve(RETRIEVE, claims)
