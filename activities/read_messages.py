"""Read what a turn has said, for the thread that keeps it."""

from __future__ import annotations

from typing import Any

from temporalio import activity

from turngate.activities.conversation import PAGE, ask
from turngate.contracts import Message


@activity.defn(name="read_new_messages")
async def read_new_messages(data: dict[str, Any]) -> list[Message]:
    """Return a page of a turn's new messages: `{"workflow_id", "start"}`, `start` counted from the first new one.

    A page stays under the limit of a query's answer; it is empty after the last message.
    """
    turn = activity.client().get_workflow_handle(data["workflow_id"])
    first = (await ask(turn, "status", {}))["first_new_message"]
    page = await ask(turn, "messages", {"start": first + data["start"], "limit": PAGE})
    messages: list[Message] = page["messages"]
    return messages
