"""What every test has: asyncio as its loop, and a run that fails where something a test needs isn't there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from pathlib import Path

import pytest

pytest_plugins = ["tests.databases.fixtures"]

_STRICT = os.environ.get("FASTJOBS_CI") == "1" or os.environ.get("CI") in ("1", "true")
"""Whether a skip is a failure, as it could hide a whole database."""

_MEMORY = Path("/dev/shm")
_ROOM = 1 << 30


def pytest_configure() -> None:
    # A file in memory waits for no disk; nothing here cuts the power, and a kill -9 leaves what was written to
    # either. Where there is no memory to speak of, as in many containers, the files are where pytest has them.
    if (
        "PYTEST_DEBUG_TEMPROOT" not in os.environ
        and os.access(_MEMORY, os.W_OK | os.X_OK)
        and shutil.disk_usage(_MEMORY).free > _ROOM
    ):
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(_MEMORY)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if not hasattr(report, "wasxfail"):
        _refuse_a_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _refuse_a_skip(report)
    return report


def _refuse_a_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not (_STRICT and report.skipped and isinstance(report.longrepr, tuple)):
        return
    reason = report.longrepr[2]
    # The suite skips what a store says it hasn't: that is an answer. All else is something missing.
    if " lacks " not in reason:
        report.outcome = "failed"
        report.longrepr = f"in CI nothing may be skipped, and this was: {reason}"
