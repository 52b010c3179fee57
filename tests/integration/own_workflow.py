"""A user's own workflow and activity, beside Turngate's on one worker."""

from __future__ import annotations

from datetime import timedelta

from temporalio import activity, workflow


@activity.defn
async def of_mine() -> str:
    """Do something of the user's own."""
    return "mine"


@workflow.defn
class Mine:
    """A workflow of the user's own."""

    @workflow.run
    async def run(self) -> str:
        """Run it."""
        return await workflow.execute_activity(of_mine, start_to_close_timeout=timedelta(seconds=5))
