"""The suite on how many jobs of a kind are held at once (AT_ONCE)."""

from __future__ import annotations

import asyncio
import random

import pytest

from fastjobs.core.job import Job
from fastjobs.core.marks import Done, Extend, Kept, TryAgain
from fastjobs.store import Extra, Store
from fastjobs.testing.clock import Clock
from fastjobs.testing.suite.subject import (
    ENDS,
    HOLD,
    MINUTE,
    SECOND,
    MakeMark,
    Subject,
    claim,
    mark,
    need,
    of,
    payloads,
    push,
    take,
    take_one,
)


class AtOnce(Subject):
    """No more than `at_once` jobs of a kind are held at once, on all instances together."""

    async def test_a_kind_has_at_most_so_many_held(self, store: Store, other: Store) -> None:
        need(store, Extra.AT_ONCE)
        await push(store, "1", "2", "3", "4", "5")
        assert await payloads(store, of(at_once=3), limit=2) == ["1", "2"]
        assert await payloads(other, of(at_once=3)) == ["3"]
        for each in (store, other):
            assert await take(each, of(at_once=3)) == []

    @pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
    async def test_the_end_of_a_claim_makes_room_for_another(self, store: Store, end: MakeMark) -> None:
        need(store, Extra.AT_ONCE)
        await push(store, "1", "2", "3")
        one, _ = await take(store, of(at_once=2))
        assert await mark(store, end(one)) == [Kept.YES]
        job = await take_one(store, of(at_once=2))
        assert job.payload in ("1", "3")
        assert await take(store, of(at_once=2)) == []

    async def test_a_hold_that_ran_out_makes_room(self, store: Store, clock: Clock) -> None:
        need(store, Extra.AT_ONCE)
        await push(store, "1", "2", "3")
        assert await payloads(store, of(at_once=1, hold=10 * SECOND)) == ["1"]
        clock.advance(9.9999)
        assert await take(store, of(at_once=1)) == []
        clock.advance(0.0002)
        assert len(await take(store, of(at_once=1))) == 1
        assert await take(store, of(at_once=1)) == []

    async def test_a_hold_that_was_extended_still_counts(self, store: Store, clock: Clock) -> None:
        need(store, Extra.AT_ONCE)
        await push(store, "1", "2")
        job = await take_one(store, of(at_once=1))
        for _ in range(3):
            clock.advance(50)
            assert await mark(store, Extend(job.id, job.claim, HOLD)) == [Kept.YES]
            assert await take(store, of(at_once=1)) == []
        assert await mark(store, Done(job.id, job.claim)) == [Kept.YES]
        assert await payloads(store, of(at_once=1)) == ["2"]

    async def test_the_limit_is_the_claimers_own(self, store: Store) -> None:
        """Every held job of the kind counts, whoever claimed it and by whichever limit."""
        need(store, Extra.AT_ONCE)
        await push(store, *(str(n) for n in range(9)))
        assert await payloads(store, of(), limit=2) == ["0", "1"]
        assert await take(store, of(at_once=1)) == []
        assert await take(store, of(at_once=2)) == []
        assert await payloads(store, of(at_once=4)) == ["2", "3"]
        assert await payloads(store, of(at_once=3), of("photo")) == []
        assert await payloads(store, of(), limit=2) == ["4", "5"]

    async def test_each_kind_has_its_own_count(self, store: Store) -> None:
        need(store, Extra.AT_ONCE)
        for kind in ("mail", "photo", "report"):
            await push(store, "1", "2", "3", kind=kind)
        kinds = of("mail", at_once=1), of("photo", at_once=2), of("report")
        jobs = await take(store, *kinds)
        assert [sum(job.kind == each.kind for job in jobs) for each in kinds] == [1, 2, 3]
        assert await take(store, *kinds) == []

    async def test_the_least_of_all_limits_holds(self, store: Store) -> None:
        need(store, Extra.AT_ONCE)
        await push(store, *(str(n) for n in range(9)))
        assert await payloads(store, of(at_once=5, limit=2)) == ["0", "1"]
        assert await payloads(store, of(at_once=4, limit=3)) == ["2", "3"]
        assert await payloads(store, of(at_once=9), limit=1) == ["4"]

    async def test_jobs_of_a_kind_at_its_limit_keep_no_other_from_being_claimed(self, store: Store) -> None:
        need(store, Extra.AT_ONCE)
        await push(store, *(str(n) for n in range(50)))
        await take_one(store, of(at_once=1))
        await push(store, '"a"', '"b"', kind="photo")
        assert await payloads(store, of(at_once=1), of("photo"), limit=1) == ['"a"']
        assert await payloads(store, of(at_once=1), of("photo", at_once=2), limit=9) == ['"b"']

    async def test_jobs_are_taken_in_the_order_they_are_due_under_a_limit(
        self, store: Store, clock: Clock
    ) -> None:
        need(store, Extra.AT_ONCE)
        for payload, after in (("3", 30), ("1", 10), ("4", 40), ("2", 20)):
            await push(store, payload, after=after * SECOND)
        clock.advance(60)
        for payload in ("1", "2", "3", "4"):
            job = await take_one(store, of(at_once=1))
            assert job.payload == payload
            await mark(store, Done(job.id, job.claim))

    async def test_a_job_to_try_again_later_takes_no_place_meanwhile(
        self, store: Store, clock: Clock
    ) -> None:
        need(store, Extra.AT_ONCE)
        await push(store, "1", "2")
        job = await take_one(store, of(at_once=1))
        await mark(store, TryAgain(job.id, job.claim, MINUTE, "x"))
        assert await payloads(store, of(at_once=1)) == ["2"]
        clock.advance(59)
        assert await take(store, of(at_once=1)) == []

    async def test_an_exhausted_job_takes_no_place(self, store: Store, clock: Clock) -> None:
        need(store, Extra.AT_ONCE)
        await push(store, "1", "2")
        terms = of(at_once=1, attempts=1)
        await take_one(store, terms)
        clock.advance(HOLD / SECOND + 1)
        first, second = await claim(store, terms), await claim(store, terms)
        assert [job.payload for job in [*first.exhausted, *second.exhausted]] == ["1"]
        assert [job.payload for job in [*first.jobs, *second.jobs]] == ["2"]

    async def test_a_kind_at_its_limit_is_not_asked_for_at_once(self, store: Store) -> None:
        """Whoever sleeps until `next_in` doesn't spin: a job's end wakes him. Other kinds' jobs still count."""
        need(store, Extra.AT_ONCE)
        await push(store, "1", "2", "3")
        terms = of(at_once=1)
        await take_one(store, terms)
        found = await store.claim([terms], 5)
        assert (found.jobs, found.again) == ([], False)
        assert found.next_in is None or found.next_in > 0
        await push(store, "4", kind="photo", after=3 * SECOND)
        found = await store.claim([terms, of("photo")], 5)
        assert found.next_in is not None
        assert 0 < found.next_in <= 3 * SECOND

    async def test_a_claim_of_a_kind_at_its_limit_writes_nothing(self, store: Store) -> None:
        need(store, Extra.AT_ONCE)
        await push(store, "1", "2", "3")
        await take_one(store, of(at_once=1))

        async def look() -> None:
            assert await take(store, of(at_once=1)) == []

        await self.writes_nothing(store, look)

    async def test_claims_at_once_never_hold_more_than_the_limit(
        self, store: Store, other: Store, clock: Clock
    ) -> None:
        """Workers on two instances, some of which die with what they hold."""
        need(store, Extra.AT_ONCE)
        total, most = 60, 3
        await push(store, *(str(n) for n in range(total)))
        held: dict[tuple[str, int], int] = {}
        dead: set[tuple[str, int]] = set()
        done: list[str] = []
        chance = random.Random(3)  # noqa: S311 - a test wants the same numbers each time
        terms = of(at_once=most, hold=10 * SECOND, attempts=1000)

        async def work(through: Store, job: Job, until: int) -> None:
            # It's noted from after its claim until before its mark: never longer than it's held.
            held[job.id, job.claim] = until
            now = clock.now()
            live = sum(each > now for each in held.values())
            assert live <= most, f"{live} jobs were held at once, {most} was the limit"
            await asyncio.sleep(0)
            if chance.random() < 0.05:
                dead.add((job.id, job.claim))
                return
            del held[job.id, job.claim]
            if chance.random() < 0.2:
                await through.mark([TryAgain(job.id, job.claim, 0, "x")])
            elif await through.mark([Done(job.id, job.claim)]) == [Kept.YES]:
                done.append(job.id)

        async def worker(through: Store) -> None:
            while len(done) < total:
                found = await through.claim([terms], chance.randint(1, 4))
                await asyncio.gather(*(work(through, job, found.now + 10 * SECOND) for job in found.jobs))
                if not found.jobs:
                    if dead.issuperset(held):  # those that died have the places until their holds run out
                        clock.advance(1)
                    await asyncio.sleep(0.001)

        await asyncio.gather(*(worker([store, other][n % 2]) for n in range(self.races)))
        assert len(set(done)) == len(done) == total
