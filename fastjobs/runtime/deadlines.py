"""One timer for the deadlines of all running handlers: a timer for each costs more than the job."""

from __future__ import annotations

from collections.abc import Callable

from fastjobs.clock import Clock, Timer
from fastjobs.runtime.run import FAR, Run


class Deadlines:
    """Tells of runs whose deadline has passed."""

    def __init__(self, clock: Clock, passed: Callable[[Run], None]) -> None:
        self._clock = clock
        self._passed = passed
        self._runs: set[Run] = set()
        self._timer: Timer | None = None
        self._at = FAR

    def add(self, run: Run) -> None:
        """Watches a run, until it's removed or told of."""
        self._runs.add(run)
        if run.deadline < self._at:
            self._arm(run.deadline)

    def remove(self, run: Run) -> None:
        """Watches it no more. The timer stays: one that fires for nothing is cheaper than one moved at each job."""
        self._runs.discard(run)

    def close(self) -> None:
        """Stops the timer."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._at = None, FAR

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._at = at
        self._timer = self._clock.call_later(max(0.0, at - self._clock.monotonic()), self._fire)

    def _fire(self) -> None:
        self._timer, self._at = None, FAR
        now = self._clock.monotonic()
        for run in [each for each in self._runs if each.deadline <= now]:
            self._runs.discard(run)
            self._passed(run)
        if self._runs:
            self._arm(min(run.deadline for run in self._runs))
