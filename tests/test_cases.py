"""Every given/when/then case, as a test. `python -m tests.case_runner` runs the same, side by side and faster.

`cases` are the contract; `cases_own`, in the same grammar, are what attempts to break it have taught us.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.case_runner.loading import Case, case_directory, expected_failures, load_cases
from tests.case_runner.run_case import run_case
from tests.case_runner.servers import ServerPool

pytestmark = pytest.mark.server
EXPECTED = expected_failures()
OWN = Path(__file__).parent / "cases_own"


@pytest.fixture(scope="session")
async def pool() -> AsyncIterator[ServerPool]:
    async with ServerPool() as servers:
        yield servers


@pytest.mark.parametrize("case", load_cases(case_directory()), ids=lambda case: case.id)
async def test_case(case: Case, pool: ServerPool, tmp_path: Path) -> None:
    """The product behaves as the case says."""
    await _holds(case, pool, tmp_path)


@pytest.mark.parametrize("case", load_cases(OWN), ids=lambda case: case.id)
async def test_own_case(case: Case, pool: ServerPool, tmp_path: Path) -> None:
    """What was once found broken stays as it should be."""
    await _holds(case, pool, tmp_path)


async def _holds(case: Case, pool: ServerPool, tmp_path: Path) -> None:
    report = await run_case(case, pool, tmp_path)
    if report.problems and case.id in EXPECTED:
        pytest.xfail(EXPECTED[case.id])
    assert not report.problems, "\n".join([case.title, *report.problems])
