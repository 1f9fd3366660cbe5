"""One start and stop of a queue: its parts, put together, watched while they run, and stopped within grace.

Nothing of it outlives the stop, so that a queue starts, stops and starts again, on another loop too. Longer than
300 lines, as what a start begins and what its stop ends are read together.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from fastjobs.core.duration import SECOND
from fastjobs.core.errors import StoreError
from fastjobs.core.job import Job
from fastjobs.core.marks import Done, GiveBack, HoldBack, Kept, TryAgain
from fastjobs.core.outcome import Outcome
from fastjobs.core.verdict import Cut, Verdict, cancelled
from fastjobs.runtime import ending, following
from fastjobs.runtime.cancelling import Cancels, LastWord
from fastjobs.runtime.feed import Feed
from fastjobs.runtime.handled import Handled
from fastjobs.runtime.health import Health, Vitals
from fastjobs.runtime.kind import Kind
from fastjobs.runtime.ledger import Ledger
from fastjobs.runtime.lines import say, say_error
from fastjobs.runtime.listening import Listening
from fastjobs.runtime.outage import Outage
from fastjobs.runtime.progress import Reports
from fastjobs.runtime.pruning import Pruning
from fastjobs.runtime.rates import Rates
from fastjobs.runtime.renewal import Renewal
from fastjobs.runtime.run import Ended, Owed, Run
from fastjobs.runtime.runner import Runner
from fastjobs.runtime.scheduler import Scheduler
from fastjobs.runtime.settings import LET_GO, Settings
from fastjobs.runtime.sweeping import Sweeping
from fastjobs.runtime.telling import Teller
from fastjobs.runtime.waiting import limited, pause
from fastjobs.runtime.workers import Workers, interrupt
from fastjobs.store import Claimed, Extra, Store, supports

LEFT_BEHIND = "stopped with the queue, and its handler did not end; it runs again"


class Life:
    """A queue that runs."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        kinds: Mapping[str, Kind[Any]],
        crashed: Callable[[BaseException], None],
        *,
        run: bool,
        fallback: Kind[Any] | None = None,
    ) -> None:
        """`crashed` is told of a bug of the queue's own, after it's logged. Without `run` the store is opened alone.

        `fallback` handles the kinds that aren't in `kinds`.
        """
        self._store = store
        self._settings = settings
        self._kinds = kinds
        self._handled = Handled(kinds, settings, fallback)
        self._crashed = crashed
        self._run = run and settings.workers > 0 and bool(self._handled)
        self._clock = settings.clock
        self._opened = False
        self._opening = asyncio.Lock()
        self._feeding: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._closed_around = False
        self._runs: set[Run] = set()
        self._places: Counter[str] = Counter()
        """How many of them are of each kind that has a limit of jobs at once."""
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        """The one that the loop runs in."""
        self._teller = Teller(settings)
        self._reports = Reports(store, settings.clock)
        self._runner = Runner(settings, self._reports)
        self._cancels = Cancels(store, settings.clock, self._runs, self._cancelled, settings.poll)
        self._last_word = LastWord(self._cancels, self._reports)
        self._ledger = Ledger(store, settings.clock, settings.poll, self._before_marks)
        self._when_kept, self._when_asked = self._kept, self._asked
        self._workers = Workers(self._runner, settings.workers, self._ended)
        self._renewal = Renewal(store, settings.clock, self._runs, self._lost, self._cancelled, settings.poll)
        self._rates = rates_of(store, settings, self._handled)
        self._undecided: list[Run] = []
        """Jobs that are held and wait to be told whether their rate lets them start."""
        self.feed = Feed(
            store,
            settings.clock,
            self._handled.terms,
            settings.workers,
            settings.poll,
            load=lambda: self._workers.load,
            took=self._took,
            stuck=self._put_back_waiting,
            opened=self._open,
            others=self._handled.others,
            rates=self._rates,
            decide=self._decide,
        )
        self._runner.went = self._went
        self._sweeping: Sweeping | None = None
        if supports(store, Extra.PRUNE) and self._handled.any_one_at_a_time:
            self._sweeping = Sweeping(store, settings.clock, self.feed.wake)
        self._pruning: Pruning | None = None
        if supports(store, Extra.PRUNE):
            self._pruning = Pruning(store, settings.clock, settings.keep_failed)
        self._scheduler = scheduler_of(store, settings, kinds, self._open, self.feed)
        self._scheduling: asyncio.Task[None] | None = None
        self._workers.freed = self.feed.freed
        self._runner.closing = self._is_closed_around
        self._listening: Listening | None = None
        if self._run and supports(store, Extra.LISTEN):
            self._listening = Listening(store, settings.clock, self.feed, self.loop, settings.poll)
        self._vitals = Vitals(
            settings, self.feed, self._ledger, self._renewal, self._workers, self._runs, works=self._run
        )

    async def start(self) -> None:
        """Opens the store and starts the loops.

        A StoreError is a mistake and is raised; any other error of the store is an outage, and the feed tries again.
        """
        try:
            await self._open()
        except StoreError:
            raise
        except Exception as error:
            Outage(self._clock, "opening the store", self._settings.poll).failed(error)
        if self._run:
            self._feeding = self._guard("the feed", self.feed.run)
            self._stand()
            if self._scheduler is not None:
                self._scheduling = self._guard("the scheduler", self._scheduler.run)
        if self._listening is not None:
            self._listening.task = self._guard("listening", self._listening.run)

    def _stand(self) -> None:
        """Starts the loops that have to be there until the stop is over, but for those that are."""
        loops = {"the ledger": self._ledger.run, "the renewal": self._renewal.run}
        loops |= {"the cancels": self._cancels.run, "the progress": self._reports.run}
        loops |= {f"worker {n}": self._workers.work for n in range(self._settings.workers)}
        if self._sweeping is not None:
            loops["the sweep"] = self._sweeping.run
        if self._pruning is not None:
            loops["the prune"] = self._pruning.run
        self._tasks = [task for task in self._tasks if not task.done()]
        standing = {task.get_name() for task in self._tasks}
        self._tasks += [
            self._guard(name, loop) for name, loop in loops.items() if f"fastjobs {name}" not in standing
        ]

    def _is_closed_around(self) -> bool:
        """Whether all tasks of the loop were cancelled, ours too: nobody else cancels the feed.

        asyncio.run does it at its end, so it's how a server stops that has been told twice.
        """
        if self.feed.stopping or self._feeding is None:
            return self._closed_around
        return self._feeding.cancelling() > 0 or self._feeding.cancelled()

    async def stop(self) -> None:
        """Claims no more, gives what runs its grace, and puts the rest back. Returns within grace and a second."""
        # By the loop's own time: a stop ends in time also where a test's clock stands still.
        began = self.loop.time()
        grace = self._settings.grace
        self._closed_around = self._is_closed_around()
        self.feed.stop()
        if self._scheduling is not None:
            # It holds nothing: a run is pushed whole or not at all, and then another instance pushes it.
            self._scheduling.cancel()
            self._tasks.append(self._scheduling)
        if self._listening is not None:
            self._listening.stop()
        if self._feeding is not None:
            if self._closed_around:
                await asyncio.sleep(0)  # what was cancelled ends
                self._stand()
            self._put_back_waiting()
            settled = asyncio.ensure_future(self._settled(self._feeding))
            await self._until(settled, began + grace)
            if not settled.done():
                for item in self._workers.running:
                    interrupt(item, Cut.STOP)
                await self._until(settled, began + grace + LET_GO * 0.4)
            if not settled.done():
                self._leave_behind()
                await self._until(settled, began + grace + LET_GO * 0.7)
            settled.cancel()
            self._feeding.cancel()
            for task in self._tasks:
                task.cancel()
            await self._until(
                asyncio.ensure_future(asyncio.wait([self._feeding, *self._tasks])),
                began + grace + LET_GO * 0.9,
            )
            self._runner.close()
            self.feed.close()
        if self._listening is not None and self._listening.task is not None:
            # It has had all of the grace, and a little more; one that doesn't end keeps nobody from stopping.
            await self._until(self._listening.task, self.loop.time() + LET_GO * 0.1)
        await self._close(max(0.1, began + grace + LET_GO - self.loop.time()))

    def health(self) -> Health:
        """What is so of the queue, from any thread."""
        return self._vitals.read(opened=self._opened)

    # Claims and ends.

    def _took(self, claimed: Claimed, asked: float) -> None:
        late = {each.job.id: each for each in self._rates.late(claimed)} if self._rates is not None else {}
        for job in claimed.exhausted:
            run = self._handled.exhausted(job, asked, claimed.now)
            owed = self._teller.exhausted(run, run.kind.options.attempts)
            if owed is not None:
                self._workers.offer(owed)
        # A job that lost a worker before starts first: it was claimed for a worker that is free.
        for job in (
            sorted(claimed.jobs, key=lambda job: not job.lost) if len(claimed.jobs) > 1 else claimed.jobs
        ):
            run = self._handled.run(job, asked, claimed.now)
            if self.feed.stopping:
                self._give_back(run)
                continue
            self._runs.add(run)
            if run.kind.options.at_once is not None:
                self._places[run.kind.name] += 1
            if self._rates is not None:
                self._rates.claimed(job)
            self._renewal.note(run)
            if run.cancelled:
                self._workers.offer(run)  # which ends it, and needs no place of a rate for that
                continue
            if job.lost:
                say(
                    logging.WARNING,
                    "a job runs again, as its worker was lost: its process was killed, frozen, or couldn't reach the"
                    " store past its hold",
                    **run.fields(),
                    lost=job.lost,
                )
            if job.id in late:
                self._ended(self._runner.refused(run, late[job.id]))
            elif self._rates is not None and self._rates.by_value(job):
                self._undecided.append(run)
            else:
                self._workers.offer(run)

    async def _decide(self, now: int) -> None:
        """Starts the jobs that their values' rates let start, and puts the others back. A stop may have done so."""
        undecided = self._undecided
        if not undecided or self._rates is None:
            return
        refused = await self._rates.refuse([run.job for run in undecided], now)
        held_back = {each.job.id: each for each in refused}
        self._undecided = []
        for run in undecided:
            if run not in self._runs:
                continue
            if run.job.id in held_back:
                self._ended(self._runner.refused(run, held_back[run.job.id]))
            elif self.feed.stopping:
                self._give_back(run)
            else:
                self._workers.offer(run)
        if refused:
            await asyncio.sleep(0)  # they take no worker, so nothing else would give the loop its turn

    def _ended(self, ended: Ended[Run]) -> None:
        run = ended.run
        if run.reported is not None and isinstance(ended.mark, Done):
            self._reports.forget(run)
        # One that was left behind as the queue stopped has been given back, and may still come to its end.
        held = self._let_go(run)
        if not ended.verdict.rated:
            self.feed.pace.took(ended.took)
        if self._rates is not None and isinstance(ended.mark, HoldBack):
            self._rates.held_back(run.kind.name, ended.mark.kind_for)
        if held and ended.mark is not None:
            asks = None if run.ending is None else ending.asks(run)
            if asks is None:
                self._ledger.add(ended, ended.mark, self._when_kept)
            else:
                self._ledger.add(ended, asks, self._when_asked)
            # The claim of the next goes with the mark, where a store takes its calls in turn: it's kept in one commit
            # with it. Where it came too early, `_next` asks once more.
            self._next(ended)

    def _asked(self, ended: Ended[Run], kept: Kept | None, resent: bool) -> None:
        """Its handler called done_in: only where the job isn't done by that, its end is marked."""
        if ending.is_done(ended.run, kept, self._clock.monotonic()):
            self._teller.done_in(ended)
            self._next(ended)
        elif kept is not None and ended.mark is not None:
            self._ledger.add(ended, ended.mark, self._when_kept)

    def _kept(self, ended: Ended[Run], kept: Kept | None, resent: bool) -> None:
        mark = ended.mark
        if kept is Kept.YES and not self.feed.stopping:
            if isinstance(mark, HoldBack):
                self.feed.due_in(mark.kind_for / SECOND)
            elif isinstance(mark, TryAgain | GiveBack):
                self.feed.due_in((mark.after or 0) / SECOND)
            if ended.run.kind.options.at_once is None:
                self._next(ended)
            else:
                # In the loop's next turn: the claim that went with the mark may be answered in this one.
                self.loop.call_soon(self._next_if_room, ended)
        owed = self._teller.ended(ended, kept, resent)
        if owed is not None:
            self._workers.offer(owed)

    def _next(self, ended: Ended[Run]) -> None:
        """A job's end is kept: of a kind that runs so many at once, or a value at a time, the next may run."""
        if self._handled.lets_next(ended.run.kind) and not self.feed.stopping:
            self.feed.wake()

    def _next_if_room(self, ended: Ended[Run]) -> None:
        """As `_next`, unless all places of its kind are taken here, as by the claim that went with the mark."""
        at_once = ended.run.kind.options.at_once
        if at_once is None or self._places[ended.run.kind.name] < at_once:
            self._next(ended)

    def _let_go(self, run: Run) -> bool:
        """The run is held here no more; answers whether it was."""
        if run not in self._runs:
            return False
        self._runs.discard(run)
        if run.kind.options.at_once is not None:
            self._places[run.kind.name] -= 1
        if self._rates is not None:
            self._rates.let_go(run.job)
        return True

    def _went(self, job: Job) -> None:
        """A limiter of the app's own let a job start: there may be more that it lets."""
        if self._rates is not None:
            self._rates.went(job)
        self.feed.wake()

    def _give_back(self, run: Run, error: str | None = None) -> None:
        self._let_go(run)
        if run.cancelled:
            ended = Ended(run, cancelled(run.job), 0.0)
        else:
            ended = Ended(
                run, Verdict(GiveBack(run.job.id, run.job.claim, error=error), Outcome.RETRIED), 0.0
            )
        assert ended.mark is not None
        self._ledger.add(ended, ended.mark, self._given_back)

    def _given_back(self, ended: Ended[Run], kept: Kept | None, resent: bool) -> None:
        """What never came to its own end is told of only where it was cancelled."""
        if ended.verdict.outcome is Outcome.CANCELLED:
            self._kept(ended, kept, resent)

    async def _before_marks(self, batch: list[Ended[Run]]) -> None:
        # The question whether a done_in was committed is no end.
        ends = [ended for ended in batch if ended.sent is ended.mark]
        for ended in await self._last_word.before(ends):
            ended.sent = ended.mark

    def _lost(self, run: Run) -> None:
        if run.task is None:
            self._let_go(run)
            self._workers.forget(run)

    # Cancels.

    def cancel(self, id: str) -> None:
        """The job was asked to stop: if it's held here, it does so now rather than as that is heard of."""
        for run in [run for run in self._runs if run.job.id == id]:
            self._cancelled(run)

    def _cancelled(self, run: Run) -> None:
        """Its handler is cancelled; one that waits for a worker, or for its rate's word, never begins."""
        if run.cancelled or run not in self._runs:
            return
        run.cancel()
        waits = self._workers.forget(run)
        if run in self._undecided:
            self._undecided.remove(run)
            waits = True
        if waits:
            self._ended(Ended(run, cancelled(run.job), 0.0))

    # The stop.

    def _put_back_waiting(self) -> None:
        for run in [*self._workers.withdraw(), *self._undecided]:
            self._give_back(run)
        self._undecided = []

    async def _settled(self, feeding: asyncio.Task[None]) -> None:
        """Returns once the last claim has been answered, nothing runs, and every mark is kept."""
        await asyncio.wait([feeding])
        self._put_back_waiting()
        while self._workers.load or self._ledger.pending:
            await self._workers.quiet()
            await self._ledger.flushed()

    def _leave_behind(self) -> None:
        for item in self._workers.abandon():
            if isinstance(item, Owed):
                say(logging.ERROR, "on_fail was left behind as the queue stopped", **item.run.fields())
            elif item in self._runs:
                say(
                    logging.ERROR,
                    "a handler was left behind as the queue stopped: it swallowed its cancellation; its job runs again",
                    **item.fields(),
                )
                self._give_back(item, LEFT_BEHIND)

    async def _until(self, task: asyncio.Future[Any], moment: float) -> None:
        done = asyncio.Event()
        task.add_done_callback(lambda _: done.set())
        timer = self.loop.call_at(moment, done.set)
        try:
            await done.wait()
        finally:
            timer.cancel()

    # Supervision, and the store's connections.

    def _guard(self, name: str, loop: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        return asyncio.create_task(
            self._guarded(name, loop), name=f"fastjobs {name}", context=self._context()
        )

    def _context(self) -> contextvars.Context:
        context = contextvars.Context()
        context.run(following.unseen, self._settings.followers)
        return context

    async def _guarded(self, name: str, loop: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """No loop dies silently: a bug is told, and the loop begins again after a poll."""
        while True:
            try:
                return await loop()
            except (Exception, asyncio.CancelledError) as bug:
                task = asyncio.current_task()
                if not isinstance(bug, Exception) and task is not None and task.cancelling():
                    raise
                # A CancelledError that nobody asked for, as of a store's own, is a bug like others.
                self._vitals.crashed(name)
                say_error("a bug in fastjobs", bug, logging.CRITICAL, part=name)
                logging.getLogger("fastjobs").critical("where it was", exc_info=bug)
                try:
                    self._crashed(bug)
                except Exception as raised:
                    say_error("on_crash= failed", raised, part=name)
            await pause(self._clock, max(self._settings.poll, 1.0))
            if self.feed.stopping:
                return

    async def _open(self) -> None:
        if self._opened:
            return
        # The feed and the scheduler may both come here, and each open has its close.
        async with self._opening:
            if not self._opened and supports(self._store, Extra.LIFECYCLE):
                await limited(self._store.open(list(self._kinds)), "opening")
            self._opened = True

    async def _close(self, limit: float) -> None:
        if self._opened and supports(self._store, Extra.LIFECYCLE):
            try:
                await limited(self._store.close(), "closing", limit)
            except Exception as error:
                say_error("the store failed as it was closed", error, logging.WARNING)


def scheduler_of(
    store: Store,
    settings: Settings,
    kinds: Mapping[str, Kind[Any]],
    opened: Callable[[], Awaitable[None]],
    feed: Feed,
) -> Scheduler | None:
    """What pushes the runs of these kinds' schedules; None where none has one."""
    schedules = [each for kind in kinds.values() for each in kind.schedules]
    if not schedules or not supports(store, Extra.SCHEDULES):
        return None
    return Scheduler(
        store,
        settings.clock,
        schedules,
        settings.poll,
        opened=opened,
        due_in=feed.due_in,
        pushed=settings.pushed,
    )


def rates_of(store: Store, settings: Settings, handled: Handled) -> Rates | None:
    """The rates of these kinds; None where none has one."""
    if all(kind.options.rate is None for kind in handled.kinds.values()):
        return None
    beside_others = handled.others is not None
    return Rates(
        store, settings.clock, handled.kinds, handled.terms, settings.poll, beside_others=beside_others
    )
