"""Attack for as long as you like: `python -m tests.fuzz --minutes 10`, or `make fuzz ARGS="--minutes 10"`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import time

from tests.fuzz.campaign import attack_paused, attack_starts
from tests.fuzz.stage import AGENTS, Hurt, Stage, own_stage


async def main(minutes: float, seed: int) -> int:
    """Attack until the time is over or something was hurt; returns the exit code."""
    until = time.monotonic() + 60 * minutes
    async with own_stage() as stage:
        rounds = 0
        while time.monotonic() < until:
            try:
                await _round(stage, seed + rounds)
            except Hurt as hurt:
                print(f"\nseed {seed + rounds}: {hurt}")
                return 1
            rounds += 1
            print(f"\rseed {seed}: {rounds} runs attacked, none hurt", end="", flush=True)
    print()
    return 0


async def _round(stage: Stage, seed: int) -> None:
    agent = AGENTS[seed % len(AGENTS)]
    result = await attack_paused(stage, agent, seed, batches=10, size=20)
    if result["status"] != "completed":
        raise Hurt(f"the turn ended as {result['status']}")
    await attack_starts(stage, seed=seed, count=10)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    sys.exit(asyncio.run(main(given.minutes, given.seed)))
