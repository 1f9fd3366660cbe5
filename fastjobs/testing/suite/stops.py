"""The suite on a stop that was asked: it outlives the claim that it was asked of (CANCEL)."""

from __future__ import annotations

import pytest

from fastjobs.core.job import Job, JobState
from fastjobs.core.marks import Done, Extend, Fail, GiveBack, HoldBack, Kept, TryAgain
from fastjobs.store import Cancelled, CancelStore, Extra, Store, supports
from fastjobs.testing.clock import Clock
from fastjobs.testing.suite.cancel import cancel_store
from fastjobs.testing.suite.subject import (
    HOLD,
    MINUTE,
    SECOND,
    MakeMark,
    Subject,
    keyed,
    mark,
    of,
    push,
    push_one,
    take,
    take_one,
)

_BACK_LATER: dict[str, MakeMark] = {
    "TryAgain": lambda job: TryAgain(job.id, job.claim, MINUTE, "x"),
    "GiveBack": lambda job: GiveBack(job.id, job.claim, MINUTE),
}
"""Those that put it off, too."""


class Stops(Subject):
    """A job that was cancelled while it was held is so for each later claim, until it's gone or run again."""

    @pytest.mark.parametrize("back", _BACK_LATER.values(), ids=_BACK_LATER.keys())
    async def test_a_stop_is_told_to_the_next_claim(self, store: Store, back: MakeMark) -> None:
        """Which comes at once: the job is due as it was, however long the mark puts it off."""
        cancels = cancel_store(store)
        one, two = await push(store, "1", "2")
        jobs = {job.id: job for job in await take(store)}
        assert [job.stop_asked for job in jobs.values()] == [False, False]
        old = jobs[one]
        await cancels.cancel([one])
        await mark(store, back(old), back(jobs[two]))
        job = await take_one(store)
        assert (job.id, job.run_at) == (one, old.run_at), "a job that is only to be removed was put off"
        await _has_the_stop(cancels, old, job)
        assert await mark(store, Done(job.id, job.claim)) == [Kept.YES]

    async def test_a_stop_of_a_claim_that_was_lost_is_told_to_the_next(
        self, store: Store, clock: Clock
    ) -> None:
        cancels = cancel_store(store)
        one, _ = await push(store, "1", "2")
        old = {job.id: job for job in await take(store)}
        await cancels.cancel([one])
        clock.advance(HOLD / SECOND + 1)
        jobs = await take(store)
        assert {job.id: (job.stop_asked, job.lost) for job in jobs} == {id: (id == one, 1) for id in old}
        (job,) = [job for job in jobs if job.id == one]
        await _has_the_stop(cancels, old[one], job)

    async def test_a_stop_is_told_to_each_claim_until_the_job_is_gone(
        self, store: Store, clock: Clock
    ) -> None:
        cancels = cancel_store(store)
        (id,) = await push(store, "1")
        job = await take_one(store)
        await cancels.cancel([id])
        for n in range(4):
            if n % 2:
                clock.advance(HOLD / SECOND + 1)
            else:
                await mark(store, TryAgain(id, job.claim, MINUTE, "x"))
            old, job = job, await take_one(store)
            await _has_the_stop(cancels, old, job)
        assert await mark(store, Done(id, job.claim)) == [Kept.YES]
        assert await cancels.cancel([id]) == [Cancelled.NOT_THERE]

    async def test_a_stop_waits_for_the_end_of_a_hold_back(self, store: Store, clock: Clock) -> None:
        cancels = cancel_store(store, Extra.HOLD_BACK)
        (id,) = await push(store, "1")
        old = await take_one(store)
        await cancels.cancel([id])
        await mark(store, HoldBack(id, old.claim, 10 * SECOND, MINUTE))
        assert await take(store) == []
        clock.advance(10)
        await _has_the_stop(cancels, old, await take_one(store))

    async def test_a_job_that_is_to_be_removed_leaves_its_key_to_others(self, store: Store) -> None:
        """Or a push would be refused for the sake of a job that never runs."""
        cancels = cancel_store(store, Extra.UNIQUE)
        for name, back in _BACK_LATER.items():
            id = await push_one(store, keyed("1"))
            job = await take_one(store)
            assert job.id == id
            await cancels.cancel([job.id])
            await mark(store, back(job))
            second = await push_one(store, keyed("2", after=MINUTE))
            assert second is not None, f"after {name} the job that was cancelled has its key"
            assert (await take_one(store)).id == id
            assert await cancels.cancel([second]) == [Cancelled.REMOVED]

    async def test_a_job_that_was_asked_to_stop_fails_as_any_other(self, store: Store) -> None:
        """Where a mark or a claim fails it for good: it doesn't start again."""
        cancels = cancel_store(store, Extra.FAILED)
        assert supports(store, Extra.FAILED)
        ids = await push(store, "1", "2")
        first, second = await take(store)
        await cancels.cancel(ids)
        await mark(store, Fail(first.id, first.claim, "x"), TryAgain(second.id, second.claim, 0, "y"))
        found = await store.claim([of(attempts=1)], 5)
        assert (found.jobs, [job.id for job in found.exhausted]) == ([], [second.id])
        assert sorted(job.id for job in await store.failed()) == sorted(ids)
        assert await cancels.cancel(ids) == [Cancelled.NOT_THERE] * 2
        if supports(store, Extra.COUNTS):
            kept = [await store.job(id) for id in ids]
            assert [each is not None and each.stop_asked for each in kept] == [False, False]

    async def test_a_job_that_is_run_again_has_no_stop(self, store: Store) -> None:
        cancels = cancel_store(store, Extra.FAILED)
        assert supports(store, Extra.FAILED)
        (id,) = await push(store, "1")
        old = await take_one(store)
        await cancels.cancel([id])
        await mark(store, Fail(id, old.claim, "it was stopped"))
        assert await store.run_again([id]) == [True]
        job = await take_one(store)
        assert (job.id, job.stop_asked) == (id, False)
        assert await cancels.asked([(id, old.claim), (id, job.claim)]) == set()
        assert await mark(store, Extend(id, job.claim, HOLD)) == [Kept.YES]
        assert await cancels.cancel([id]) == [Cancelled.ASKED]
        assert await cancels.asked([(id, old.claim), (id, job.claim)]) == {id}

    async def test_a_stop_is_shown_until_the_job_is_gone(self, store: Store, clock: Clock) -> None:
        cancels = cancel_store(store, Extra.COUNTS)
        assert supports(store, Extra.COUNTS)
        one, two = await push(store, "1", "2")
        job = (await take(store))[0]
        await cancels.cancel([one])

        async def shown() -> tuple[bool, bool]:
            first, second = await store.job(one), await store.job(two)
            assert first is not None
            assert second is not None
            return first.stop_asked, second.stop_asked

        assert await shown() == (True, False)
        await mark(store, TryAgain(one, job.claim, 0, "x"))
        assert await shown() == (True, False), "it isn't shown that a job which waits is to be removed"
        (waiting,) = await store.jobs("mail", JobState.WAITING)
        assert waiting.stop_asked
        await take_one(store)
        assert await shown() == (True, False)
        clock.advance(HOLD / SECOND + 1)
        assert await shown() == (True, False)


async def _has_the_stop(store: CancelStore, old: Job, job: Job) -> None:
    """Sees that this claim of the job has the stop that was asked of the old one."""
    assert (job.id, job.stop_asked) == (old.id, True), "a job that was cancelled is claimed as if it weren't"
    assert await store.asked([(old.id, old.claim)]) == set(), "a claim that is over is named"
    assert await store.asked([(old.id, old.claim), (job.id, job.claim)]) == {job.id}
    assert await mark(store, Extend(job.id, job.claim, HOLD)) == [Kept.STOP]
