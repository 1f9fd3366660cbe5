"""The suite on holding a kind back (HOLD_BACK)."""

from __future__ import annotations

import asyncio

from fastjobs.core.marks import Done, Extend, HoldBack, Kept, TryAgain
from fastjobs.store import Extra, Store
from fastjobs.testing.clock import Clock
from fastjobs.testing.suite.subject import (
    HOLD,
    MINUTE,
    SECOND,
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


class HoldingBack(Subject):
    """`HoldBack` undoes a claim, and no job of its kind is claimed until its time, on any instance."""

    async def test_a_hold_back_undoes_the_claim(self, store: Store, clock: Clock) -> None:
        need(store, Extra.HOLD_BACK)
        await push(store, "1")
        first = await take_one(store)
        await mark(store, TryAgain(first.id, first.claim, 0, "its error"))
        second = await take_one(store)
        clock.advance(5)
        assert await mark(store, HoldBack(second.id, second.claim, SECOND)) == [Kept.YES]
        clock.advance(1)
        third = await take_one(store)
        assert (third.id, third.attempts, third.lost) == (second.id, 2, 0)
        assert (third.error, third.run_at) == ("its error", second.run_at)
        assert third.claim > second.claim

    async def test_no_job_of_a_held_back_kind_is_claimed_until_its_time(
        self, store: Store, other: Store, clock: Clock
    ) -> None:
        need(store, Extra.HOLD_BACK)
        await push(store, "1", "2")
        job = (await take(store, limit=1))[0]
        assert await mark(store, HoldBack(job.id, job.claim, 10 * SECOND)) == [Kept.YES]
        await push(store, "3")
        for _ in range(2):
            assert await take(store) == []
            assert await take(other) == [], "another instance claims of a kind that is held back"
            clock.advance(4.9999995)
        clock.advance(0.000001)
        assert await payloads(store) == ["1", "2", "3"]

    async def test_other_kinds_are_claimed_meanwhile(self, store: Store) -> None:
        need(store, Extra.HOLD_BACK)
        await push(store, *(str(n) for n in range(20)))
        job = (await take(store, limit=1))[0]
        await mark(store, HoldBack(job.id, job.claim, MINUTE))
        await push(store, '"photo"', kind="photo")
        assert await payloads(store, of("mail"), of("photo"), limit=1) == ['"photo"']

    async def test_a_kind_that_is_held_back_is_claimed_as_no_other_either(
        self, store: Store, clock: Clock
    ) -> None:
        need(store, Extra.HOLD_BACK)
        await _hold_back(store, 10)
        await push(store, '"photo"', kind="photo")
        found = await claim(store, of("report"), others=of(""))
        assert [job.payload for job in found.jobs] == ['"photo"']
        clock.advance(10)
        found = await claim(store, of("report"), others=of(""))
        assert [job.payload for job in found.jobs] == ["1"]

    async def test_a_kinds_time_is_moved_only_forward(self, store: Store, clock: Clock) -> None:
        need(store, Extra.HOLD_BACK)
        await push(store, "1", "2", "3")
        one, two, three = await take(store)
        for job, seconds in ((one, 30), (two, 10)):
            await mark(store, HoldBack(job.id, job.claim, seconds * SECOND))
        clock.advance(29)
        assert await take(store) == [], "a shorter hold back brought the kind's time forward"
        await mark(store, HoldBack(three.id, three.claim, 10 * SECOND))
        clock.advance(9)
        assert await take(store) == []
        clock.advance(1)
        assert await payloads(store) == ["1", "2", "3"]

    async def test_of_a_batch_of_hold_backs_the_longest_holds(self, store: Store, clock: Clock) -> None:
        need(store, Extra.HOLD_BACK)
        await push(store, "1", "2", "3", "4")
        await push(store, "5", kind="photo")
        jobs = await take(store, of("mail"), of("photo"))
        seconds = (5, 20, 10, 1, 2)
        marks = [HoldBack(job.id, job.claim, n * SECOND) for job, n in zip(jobs, seconds, strict=True)]
        assert await mark(store, *marks) == [Kept.YES] * 5
        clock.advance(2)
        assert await payloads(store, of("mail"), of("photo")) == ["5"]
        clock.advance(17.9)
        assert await take(store) == []
        clock.advance(0.1)
        assert await payloads(store) == ["1", "2", "3", "4"]

    async def test_a_hold_back_may_say_when_the_job_is_due(self, store: Store, clock: Clock) -> None:
        need(store, Extra.HOLD_BACK)
        await push(store, "1", "2")
        job = (await take(store, limit=1))[0]
        clock.advance(5)
        await mark(store, HoldBack(job.id, job.claim, SECOND, after=MINUTE))
        clock.advance(1)
        assert await payloads(store) == ["2"]
        clock.advance(58)
        assert await take(store) == []
        clock.advance(1)
        again = await take_one(store)
        assert (again.id, again.attempts, again.run_at) == (job.id, 1, clock.now())

    async def test_a_late_hold_back_holds_nothing(self, store: Store, clock: Clock) -> None:
        """Nothing changes: neither the job that a later claim has, nor its kind."""
        need(store, Extra.HOLD_BACK)
        await push(store, "1")
        old = await take_one(store)
        clock.advance(HOLD / SECOND + 1)
        job = await take_one(store)
        assert await mark(store, HoldBack(old.id, old.claim, MINUTE)) == [Kept.LOST]
        assert await mark(store, HoldBack("999999999", 1, MINUTE)) == [Kept.LOST]
        await push(store, "2")
        assert await payloads(store) == ["2"], "a mark that was lost holds its kind back"
        assert await mark(store, Done(job.id, job.claim)) == [Kept.YES]

    async def test_a_hold_back_sent_twice_is_kept_once(self, store: Store, clock: Clock) -> None:
        need(store, Extra.HOLD_BACK)
        await push(store, "1")
        job = await take_one(store)
        again = HoldBack(job.id, job.claim, 10 * SECOND)
        assert await mark(store, again, again) == [Kept.YES, Kept.LOST]
        clock.advance(9)
        assert await mark(store, again) == [Kept.LOST]
        clock.advance(1)
        assert (await take_one(store)).attempts == 1

    async def test_jobs_of_a_held_back_kind_that_run_go_on(self, store: Store, clock: Clock) -> None:
        need(store, Extra.HOLD_BACK)
        await push(store, "1", "2", "3")
        one, two, three = await take(store)
        marks = (
            HoldBack(one.id, one.claim, MINUTE),
            Extend(two.id, two.claim, HOLD),
            Done(three.id, three.claim),
        )
        assert await mark(store, *marks) == [Kept.YES] * 3
        assert await mark(store, Done(two.id, two.claim)) == [Kept.YES]
        clock.advance(60)
        assert await payloads(store) == ["1"]

    async def test_a_job_may_be_held_back_for_ever(self, store: Store, clock: Clock) -> None:
        need(store, Extra.HOLD_BACK)
        await push(store, "1")
        for _ in range(10):
            job = await take_one(store, of(attempts=1))
            assert (job.attempts, job.lost) == (1, 0)
            assert await mark(store, HoldBack(job.id, job.claim, SECOND)) == [Kept.YES]
            clock.advance(1)

    async def test_a_held_back_kind_is_not_asked_for_at_once(self, store: Store, clock: Clock) -> None:
        """Whoever sleeps until `next_in` doesn't spin, and doesn't oversleep the kind's time or another kind."""
        need(store, Extra.HOLD_BACK)
        await _hold_back(store, 10)
        found = await store.claim([of()], 5)
        assert (found.jobs, found.again) == ([], False)
        assert found.next_in is None or 0 < found.next_in <= 10 * SECOND
        await push(store, "2", kind="photo", after=3 * SECOND)
        found = await store.claim([of(), of("photo")], 5)
        assert found.next_in is not None
        assert 0 < found.next_in <= 3 * SECOND

    async def test_a_claim_of_a_held_back_kind_writes_nothing(self, store: Store) -> None:
        need(store, Extra.HOLD_BACK)
        await _hold_back(store, 10)

        async def look() -> None:
            assert await take(store) == []

        await self.writes_nothing(store, look)

    async def test_hold_backs_at_once_are_each_kept(self, store: Store, other: Store, clock: Clock) -> None:
        need(store, Extra.HOLD_BACK)
        await push(store, *(str(n) for n in range(2 * self.races)))
        jobs = await take(store)
        kept = await asyncio.gather(
            *(
                mark([store, other][n % 2], HoldBack(job.id, job.claim, (1 + n) * SECOND))
                for n, job in enumerate(jobs)
            )
        )
        assert kept == [[Kept.YES]] * len(jobs)
        clock.advance(2 * self.races - 1)
        assert await take(store) == []
        clock.advance(1)
        assert len(await take(store)) == 2 * self.races


async def _hold_back(store: Store, seconds: int) -> None:
    """Pushes a "mail" and holds its kind back."""
    await push(store, "1")
    job = await take_one(store)
    assert await mark(store, HoldBack(job.id, job.claim, seconds * SECOND)) == [Kept.YES]
