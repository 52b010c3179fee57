"""Messages as they travel: the plain JSON of LangChain's `AnyMessage`, converted without importing LangChain early."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from turngate.contracts import Message
from turngate.errors import refuse

if TYPE_CHECKING:
    from langchain_core.messages import AnyMessage, BaseMessage


def to_json(messages: Iterable[BaseMessage | Mapping[str, Any]]) -> list[Message]:
    """Return messages as JSON. Takes LangChain's objects and their JSON, mixed as you like.

    Raises MalformedError for anything else, naming its place.
    """
    return [_one(index, message) for index, message in enumerate(messages)]


def to_langchain(messages: Iterable[Message]) -> list[AnyMessage]:
    """Return messages as LangChain's objects: class and all fields as they were. Imports langchain-core."""
    from langchain_core.messages import AnyMessage
    from pydantic import TypeAdapter

    return TypeAdapter(list[AnyMessage]).validate_python(list(messages))


def _one(index: int, message: Any) -> Message:
    if hasattr(message, "model_dump"):
        try:
            message = message.model_dump(mode="json")
        except ValueError as error:
            raise refuse("malformed", f"message {index} can't be written as JSON: {error}", "messages", index) from None
    if not isinstance(message, Mapping) or not isinstance(message.get("type"), str):
        raise refuse(
            "malformed",
            f"message {index} is no message: give a LangChain message or its JSON, with 'type' and 'content'",
            "messages",
            index,
        )
    return dict(message)
