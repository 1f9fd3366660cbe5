"""Writes how far running jobs are: the last report of each, about once a second, in one call for all."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from fastjobs.clock import Clock
from fastjobs.core.errors import StoreError
from fastjobs.runtime.outage import Outage
from fastjobs.runtime.waiting import limited, pause
from fastjobs.store import Extra, ProgressStore, Store, require

if TYPE_CHECKING:
    from fastjobs.runtime.run import Run

EVERY = 1.0
"""Seconds between two writes."""
LIMIT = 2.0
"""Seconds that one may take: a mark waits for the last report of its job."""


class Reports:
    """The reports of one running queue."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = cast("ProgressStore", store)
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self.refuses: str | None = None
        """Why this store keeps none, where it doesn't."""
        try:
            require(store, Extra.PROGRESS, "progress()")
        except StoreError as lacks:
            self.refuses = str(lacks)
        self._outage = Outage(clock, "progress", EVERY)
        self._guard = threading.Lock()
        self._latest: dict[Run, str] = {}
        self._told = False
        """Whether the loop has been told that there is something to write."""
        self._writing = asyncio.Lock()
        self._more = asyncio.Event()

    def note(self, run: Run, text: str) -> None:
        """Takes a report, from any thread. StoreError where the store keeps none."""
        if self.refuses is not None:
            raise StoreError(self.refuses)
        with self._guard:
            if run.reported == text:
                return
            run.reported = self._latest[run] = text
            tell, self._told = not self._told, True
        if not tell:
            return
        if threading.get_ident() == self._thread:
            self._more.set()
        else:
            with suppress(RuntimeError):  # the loop was closed meanwhile
                self._loop.call_soon_threadsafe(self._more.set)

    def forget(self, run: Run) -> None:
        """Its job is done: nothing of it is to be written any more."""
        if run.reported is not None:
            with self._guard:
                self._latest.pop(run, None)

    async def run(self) -> None:
        """Writes until it's cancelled."""
        while True:
            await self._more.wait()
            self._more.clear()
            await self._write(None)
            await pause(self._clock, EVERY)

    async def keep(self, runs: Collection[Run]) -> None:
        """Writes the last reports of runs that have ended, before their marks: after these nobody would take them."""
        if any(run.reported is not None for run in runs):
            await self._write(runs)

    async def _write(self, runs: Collection[Run] | None) -> None:
        # One at a time, so that no report overtakes a later one of its job.
        async with self._writing:
            batch = self._taken(runs)
            if not batch:
                return
            try:
                await limited(
                    self._store.progress([(run.job.id, run.job.claim, text) for run, text in batch.items()]),
                    "progress",
                    LIMIT,
                )
            except Exception as error:
                self._outage.failed(error)
                if runs is None:
                    self._put_back(batch)
                return
            self._outage.over()

    def _taken(self, runs: Collection[Run] | None) -> dict[Run, str]:
        with self._guard:
            if runs is None:
                batch, self._latest, self._told = self._latest, {}, False
                return batch
            return {run: self._latest.pop(run) for run in runs if run in self._latest}

    def _put_back(self, batch: Mapping[Run, str]) -> None:
        """Has them written the next time, but for those that have been reported anew, or have ended."""
        with self._guard:
            for run, text in batch.items():
                if run.reports is self:
                    self._latest.setdefault(run, text)
            self._told = bool(self._latest)
        if self._told:
            self._more.set()
