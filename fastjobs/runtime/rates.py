"""How fast jobs of a kind may start: `rate=Throttle(…)`, whose places the store counts on all instances together.

A kind's places are taken before the claim, which then has so much room for it, and what of them started is settled
after it. While nothing of it is due it has no room and takes none. With `by=` a claim can't know the values before, so
the places are taken after it, and the jobs without one go back, each for a turn of its own.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from fastjobs.clock import Clock
from fastjobs.core.duration import SECOND
from fastjobs.core.errors import PayloadError
from fastjobs.core.job import Job
from fastjobs.core.rate import HELD_FOR, RESERVED, Throttle
from fastjobs.runtime.handled import all_named
from fastjobs.runtime.kind import Kind
from fastjobs.runtime.outage import Outage
from fastjobs.runtime.turns import Asking, Refused, Turns
from fastjobs.runtime.waiting import limited
from fastjobs.store import Claimable, Claimed, Places, Store, Throttled, ThrottleStore

LOOK = 0.2
"""Seconds for which other kinds may fill each claim before a kind is given room unasked."""
LONGEST = 1.0
"""The most seconds that places are waited for: others may give some back meanwhile."""
SOONEST = 0.05
"""The least seconds until places are asked for again, or a hundredth of the time they're counted in."""
MANY = 10_000
"""How many values' turns are remembered before those that are over are let go."""


class _Rated:
    """A kind with a rate as a whole."""

    def __init__(self, term: Claimable, throttle: Throttle) -> None:
        self.term = term
        self.throttle = throttle
        self.due = False
        """Whether some of it may be due, so that it's worth taking places."""
        self.unseen_since: float | None = None
        """Since when other kinds have filled each claim, so that it's not known whether."""
        self.blocked_until = 0.0
        self.places: Places | None = None
        """What the claim under way may start."""

    def unseen_for(self, now: float) -> float:
        return 0.0 if self.unseen_since is None else now - self.unseen_since

    def room(self) -> int:
        return 0 if self.places is None else len(self.places.slots)


