"""Learns which of the jobs that run here were asked to stop by a cancel in another process.

A renewal tells too, but a hold is long. So while jobs run that aren't short, the store is asked, by a read alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from fastjobs.clock import Clock
from fastjobs.core.marks import Fail, GiveBack, TryAgain
from fastjobs.core.verdict import cancelled
from fastjobs.runtime.outage import Outage
from fastjobs.runtime.progress import LIMIT, Reports
from fastjobs.runtime.run import Ended, Run
from fastjobs.runtime.waiting import limited, pause
from fastjobs.store import CancelStore, Extra, Store, supports

EVERY = 2.0
"""Seconds between two looks, or the queue's poll where that is longer."""
SHORT = 0.5
"""Seconds for which a job is held before it's asked about: a queue of short jobs asks nothing."""


class Cancels:
    """The cancels of one running queue's jobs."""

    def __init__(
        self, store: Store, clock: Clock, runs: Collection[Run], cancel: Callable[[Run], None], poll: float
    ) -> None:
        """`runs` is the live collection of the jobs held here; `cancel` is told of each that was asked to stop."""
        self._store: CancelStore | None = store if supports(store, Extra.CANCEL) else None
        self._clock = clock
        self._runs = runs
        self._cancel = cancel
        self._every = max(poll, EVERY)
        self._outage = Outage(clock, "cancels", self._every)

    async def run(self) -> None:
        """Looks until it's cancelled."""
        while self._store is not None:
            await pause(self._clock, self._every)
            since = self._clock.monotonic() - SHORT
            for run in await self.asked(
                [run for run in self._runs if run.claimed_at <= since and not run.cancelled]
            ):
                self._cancel(run)

    async def asked(self, runs: Sequence[Run]) -> list[Run]:
        """Those of the runs whose job was asked to stop; none while the store fails."""
        if not runs or self._store is None:
            return []
        try:
            ids = await limited(
                self._store.asked([(run.job.id, run.job.claim) for run in runs]), "a look at cancels", LIMIT
            )
        except Exception as error:
            self._outage.failed(error)
            return []
        self._outage.over()
        return [run for run in runs if run.job.id in ids]


class LastWord:
    """What is asked and written before the ends of jobs that are kept are marked: a mark is the last word of a claim.

    A job that fails just after it was asked to stop is removed all the same, and its last report stays with it.
    """

    def __init__(self, cancels: Cancels, reports: Reports) -> None:
        self._cancels = cancels
        self._reports = reports

    async def before(self, ends: Sequence[Ended[Run]]) -> list[Ended[Run]]:
        """Gives those that were cancelled another verdict, and answers which."""
        stay = [ended for ended in ends if _stays(ended)]
        if not stay:
            return []
        await self._reports.keep([ended.run for ended in stay])
        asked = {id(run) for run in await self._cancels.asked([ended.run for ended in stay])}
        changed = [ended for ended in stay if id(ended.run) in asked]
        for ended in changed:
            ended.run.cancelled = True
            ended.change(cancelled(ended.run.job))
        return changed


def _stays(ended: Ended[Run]) -> bool:
    """Whether its job goes on after this end, or is kept as failed. One that its rate held back never began."""
    return isinstance(ended.mark, (TryAgain, Fail, GiveBack)) and not ended.verdict.rated
