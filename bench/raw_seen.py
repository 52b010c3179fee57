"""A second yardstick: the hand-written workflow whose pauses people can see, as they see ours.

The same two upserts of search attributes and the same timer, by hand. What it costs more than `raw_temporal` is the
price of being seen, whoever writes it; what ours costs more than this is our own.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.common import SearchAttributeKey

from bench.raw_temporal import RawTurn

STATUS = SearchAttributeKey.for_keyword("TurngateStatus")
AGENT = SearchAttributeKey.for_keyword("TurngateAgent")
WAITING = SearchAttributeKey.for_keyword_list("TurngateWaiting")
FOREVER = timedelta(days=3650)


@workflow.defn
class RawSeenTurn(RawTurn):
    """Model, wait for a decision where people see it, tool, model."""

    @workflow.run
    async def run(self, text: str) -> str:
        """Return the final text."""
        return await super().run(text)

    async def _decided(self) -> None:
        workflow.upsert_search_attributes(
            [STATUS.value_set("waiting"), AGENT.value_set("seen"), WAITING.value_set(["tool:send_mail"])]
        )
        timer = asyncio.create_task(workflow.sleep(FOREVER, summary="waits for a person to decide send_mail"))
        await super()._decided()
        timer.cancel()
        workflow.upsert_search_attributes([STATUS.value_set("running"), AGENT.value_set("seen"), WAITING.value_unset()])
