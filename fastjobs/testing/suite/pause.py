"""The suite on pausing kinds (PAUSE).

Longer than 300 lines, as it's one subject: whatever else is done to a job goes on in a pause, but for its claim.
"""

from __future__ import annotations

import asyncio

import pytest

from fastjobs.core.job import NewJob
from fastjobs.core.marks import Done, Extend, Fail, HoldBack, Kept, TryAgain
from fastjobs.store import Cancelled, Extra, PauseStore, Run, Store, supports
from fastjobs.testing.clock import Clock
from fastjobs.testing.suite.subject import (
    ENDS,
    HOLD,
    MINUTE,
    SECOND,
    Heard,
    MakeMark,
    Subject,
    claim,
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


class Pause(Subject):
    """No claim has anything to do with a job of a kind that is paused, on any instance, until it's resumed."""

    async def test_a_paused_kind_is_not_claimed(self, store: Store, other: Store) -> None:
        pauses = _pause_store(store)
        await push(store, "1", "2")
        await push(store, "3", kind="photo")
        assert await pauses.pause("mail", True) is True
        photos: list[str] = []
        for each in (store, other):
            assert await take(each) == []
            assert (await claim(each, of(priority=9))).jobs == []
            assert (await claim(each, of(at_once=3))).jobs == []
            photos += await payloads(each, of("mail"), of("photo"))
            assert [job.kind for job in (await claim(each, others=of(""))).jobs] == []
        assert photos == ["3"], "a pause of one kind paused another"
        assert await pauses.pause("mail", False) is True
        assert await payloads(other) == ["1", "2"]

    async def test_a_pause_by_another_instance_holds_here(self, store: Store, other: Store) -> None:
        await push(store, "1")
        assert await payloads(store, of("photo")) == []
        await _pause_store(other).pause("mail", True)
        assert await take(store) == []
        await _pause_store(other).pause("mail", False)
        assert await payloads(store) == ["1"]

    async def test_pushes_of_a_paused_kind_are_kept(self, store: Store, clock: Clock) -> None:
        pauses = _pause_store(store)
        await push(store, "1")
        await pauses.pause("mail", True)
        await push(store, "2", after=MINUTE)
        await push(store, "3")
        clock.advance(600)
        assert await take(store) == [], "a pause ended by itself"
        await push(store, "4")
        await pauses.pause("mail", False)
        assert await payloads(store) == ["1", "3", "2", "4"]

    @pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
    async def test_jobs_that_run_go_on(self, store: Store, clock: Clock, end: MakeMark) -> None:
        pauses = _pause_store(store)
        await push(store, "1")
        job = await take_one(store)
        await pauses.pause("mail", True)
        for _ in range(3):
            clock.advance(40)
            assert await mark(store, Extend(job.id, job.claim, HOLD)) == [Kept.YES]
        assert await mark(store, end(job)) == [Kept.YES]
        assert await take(store) == []
        await pauses.pause("mail", False)
        waits = end in (ENDS["TryAgain"], ENDS["GiveBack"])
        assert await payloads(store) == (["1"] if waits else [])

    async def test_a_lost_job_of_a_paused_kind_is_not_claimed(self, store: Store, clock: Clock) -> None:
        pauses = _pause_store(store)
        await push(store, "1")
        job = await take_one(store)
        await pauses.pause("mail", True)
        clock.advance(HOLD / SECOND + 1)
        assert await take(store) == []
        assert await mark(store, TryAgain(job.id, job.claim, 0, "late")) == [Kept.YES]
        await pauses.pause("mail", False)
        again = await take_one(store)
        assert (again.attempts, again.error) == (2, "late")

    async def test_a_paused_kinds_jobs_are_not_failed_by_a_claim(self, store: Store, clock: Clock) -> None:
        """As their attempts are used up: what is done for it as it failed would be done in the pause."""
        pauses = _pause_store(store)
        await push(store, "1")
        await take_one(store)
        await pauses.pause("mail", True)
        clock.advance(HOLD / SECOND + 1)
        found = await claim(store, of(attempts=1))
        assert (found.jobs, found.exhausted) == ([], [])
        await pauses.pause("mail", False)
        found = await claim(store, of(attempts=1))
        assert (found.jobs, [job.payload for job in found.exhausted]) == ([], ["1"])

    async def test_a_paused_kind_does_not_keep_the_feed_awake(self, store: Store, clock: Clock) -> None:
        """Neither by what is due, nor by what comes due, nor by a hold that ran out."""
        pauses = _pause_store(store)
        await push(store, "1", "2")
        await push(store, "3", after=5 * SECOND)
        await take(store, limit=1)
        await pauses.pause("mail", True)
        for seconds in (0, 10, HOLD / SECOND):
            clock.advance(seconds)
            found = await store.claim([of(), of("photo")], 5)
            assert (found.jobs, found.again, found.next_in) == ([], False, None)
        await push(store, "4", kind="photo", after=3 * SECOND)
        found = await store.claim([of(), of("photo")], 5)
        assert found.next_in is not None
        assert 0 < found.next_in <= 3 * SECOND

    async def test_a_claim_of_a_paused_kind_writes_nothing(self, store: Store, clock: Clock) -> None:
        pauses = _pause_store(store)
        await push(store, "1", "2")
        assert len(await take(store, limit=1)) == 1
        await pauses.pause("mail", True)
        assert await take(store) == []

        async def look() -> None:
            assert await take(store) == []

        await self.writes_nothing(store, look)

    async def test_a_resume_by_another_instance_wakes(self, store: Store, other: Store) -> None:
        pauses = _pause_store(other)
        need(store, Extra.LISTEN)
        assert supports(store, Extra.LISTEN)
        await push(store, "1")
        heard = Heard(self.heard_within)
        async with store.listen(heard.wake):
            for n in range(3):
                await pauses.pause("mail", True)
                # Whoever hears of this has heard of the pause: one that is over by the next look may go unheard.
                await push(other, str(n), kind="photo")
                await heard.once_more("a push of another instance woke nobody")
                await heard.settled()
                heard.clear()
                await pauses.pause("mail", False)
                await heard.once_more("the end of a pause woke nobody")
            assert await payloads(store) == ["1"]

    async def test_a_kind_may_be_paused_and_resumed_twice(self, store: Store) -> None:
        pauses = _pause_store(store)
        await push(store, "1")
        assert [await pauses.pause("mail", True) for _ in range(2)] == [True, True]
        assert await take(store) == []
        assert await pauses.pause("mail", False) is True
        assert await payloads(store) == ["1"], "it's resumed as often as it was paused"
        assert await pauses.pause("mail", False) is True

    # Which kinds there are

    async def test_a_kind_that_is_not_there_is_not_paused(self, store: Store) -> None:
        pauses = _pause_store(store)
        await push(store, "1", kind="photo")
        for kind in ("mail", "Photo", "photo ", "", "x" * 100, "photo' OR '1'='1", "%"):
            assert await pauses.pause(kind, True) is False, f"{kind!r} was paused"
            assert await pauses.pause(kind, False) is False
        await push(store, "2")
        assert await payloads(store, of("mail"), of("photo")) == ["1", "2"]
        if supports(store, Extra.COUNTS):
            assert [row.kind for row in await store.counts()] == ["mail", "photo"]

    async def test_a_kind_whose_jobs_are_done_may_be_paused(self, store: Store) -> None:
        pauses = _pause_store(store)
        await push(store, "1")
        job = await take_one(store)
        await mark(store, Done(job.id, job.claim))
        assert await pauses.pause("mail", True) is True
        await push(store, "2")
        assert await take(store) == []

    async def test_a_registered_kind_may_be_paused_before_its_first_push(
        self, store: Store, other: Store
    ) -> None:
        """And its registration by the next deploy resumes nothing."""
        pauses = _pause_store(other, Extra.LIFECYCLE)
        assert supports(store, Extra.LIFECYCLE)
        await store.open(["mail"])
        assert await pauses.pause("mail", True) is True
        await push(store, "1")
        assert await take(store) == []
        await store.close()
        await store.open(["mail", "photo"])
        try:
            assert await take(store) == [], "a pause ended with a restart"
            await pauses.pause("mail", False)
            assert await payloads(store) == ["1"]
        finally:
            await store.close()

    async def test_a_pause_is_shown(self, store: Store) -> None:
        pauses = _pause_store(store, Extra.COUNTS)
        assert supports(store, Extra.COUNTS)
        (id,) = await push(store, "1")
        await push(store, "2", kind="photo")
        for paused in (True, False):
            await pauses.pause("mail", paused)
            assert [(row.kind, row.paused) for row in await store.counts()] == [
                ("mail", paused),
                ("photo", False),
            ]
            job = await store.job(id)
            assert job is not None
            assert (job.kind_paused, (await store.counts())[0].waiting) == (paused, 1)

    # Beside limits, and what else is done to a job

    async def test_a_kind_that_is_held_back_and_paused_waits_for_both(
        self, store: Store, clock: Clock
    ) -> None:
        pauses = _pause_store(store, Extra.HOLD_BACK)
        for resumes_first in (True, False):
            await push(store, "1")
            job = await take_one(store)
            await mark(store, HoldBack(job.id, job.claim, 10 * SECOND))
            await pauses.pause("mail", True)
            if resumes_first:
                await pauses.pause("mail", False)
                assert await take(store) == []
                clock.advance(10)
            else:
                clock.advance(10)
                assert await take(store) == []
                await pauses.pause("mail", False)
            job = await take_one(store)
            await mark(store, Done(job.id, job.claim))

    async def test_the_next_of_a_key_is_claimed_after_the_pause(self, store: Store) -> None:
        pauses = _pause_store(store, Extra.ONE_AT_A_TIME)
        await push_one(store, keyed("1", alone=True))
        job = await take_one(store)
        await push_one(store, keyed("2", alone=True))
        assert await take(store) == []
        await pauses.pause("mail", True)
        assert await mark(store, Done(job.id, job.claim)) == [Kept.YES]
        assert await take(store) == []
        await pauses.pause("mail", False)
        assert await payloads(store) == ["2"]

    async def test_a_paused_kind_has_its_keys(self, store: Store) -> None:
        pauses = _pause_store(store, Extra.UNIQUE)
        assert await push_one(store, keyed("1")) is not None
        await pauses.pause("mail", True)
        assert await push_one(store, keyed("2")) is None
        assert await push_one(store, keyed("3", "b")) is not None
        await pauses.pause("mail", False)
        assert await payloads(store) == ["1", "3"]

    async def test_a_job_that_is_run_again_waits_for_the_end_of_the_pause(self, store: Store) -> None:
        pauses = _pause_store(store, Extra.FAILED)
        assert supports(store, Extra.FAILED)
        (id,) = await push(store, "1")
        job = await take_one(store)
        await mark(store, Fail(id, job.claim, "x"))
        await pauses.pause("mail", True)
        assert await store.run_again([id]) == [True]
        assert await take(store) == []
        await pauses.pause("mail", False)
        assert await payloads(store) == ["1"]

    async def test_a_job_of_a_paused_kind_may_be_cancelled(self, store: Store) -> None:
        pauses = _pause_store(store, Extra.CANCEL)
        assert supports(store, Extra.CANCEL)
        one, _ = await push(store, "1", "2")
        await pauses.pause("mail", True)
        assert await store.cancel([one]) == [Cancelled.REMOVED]
        await pauses.pause("mail", False)
        assert await payloads(store) == ["2"]

    async def test_a_run_of_a_paused_kind_is_pushed_and_waits(self, store: Store) -> None:
        pauses = _pause_store(store, Extra.SCHEDULES)
        assert supports(store, Extra.SCHEDULES)
        await push(store, "1")
        await take_one(store)
        await pauses.pause("mail", True)
        now = await store.now()
        assert await store.push_run(Run("nightly", now, NewJob(kind="mail", payload="2"))) is True
        assert await take(store) == []
        await pauses.pause("mail", False)
        assert await payloads(store) == ["2"]

    # At once

    async def test_no_claim_that_begins_after_a_pause_returns_a_job(self, store: Store, other: Store) -> None:
        pauses = _pause_store(other)
        left = set(await push(store, *(str(n) for n in range(6 * self.races))))
        paused = False

        async def work(through: Store) -> None:
            for _ in range(5):
                began_paused = paused
                jobs = (await through.claim([of()], 1)).jobs
                assert not (began_paused and jobs), "a claim that began after the pause returned a job"
                left.difference_update(job.id for job in jobs)
                await asyncio.sleep(0)

        async def stop() -> None:
            nonlocal paused
            await asyncio.sleep(0)
            assert await pauses.pause("mail", True) is True
            paused = True

        await asyncio.gather(stop(), *(work([store, other][n % 2]) for n in range(self.races)))
        assert await take(store) == []
        await pauses.pause("mail", False)
        assert {job.id for job in await take(store)} == left

    async def test_pauses_at_once_leave_the_kind_as_the_last_has_it(self, store: Store, other: Store) -> None:
        pauses = _pause_store(store), _pause_store(other)
        await push(store, "1")
        for last in (True, False):
            answers = await asyncio.gather(
                *(pauses[n % 2].pause("mail", n % 3 > 0) for n in range(self.races))
            )
            assert answers == [True] * self.races
            await pauses[0].pause("mail", last)
            assert await payloads(other) == ([] if last else ["1"])


def _pause_store(store: Store, beside: Extra = Extra.PAUSE) -> PauseStore:
    need(store, Extra.PAUSE)
    need(store, beside)
    assert supports(store, Extra.PAUSE)
    return store
