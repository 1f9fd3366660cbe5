"""Random histories of a store: pushes, claims, marks and time as they come, each answer compared with the model's."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, cast

from fastjobs.core.job import Job, NewJob
from fastjobs.core.marks import Done, Extend, Fail, GiveBack, HoldBack, Kept, Mark, TryAgain
from fastjobs.store import Cancelled, CancelStore, CountsStore, Extra, PauseStore, Store, supports
from fastjobs.testing.clock import Clock
from fastjobs.testing.suite.chance import Chance
from fastjobs.testing.suite.model import Known, Model
from fastjobs.testing.suite.subject import HOLD, MINUTE, SECOND, claim, keyed, mark, of

_KINDS = ("mail", "photo")

_Step = Callable[[], Coroutine[Any, Any, None]]


class History:
    """A random history, on kinds that earlier ones left empty."""

    def __init__(self, seed: int, store: Store, other: Store, clock: Clock) -> None:
        self._chance = Chance(seed)
        self.seed = seed
        self._stores = store, other
        self._clock = clock
        self._model = Model()
        self._late: list[Job] = []
        self._at_once = {kind: self._chance.choice([None, None, None, 1, 2, 3]) for kind in _KINDS}
        self._alone = {kind: self._chance.random() < 0.75 for kind in _KINDS}
        self.told: list[str] = []

    async def run(self) -> None:
        steps = self._steps()
        for _ in range(50):
            await self._chance.choice(steps)()
        await self._before_the_end()
        for _ in range(40):
            self._clock.advance(3 * HOLD / SECOND)
            await self._claim(limit=100)
            held = [job.claim for job in self._model.jobs.values() if job.claim is not None]
            marks: list[Mark] = [Done(job.id, job.claim) for job in held]
            assert await mark(self._store, *marks) == [Kept.YES] * len(marks)
            for job in held:
                del self._model.jobs[job.id]
            if not self._model.jobs:
                return
        raise AssertionError(f"jobs are never claimed: {self._model.jobs}")

    def _steps(self) -> list[_Step]:
        return [*[self._push] * 4, *[self._claim] * 6, *[self._mark] * 3, self._pass_time]

    async def _before_the_end(self) -> None:
        """What has to be so for all jobs to be claimed in the end."""

    @property
    def _store(self) -> Store:
        return self._chance.choice(self._stores)

    async def _push(self) -> None:
        kind = self._chance.choice(_KINDS)
        news = [
            keyed(
                f'"{len(self.told)} {n}"',
                self._chance.choice("ab"),
                kind=f"{kind}-{self.seed}",
                after=self._chance.choice([0, 0, 0, 0, 0, 20 * SECOND]),
                latest=self._chance.random() < 0.3,
                at_most=self._chance.choice([None, 5 * SECOND]),
                alone=self._alone[kind],
            )
            for n in range(self._chance.choice([1, 1, 1, 3]))
        ]
        news = [new if self._chance.random() < 0.85 else _without_key(new) for new in news]
        ids = await self._store.push(news)
        self.told.append(f"{self._clock.now()} pushed {news}: {ids}")
        self._model.push(news, ids, self._clock.now())

    async def _claim(self, limit: int = 0) -> None:
        terms = [
            of(
                f"{kind}-{self.seed}",
                hold=self._chance.choice([10, 60]) * SECOND,
                attempts=1000,
                at_once=self._at_once[kind],
                limit=None if limit else self._chance.choice([None, None, 1, 2]),
            )
            for kind in (_KINDS if limit else self._chance.sample(_KINDS, self._chance.randint(1, 2)))
        ]
        limit = limit or self._chance.choice([1, 5, 10, 10])
        found = await claim(self._store, *terms, limit=limit)
        self.told.append(f"{self._clock.now()} claimed {limit} of {terms}: {found.jobs}")
        assert found.exhausted == []
        stale = [known.claim for known in self._model.jobs.values() if known.claim is not None]
        self._model.claim(terms, limit, found.jobs, self._clock.now())
        taken = {job.id for job in found.jobs}
        self._late += [job for job in stale if job.id in taken]

    async def _mark(self) -> None:
        now = self._clock.now()
        if self._late and self._chance.random() < 0.3:
            late = self._chance.choice(self._late)
            assert await mark(self._store, self._any_mark(late)) == [Kept.LOST]
            return
        ours = [known for known in self._model.jobs.values() if known.claim is not None]
        if not ours:
            return
        known = self._chance.choice(ours)
        assert known.claim is not None
        job = known.claim
        each = self._any_mark(job)
        (kept,) = await mark(self._store, each)
        self.told.append(f"{now} marked {each}: {kept}")
        if isinstance(each, Extend):
            assert kept is known.extended(now)
            known.held_until = known.held_until if kept is Kept.LOST else now + each.hold
            return
        assert kept is Kept.YES
        self._late.append(job)
        match each:
            case Done():
                del self._model.jobs[job.id]
            case Fail():
                del self._model.jobs[job.id]
            case TryAgain():
                self._model.goes_back(known, now + each.after, with_key=False)
            case GiveBack():
                run_at = known.run_at if each.after is None else now + each.after
                self._model.goes_back(known, run_at, with_key=True)
            case HoldBack():
                self._model.hold_back(job.kind, now + each.kind_for)
                run_at = known.run_at if each.after is None else now + each.after
                self._model.goes_back(known, run_at, with_key=True)

    def _any_mark(self, job: Job) -> Mark:
        after = self._chance.choice([0, 3 * SECOND, MINUTE])
        this = job.id, job.claim
        marks: list[Mark] = [
            Done(*this),
            Done(*this),
            TryAgain(*this, after, "x"),
            TryAgain(*this, after, "x"),
            Fail(*this, "x"),
            GiveBack(*this),
            GiveBack(*this, after),
            HoldBack(*this, self._chance.choice([2, 8]) * SECOND),
            HoldBack(*this, 2 * SECOND, after),
            Extend(*this, 20 * SECOND),
        ]
        return self._chance.choice(marks)

    async def _pass_time(self) -> None:
        self._clock.advance(self._chance.choice([0.5, 1, 3, 11]))
        if self._chance.random() < 0.2 and supports(self._stores[0], Extra.PRUNE):
            await self._stores[0].sweep()


def _without_key(new: NewJob) -> NewJob:
    return new._replace(key=None, latest=False, at_most=None, one_at_a_time=False)


class ActedOn(History):
    """A history in which jobs are cancelled and kinds paused, too, and looked at."""

    def _steps(self) -> list[_Step]:
        return [*super()._steps(), *[self._cancel] * 3, *[self._pause] * 2, *[self._look] * 2]

    async def _before_the_end(self) -> None:
        for kind in sorted(self._model.paused):
            await cast("PauseStore", self._store).pause(kind, False)
        self._model.paused.clear()
        await self._look()

    async def _cancel(self) -> None:
        known = list(self._model.jobs.values())
        some = self._chance.sample(known, min(len(known), self._chance.choice([1, 1, 3])))
        gone = [self._chance.choice(self._late).id] if self._late and self._chance.random() < 0.5 else []
        ids = [*(each.id for each in some), *gone]
        now = self._clock.now()
        # One of those that were lost or marked before may wait again, or be held by a later claim.
        expected = [self._cancelled(self._model.jobs.get(id), now) for id in ids]
        answers = await cast("CancelStore", self._store).cancel(ids)
        self.told.append(f"{now} cancelled {ids}: {answers}")
        assert answers == expected, f"a cancel of {ids} was answered by {answers}, not {expected}"

    def _cancelled(self, known: Known | None, now: int) -> Cancelled:
        """What a cancel of it is answered, and done in the model."""
        if known is None:
            return Cancelled.NOT_THERE
        if known.is_held(now):
            known.stop_asked = True
            return Cancelled.ASKED
        if known.claim is not None:
            self._late.append(known.claim)
        del self._model.jobs[known.id]
        return Cancelled.REMOVED

    async def _pause(self) -> None:
        kinds = sorted({known.new.kind for known in self._model.jobs.values()})
        if not kinds:
            return
        kind, paused = self._chance.choice(kinds), self._chance.random() < 0.5
        assert await cast("PauseStore", self._store).pause(kind, paused) is True
        self.told.append(f"{self._clock.now()} {'paused' if paused else 'resumed'} {kind}")
        self._model.pause(kind, paused=paused)

    async def _look(self) -> None:
        now = self._clock.now()
        known = list(self._model.jobs.values())
        held = [each.claim for each in known if each.claim is not None]
        asked = {each.id for each in known if each.claim is not None and each.stop_asked}
        ours = [*held, *self._late[-3:]]
        assert await cast("CancelStore", self._store).asked([(job.id, job.claim) for job in ours]) == asked
        counts = cast("CountsStore", self._store)
        rows = [row for row in await counts.counts() if row.kind.endswith(f"-{self.seed}")]
        for row in rows:
            of_kind = [each for each in known if each.new.kind == row.kind]
            assert row.waiting + row.held + row.parked == len(of_kind), f"{row}: {of_kind}"
            assert row.held >= sum(each.is_held(now) for each in of_kind), f"{row}: {of_kind}"
            assert row.paused is (row.kind in self._model.paused)
            assert row.held_back == max(0, self._model.held_back.get(row.kind, 0) - now)
        for each in known:
            shown = await counts.job(each.id)
            assert shown is not None, f"{each} is not shown"
            assert (shown.run_at, shown.has_key) == (each.run_at, each.new.key is not None)
            assert shown.stop_asked is each.stop_asked
