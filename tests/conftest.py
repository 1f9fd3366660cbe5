"""What every test has: asyncio as its loop, and a run that fails where something a test needs isn't there."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

pytest_plugins = ["tests.databases.fixtures"]

_STRICT = os.environ.get("FASTJOBS_CI") == "1" or os.environ.get("CI") in ("1", "true")
"""Whether a skip is a failure, as it could hide a whole database."""

_LONG = (
    "_smoke.py",
    "tests/cases/test_forked.py",
    "tests/cases/test_stopped_while_starting.py",
    "tests/databases/test_absent.py",
    "tests/docs/test_observing_programs.py",
    "tests/dying/test_dying.py",
    "tests/examples/test_newsletter.py",
    "tests/examples/test_registration.py",
    "tests/stores/test_alembic.py",
    "tests/stores/test_postgres_limits_plans.py",
)
"""Modules of few tests that take long, by how they end."""

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


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A class or a module at a time, as `--dist loadscope` has it, the few that take long before the others."""
    if config.getoption("dist") != "loadscope":
        return None
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    class LongFirst(LoadScopeScheduling):  # type: ignore[misc]
        # Its order is by the number of tests: a process would be alone at the end with a module of one long test.
        is_ordered = False

        def _assign_work_unit(self, node: Any) -> None:
            if not self.is_ordered:
                self.is_ordered = True
                for scope in [each for each in self.workqueue if each.endswith(_LONG)]:
                    self.workqueue.move_to_end(scope, last=False)
            super()._assign_work_unit(node)

    return LongFirst(config, log)


def pytest_collection_finish() -> None:
    # Thousands of tests and all their modules live as long as the run, and no collection need look at them again.
    gc.collect()
    gc.freeze()


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
