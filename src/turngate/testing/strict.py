"""What a model provider would refuse: the check that the scripted model makes of every conversation it is given."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

_CONVERSATION = (SystemMessage, HumanMessage, AIMessage, ToolMessage, ChatMessage, FunctionMessage)


def check_conversation(messages: Sequence[BaseMessage]) -> list[str]:
    """Return what is wrong with a conversation, nothing where a strict provider would take it.

    Every call of an AI message is answered by exactly one tool message directly after it, in the order of the calls.
    Unreadable calls need an answer too, but have no place in that order. No answer stands alone.
    """
    problems = [
        f"message {position} is a {type(message).__name__}, which is no message of a conversation"
        for position, message in enumerate(messages)
        if not isinstance(message, _CONVERSATION)
    ]
    position = 0
    while position < len(messages):
        message = messages[position]
        position += 1
        if isinstance(message, ToolMessage):
            problems.append(f"the answer to {message.tool_call_id!r} stands alone at {position - 1}")
        if not isinstance(message, AIMessage):
            continue
        answers: list[ToolMessage] = []
        while position < len(messages) and isinstance(found := messages[position], ToolMessage):
            answers.append(found)
            position += 1
        problems.extend(_check_answers(message, answers))
    return problems


def _check_answers(message: AIMessage, answers: Sequence[ToolMessage]) -> list[str]:
    """Pair each answer with the next readable call, or with an unreadable one."""
    expected = [call["id"] for call in message.tool_calls]
    unreadable = [call["id"] for call in message.invalid_tool_calls]
    for answer in answers:
        wanted = expected[0] if expected else None
        if expected and (wanted == answer.tool_call_id or (not wanted and answer.tool_call_id not in unreadable)):
            expected.pop(0)
        elif answer.tool_call_id in unreadable:
            unreadable.remove(answer.tool_call_id)
        elif None in unreadable:
            unreadable.remove(None)
        else:
            where = f"where {wanted!r} was due" if expected else "and no call is open"
            return [f"there is an answer to {answer.tool_call_id!r} {where}"]
    return [f"the call {call!r} has no answer directly after it" for call in [*expected, *unreadable]]
