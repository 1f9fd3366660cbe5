"""What every test has: asyncio as its loop, and a run that fails where something a test needs isn't there."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

_STRICT = os.environ.get("FASTJOBS_CI") == "1" or os.environ.get("CI") in ("1", "true")
"""Whether a skip is a failure, as it could hide a whole database."""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if _STRICT and report.skipped and not hasattr(report, "wasxfail") and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2]
        # The suite skips what a store says it hasn't: that is an answer. All else is something missing.
        if " lacks " not in reason:
            report.outcome = "failed"
            report.longrepr = f"in CI nothing may be skipped, and this was: {reason}"
    return report
