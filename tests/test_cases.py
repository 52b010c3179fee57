"""Every given/when/then case, as a test. `python -m tests.case_runner` runs the same, side by side and faster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.case_runner.loading import Case, case_directory, expected_failures, load_cases
from tests.case_runner.run_case import run_case
from tests.case_runner.servers import ServerPool

pytestmark = pytest.mark.server
EXPECTED = expected_failures()


@pytest.fixture(scope="session")
async def pool() -> AsyncIterator[ServerPool]:
    async with ServerPool() as servers:
        yield servers


@pytest.mark.parametrize("case", load_cases(case_directory()), ids=lambda case: case.id)
async def test_case(case: Case, pool: ServerPool, tmp_path: Path) -> None:
    """The product behaves as the case says."""
    report = await run_case(case, pool, tmp_path)
    if report.problems and case.id in EXPECTED:
        pytest.xfail(EXPECTED[case.id])
    assert not report.problems, "\n".join([case.title, *report.problems])
