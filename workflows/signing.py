"""Signed decisions in a turn: whose decisions are let in, and when that is found out.

An update is verified in its validator, which Temporal does not run again at replay, so that keys may come and go. What
has no validator, a signal, is verified by an activity whose verdict is recorded. Either way the ledger only gets what
was verified, and reads the roles from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from turngate.contracts import Json, Receipt
    from turngate.decisions import loads
    from turngate.errors import Refusal, RefusedError, refuse
    from turngate.items import Held
    from turngate.ledger import Effect, Ledger
    from turngate.verifier import REASSIGN, refusals_of, verifier_for
    from turngate.workflows.state import TurnState

PATIENCE = timedelta(minutes=10)
"""How long a signal waits for a worker that can verify it; then it is refused."""


class Turn(Protocol):
    """What signing needs of the turn."""

    state: TurnState
    ledger: Ledger


class Signing:
    """Lets decisions into the ledger of a turn; where the agent has a verifier, only signed ones."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._turnstile = asyncio.Lock()
        self._under_way = 0
        self._unverified = False
        self._closed = False

    @property
    def quiet(self) -> bool:
        """Whether no decision is being verified."""
        return self._under_way == 0

    def check(self, effects: Sequence[Effect]) -> None:
        """Verify decisions in an update's validator. Raises RefusedError."""
        if self._signed and _inside_handler():
            self._unverified = True
        elif self._signed:
            self._verify([effect.payload for effect in effects])

    def check_reassign(self, request: Json | str) -> None:
        """Verify a request to reassign in its validator. Raises RefusedError."""
        request = loads(request) if isinstance(request, str) else request
        if self._signed and _inside_handler():
            raise refuse("busy", "the run has only just been handed over: send it again")
        if self._signed:
            self._verify([{**request, "type": REASSIGN}])

    def _verify(self, signed: Sequence[Json]) -> None:
        agent = self._agent
        with workflow.unsafe.sandbox_unrestricted(), workflow.unsafe.imports_passed_through():
            found = refusals_of(verifier_for(agent), agent, signed, workflow.now())
        _raise(found)

    async def submit(self, payload: object, *, verified: bool = False) -> list[Receipt]:
        """Apply a request, verified first where that was not done yet. Raises RefusedError.

        Requests that have to be verified keep the order in which they came.
        """
        verified, self._unverified = verified and not self._unverified, False
        if verified or not self._signed:
            return self._turn.ledger.submit(payload, workflow.now())
        self._under_way += 1
        try:
            async with self._turnstile:
                effects = self._turn.ledger.examine(payload, workflow.now())
                sent = [effect.payload for effect in effects]
                # First what needs no key: a flood of unsigned ones must not become a flood of activities.
                _raise([_unsigned(one) for one in sent])
                _raise(await self._verdicts(sent))
                return self._turn.ledger.submit(payload, workflow.now())
        finally:
            self._under_way -= 1

    async def admit_held(self) -> None:
        """Verify the decisions that came before it was known that they must be signed."""
        if not self._signed:
            return
        for held in self._early():
            if refusal := _unsigned(held.payload):
                self._drop(held, refusal)
        early = self._early()
        if not early:
            return
        try:
            verdicts = await self._verdicts([held.payload for held in early])
        except RefusedError as error:
            verdicts = [error.refusals[0]] * len(early)
        for held, refusal in zip(early, verdicts, strict=True):
            if refusal:
                self._drop(held, refusal)
            else:
                held.verified = True

    def _early(self) -> list[Held]:
        return [held for held in self._turn.ledger.state.held if not held.verified]

    def _drop(self, held: Held, refusal: Refusal) -> None:
        self._turn.ledger.turn_away(held, RefusedError.of([refusal]), workflow.now())

    async def close(self) -> None:
        """End what is being verified, for the turn is over, and wait for its handlers."""
        self._closed = True
        await workflow.wait_condition(workflow.all_handlers_finished)

    @property
    def _signed(self) -> bool:
        return self._turn.state.settings.signed

    @property
    def _agent(self) -> str:
        return self._turn.state.asked().agent

    async def _verdicts(self, signed: Sequence[Json]) -> list[Refusal | None]:
        """Have an activity verify decisions: one refusal each, or None."""
        if self._closed:
            raise refuse("closed", "the turn has ended")
        verifying = workflow.start_activity(
            "verify_decision",
            {"agent": self._agent, "decisions": list(signed), "now": workflow.now().isoformat()},
            schedule_to_close_timeout=PATIENCE,
            start_to_close_timeout=timedelta(seconds=30),
            retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=10)),
            summary="verify a signature",
        )
        await workflow.wait_condition(lambda: verifying.done() or self._closed)
        if not verifying.done():
            verifying.cancel()
            raise refuse("closed", "the turn ended before the signature was verified")
        try:
            answer = await verifying
        except ActivityError as error:
            why = f"the signature could not be verified ({type(error.cause).__name__}): send it again"
            raise refuse("not_a_reviewer", why, "token") from None
        return [one and Refusal.from_json(one) for one in answer["refusals"]]


def _inside_handler() -> bool:
    """Whether an update is validated inside its handler, and so at replay too, where no key may be asked for.

    The guard does that with updates which come before the run has read its input.
    """
    return not workflow.unsafe.is_read_only()


def _unsigned(decision: Json) -> Refusal | None:
    if decision.get("token"):
        return None
    approval_id = decision.get("approval_id")
    text = f"approval {approval_id!r}: decisions of this agent must be signed, and this one has no 'token'"
    return Refusal("not_a_reviewer", text, ("token",), approval_id)


def _raise(verdicts: Sequence[Refusal | None]) -> None:
    found = [refusal for refusal in verdicts if refusal]
    if found:
        raise RefusedError.of(found)
