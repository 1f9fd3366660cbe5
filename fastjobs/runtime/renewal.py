"""Renews the holds of jobs that are held here, once a third of each one's hold has gone.

One call takes all that are due. A job past its timeout is renewed no more: a handler that swallows its cancellation
loses its claim when its hold ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

from fastjobs.clock import Clock
from fastjobs.core.duration import SECOND
from fastjobs.core.verdict import Cut
from fastjobs.runtime.lines import say
from fastjobs.runtime.outage import Outage
from fastjobs.runtime.run import FAR, Run
from fastjobs.runtime.waiting import limited, wait
from fastjobs.store import Extend, Kept, Store


class Renewal:
    """The holds of one running queue."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        runs: Collection[Run],
        lost: Callable[[Run], None],
        cancel: Callable[[Run], None],
        poll: float,
    ) -> None:
        """`runs` is the live collection of the jobs held here; `lost` is told of one whose claim is gone.

        `cancel` is told of one that was asked to stop.
        """
        self._store = store
        self._clock = clock
        self._runs = runs
        self._lost = lost
        self._cancel = cancel
        self.outage = Outage(clock, "renewal", poll)
        self._sooner = asyncio.Event()
        self._next = FAR

    def note(self, run: Run) -> None:
        """A job was claimed: it may be due before the others."""
        if run.renew_at < self._next:
            self._next = run.renew_at
            self._sooner.set()

    async def run(self) -> None:
        """Renews until it's cancelled."""
        while True:
            self._next = min((run.renew_at for run in self._runs), default=FAR)
            self._sooner.clear()
            if self._next == FAR:
                await self._sooner.wait()
                continue
            await wait(self._sooner, self._clock, self._next - self._clock.monotonic())
            now = self._clock.monotonic()
            due = [run for run in self._runs if run.renew_at <= now]
            for run in [run for run in due if run.deadline <= now]:
                run.renew_at = FAR
                due.remove(run)
            if due:
                await self._renew(due)

    async def _renew(self, due: list[Run]) -> None:
        asked = self._clock.monotonic()
        marks = [Extend(run.job.id, run.job.claim, run.hold) for run in due]
        try:
            kept = await limited(
                self._store.mark(marks), "renewals", min(10.0, min(r.hold for r in due) / SECOND / 3)
            )
        except Exception as error:
            # Asked again soon, not at each poll: a short hold has no time to lose.
            again = self._clock.monotonic() + min(
                self.outage.failed(error), min(run.hold for run in due) / SECOND / 10
            )
            for run in due:
                if run.ending is None or not run.ending.sent:
                    run.renew_at = again
            return
        self.outage.over()
        for run, answer in zip(due, kept, strict=True):
            if run.ending is not None and run.ending.sent:
                run.renew_at = FAR  # its done_in came meanwhile: a job that is gone may be one that is done
                continue
            if answer is Kept.LOST:
                run.renew_at = FAR
                if run in self._runs:
                    self._gone(run)
            elif answer is Kept.BUSY:
                run.renew_at = self._clock.monotonic() + run.hold / SECOND / 10
            else:
                run.held_from(asked)
                if answer is Kept.STOP:
                    self._cancel(run)

    def _gone(self, run: Run) -> None:
        say(
            logging.WARNING,
            "a job's claim is gone, and its handler is cancelled: its hold had run out, or it was removed",
            **run.fields(),
        )
        run.interrupt(Cut.LOST)
        self._lost(run)
