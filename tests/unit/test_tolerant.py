"""What clients send is decoded without raising, and nothing else is glossed over."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import (
    ActivitySerializationContext,
    DataConverter,
    PayloadCodec,
    SerializationContext,
    WithSerializationContext,
    WorkflowSerializationContext,
)

from turngate.storage import folder_storage
from turngate.tolerant import UNDECODABLE, TolerantCodec, composed, tolerant

MARK = "__temporal_external_storage_reference"
GOOD = Payload(metadata={"encoding": b"json/plain"}, data=b'{"b": 1, "a": 2}')
BAD = Payload(metadata={"encoding": b"binary/encrypted"}, data=b"forged")
WORKFLOW = WorkflowSerializationContext(namespace="default", workflow_id="turn-1")
ACTIVITY = ActivitySerializationContext("default", "1", "call_tool", "turngate", "turn-1", "AgentTurn", False)


class Codec(PayloadCodec, WithSerializationContext):
    """Decodes everything but `BAD`, for which it raises `error`."""

    def __init__(self, error: Exception | None = None, context: SerializationContext | None = None) -> None:
        self.error = error or ValueError("wrong key")
        self.context = context

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return list(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        if BAD in payloads:
            raise self.error
        return list(payloads)

    def with_context(self, context: SerializationContext) -> Self:
        return type(self)(self.error, context)


async def test_undecodable_payload_is_marked_and_its_neighbours_survive() -> None:
    """One forged payload does not take the good ones with it."""
    decoded = await TolerantCodec(Codec()).decode([GOOD, BAD])
    assert decoded[0] == GOOD
    assert decoded[1].metadata["encoding"] == UNDECODABLE
    assert decoded[1].data == b"ValueError"


@pytest.mark.parametrize("error", [ConnectionError("no route"), TimeoutError()])
async def test_outage_still_raises(error: Exception) -> None:
    """While the key server is down the task is tried again: guessing would break a later replay."""
    with pytest.raises(type(error)):
        await TolerantCodec(Codec(error)).decode([BAD])


async def test_outage_behind_another_error_still_raises() -> None:
    """Libraries wrap the connection error in their own; the chain of causes tells."""
    wrapped = RuntimeError("kms failed")
    wrapped.__cause__ = ConnectionRefusedError()
    with pytest.raises(RuntimeError, match="kms failed"):
        await TolerantCodec(Codec(wrapped)).decode([BAD])


async def test_activity_results_are_never_glossed_over() -> None:
    """What our own activities sent must not turn into something else."""
    with pytest.raises(ValueError, match="wrong key"):
        await TolerantCodec(Codec()).with_context(ACTIVITY).decode([BAD])
    assert len(await TolerantCodec(Codec()).with_context(WORKFLOW).decode([BAD])) == 1


def test_context_reaches_the_codec() -> None:
    """A codec with a key per workflow still gets its workflow."""
    wrapped = TolerantCodec(Codec()).with_context(WORKFLOW)
    assert isinstance(wrapped._inner, Codec)
    assert wrapped._inner.context == WORKFLOW


def test_values_without_hints_stay_raw_where_they_cannot_be_read() -> None:
    """With a wrong number of arguments there are no type hints, and a malformed one must not raise."""
    converter = tolerant(DataConverter()).payload_converter
    values = converter.from_payloads([GOOD, BAD, Payload(metadata={"encoding": b"json/plain"}, data=b"{")])
    assert values[0] == {"a": 2, "b": 1}
    assert [type(value) for value in values[1:]] == [RawValue, RawValue]


def test_values_with_hints_still_raise() -> None:
    """Where the type is known, an error is an error."""
    converter = tolerant(DataConverter()).payload_converter
    with pytest.raises(KeyError):
        converter.from_payloads([BAD], [dict])


def test_default_converter_gives_way_to_one_that_keeps_the_order() -> None:
    """The SDK's default sorts keys; codec and the rest of the converter stay."""
    codec = Codec()
    converter = composed(DataConverter(payload_codec=codec))
    assert converter.payload_codec is codec
    assert issubclass(converter.payload_converter_class, PydanticPayloadConverter)
    [payload] = converter.payload_converter.to_payloads([{"b": 1, "a": 2}])
    assert payload.data == b'{"b":1,"a":2}'


