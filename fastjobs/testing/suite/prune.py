"""The suite on what is removed as it's kept no longer, and on the sweep (PRUNE)."""

from __future__ import annotations

import asyncio

from fastjobs.core.job import NewJob
from fastjobs.core.marks import Done, Fail, Kept
from fastjobs.store import Extra, PruneStore, Store, Throttled, supports
from fastjobs.testing.clock import Clock
from fastjobs.testing.suite.subject import (
    DAY,
    HOLD,
    MINUTE,
    SECOND,
    Subject,
    keyed,
    mark,
    need,
    of,
    payloads,
    push,
    push_one,
    take,
    take_one,
)


class Prune(Subject):
    """A prune removes jobs that failed long ago, and what ended; a sweep wakes what waits for nobody."""

    async def test_a_prune_removes_jobs_that_failed_longer_ago(self, store: Store, clock: Clock) -> None:
        prune = _prune_store(store, Extra.FAILED)
        assert supports(store, Extra.FAILED)
        await _fail(store, "1", "2")
        clock.advance(60)
        await _fail(store, "3")
        assert await prune.prune(MINUTE, 100) == 0, "a job was pruned that failed as long ago as is kept"
        clock.advance(0.000001)
        assert await prune.prune(MINUTE, 100) == 2
        assert [job.payload for job in await store.failed()] == ["3"]
        assert await prune.prune(MINUTE, 100) == 0
        clock.advance(60)
        assert await prune.prune(MINUTE, 100) == 1
        assert await store.failed() == []

    async def test_a_prune_removes_at_most_its_limit(self, store: Store, clock: Clock) -> None:
        prune = _prune_store(store, Extra.FAILED)
        assert supports(store, Extra.FAILED)
        await _fail(store, *(str(n) for n in range(25)))
        clock.advance(61)
        for removed, left in ((10, 15), (10, 5), (5, 0), (0, 0)):
            assert await prune.prune(MINUTE, 10) == removed
            assert len(await store.failed()) == left
        assert await prune.prune(MINUTE, 0) == 0

    async def test_a_pruned_job_is_gone(self, store: Store, clock: Clock) -> None:
        prune = _prune_store(store, Extra.FAILED)
        assert supports(store, Extra.FAILED)
        (id,) = await _fail(store, "1")
        clock.advance(61)
        assert await prune.prune(MINUTE, 100) == 1
        assert await store.run_again([id]) == [False]
        assert await store.delete([id]) == [False]
        assert await take(store) == []

    async def test_a_prune_asks_when_a_job_failed_and_not_when_it_was_pushed(
        self, store: Store, clock: Clock
    ) -> None:
        prune = _prune_store(store, Extra.FAILED)
        assert supports(store, Extra.FAILED)
        await push(store, "1")
        clock.advance(DAY / SECOND)
        job = await take_one(store)
        await mark(store, Fail(job.id, job.claim, "x"))
        assert await prune.prune(MINUTE, 100) == 0
        assert [job.payload for job in await store.failed()] == ["1"]

    async def test_all_that_a_prune_removes_is_within_its_limit(self, store: Store, clock: Clock) -> None:
        """Failed jobs, names and places together; and it comes to an end."""
        prune = _prune_store(store, Extra.FAILED | Extra.NAMES | Extra.THROTTLE)
        assert supports(store, Extra.FAILED)
        assert supports(store, Extra.THROTTLE)
        await store.push(
            [NewJob(kind="mail", payload="1", name=f"name {n}", keep_name=10 * SECOND) for n in range(5)]
        )
        assert await mark(store, *(Done(job.id, job.claim) for job in await take(store))) == [Kept.YES] * 5
        await _fail(store, *(str(n) for n in range(5)))
        places = await store.take([Throttled("a", "k", 5, SECOND, 5)])
        await store.settle([(places[0], 5, clock.now())])
        clock.advance(61)
        removed = 0
        for _ in range(20):
            step = await prune.prune(MINUTE, 2)
            assert step <= 2
            removed += step
            if not step:
                break
        assert removed > 10, "jobs, names or places were left"
        assert await prune.prune(MINUTE, 2) == 0, "a prune that found nothing left something"
        assert await store.failed() == []

    async def test_a_job_is_pruned_or_run_again(self, store: Store, other: Store, clock: Clock) -> None:
        prune = _prune_store(other, Extra.FAILED)
        assert supports(store, Extra.FAILED)
        ids = await _fail(store, *(str(n) for n in range(4 * self.races)))
        clock.advance(61)

        async def prune_all() -> int:
            return sum([await prune.prune(MINUTE, 3) for _ in range(2 * self.races)])

        pruning = asyncio.create_task(prune_all())
        again = await asyncio.gather(*(store.run_again([id]) for id in ids[::-1]))
        pruned = await pruning
        back = {id for id, (was,) in zip(ids[::-1], again, strict=True) if was}
        assert pruned + len(back) + len(await store.failed()) == len(ids)
        assert {job.id for job in await take(store)} == back

    async def test_a_prune_leaves_what_has_not_failed(self, store: Store, clock: Clock) -> None:
        prune = _prune_store(store, Extra.PRUNE)
        await push(store, '"waits"')
        await push(store, '"held"', kind="photo")
        held = await take_one(store, of("photo", hold=100 * DAY))
        await push(store, '"lost"', kind="report")
        await take_one(store, of("report"))
        clock.advance(60 * DAY / SECOND)
        assert await prune.prune(0, 100) == 0
        assert sorted(await payloads(store, of("mail"), of("report"))) == ['"lost"', '"waits"']
        assert await mark(store, Done(held.id, held.claim)) == [Kept.YES]

    async def test_a_job_that_was_run_again_is_not_pruned(self, store: Store, clock: Clock) -> None:
        prune = _prune_store(store, Extra.FAILED)
        assert supports(store, Extra.FAILED)
        (id,) = await _fail(store, "1")
        clock.advance(61)
        await store.run_again([id])
        assert await prune.prune(MINUTE, 100) == 0
        assert await payloads(store) == ["1"]

    async def test_prunes_at_once_count_each_row_once(self, store: Store, other: Store, clock: Clock) -> None:
        prunes = _prune_store(store, Extra.FAILED), _prune_store(other, Extra.FAILED)
        await _fail(store, *(str(n) for n in range(40)))
        clock.advance(61)
        removed = await asyncio.gather(*(prunes[n % 2].prune(MINUTE, 7) for n in range(self.races)))
        while more := await prunes[0].prune(MINUTE, 7):
            removed.append(more)
        assert max(removed) <= 7
        assert sum(removed) == 40

    async def test_a_prune_removes_names_that_are_free_and_no_other(self, store: Store, clock: Clock) -> None:
        prune = _prune_store(store, Extra.NAMES)
        for name, keep in (("short", 10 * SECOND), ("long", 60 * MINUTE)):
            await push_one(store, NewJob(kind="mail", payload="1", name=name, keep_name=keep))
            job = await take_one(store)
            await mark(store, Done(job.id, job.claim))
        await push_one(store, NewJob(kind="mail", payload="2", name="of a job", keep_name=10 * SECOND))
        assert await prune.prune(MINUTE, 100) == 0
        clock.advance(11)
        assert await prune.prune(MINUTE, 100) == 1
        assert await prune.prune(MINUTE, 100) == 0
        ids = await store.push(
            [NewJob(kind="mail", payload="3", name=name) for name in ("short", "long", "of a job")]
        )
        assert [id is None for id in ids] == [False, True, True]

    async def test_the_name_of_a_pruned_job_is_kept_so_long(self, store: Store, clock: Clock) -> None:
        prune = _prune_store(store, Extra.NAMES)
        job = NewJob(kind="mail", payload="1", name="a name", keep_name=10 * SECOND)
        await push_one(store, job)
        held = await take_one(store)
        await mark(store, Fail(held.id, held.claim, "x"))
        clock.advance(61)
        assert await prune.prune(MINUTE, 100) == 1
        clock.advance(9)
        assert await push_one(store, job) is None
        clock.advance(1)
        assert await push_one(store, job) is not None

    async def test_a_prune_leaves_places_that_count(self, store: Store, clock: Clock) -> None:
        prune = _prune_store(store, Extra.THROTTLE)
        assert supports(store, Extra.THROTTLE)
        asked = [Throttled("started", "k", 2, 20 * SECOND, 2), Throttled("taken", "k", 2, 20 * SECOND, 2)]
        started, _ = await store.take(asked)
        await store.settle([(started, 2, clock.now())])
        clock.advance(19)
        for _ in range(2):
            await prune.prune(0, 100)
            assert [taken.slots for taken in await store.take(asked)] == [(), ()]
        clock.advance(1)
        assert [len(taken.slots) for taken in await store.take(asked)] == [2, 0]

    async def test_a_long_window_outlives_prunes(self, store: Store, clock: Clock) -> None:
        prune = _prune_store(store, Extra.THROTTLE)
        assert supports(store, Extra.THROTTLE)
        asked = Throttled("daily", "k", 1, DAY, 1)
        (taken,) = await store.take([asked])
        await store.settle([(taken, 1, clock.now())])
        for _ in range(23):
            clock.advance(60 * MINUTE / SECOND)
            await prune.prune(0, 100)
            assert [taken.slots for taken in await store.take([asked])] == [()]
        clock.advance(60 * MINUTE / SECOND)
        assert [len(taken.slots) for taken in await store.take([asked])] == [1]

    async def test_a_prune_frees_no_key_that_is_held(self, store: Store, clock: Clock) -> None:
        prune = _prune_store(store, Extra.ONE_AT_A_TIME)
        await push_one(store, keyed("1", alone=True))
        job = await take_one(store, of(hold=100 * DAY))
        await push_one(store, keyed("2", alone=True))
        clock.advance(50 * DAY / SECOND)
        await prune.prune(0, 100)
        assert await take(store) == [], "a prune let a second job of a key go"
        await mark(store, Done(job.id, job.claim))
        await prune.prune(0, 100)
        assert await payloads(store) == ["2"]

    # The sweep

    async def test_a_sweep_wakes_no_job_whose_key_is_held(self, store: Store, clock: Clock) -> None:
        prune = _prune_store(store, Extra.ONE_AT_A_TIME)
        await push_one(store, keyed("1", alone=True))
        job = await take_one(store)
        await push_one(store, keyed("2", alone=True))
        assert await take(store) == []
        for _ in range(2):
            assert await prune.sweep() == 0
            assert await take(store) == []
        await mark(store, Done(job.id, job.claim))
        assert await prune.sweep() == 0, "the next of a key was left to the sweep"
        assert await payloads(store) == ["2"]

    async def test_a_sweep_of_nothing_wakes_nothing(self, store: Store, clock: Clock) -> None:
        prune = _prune_store(store, Extra.PRUNE)
        await push(store, "1", after=MINUTE)
        await push(store, "2")
        held = await take_one(store)

        async def look() -> None:
            assert await prune.sweep() == 0
            assert await prune.prune(MINUTE, 100) == 0

        await look()
        assert await mark(store, Done(held.id, held.claim)) == [Kept.YES]
        clock.advance(60)
        assert await payloads(store) == ["1"]
        await self.writes_nothing(store, look)

    async def test_a_sweep_after_a_hold_that_ran_out_lets_one_of_its_key_go(
        self, store: Store, clock: Clock
    ) -> None:
        prune = _prune_store(store, Extra.ONE_AT_A_TIME)
        keys = [str(n) for n in range(4)]
        await store.push([keyed("1", each, alone=True) for each in keys])
        assert len(await take(store)) == 4
        await store.push([keyed("2", each, alone=True) for each in keys])
        assert await take(store) == []
        clock.advance(HOLD / SECOND + 1)
        assert 0 <= await prune.sweep() <= 4
        assert len(await take(store)) == 4
        assert await prune.sweep() == 0
        assert await take(store) == []


def _prune_store(store: Store, beside: Extra) -> PruneStore:
    need(store, Extra.PRUNE)
    need(store, beside)
    assert supports(store, Extra.PRUNE)
    return store


async def _fail(store: Store, *texts: str) -> list[str]:
    """Pushes jobs that fail for good."""
    ids = await push(store, *texts)
    jobs = await take(store)
    assert [job.payload for job in jobs] == list(texts)
    await mark(store, *(Fail(job.id, job.claim, "x") for job in jobs))
    return ids
