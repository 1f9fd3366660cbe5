"""Runs what is due, one job at a time: for tests, and for programs that run what's due and exit."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from fastjobs.core.job import Job
from fastjobs.core.marks import Done, GiveBack
from fastjobs.core.verdict import Cut
from fastjobs.runtime import ending
from fastjobs.runtime.cancelling import Cancels, LastWord
from fastjobs.runtime.handled import Handled
from fastjobs.runtime.kind import Kind
from fastjobs.runtime.ledger import BUSY_AGAIN
from fastjobs.runtime.life import rates_of
from fastjobs.runtime.progress import Reports
from fastjobs.runtime.renewal import Renewal
from fastjobs.runtime.run import Ended, Owed, Run
from fastjobs.runtime.runner import Runner
from fastjobs.runtime.settings import LET_GO, Settings
from fastjobs.runtime.telling import Teller
from fastjobs.runtime.turns import Refused
from fastjobs.runtime.waiting import limited, pause
from fastjobs.store import Kept, Mark, Store

T = TypeVar("T")


class Drain:
    """One drain of a queue."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        kinds: Mapping[str, Kind[Any]],
        under_way: set[Drain],
        fallback: Kind[Any] | None = None,
    ) -> None:
        """It's one of those `under_way` while it runs."""
        self._store = store
        self._under_way = under_way
        self._settings = settings
        self._handled = Handled(kinds, settings, fallback)
        self._reports = Reports(store, settings.clock)
        self._runner = Runner(settings, self._reports)
        self._teller = Teller(settings)
        self._runs: set[Run] = set()
        self._rates = rates_of(store, settings, self._handled)
        self._renewal = Renewal(
            store, settings.clock, self._runs, lambda run: None, Run.cancel, settings.poll
        )
        self._cancels = Cancels(store, settings.clock, self._runs, Run.cancel, settings.poll)
        self._last_word = LastWord(self._cancels, self._reports)
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        """The one that the loop runs in."""

    def cancel(self, id: str) -> None:
        """The job was asked to stop: if it's held here, it does so now."""
        for run in [run for run in self._runs if run.job.id == id]:
            run.cancel()

    async def run(self, until: Callable[[], bool] = lambda: False) -> int:
        """Runs jobs until none is due, or `until` says so, and answers how many it ran. A store's error is raised.

        A cancellation stops what runs, and is passed on once its end is kept, or after some seconds.
        """
        ran = 0
        async with self._going():
            while self._handled and not until():
                asked = self._settings.clock.monotonic()
                rates = self._rates
                terms = self._handled.terms if rates is None else await rates.before(1, 1)
                claim = self._store.claim(terms, 1, others=self._handled.others)
                claimed = await limited(claim, "a claim")
                refused: list[Refused] = []
                if rates is not None:
                    by_value = [job for job in claimed.jobs if rates.by_value(job) and not job.stop_asked]
                    refused = rates.late(claimed) or await rates.refuse(by_value, claimed.now)
                    await rates.after(claimed, 1, 1)
                for job in claimed.exhausted:
                    lost = self._handled.exhausted(job, asked, claimed.now)
                    await self._on_fail(self._teller.exhausted(lost, lost.kind.options.attempts))
                for job in claimed.jobs:
                    run = self._handled.run(job, asked, claimed.now)
                    if refused and not run.cancelled:
                        await self._keep(self._runner.refused(run, refused[0]))
                    else:
                        ran += await self._one(run)
                if rates is not None and rates.error is not None:
                    raise rates.error
                found = claimed.jobs or claimed.exhausted or claimed.again
                if not found and not (rates is not None and rates.again):
                    break
        return ran

    async def run_one(self, job: Job, now: int) -> None:
        """Runs one job that the caller has claimed, at the store's `now`, whatever rates say."""
        async with self._going():
            await self._one(self._handled.run(job, self._settings.clock.monotonic(), now))

    @asynccontextmanager
    async def _going(self) -> AsyncGenerator[None]:
        draining = asyncio.current_task()
        assert draining is not None
        # Where every task of the loop is cancelled, a handler's own may be before it's told of the stop.
        self._runner.closing = lambda: draining.cancelling() > 0
        loops = [
            asyncio.create_task(loop(), context=contextvars.Context())
            for loop in (self._renewal.run, self._cancels.run, self._reports.run)
        ]
        self._under_way.add(self)
        try:
            yield
        finally:
            self._under_way.discard(self)
            for loop in loops:
                loop.cancel()
            self._runner.close()

    async def _one(self, run: Run) -> bool:
        """Runs it and keeps its end; answers whether its handler began."""
        begins = not run.cancelled
        self._runs.add(run)
        self._renewal.note(run)
        try:
            ended, cancelled = await self._apart(run, self._runner.job(run))
        finally:
            self._runs.discard(run)
        await self._finish(self._give_back(run) if ended is None else self._keep(ended), cancelled)
        return begins and (ended is None or not ended.verdict.rated)

    async def _keep(self, ended: Ended[Run]) -> None:
        if ended.mark is None:
            return
        asks = ending.asks(ended.run)
        if asks is not None:
            kept = await self._marked(asks)
            if ending.is_done(ended.run, kept, self._settings.clock.monotonic()):
                self._teller.done_in(ended)
                return
        await self._last_word.before([ended])
        await self._on_fail(self._teller.ended(ended, await self._marked(ended.mark), False))

    async def _marked(self, mark: Mark) -> Kept:
        while True:
            (kept,) = await limited(self._store.mark([mark]), "a mark")
            if kept is not Kept.BUSY:
                return kept
            await pause(self._settings.clock, BUSY_AGAIN)

    async def _give_back(self, run: Run) -> None:
        mark = (
            Done(run.job.id, run.job.claim)
            if run.cancelled
            else GiveBack(run.job.id, run.job.claim, error="stopped")
        )
        await limited(self._store.mark([mark]), "a mark")

    async def _on_fail(self, owed: Owed | None) -> None:
        if owed is None:
            return
        _, cancelled = await self._apart(owed.run, self._runner.on_fail(owed))
        if cancelled is not None:
            raise cancelled

    async def _finish(
        self, keeping: Coroutine[Any, Any, None], cancelled: asyncio.CancelledError | None
    ) -> None:
        """Keeps the end of a job. A cancellation waits for it a second: what was done would be done again."""
        task = asyncio.create_task(keeping, context=contextvars.Context())
        if cancelled is None:
            try:
                return await asyncio.shield(task)
            except asyncio.CancelledError as now:
                cancelled = now
        if not await _ended_within(task, LET_GO):
            task.cancel()
            await _ended_within(task, LET_GO)
        raise cancelled from (task.exception() if task.done() and not task.cancelled() else None)

    async def _apart(
        self, run: Run, handler: Coroutine[Any, Any, T]
    ) -> tuple[T | None, asyncio.CancelledError | None]:
        """Runs it in a task of its own, so that nothing it does to its task reaches the caller's.

        Answers how it ended, or None where it doesn't end; and the cancellation of the caller that stopped it.
        """
        task = asyncio.create_task(handler, context=contextvars.Context())
        try:
            return await asyncio.shield(task), None
        except asyncio.CancelledError as cancelled:
            run.interrupt(Cut.STOP)
            if await _ended_within(task, LET_GO) and not task.cancelled():
                return task.result(), cancelled
            if run.drive is not None:
                run.drive.abandoned = True
            task.cancel()
            return None, cancelled


async def _ended_within(task: asyncio.Task[Any], seconds: float) -> bool:
    """Whether it ends in so many seconds of the loop's own time, however often the caller is cancelled meanwhile."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while not task.done() and loop.time() < until:
        with suppress(asyncio.CancelledError):
            await asyncio.wait([task], timeout=until - loop.time())
    return task.done()