def test_own_converter_stays() -> None:
    """A converter that the user chose is kept, and only wrapped."""

    class Own(PydanticPayloadConverter):
        pass

    converter = tolerant(composed(DataConverter(payload_converter_class=Own)))
    assert issubclass(converter.payload_converter_class, Own)


def test_wrapping_twice_changes_nothing() -> None:
    """A plugin on client and worker wraps once."""
    once = tolerant(DataConverter(payload_codec=Codec()))
    twice = tolerant(once)
    assert twice.payload_codec is once.payload_codec
    assert twice.payload_converter_class is once.payload_converter_class


def reference(**changes: bytes) -> Payload:
    """Return what says it lies in external storage; `changes` are metadata, and `data`."""
    data = changes.pop("data", b'{"driverName": "nobody", "claimData": {"sha256": "00"}}')
    metadata = {"encoding": b"json/protobuf", "messageType": b"temporal.api.sdk.v1.ExternalStorageReference"}
    return Payload(metadata={**metadata, **changes}, data=data)


FORGED = {
    "an unknown driver": reference(),
    "no JSON": reference(data=b"{"),
    "nested too deep": reference(data=b'{"claimData":' * 2000),
    "another type": reference(data=b"[1]"),
    "our driver, no such file": reference(data=b'{"driverName": "turngate-folder", "claimData": {"sha256": "00"}}'),
    "our driver, no claim": reference(data=b'{"driverName": "turngate-folder"}'),
    "the older form": reference(encoding=b"json/external-storage-reference"),
    "the older form, no JSON": reference(encoding=b"json/external-storage-reference", data=b"\xff"),
    "the mark alone": Payload(metadata={"encoding": b"json/plain", MARK: b"true"}, data=b"1"),
    "the mark on a reference": reference(**{MARK: b"true"}),
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
@pytest.mark.parametrize("storage", [False, True], ids=["without storage", "with storage"])
async def test_forged_reference_is_marked_and_its_neighbours_survive(
    forged: Payload, storage: bool, tmp_path: Path
) -> None:
    """No reference from outside can stall a run, whether external storage is configured or not."""
    external = folder_storage(tmp_path) if storage else None
    converter = tolerant(DataConverter(external_storage=external)).with_context(WORKFLOW)
    values = await converter.decode([forged, GOOD], [RawValue, RawValue])
    assert [value.payload.metadata["encoding"] for value in values] == [UNDECODABLE, b"json/plain"]


async def test_a_lost_result_of_an_activity_still_raises() -> None:
    """A worker without the driver must not take what our activities stored for nonsense."""
    with pytest.raises(RuntimeError, match="TMPRL1105"):
        await tolerant(DataConverter.default).with_context(ACTIVITY).decode([reference()])


async def test_storage_that_does_not_answer_still_raises(tmp_path: Path) -> None:
    """While the storage is down the task is tried again: what lies there is not lost."""
    converter = tolerant(DataConverter(external_storage=folder_storage(tmp_path / "store", threshold=10)))
    [stored] = await converter.encode(["long enough to be stored"])
    (tmp_path / "store").rename(tmp_path / "gone")
    with pytest.raises(FileNotFoundError):
        await converter.with_context(WORKFLOW).decode([stored])
    (tmp_path / "gone").rename(tmp_path / "store")
    assert await converter.with_context(WORKFLOW).decode([stored]) == ["long enough to be stored"]


def test_a_converter_of_the_users_own_class_keeps_it() -> None:
    """Nothing that it overrides is lost, and wrapping twice changes nothing."""

    class Own(DataConverter):
        pass

    wrapped = tolerant(Own())
    assert isinstance(wrapped, Own)
    assert type(tolerant(wrapped)) is type(wrapped)
