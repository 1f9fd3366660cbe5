"""The suite on keys and limits together: every combination of them holds, through random histories too."""

from __future__ import annotations

import random
from typing import ClassVar

import pytest

from fastjobs.core.job import Job, NewJob
from fastjobs.core.marks import Done, Extend, Fail, GiveBack, HoldBack, Kept, Mark, TryAgain
from fastjobs.store import Extra, Store, supports
from fastjobs.testing.clock import Clock
from fastjobs.testing.suite.model import Model
from fastjobs.testing.suite.subject import (
    HOLD,
    MINUTE,
    SECOND,
    Subject,
    claim,
    keyed,
    mark,
    need,
    of,
    payloads,
    push,
    push_one,
    pushed,
    take,
    take_one,
)

_LIMITS = Extra.UNIQUE | Extra.LATEST | Extra.ONE_AT_A_TIME | Extra.AT_ONCE | Extra.HOLD_BACK
_KINDS = ("mail", "photo")


class Combined(Subject):
    """All combinations of unique, latest, one at a time, at once and hold back work."""

    histories: ClassVar[int] = 10
    """How many random histories are tried."""

    async def test_one_at_a_time_and_at_once_hold_together(self, store: Store) -> None:
        need(store, Extra.ONE_AT_A_TIME | Extra.AT_ONCE)
        keys = ["a", "b", "c"]
        pushed(await store.push([keyed(f'"{each} 1"', each, alone=True) for each in keys]))
        terms = of(at_once=2)
        first, second = await take(store, terms)
        pushed(await store.push([keyed(f'"{each} 2"', each, alone=True) for each in ("a", "b")]))
        assert await take(store, terms) == []
        await mark(store, Done(first.id, first.claim))
        assert await payloads(store, terms) == ['"c 1"']
        await mark(store, Done(second.id, second.claim))
        assert await payloads(store, terms) == ['"a 2"']
        assert await take(store, terms) == []

    async def test_a_job_that_waits_for_another_takes_no_place_of_its_kind(self, store: Store) -> None:
        need(store, Extra.ONE_AT_A_TIME | Extra.AT_ONCE)
        await push_one(store, keyed("1", "a", alone=True))
        await take_one(store, of(at_once=2))
        pushed(await store.push([keyed("2", "a", alone=True), keyed("3", "b", alone=True)]))
        assert await payloads(store, of(at_once=2)) == ["3"]
        assert await payloads(store, of(at_once=3)) == []

    async def test_jobs_that_wait_for_another_use_up_no_limit_of_their_kind(
        self, store: Store, clock: Clock
    ) -> None:
        need(store, Extra.ONE_AT_A_TIME)
        keys = [str(n) for n in range(6)]
        pushed(await store.push([keyed(f'"{each} 1"', each, alone=True) for each in keys]))
        assert len(await take(store)) == 6
        pushed(await store.push([keyed(f'"{each} 2"', each, alone=True) for each in keys]))
        await push(store, '"free"')
        assert await payloads(store, of(limit=1)) == ['"free"']

    async def test_an_end_that_comes_while_the_kind_is_held_back_is_not_forgotten(
        self, store: Store, clock: Clock
    ) -> None:
        need(store, Extra.ONE_AT_A_TIME | Extra.HOLD_BACK)
        pushed(await store.push([keyed("1", "a", alone=True), keyed("2", "b", alone=True)]))
        first, second = await take(store)
        pushed(await store.push([keyed("3", "a", alone=True), keyed("4", "b", alone=True)]))
        assert await take(store) == []
        await mark(store, HoldBack(first.id, first.claim, 10 * SECOND))
        await mark(store, Done(second.id, second.claim))
        assert await take(store) == []
        clock.advance(10)
        jobs = await take(store)
        assert len(jobs) == 2
        assert {job.payload for job in jobs} in ({"1", "4"}, {"3", "4"})

    async def test_a_latest_push_of_a_held_back_kind_moves_its_job(self, store: Store, clock: Clock) -> None:
        need(store, Extra.LATEST | Extra.HOLD_BACK)
        id = await push_one(store, keyed("1", latest=True))
        job = await take_one(store)
        await mark(store, HoldBack(job.id, job.claim, 10 * SECOND))
        assert await push_one(store, keyed("2", after=MINUTE, latest=True)) == id
        clock.advance(10)
        assert await take(store) == []
        clock.advance(50)
        assert (await take_one(store)).attempts == 1

    async def test_a_held_back_job_gives_its_place_to_no_one_meanwhile(
        self, store: Store, clock: Clock
    ) -> None:
        need(store, Extra.AT_ONCE | Extra.HOLD_BACK)
        await push(store, "1", "2", "3")
        one, two = await take(store, of(at_once=2))
        await mark(store, HoldBack(one.id, one.claim, 10 * SECOND))
        await mark(store, Done(two.id, two.claim))
        assert await take(store, of(at_once=2)) == []
        clock.advance(10)
        assert await payloads(store, of(at_once=2)) == ["1", "3"]

    @pytest.mark.parametrize("name", [False, True], ids=["unnamed", "named"])
    async def test_a_job_may_have_every_option(self, store: Store, clock: Clock, name: bool) -> None:
        need(store, _LIMITS | (Extra.NAMES if name else _LIMITS))
        taken = "its name" if name else None
        job = keyed("1", after=SECOND, latest=True, at_most=MINUTE, alone=True, name=taken)
        id = await push_one(store, job)
        assert await push_one(store, job) == (None if name else id)
        clock.advance(1)
        terms = of(at_once=1, ahead_ok=False)
        held = await take_one(store, terms)
        again = await push_one(store, job._replace(name=None))
        assert again not in (None, id)
        clock.advance(1)
        assert await take(store, terms) == []
        assert await mark(store, HoldBack(held.id, held.claim, SECOND)) == [Kept.YES]
        assert await push_one(store, job._replace(name=None)) == again
        clock.advance(1)
        held = await take_one(store, terms)
        assert held.id == id
        await mark(store, Done(held.id, held.claim))
        assert (await take_one(store, terms)).id == again

    async def test_random_histories_keep_every_rule(self, store: Store, other: Store, clock: Clock) -> None:
        """Pushes, claims, marks and time, as they come: each answer is what a small model of the rules expects."""
        need(store, _LIMITS)
        for seed in range(self.histories):
            history = _History(seed, store, other, clock)
            try:
                await history.run()
            except AssertionError as broken:
                lines = "\n".join(history.told)
                pytest.fail(f"in history {seed}: {broken}\nafter\n{lines}")


