"""Has the store mend what only a sweep can: a job that waits for its key's turn, whose turn nobody told it of."""

from __future__ import annotations

from collections.abc import Callable

from fastjobs.clock import Clock
from fastjobs.runtime.outage import Outage
from fastjobs.runtime.waiting import limited, pause
from fastjobs.store import PruneStore

EVERY = 5.0
"""Seconds between two sweeps, and up to twice that: no instance leads, and no two keep step."""
RARELY = 60.0
"""As `EVERY`, where no kind is one at a time: jobs may wait for each other from before a deploy that took it away."""


class Sweeping:
    """The sweeps of one running queue."""

    def __init__(
        self, store: PruneStore, clock: Clock, woke: Callable[[], None], every: float = EVERY
    ) -> None:
        """`woke` is called where a sweep has found a job."""
        self._store = store
        self._clock = clock
        self._woke = woke
        self._every = every
        self._outage = Outage(clock, "sweep", EVERY)

    async def run(self) -> None:
        """Sweeps until it's cancelled."""
        while True:
            await pause(self._clock, self._every * (1 + self._clock.random()))
            try:
                found = await limited(self._store.sweep(), "a sweep")
            except Exception as error:
                self._outage.failed(error)
                continue
            self._outage.over()
            if found:
                self._woke()
