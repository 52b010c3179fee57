"""Decode what clients send without ever raising: what can't be read becomes a value that says so.

The SDK decodes payloads before any workflow code runs. Whatever raises there fails the workflow task for ever, so one
bad signal would stall a paused turn. Here an unreadable payload reaches the workflow as a raw value with the encoding
`binary/undecodable`, and is refused there like any other nonsense. The wrappers compose: the user's codec, converter
and external storage do their work, and only their failures are caught.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, Self

from google.protobuf.json_format import ParseError
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import (
    ActivitySerializationContext,
    DataConverter,
    DefaultPayloadConverter,
    PayloadCodec,
    PayloadConverter,
    SerializationContext,
    WithSerializationContext,
)

from turngate.storage import MissingPayloadError

UNDECODABLE = b"binary/undecodable"


class TolerantCodec(PayloadCodec, WithSerializationContext):
    """Wrap a codec so that decoding what a client sent never raises.

    Two things still raise, and the server tries the task again until they heal. An outage (no connection, a
    timeout): a payload read as undecodable today and as a decision in next week's replay would break the run. And
    what activities sent, for that comes from our own workers and its loss must not pass for an answer.
    """

    def __init__(self, inner: PayloadCodec, *, strict: bool = False) -> None:
        self._inner = inner
        self._strict = strict

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Encode with the wrapped codec."""
        return await self._inner.encode(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decode with the wrapped codec; where that fails, one by one."""
        try:
            return list(await self._inner.decode(payloads))
        except Exception as error:
            if self._strict or _is_outage(error):
                raise
        return [decoded for payload in payloads for decoded in await self._decode_one(payload)]

    def with_context(self, context: SerializationContext) -> Self:
        """Hand the context on, and notice whether an activity is the other side."""
        inner = self._inner
        if isinstance(inner, WithSerializationContext):
            inner = inner.with_context(context)
        return type(self)(inner, strict=isinstance(context, ActivitySerializationContext))

    async def _decode_one(self, payload: Payload) -> list[Payload]:
        try:
            return list(await self._inner.decode([payload]))
        except Exception as error:
            if _is_outage(error):
                raise
            return [_undecodable(error)]


def composed(converter: DataConverter | None) -> DataConverter:
    """Return the converter for Turngate's JSON: the user's own, or the SDK's for pydantic in place of the default.

    The default one sorts keys; people read arguments in the order in which the model wrote them. Codec and external
    storage stay.
    """
    converter = converter or DataConverter.default
    if converter.payload_converter_class is DefaultPayloadConverter:
        return replace(converter, payload_converter_class=PydanticPayloadConverter)
    return converter


def tolerant(converter: DataConverter) -> DataConverter:
    """Return a copy of `converter` whose decoding does not raise for what clients sent."""
    codec = converter.payload_codec
    if codec is not None and not isinstance(codec, TolerantCodec):
        codec = TolerantCodec(codec)
    given = {field.name: getattr(converter, field.name) for field in fields(converter) if field.init}
    given |= {"payload_codec": codec, "payload_converter_class": _lenient(converter.payload_converter_class)}
    return _forgiving(type(converter))(**given)


def tolerant_client(client: Client) -> Client:
    """Return a copy of `client` for a worker, on the same connection; the given one stays as it is."""
    config = client.config(active_config=True)
    config["data_converter"] = tolerant(composed(config["data_converter"]))
    # They have done their work on this configuration already.
    config["plugins"] = []
    return Client(**config)


class _Forgiving:
    """Marks the data converters that `_forgiving` made."""


@cache
def _forgiving(base: type[DataConverter]) -> type[DataConverter]:
    """Derive a data converter that bears forged references to external storage.

    Anybody can send a payload that says it lies in external storage: where none is configured, under the name of a
    driver that nobody knows, or where nothing lies. The SDK raises for these itself, before any codec or converter is
    asked, so only its own steps can be wrapped; their names are internal, and a test notices when they change.
    """
    if issubclass(base, _Forgiving):
        return base

    @dataclass(frozen=True)
    class Forgiving(_Forgiving, base):  # type: ignore[misc, valid-type]
        strict: bool = False

        def with_context(self, context: SerializationContext) -> Self:
            bound: Self = copy(super().with_context(context))
            object.__setattr__(bound, "strict", isinstance(context, ActivitySerializationContext))
            return bound

        async def _decode_reference_payload_sequence(self, payloads: Sequence[Payload]) -> list[Payload]:
            return await self._forgive(super()._decode_reference_payload_sequence, payloads)

        async def _external_retrieve_payload_sequence(self, payloads: Sequence[Payload]) -> list[Payload]:
            return await self._forgive(super()._external_retrieve_payload_sequence, payloads)

        async def _forgive(
            self, step: Callable[[Sequence[Payload]], Awaitable[list[Payload]]], payloads: Sequence[Payload]
        ) -> list[Payload]:
            try:
                return await step(payloads)
            except Exception as error:
                if self.strict or not _is_forged(error):
                    raise
                if len(payloads) == 1:
                    return [_undecodable(error)]
            return [kept for payload in payloads for kept in await self._forgive(step, [payload])]

    Forgiving.__name__ = Forgiving.__qualname__ = f"Forgiving{base.__name__}"
    return Forgiving


def _is_forged(error: Exception) -> bool:
    """Tell a reference that can never be followed from a storage that does not answer just now."""
    if isinstance(error, RuntimeError):
        by_the_sdk = isinstance(error, RecursionError) or str(error).startswith("[TMPRL110")
        return by_the_sdk or isinstance(error.__cause__, (ParseError, ValueError))
    return isinstance(error, (MissingPayloadError, ValueError, LookupError, TypeError))


def _undecodable(error: Exception) -> Payload:
    return Payload(metadata={"encoding": UNDECODABLE}, data=type(error).__name__.encode())


class _Lenient:
    """Marks the converter classes that `_lenient` made."""


@cache
def _lenient(base: type[PayloadConverter]) -> type[PayloadConverter]:
    """Derive a converter that keeps unreadable values raw where nobody said what they should be.

    That is the case where a message has more or fewer arguments than its handler: the SDK drops the type hints, and
    a value that can't be decoded would then take the whole message, or the task, with it. A subclass, because the SDK
    builds converters from their class and looks at what they derive from.
    """
    if issubclass(base, _Lenient):
        return base

    class Lenient(_Lenient, base):  # type: ignore[misc, valid-type]
        def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
            try:
                return super().from_payloads(payloads, type_hints)  # type: ignore[no-any-return]
            except Exception:
                if type_hints:
                    raise
            return [self._value(payload) for payload in payloads]

        def _value(self, payload: Payload) -> Any:
            try:
                return super().from_payloads([payload])[0]
            except Exception:
                return RawValue(payload)

    Lenient.__name__ = Lenient.__qualname__ = f"Lenient{base.__name__}"
    return Lenient


def _is_outage(error: BaseException | None) -> bool:
    """Tell whether the network is behind this error, as far as the chain of causes tells."""
    while error is not None:
        if isinstance(error, (ConnectionError, TimeoutError)):
            return True
        error = error.__cause__ or error.__context__
    return False