class _History:
    """A random history, on kinds that earlier ones left empty."""

    def __init__(self, seed: int, store: Store, other: Store, clock: Clock) -> None:
        self._chance = random.Random(seed)  # noqa: S311 - a test wants the same numbers each time
        self._seed = seed
        self._stores = store, other
        self._clock = clock
        self._model = Model()
        self._late: list[Job] = []
        self._at_once = {kind: self._chance.choice([None, None, None, 1, 2, 3]) for kind in _KINDS}
        self._alone = {kind: self._chance.random() < 0.75 for kind in _KINDS}
        self.told: list[str] = []

    async def run(self) -> None:
        steps = [self._push] * 4 + [self._claim] * 6 + [self._mark] * 3 + [self._pass_time]
        for _ in range(50):
            await self._chance.choice(steps)()
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

    @property
    def _store(self) -> Store:
        return self._chance.choice(self._stores)

    async def _push(self) -> None:
        kind = self._chance.choice(_KINDS)
        news = [
            keyed(
                f'"{len(self.told)} {n}"',
                self._chance.choice("ab"),
                kind=f"{kind}-{self._seed}",
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
                f"{kind}-{self._seed}",
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
            assert kept is (Kept.YES if known.is_held(now) else Kept.LOST)
            known.held_until = now + each.hold if kept is Kept.YES else known.held_until
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
