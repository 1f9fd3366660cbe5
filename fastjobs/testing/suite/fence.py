"""The suite on the fence: no mark of a claim that has ended changes anything, whatever has become of the job."""

from __future__ import annotations

import asyncio

import pytest

from fastjobs.core.job import Job
from fastjobs.core.marks import Done, Fail, GiveBack, Kept, Mark, TryAgain
from fastjobs.store import Extra, Store, supports
from fastjobs.testing.clock import Clock
from fastjobs.testing.suite.subject import (
    ENDS,
    MARKS,
    MakeMark,
    Subject,
    claim,
    is_held_by,
    mark,
    need,
    of,
    push,
    take,
    take_one,
)

_every = pytest.mark.parametrize("late", MARKS.values(), ids=MARKS.keys())
_ending = pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
_NO_IDS = ("", "0", "-1", "999999999", "9" * 40, "x", "1.5", "1e3", "\u0663", " 1", "1 or 1=1")


class Fence(Subject):
    """A mark changes something only while its claim has the job."""

    @_every
    async def test_a_late_mark_leaves_a_job_that_was_claimed_again_alone(
        self, store: Store, clock: Clock, late: MakeMark
    ) -> None:
        await push(store, "1")
        old = await take_one(store)
        clock.advance(61)
        held = await take_one(store)
        assert await mark(store, late(old)) == [Kept.LOST]
        await is_held_by(store, held)

    @_every
    async def test_a_late_mark_leaves_a_job_that_was_given_back_and_claimed_again_alone(
        self, store: Store, late: MakeMark
    ) -> None:
        """A give-back takes the attempt back, so the attempts of both claims are the same."""
        await push(store, "1")
        old = await take_one(store)
        await mark(store, GiveBack(old.id, old.claim))
        held = await take_one(store)
        assert held.attempts == old.attempts
        assert await mark(store, late(old)) == [Kept.LOST]
        await is_held_by(store, held)

    @_every
    async def test_a_late_mark_leaves_a_job_that_was_run_again_alone(
        self, store: Store, clock: Clock, late: MakeMark
    ) -> None:
        """A run again starts the attempts over, so that they come round to those of the old claim."""
        need(store, Extra.FAILED)
        assert supports(store, Extra.FAILED)
        await push(store, "1")
        old = await take_one(store)
        clock.advance(61)
        last = await take_one(store)
        await mark(store, Fail(last.id, last.claim, "x"))
        assert await store.run_again([old.id]) == [True]
        assert await mark(store, late(old), late(last)) == [Kept.LOST, Kept.LOST]
        held = await take_one(store)
        assert held.attempts == old.attempts
        assert await mark(store, late(old), late(last)) == [Kept.LOST, Kept.LOST]
        await is_held_by(store, held)

    @_every
    async def test_a_late_mark_leaves_a_job_that_a_claim_failed_alone(
        self, store: Store, clock: Clock, late: MakeMark
    ) -> None:
        await push(store, "1")
        old = await take_one(store, of(attempts=1))
        clock.advance(61)
        assert len((await claim(store, of(attempts=1))).exhausted) == 1
        assert await mark(store, late(old)) == [Kept.LOST]
        assert await take(store) == []
        if supports(store, Extra.FAILED):
            assert [failed.id for failed in await store.failed()] == [old.id]

    @_ending
    @_every
    async def test_a_claim_that_was_marked_is_over_for_every_other_mark(
        self, store: Store, end: MakeMark, late: MakeMark
    ) -> None:
        """Also the same mark once more, as after an answer that was lost."""
        await push(store, "1")
        job = await take_one(store)
        assert await mark(store, end(job)) == [Kept.YES]
        assert await mark(store, late(job)) == [Kept.LOST]

    @_ending
    async def test_a_mark_sent_twice_is_kept_once(self, store: Store, end: MakeMark) -> None:
        await push(store, "1")
        job = await take_one(store)
        assert await mark(store, end(job), end(job)) == [Kept.YES, Kept.LOST]
        assert await mark(store, end(job)) == [Kept.LOST]
        again = await take(store)
        sent = end(job)
        attempts = [2] if isinstance(sent, TryAgain) else [1] if isinstance(sent, GiveBack) else []
        assert [each.attempts for each in again] == attempts

    @_ending
    async def test_a_mark_of_a_hold_that_ran_out_is_kept_while_no_claim_took_the_job(
        self, store: Store, clock: Clock, end: MakeMark
    ) -> None:
        await push(store, "1")
        job = await take_one(store)
        clock.advance(600)
        assert await mark(store, end(job)) == [Kept.YES]

    @_ending
    async def test_a_claim_that_only_looked_takes_no_job_from_its_holder(
        self, store: Store, clock: Clock, end: MakeMark
    ) -> None:
        """A job that lost its worker isn't claimed ahead, so this claim finds its hold run out and leaves it."""
        await push(store, "1")
        job = await take_one(store)
        clock.advance(600)
        assert (await claim(store, limit=1, ahead=1)).jobs == []
        assert await mark(store, end(job)) == [Kept.YES]

    @_every
    async def test_a_mark_with_a_token_of_no_claim_changes_nothing(
        self, store: Store, late: MakeMark
    ) -> None:
        await push(store, "1")
        job = await take_one(store)
        for token in (job.claim + 1, job.claim - 1, job.claim + 1000, -1):
            assert await mark(store, late(job._replace(claim=token))) == [Kept.LOST]
        await is_held_by(store, job)

    @_every
    async def test_a_mark_of_a_job_that_nobody_claimed_changes_nothing(
        self, store: Store, late: MakeMark
    ) -> None:
        (id,) = await push(store, "1")
        assert await mark(store, late(Job(id, "mail", "1", 0, 1, claim=1))) == [Kept.LOST]
        assert (await take_one(store)).attempts == 1

    @_every
    async def test_a_mark_of_a_job_that_is_not_there_changes_nothing(
        self, store: Store, late: MakeMark
    ) -> None:
        await push(store, "1")
        job = await take_one(store)
        marks: list[Mark] = [late(job._replace(id=id)) for id in _NO_IDS if id != job.id]
        assert await mark(store, *marks) == [Kept.LOST] * len(marks)
        await is_held_by(store, job)

    @_every
    async def test_a_mark_of_one_job_is_not_kept_with_the_token_of_another(
        self, store: Store, late: MakeMark
    ) -> None:
        await push(store, "1")
        job = await take_one(store)
        await mark(store, TryAgain(job.id, job.claim, 0, "x"))
        job = await take_one(store)
        await push(store, "2")
        other = await take_one(store)
        if other.claim != job.claim:
            assert await mark(store, late(job._replace(claim=other.claim))) == [Kept.LOST]
        await is_held_by(store, job)

    @_ending
    async def test_of_marks_sent_at_once_one_is_kept(self, store: Store, end: MakeMark) -> None:
        await push(store, "1")
        job = await take_one(store)
        kept = await asyncio.gather(*(_until_free(store, end(job)) for _ in range(self.races)))
        assert sorted(each.name for each in kept) == ["LOST"] * (self.races - 1) + ["YES"]

    async def test_of_a_mark_and_a_claim_at_once_one_has_the_job(self, store: Store, clock: Clock) -> None:
        for _ in range(self.races):
            await push(store, "1")
            job = await take_one(store)
            clock.advance(61)
            kept, found = await asyncio.gather(_until_free(store, Done(job.id, job.claim)), claim(store))
            assert (kept, len(found.jobs)) in ((Kept.YES, 0), (Kept.LOST, 1))
            for each in found.jobs:
                assert await mark(store, Done(each.id, each.claim)) == [Kept.YES]


async def _until_free(store: Store, each: Mark) -> Kept:
    """The answer to a mark that meets others of the row: BUSY says to ask again."""
    while True:
        (kept,) = await store.mark([each])
        if kept is not Kept.BUSY:
            return kept
        await asyncio.sleep(0.001)
