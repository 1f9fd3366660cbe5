"""Has the store remove what is kept no longer: failed jobs after `keep_failed`, and ended names, slots and counters."""

from __future__ import annotations

import logging

from fastjobs.clock import Clock
from fastjobs.core.duration import LAST
from fastjobs.runtime.lines import say
from fastjobs.runtime.outage import Outage
from fastjobs.runtime.waiting import limited, pause
from fastjobs.store import PruneStore

EVERY = 60.0
"""Seconds between two rounds, half as many to half as many again: no instance leads, and no two keep step."""
STEP = 500
"""How many rows one call removes."""
BREATH = 0.05
"""Seconds between two steps at least, and up to twice that: others write between them."""


class Pruning:
    """The prunes of one running queue."""

    def __init__(self, store: PruneStore, clock: Clock, keep_failed: int | None) -> None:
        """`keep_failed` is how many microseconds a failed job is kept, None for ever."""
        self._store = store
        self._clock = clock
        self._failed_for = LAST if keep_failed is None else keep_failed
        self._outage = Outage(clock, "prune", EVERY)
        self._removed = 0

    async def run(self) -> None:
        """Prunes until it's cancelled."""
        while True:
            await pause(self._clock, EVERY * (0.5 + self._clock.random()))
            try:
                await self._round()
            finally:
                if self._removed:
                    say(
                        logging.INFO,
                        "what was kept long enough was removed: failed jobs, names",
                        rows=self._removed,
                    )
                    self._removed = 0

    async def _round(self) -> None:
        """Removes all that there is to remove, step by step; an outage leaves the rest to the next round."""
        while True:
            began = self._clock.monotonic()
            try:
                removed = await limited(self._store.prune(self._failed_for, STEP), "a prune")
            except Exception as error:
                self._outage.failed(error)
                return
            self._outage.over()
            self._removed += removed
            if removed < STEP:
                return
            # A step that took long, as others write much, has a pause as long after it.
            took = self._clock.monotonic() - began
            await pause(self._clock, max(BREATH, took) * (1 + self._clock.random()))
