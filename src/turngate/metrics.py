"""How many turns wait for people right now, as a metric. Everything else that is measured, turns measure themselves."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

from temporalio.client import Client
from temporalio.common import MetricMeter
from temporalio.runtime import Runtime
from temporalio.service import RPCError

from turngate.attributes import AGENT, WAITING

TURNS_WAITING = "turngate_turns_waiting"
HOUR, DAY = 3600.0, 24 * 3600.0
BUCKETS = {"turngate_decision_seconds": [1.0, 10.0, 60.0, 300.0, 900.0, HOUR, 4 * HOUR, DAY, 3 * DAY, 7 * DAY]}
"""Bounds that suit how long people take, for the exporter's `histogram_bucket_overrides`."""

logger = logging.getLogger(__name__)
_TOOL = "tool:"


async def report_waiting(client: Client, *, interval: float = 30.0, meter: MetricMeter | None = None) -> None:
    """Keep the gauge `turngate_turns_waiting` up to date, by agent and tool, until this is cancelled.

    The server is asked every `interval` seconds, in one listing, so the number is right whatever became of the workers.
    One process a namespace is enough; where several report, take the maximum and not the sum. Needs the search
    attributes (`turngate setup`). The gauge goes to `meter`, or where the client's metrics go.
    """
    gauge = (meter or _meter_of(client)).create_gauge(TURNS_WAITING, "Turns that wait for a decision about a tool.")
    known: set[tuple[str, str]] = set()
    while True:
        try:
            counts = await _count(client)
        except RPCError as error:  # an outage of visibility must not end the reports
            logger.warning("the waiting turns could not be counted: %s", error)
        else:
            known |= counts.keys()
            for agent, tool in known:
                gauge.set(counts[agent, tool], {"agent": agent, "tool": tool, "namespace": client.namespace})
        await asyncio.sleep(interval)


async def _count(client: Client) -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()
    async for run in client.list_workflows("TurngateStatus = 'waiting' AND ExecutionStatus = 'Running'"):
        agent = run.typed_search_attributes.get(AGENT) or ""
        for value in run.typed_search_attributes.get(WAITING) or ():
            if value.startswith(_TOOL):
                counts[agent, value.removeprefix(_TOOL)] += 1
    return counts


def _meter_of(client: Client) -> MetricMeter:
    return (client.service_client.config.runtime or Runtime.default()).metric_meter
