"""Claims for the whole process: as many jobs as there are free workers, and a few ahead while jobs are short.

The event is cleared before the claim that may find nothing, so that no wake is ever lost; an idle queue sleeps until
a wake, the moment that the next job is due, or the poll.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from fastjobs.clock import Clock, Timer
from fastjobs.core.duration import SECOND
from fastjobs.runtime.outage import Outage
from fastjobs.runtime.rates import Rates
from fastjobs.runtime.run import FAR
from fastjobs.runtime.waiting import limited, pause, wait
from fastjobs.store import Claimable, Claimed, Store

MOST = 500
"""How many jobs one claim takes."""
AHEAD = 0.1
"""Jobs are claimed ahead that will start within about so many seconds."""
STUCK = 1.0
"""Seconds that jobs which were claimed ahead wait while no worker gets free, before they're given back."""
FREE = 1.0
"""Seconds without a claim for a worker that is free, after which none is made ahead until there was one."""
FREE_SOON = 0.2
"""As `FREE`, where there are kinds of which no job is claimed ahead: theirs are no later than by that."""
AGAIN = 0.005
"""Seconds until a claim that was in another's way is tried again, and up to twice that."""


class Pace:
    """How long jobs take here, and so how many may be claimed ahead of the workers."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        # Jobs are long until they're seen to be short: a prefetch keeps a job from an idle instance.
        self._mean = 1.0

    def took(self, seconds: float) -> None:
        """Takes note of a run: a short one weighs a little, so that it needs many; a long one much."""
        self._mean += (seconds - self._mean) * (0.5 if seconds > self._mean else 0.05)

    def ahead(self) -> int:
        """How many jobs will start within about `AHEAD` seconds of being claimed, beside those that start at once."""
        return min(MOST, int(self._workers * AHEAD / max(self._mean, 1e-6)))


class Feed:
    """The one task of a running queue that claims."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        kinds: Sequence[Claimable],
        workers: int,
        poll: float,
        *,
        load: Callable[[], int],
        took: Callable[[Claimed, float], None],
        stuck: Callable[[], None],
        opened: Callable[[], Awaitable[None]],
        others: Claimable | None = None,
        rates: Rates | None = None,
        decide: Callable[[int], Awaitable[None]] | None = None,
    ) -> None:
        """`load` says how many jobs are in hand; `took` gets each claim and the monotonic time it was asked at.

        `others` is what is asked for of all kinds that aren't named.
        `decide` asks the rates which of its jobs may start, where that is told after a claim, with the claim's now.
        `stuck` is called where jobs that were claimed ahead wait and no worker gets to them.
        """
        self._store = store
        self._clock = clock
        self._kinds = kinds
        self._others = others
        self._workers = workers
        self._poll = poll
        self._load = load
        self._took = took
        self._stuck = stuck
        self._rates = rates
        self._decide = decide
        self._moved_at = 0.0
        """When a job ended last, or one was claimed."""
        self._free_at = clock.monotonic()
        """When a claim was last asked for a worker that is free."""
        self._finds_more = False
        """Whether that one found a job that no claim takes ahead, as it lost a worker before or its kind is limited.
        There may be more."""
        self._limited = frozenset(kind.kind for kind in kinds if not kind.ahead_ok)
        self._free = FREE_SOON if self._limited else FREE
        self._opened = opened
        self.outage = Outage(clock, "claim", poll)
        self._wake = asyncio.Event()
        self._wants_room = False
        self._got_room = False
        """Whether something has ended since the claim was asked."""
        self._idles = False
        """Whether it sleeps with room for jobs, as there are none."""
        self._taken: frozenset[str] = frozenset()
        """The jobs that the last claim has taken."""
        self._answers = 0
        """How many claims were answered."""
        self._soon: Timer | None = None
        self._soon_at = FAR
        self.pace = Pace(workers)
        self.answered_at: float | None = None
        """When the store last answered a claim; this and the next are for `health`, which any thread reads."""
        self.owed_at = clock.monotonic()
        """Since when it waits for an answer, or for the time to ask again; FAR while it has no room for jobs."""
        self._pausing = asyncio.Event()
        self.stopping = False
        self.woken = False
        """Whether a wake is on its way to the loop; other threads read and set it."""

    def wake(self) -> None:
        """Looks for jobs at once rather than at the next poll. On the loop's thread."""
        self.woken = False
        self._wake.set()

    def next(self) -> None:
        """A job has ended that others may have waited for: looks for them at once, for a worker that is free."""
        self._finds_more = True
        self._wake.set()

    def wake_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        """As `wake`, from any thread: `loop` is the one it runs on. One wake on its way is enough."""
        if not self.woken:
            self.woken = True
            with suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(self.wake)

    def beside(self) -> int:
        """A push of jobs that are due is about to be sent, on the loop's thread: where there is nothing else to do, a
        claim is asked in the same turn. A store may keep both as one, and the jobs start as soon as they're kept.

        Answers what `has` takes.
        """
        if self._idles and self._rates is None and self._load() < self._workers:
            self._wake.set()
        return self._answers

    def has(self, ids: Sequence[str | None], since: int) -> bool:
        """Whether the last claim, answered since then, has taken all of these jobs: nobody need look for them."""
        return self._answers > since and self._taken.issuperset(ids)

    def freed(self) -> None:
        """Something has ended: there may be room now."""
        self._moved_at, self._got_room = self._clock.monotonic(), True
        if self._wants_room:
            self._wake.set()

    def due_in(self, seconds: float) -> None:
        """A job that was put back is due in so many seconds: the feed looks then, if it wouldn't before."""
        at = self._clock.monotonic() + seconds
        if seconds >= self._poll or at >= self._soon_at:
            return
        if self._soon is not None:
            self._soon.cancel()
        self._soon_at = at
        self._soon = self._clock.call_later(seconds, self._due)

    def _due(self) -> None:
        self._soon, self._soon_at = None, FAR
        self._wake.set()

    def _ahead(self) -> int:
        """How many jobs to claim ahead of the workers.

        None now and then: a job that lost a worker, or of a kind with a limit, is only claimed for a free one, and
        while there are short jobs the prefetch has none to offer, so that such a job would wait for as long as they
        keep coming, whatever its priority.
        """
        if self._finds_more or self._clock.monotonic() - self._free_at >= self._free:
            return 0
        return self.pace.ahead()

    async def _sleep(self, seconds: float, *, for_room: bool) -> None:
        """Returns as it's woken, after so many seconds, or with `for_room` once something has ended."""
        self._wants_room = for_room
        step = seconds
        if self._load() > self._workers:
            step = min(seconds, max(self._moved_at + STUCK - self._clock.monotonic(), 0.0))
        if step == FAR:
            await self._wake.wait()
        else:
            await wait(self._wake, self._clock, step)
        self._wants_room = False
        now = self._clock.monotonic()
        if self._load() > self._workers and now - self._moved_at >= STUCK:
            self._moved_at = now
            # All workers are on long jobs, though jobs were short: another instance may have a free one.
            self.pace.took(STUCK)
            self._stuck()

    def close(self) -> None:
        """Stops its timer."""
        if self._soon is not None:
            self._soon.cancel()

    def stop(self) -> None:
        """Claims no more; `run` returns once the claim under way has been answered."""
        self.stopping = True
        self._pausing.set()
        self._wake.set()

    async def run(self) -> None:
        """Claims until it's stopped."""
        rates = self._rates
        while not self.stopping:
            self._wake.clear()
            self._got_room = False
            ahead = self._ahead()
            target = self._workers + ahead
            load = self._load()
            room = min(MOST, target - load)
            # With a prefetch, half of it is used up before the next claim: batches, rather than a claim for each job.
            if room <= 0 or (ahead and load > self._workers and room * 2 < target):
                self.owed_at = FAR
                await self._sleep(FAR, for_room=True)
                self.owed_at = self._clock.monotonic()
                continue
            asked = self._clock.monotonic()
            free = max(0, self._workers - load)
            try:
                await self._opened()
                kinds = self._kinds if rates is None else await rates.before(room, free)
                claim = self._store.claim(kinds, room, ahead=max(0, room - free), others=self._others)
                claimed = await limited(claim, "a claim")
            except Exception as error:
                self._pausing.clear()
                await wait(self._pausing, self._clock, self.outage.failed(error))
                continue
            self.outage.over()
            self.answered_at = self.owed_at = self._clock.monotonic()
            if free:
                self._free_at = asked
                self._finds_more = any(job.lost or job.kind in self._limited for job in claimed.jobs)
            if claimed.jobs:
                self._moved_at = self.answered_at
            self._taken = frozenset(job.id for job in claimed.jobs)
            self._answers += 1
            self._took(claimed, asked)
            if rates is not None:
                if self._decide is not None:
                    await self._decide(claimed.now)
                await rates.after(claimed, room, free)
                if rates.again:
                    continue
            if claimed.again:
                await pause(self._clock, AGAIN * (1 + self._clock.random()))
            elif len(claimed.jobs) + len(claimed.exhausted) < room:
                sleep = self._poll
                if claimed.next_in:
                    sleep = min(sleep, max(claimed.next_in / SECOND, 0.001))
                if rates is not None:
                    sleep = rates.sleep(sleep)
                # Due already and not taken: it's for a worker that is free, and none was as it was asked.
                if claimed.next_in != 0 or not self._got_room:
                    self._idles = True
                    await self._sleep(sleep, for_room=claimed.next_in == 0)
                    self._idles = False
