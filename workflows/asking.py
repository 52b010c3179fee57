"""What clients may ask a turn: its queries. None of them changes anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from turngate.contracts import Json
    from turngate.ledger import Ledger
    from turngate.workflows import conversation
    from turngate.workflows.announcing import Announcer
    from turngate.workflows.state import TurnState


class Asked:
    """The queries of AgentTurn, which inherits them."""

    state: TurnState
    ledger: Ledger
    children: dict[int, str]
    announcer: Announcer
    sizes: conversation.Sizes

    @workflow.query(name="status", description="Where the turn stands.")
    def status(self) -> Json:
        """Return status, counts and open children."""
        state = self.state
        waiting = len(self.ledger.waiting())
        request = state.request
        return {
            "status": state.ending or ("waiting" if waiting else "running"),
            "agent": request.get("agent"),
            "thread_id": request.get("thread_id"),
            "steps": state.steps,
            "usage": state.usage,
            "waiting": waiting,
            "children": list(self.children.values()),
            "messages": len(state.messages),
            "first_new_message": state.first_new,
            "repairs": state.repairs,
            "notifications_failed": self.announcer.failed,
        }

    @workflow.query(name="pending", description='The approvals that wait, in pages: {"start"?: 0, "limit"?: 50}.')
    def pending(self, request: Any = None) -> Json:
        """Return the open approvals and the ids of open children."""
        return self._approvals(self.ledger.waiting(), request)

    @workflow.query(name="approvals", description="All approvals of the turn, decided ones included, in pages.")
    def approvals(self, request: Any = None) -> Json:
        """Return the whole record."""
        return self._approvals(self.ledger.items, request)

    def _approvals(self, items: Sequence[Any], request: Any) -> Json:
        found, start, after = conversation.page(items, request, show=lambda item: self.ledger.view(item).to_json())
        return {"approvals": found, "children": list(self.children.values()), "start": start, "next": after}

    @workflow.query(name="messages", description='The conversation, in pages: {"start"?: 0, "limit"?: 50}.')
    def messages(self, request: Any = None) -> Json:
        """Return messages from `start`, at most `limit` and 512 KiB."""
        messages = self.state.messages
        found, start, after = conversation.page(messages, request, sizes=self.sizes.of(messages))
        return {"messages": found, "start": start, "next": after, "total": len(messages)}

    @workflow.query(name="rules", description="The remembered rules in force.")
    def rules(self) -> Json:
        """Return the rules."""
        return {"rules": [rule.to_json() for rule in self.ledger.rules(workflow.now())]}

    @workflow.query(name="refused", description="The last refused signals.")
    def refused(self) -> Json:
        """Return the refusals, at most 20, and how many there were."""
        state = self.ledger.state
        return {"refused": [one.to_json() for one in state.refused], "count": state.refused_count}

    @workflow.query(name="call_args", description="The arguments of one open call, for the activity that runs it.")
    def call_args(self, request: Any = None) -> Json:
        """Return the call with this number, and what travels with it."""
        number = request.get("number") if isinstance(request, dict) else None
        for call in self.state.step.calls if self.state.step else []:
            if call.number == number:
                request = self.state.asked()
                return {
                    "name": call.name,
                    "args": call.args,
                    "answers": call.answers,
                    "context": request.context,
                    "metadata": request.metadata,
                    "review_also": request.review_also,
                }
        raise ApplicationError(f"no open call has the number {number!r}")
