"""`python -m tests.case_runner [ids or areas] [--jobs N]`: run the cases of TURNGATE_CASES, or our own."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

from tests.case_runner.loading import Case, case_directory, expected_failures, load_cases, select
from tests.case_runner.run_case import Report, run_case
from tests.case_runner.servers import ServerPool

JOBS = 6


async def run_cases(cases: Sequence[Case], jobs: int, tell: Callable[[Report], None]) -> list[Report]:
    """Run cases side by side and tell of each when it is done. Asked to end (SIGTERM), it ends its servers first."""
    if (task := asyncio.current_task()) and threading.current_thread() is threading.main_thread():
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    slots = asyncio.Semaphore(jobs)
    with tempfile.TemporaryDirectory(prefix="turngate-cases-") as folder:
        async with ServerPool() as pool:

            async def one(case: Case) -> Report:
                async with slots:
                    report = await run_case(case, pool, Path(folder))
                tell(report)
                return report

            return list(await asyncio.gather(*(one(case) for case in cases)))


def verdict(report: Report, expected: Mapping[str, str]) -> str:
    """Return the word for what became of a case."""
    if report.problems:
        return "expected failure" if report.case.id in expected else "FAILED"
    return "passed, though listed as an expected failure" if report.case.id in expected else "passed"


def show(report: Report, expected: Mapping[str, str]) -> None:
    """Print one line for a case, and what is wrong below it."""
    word = verdict(report, expected)
    print(f"{report.case.id} {word} ({report.seconds:.1f} s) {report.case.title}", flush=True)
    for problem in report.problems[:8] if word == "FAILED" else ():
        print("    " + problem.replace("\n", "\n    "), flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; the exit code is 1 where a case failed that was not expected to."""
    parser = argparse.ArgumentParser(prog="python -m tests.case_runner", description=__doc__)
    parser.add_argument("wanted", nargs="*", help="case ids (DEC-001), areas (DEC) or files (decisions); all without")
    parser.add_argument("--jobs", type=int, default=JOBS, help=f"cases at the same time (default {JOBS})")
    options = parser.parse_args(arguments)
    everything, expected = load_cases(case_directory()), expected_failures()
    try:
        cases = select(everything, options.wanted)
    except ValueError as error:
        parser.error(str(error))
    began = time.monotonic()
    reports = asyncio.run(run_cases(cases, max(1, options.jobs), lambda report: show(report, expected)))
    return summary(reports, len(everything) - len(cases), expected, time.monotonic() - began)


def _be_quiet() -> None:
    """What the SDK logs about the failures that cases provoke is not news here."""
    levels = TelemetryFilter(core_level="ERROR", other_level="ERROR")
    Runtime.set_default(Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(levels))))
    for name in ("temporalio", "turngate"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def summary(reports: Sequence[Report], left_out: int, expected: Mapping[str, str], seconds: float) -> int:
    """Print the end of the run and return the exit code."""
    failed = [report for report in reports if report.problems]
    surprising = [report.case.id for report in failed if report.case.id not in expected]
    known = [f"{report.case.id}: {expected[report.case.id]}" for report in failed if report.case.id in expected]
    better = [report.case.id for report in reports if not report.problems and report.case.id in expected]
    for title, lines in (
        ("failed", surprising),
        ("expected failures", known),
        ("listed as expected failures, but passed", better),
    ):
        if lines:
            print(f"{title}: {', '.join(lines)}")
    print(f"{len(reports)} cases in {seconds:.0f} s")
    print(f"{len(reports) - len(failed)} passed, {len(failed)} failed, {left_out} skipped")
    return 1 if surprising else 0


if __name__ == "__main__":
    _be_quiet()
    sys.exit(main())
