"""Fixtures for pytest, made for an app's own queue: in its conftest.py, `jobs = fixtures.jobs(q)`.

There's no plugin that pytest would load by itself: which queue is meant is the app's to say, and a fixture of a name
that the app has chosen is in no other test suite's way.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Literal

import pytest

from fastjobs.runtime.queue import Queue
from fastjobs.testing.clock import Clock
from fastjobs.testing.kit import Jobs


def jobs(
    queue: Queue | Callable[[], Queue],
    *,
    autouse: bool = False,
    scope: Literal["session", "package", "module", "class", "function"] = "function",
    run: bool = False,
    schedules: bool = False,
    savepoints: bool = False,
    clock: Callable[[], Clock] | None = None,
) -> Any:
    """A fixture that gives a test the `Jobs` of a queue: `jobs = fixtures.jobs(q)`. Sync tests and async ones take it.

    Its name is that of the variable. `queue` may be a function that answers the queue, for an app that is made late.
    With `autouse=True` each test has it, so that none pushes to the app's database, whether it takes `jobs` or not.
    `run`, `schedules` and `savepoints` are those of `Queue.testing`, and `clock` makes each block's clock.
    """

    @pytest.fixture(autouse=autouse, scope=scope)
    def jobs() -> Generator[Jobs]:
        tested = queue if isinstance(queue, Queue) else queue()
        made = None if clock is None else clock()
        with tested.testing(run=run, schedules=schedules, savepoints=savepoints, clock=made) as given:
            yield given

    return jobs
