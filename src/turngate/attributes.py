"""The four search attributes, and whether a namespace has them.

They are only for finding runs. A run that sets one that is not registered stalls, so nothing sets them before the
worker has seen that they are there.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError, RPCStatusCode

from turngate.errors import ServerError

STATUS = SearchAttributeKey.for_keyword("TurngateStatus")
AGENT = SearchAttributeKey.for_keyword("TurngateAgent")
THREAD = SearchAttributeKey.for_keyword("TurngateThread")
WAITING = SearchAttributeKey.for_keyword_list("TurngateWaiting")
TYPES: Mapping[str, IndexedValueType.ValueType] = {
    STATUS.name: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    AGENT.name: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    THREAD.name: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    WAITING.name: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST,
}

logger = logging.getLogger(__name__)

_TIMEOUT = timedelta(seconds=10)
# Temporal Cloud and hardened clusters keep the operator service to themselves.
_NO_OPERATOR = (RPCStatusCode.UNIMPLEMENTED, RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNAUTHENTICATED)


async def missing(client: Client) -> list[str]:
    """Return the names of the search attributes that the client's namespace lacks.

    Raises ServerError where one exists with another type, or where the server does not say.
    """
    try:
        registered = await _registered(client)
    except RPCError as error:
        raise ServerError(
            f"the search attributes of namespace {client.namespace!r} can't be read: {error.message}"
        ) from error
    _check_types(client.namespace, registered)
    return [name for name in TYPES if name not in registered]


async def register(client: Client) -> list[str]:
    """Register the search attributes that are missing, and return their names.

    Raises ServerError with the command to run instead, where this client may not register them.
    """
    absent = await missing(client)
    if not absent:
        return []
    request = AddSearchAttributesRequest(
        namespace=client.namespace, search_attributes={name: TYPES[name] for name in absent}
    )
    try:
        await client.operator_service.add_search_attributes(request, timeout=_TIMEOUT)
    except RPCError as error:
        # Somebody else registered them in the meantime.
        if error.status is RPCStatusCode.ALREADY_EXISTS:
            return []
        raise ServerError(
            f"the search attributes can't be registered in namespace {client.namespace!r}: {error.message}; "
            f"ask an operator to run: {command(client.namespace, absent)}"
        ) from error
    return absent


def command(namespace: str, names: list[str]) -> str:
    """Return the `temporal` command lines that register `names`."""
    return " && ".join(
        f"temporal operator search-attribute create --namespace {namespace} --name {name} --type {_type_name(name)}"
        for name in names
    )


async def _registered(client: Client) -> dict[str, IndexedValueType.ValueType | None]:
    try:
        request = ListSearchAttributesRequest(namespace=client.namespace)
        answer = await client.operator_service.list_search_attributes(request, timeout=_TIMEOUT)
        return dict(answer.custom_attributes)
    except RPCError as error:
        if error.status not in _NO_OPERATOR:
            raise
    # The namespace names its attributes but not their types.
    described = await client.workflow_service.describe_namespace(
        DescribeNamespaceRequest(namespace=client.namespace), timeout=_TIMEOUT
    )
    return dict.fromkeys(described.config.custom_search_attribute_aliases.values())


def _check_types(namespace: str, registered: Mapping[str, IndexedValueType.ValueType | None]) -> None:
    for name, wanted in TYPES.items():
        found = registered.get(name)
        if found is not None and found != wanted:
            raise ServerError(
                f"search attribute {name!r} exists in namespace {namespace!r} with the type "
                f"{_readable(found)}, but Turngate needs {_type_name(name)}: remove or rename it, "
                "then run `turngate setup`"
            )


def _type_name(name: str) -> str:
    return _readable(TYPES[name])


def _readable(value: IndexedValueType.ValueType) -> str:
    words = IndexedValueType.Name(value).removeprefix("INDEXED_VALUE_TYPE_").split("_")
    return "".join(word.capitalize() for word in words)


class Presence:
    """Whether a worker's namespace has the search attributes. Not asked yet, or no answer, counts as no."""

    def __init__(self, present: bool = False) -> None:
        self._present = present

    def __call__(self) -> bool:
        return self._present

    async def check(self, client: Client) -> None:
        """Ask the server. Never fatal: runs do without, and the log says what to run."""
        try:
            absent = await missing(client)
        except ServerError as error:
            logger.warning("turns will not be listed by search attributes: %s", error)
            return
        self._present = not absent
        if absent:
            logger.warning(
                "namespace %r lacks the search attributes %s, so turns are not listed by them: run `turngate setup`, "
                "then start the worker again",
                client.namespace,
                ", ".join(absent),
            )