class Rates:
    """The rates of one running queue, or one drain."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        kinds: Mapping[str, Kind[Any]],
        terms: Sequence[Claimable],
        poll: float,
        *,
        beside_others: bool = False,
    ) -> None:
        """`terms` is what claims are asked for; a kind with a rate has its room from here.

        `beside_others` says that claims take every kind that isn't named, so that each of these is to be.
        """
        self._store = cast("ThrottleStore", store)  # what each kind needs of it was seen to
        self._clock = clock
        self._kinds = kinds
        self._all = list(terms) if beside_others else None
        self._others: list[Claimable] = []
        self._rated: list[_Rated] = []
        self._by: dict[str, Claimable] = {}
        self._limited: set[str] = set()
        """The kinds that have a limiter of the app's own."""
        for term in terms:
            rate = kinds[term.kind].options.rate
            if isinstance(rate, Throttle) and rate.by is None:
                self._rated.append(_Rated(term, rate))
            elif isinstance(rate, Throttle):
                self._by[term.kind] = term
            else:
                self._others.append(term)
                if rate is not None:
                    self._limited.add(term.kind)
        self._held_until: dict[str, float] = {}
        """Until when kinds are held back by what their limiters said here: no claim is to come before the mark."""
        self._asking: defaultdict[str, Asking] = defaultdict(Asking)
        self._turns: defaultdict[tuple[str, str], Turns] = defaultdict(Turns)
        self._many = MANY
        self._crowded = False
        """Whether jobs were refused by their values' rates in the claim before."""
        self._passed_over = False
        """Whether this claim asks for none of those, as there is room for one job and others may have it."""
        self._outage = Outage(clock, "rates", poll)
        self.error: Exception | None = None
        """What the store failed with as it was asked for places after a claim."""
        self.again = False
        """Whether the claim is to be made again at once: it found jobs due of a kind that it had no room for."""

    async def before(self, room: int, free: int) -> list[Claimable]:
        """What to ask a claim for, of which `free` jobs would start at once. Raises what the store raises."""
        now = self._clock.monotonic()
        asking = [
            each
            for each in self._rated
            if free > 0 and now >= each.blocked_until and (each.due or each.unseen_for(now) >= LOOK)
        ]
        for each in self._rated:
            each.places = None
        if asking:
            places = await limited(self._store.take([_asked(each, free) for each in asking]), "a rate")
            for each, got in zip(asking, places, strict=True):
                each.places = got if got.slots else None
                if got.wait:
                    soonest = min(each.throttle.period / SECOND / 100, SOONEST)
                    each.blocked_until = now + min(max(got.wait / SECOND, soonest), LONGEST)
        held = {kind for kind, until in self._held_until.items() if now < until}
        terms = [self._other(term) for term in self._others if term.kind not in held]
        terms += self._by_terms(room)
        terms += [
            replace(each.term, limit=each.room())
            for each in self._rated
            if each.places is not None or now >= each.blocked_until
        ]
        if self._all is not None:
            return all_named(terms, self._all)
        # The store is asked something all the same, so that an outage is seen.
        return terms or [
            replace(term, limit=0) for term in (*self._others, *(each.term for each in self._rated))
        ]

    def _other(self, term: Claimable) -> Claimable:
        return replace(term, limit=self._asking[term.kind].room()) if term.kind in self._limited else term

    def _by_terms(self, room: int) -> list[Claimable]:
        """Jobs that are refused take room and run nothing, so while there are some the rest has half of it."""
        if not self._crowded:
            return list(self._by.values())
        if room == 1 and self._others and not self._passed_over:
            self._passed_over = True
            return []
        self._passed_over = False
        return [replace(term, limit=max(1, room // 2)) for term in self._by.values()]

    async def after(self, claimed: Claimed, room: int, free: int) -> None:
        """Settles what of the places was started, once the claim's jobs are on their way."""
        short = len(claimed.jobs) + len(claimed.exhausted) < room
        self.again = short and self._crowded and (self._passed_over or claimed.next_in == 0)
        if not self._rated:
            return
        now = self._clock.monotonic()
        taken = Counter(job.kind for job in claimed.jobs)
        started = Counter(job.kind for job in claimed.jobs if not job.stop_asked)  # the others use no place
        settled: list[tuple[Places, int, int]] = []
        for each in self._rated:
            had = each.room()
            if each.places is not None:
                each.due = taken[each.term.kind] == had
                each.unseen_since = None
                settled.append((each.places, started[each.term.kind], claimed.now))
            elif not short:
                each.unseen_since = now if each.unseen_since is None else each.unseen_since
            elif now >= each.blocked_until:
                each.unseen_since = None
                if claimed.next_in == 0 and free > 0:
                    each.due = self.again = True
        if settled:
            try:
                await limited(self._store.settle(settled), "a rate's count")
            except Exception as error:  # the places stay taken, so that the rate is kept
                self._outage.failed(error)
            else:
                self._outage.over()

    def claimed(self, job: Job) -> None:
        """A job is held here that is to ask its kind's limiter, where it has one."""
        if job.kind in self._limited:
            self._asking[job.kind].jobs.add(job.id)

    def went(self, job: Job) -> None:
        """Its limiter let it go."""
        self.let_go(job)
        self._asking[job.kind].most += 1

    def let_go(self, job: Job) -> None:
        """The job is held here no more."""
        if job.kind in self._limited:
            self._asking[job.kind].jobs.discard(job.id)

    def held_back(self, kind: str, wait: int) -> None:
        """Asks no claim for the kind for so many microseconds, as its limiter refused a job."""
        self._asking[kind].most = 1
        until = self._clock.monotonic() + wait / SECOND
        self._held_until[kind] = max(until, self._held_until.get(kind, 0.0))

    def sleep(self, seconds: float) -> float:
        """How long to sleep, where it would be so many seconds: no longer than until a kind may start again."""
        now = self._clock.monotonic()
        until = [*(each.blocked_until for each in self._rated), *self._held_until.values()]
        waits = [each - now for each in until if each > now]
        return max(0.001, min([seconds, *waits]))

    def late(self, claimed: Claimed) -> list[Refused]:
        """The claimed jobs whose places had run out by the time of the claim, as where the process was frozen."""
        over = {
            each.term.kind
            for each in self._rated
            if each.places is not None and claimed.now > each.places.until
        }
        return [Refused(job, None) for job in claimed.jobs if job.kind in over] if over else []

    def by_value(self, job: Job) -> bool:
        """Whether it's still to be asked whether the job may start."""
        return job.kind in self._by

    async def refuse(self, claimed: Sequence[Job], now: int) -> list[Refused]:
        """Of those jobs the ones that don't start, as their values' rates have no places, or have no value to count.

        A store that fails holds all of them back, rather than let them past their rate; it's kept in `error`.
        """
        self.error = None
        if self._passed_over or not self._by:
            return []
        refused: list[Refused] = []
        by_key: defaultdict[tuple[str, str], list[Job]] = defaultdict(list)
        for job in claimed:
            try:
                key = self._throttle(job.kind).key(self._kinds[job.kind].codec.load(job.payload))
            except PayloadError:
                continue  # it fails as it's run
            except BaseException as error:  # as with a handler: whatever it raises stops nothing
                refused.append(Refused(job, error=error))
            else:
                by_key[job.kind, key].append(job)
        if by_key:
            refused += await self._without_place(by_key, now)
        self._crowded = bool(refused)
        return refused

    async def _without_place(
        self, by_key: Mapping[tuple[str, str], Sequence[Job]], now: int
    ) -> list[Refused]:
        asked: list[Throttled] = []
        for (kind, key), jobs in by_key.items():
            throttle = self._throttle(kind)
            asked.append(Throttled(kind, key, throttle.max, throttle.period, len(jobs)))
        try:
            places = await limited(self._store.take(asked), "a rate")
        except Exception as error:
            self._outage.failed(error)
            self.error = error
            return [Refused(job, HELD_FOR) for jobs in by_key.values() for job in jobs]
        refused: list[Refused] = []
        settled: list[tuple[Places, int, int]] = []
        for ((kind, key), jobs), got in zip(by_key.items(), places, strict=True):
            if got.slots:
                # They start from when the places were taken on, not from the claim before that.
                settled.append((got, len(got.slots), got.until - RESERVED))
            throttle = self._throttle(kind)
            late = jobs[len(got.slots) :]
            if late or (kind, key) in self._turns:
                turns = self._turns[kind, key]
                turns.came(now, throttle.period, has_place=bool(got.slots))
                after = (turns.after(now, got.wait, throttle, self._clock.random()) for _ in late)
                refused += map(Refused, late, after)
        if len(self._turns) > self._many:
            over = [at for at, turns in self._turns.items() if max(turns.next, turns.soon) <= now]
            for at in over:
                del self._turns[at]
            # Else each claim would look through all that are left.
            self._many = max(MANY, 2 * len(self._turns))
        if settled:
            try:
                await limited(self._store.settle(settled), "a rate's count")
            except Exception as error:
                self._outage.failed(error)
                return refused
        self._outage.over()
        return refused

    def _throttle(self, kind: str) -> Throttle:
        rate = self._kinds[kind].options.rate
        assert isinstance(rate, Throttle)
        return rate


def _asked(each: _Rated, free: int) -> Throttled:
    return Throttled(
        each.term.kind, "", each.throttle.max, each.throttle.period, min(free, each.throttle.max)
    )
