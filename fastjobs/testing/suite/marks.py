"""The suite on what each mark does to a job that its claim has."""

from __future__ import annotations

import pytest

from fastjobs.core.job import NewJob
from fastjobs.core.marks import Done, Extend, Fail, GiveBack, Kept, Mark, TryAgain
from fastjobs.core.text import KEPT, kept_text
from fastjobs.store import Store
from fastjobs.testing.clock import Clock
from fastjobs.testing.suite.subject import (
    ENDS,
    HOLD,
    MINUTE,
    SECOND,
    MakeMark,
    Subject,
    mark,
    of,
    payloads,
    push,
    take,
    take_one,
)

_ERRORS = {
    "control": kept_text("nul \0, escape \x1b[31m, bell \a, lines \r\n\u2028 and a lone \ud800"),
    "four bytes": "\N{SLIGHTLY SMILING FACE} \N{MUSICAL SYMBOL G CLEF} é ‮ٱ",
    "the longest": kept_text("\N{SLIGHTLY SMILING FACE}" * KEPT),
    "empty": "",
    "sql": "'; DROP TABLE jobs; -- %s :name $1 ? \\",
}


class Marks(Subject):
    """Each mark does what it says, and none in a batch is in another's way."""

    async def test_a_job_that_is_done_is_gone(self, store: Store, clock: Clock) -> None:
        await push(store, "1")
        job = await take_one(store)
        assert await mark(store, Done(job.id, job.claim)) == [Kept.YES]
        for _ in range(3):
            assert await take(store) == []
            clock.advance(600)

    async def test_a_job_to_try_again_is_due_so_long_from_now(self, store: Store, clock: Clock) -> None:
        await push(store, "1")
        job = await take_one(store)
        clock.advance(7)
        due = clock.now() + 30 * SECOND
        assert await mark(store, TryAgain(job.id, job.claim, 30 * SECOND, "x")) == [Kept.YES]
        clock.advance(29.999999)
        assert await take(store) == []
        clock.advance(0.000001)
        again = await take_one(store)
        assert (again.id, again.payload, again.run_at, again.attempts) == (job.id, "1", due, 2)

    async def test_a_job_to_try_again_keeps_its_latest_error(self, store: Store) -> None:
        await push(store, "1")
        for error in (None, "the first", "the second"):
            job = await take_one(store)
            assert job.error == error
            text = "the first" if error is None else "the second"
            await mark(store, TryAgain(job.id, job.claim, 0, text))

    @pytest.mark.parametrize("text", _ERRORS.values(), ids=_ERRORS.keys())
    async def test_an_errors_text_comes_back_as_it_was(self, store: Store, text: str) -> None:
        await push(store, "1")
        job = await take_one(store)
        assert await mark(store, TryAgain(job.id, job.claim, 0, text)) == [Kept.YES]
        assert (await take_one(store)).error == text

    async def test_a_job_that_failed_is_found_by_no_claim(self, store: Store, clock: Clock) -> None:
        await push(store, "1")
        job = await take_one(store)
        assert await mark(store, Fail(job.id, job.claim, "x")) == [Kept.YES]
        for _ in range(3):
            found = await store.claim([of(attempts=1), of("photo")], 10, others=of(""))
            assert (found.jobs, found.exhausted) == ([], [])
            clock.advance(600)

    async def test_a_give_back_undoes_the_claim(self, store: Store, clock: Clock) -> None:
        await push(store, "1")
        first = await take_one(store)
        await mark(store, TryAgain(first.id, first.claim, 0, "its error"))
        second = await take_one(store)
        clock.advance(5)
        assert await mark(store, GiveBack(second.id, second.claim)) == [Kept.YES]
        third = await take_one(store)
        assert (third.attempts, third.error, third.run_at) == (2, "its error", second.run_at)

    async def test_a_give_back_may_say_when_the_job_is_due(self, store: Store, clock: Clock) -> None:
        await push(store, "1")
        job = await take_one(store)
        clock.advance(5)
        assert await mark(store, GiveBack(job.id, job.claim, after=MINUTE)) == [Kept.YES]
        clock.advance(59)
        assert await take(store) == []
        clock.advance(1)
        again = await take_one(store)
        assert (again.attempts, again.run_at) == (1, clock.now())

    async def test_a_give_back_with_an_error_replaces_the_one_kept(self, store: Store) -> None:
        await push(store, "1")
        job = await take_one(store)
        await mark(store, TryAgain(job.id, job.claim, 0, "before"))
        job = await take_one(store)
        await mark(store, GiveBack(job.id, job.claim, error="after"))
        assert (await take_one(store)).error == "after"

    async def test_a_job_may_be_given_back_for_ever(self, store: Store) -> None:
        await push(store, "1")
        for _ in range(20):
            job = await take_one(store, of(attempts=1))
            assert job.attempts == 1
            assert await mark(store, GiveBack(job.id, job.claim)) == [Kept.YES]

    async def test_a_batch_of_no_marks_is_answered_by_none(self, store: Store) -> None:
        assert list(await store.mark([])) == []

    async def test_a_mark_that_changes_nothing_keeps_no_other_from_being_kept(
        self, store: Store, clock: Clock
    ) -> None:
        await push(store, *(str(n) for n in range(7)))
        jobs = await take(store)
        marks: list[Mark] = [
            Done(jobs[0].id, jobs[0].claim),
            Done(jobs[1].id, jobs[1].claim + 5),
            TryAgain(jobs[2].id, jobs[2].claim, 0, "x"),
            Fail("no id", 1, "x"),
            Fail(jobs[3].id, jobs[3].claim, "x"),
            Done(jobs[0].id, jobs[0].claim),
            GiveBack(jobs[4].id, jobs[4].claim),
            Extend(jobs[5].id, jobs[5].claim, 10 * HOLD),
            Done(jobs[6].id, jobs[6].claim),
        ]
        yes, lost = Kept.YES, Kept.LOST
        assert await mark(store, *marks) == [yes, lost, yes, lost, yes, lost, yes, yes, yes]
        assert sorted(await payloads(store)) == ["2", "4"]
        clock.advance(61)
        assert sorted(await payloads(store)) == ["1", "2", "4"]
        clock.advance(600)
        assert "5" in await payloads(store)

    @pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
    async def test_a_mark_of_one_job_leaves_the_others_alone(self, store: Store, end: MakeMark) -> None:
        await push(store, "1", "2", "3")
        one, two, three = await take(store)
        assert await mark(store, end(two)) == [Kept.YES]
        assert await mark(store, Extend(one.id, one.claim, HOLD), Extend(three.id, three.claim, HOLD)) == [
            Kept.YES,
            Kept.YES,
        ]

    async def test_many_marks_are_kept_in_one_batch(self, store: Store) -> None:
        await store.push([NewJob(kind="mail", payload=str(n)) for n in range(300)])
        jobs = await take(store, limit=300)
        marks: list[Mark] = [
            Done(job.id, job.claim) if n % 2 else TryAgain(job.id, job.claim, n, f"error {n}")
            for n, job in enumerate(jobs)
        ]
        assert await mark(store, *marks) == [Kept.YES] * 300

    async def test_a_try_again_of_each_job_keeps_its_own_time_and_error(
        self, store: Store, clock: Clock
    ) -> None:
        await push(store, "1", "2", "3")
        jobs = await take(store)
        await mark(
            store,
            *(TryAgain(job.id, job.claim, n * SECOND, f"error {n}") for n, job in enumerate(jobs, start=1)),
        )
        for n in (1, 2, 3):
            clock.advance(1)
            job = await take_one(store)
            assert (job.payload, job.error) == (str(n), f"error {n}")
