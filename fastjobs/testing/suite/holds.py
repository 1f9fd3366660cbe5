"""The suite on holds: how long a claim has its job, what extends it, and what becomes of a job that loses it."""

from __future__ import annotations

from fastjobs.core.marks import Done, Extend, Fail, Kept, TryAgain
from fastjobs.store import Extra, Store, supports
from fastjobs.testing.clock import Clock
from fastjobs.testing.suite.subject import (
    HOLD,
    MINUTE,
    SECOND,
    Subject,
    claim,
    mark,
    of,
    payloads,
    push,
    take,
    take_one,
)


class Holds(Subject):
    """A held job is claimed again only after its hold ran out, and no more often than its kind's attempts."""

    async def test_a_held_job_is_not_claimed_before_its_hold_ran_out(
        self, store: Store, clock: Clock
    ) -> None:
        await push(store, "1")
        await take_one(store)
        for _ in range(6):
            assert await take(store) == []
            clock.advance(9.9999)
        assert await take(store) == []

    async def test_a_job_whose_hold_ran_out_is_claimed_again(self, store: Store, clock: Clock) -> None:
        (id,) = await push(store, "1")
        first = await take_one(store)
        clock.advance(HOLD / SECOND + 0.001)
        second = await take_one(store)
        assert (second.id, second.payload, second.run_at) == (id, "1", first.run_at)
        assert (second.attempts, second.lost) == (2, 1)

    async def test_each_kind_has_its_own_hold(self, store: Store, clock: Clock) -> None:
        for kind in ("mail", "photo", "report"):
            await push(store, f'"{kind}"', kind=kind)
        kinds = of("mail", hold=10 * SECOND), of("photo", hold=20 * SECOND), of("report", hold=30 * SECOND)
        assert len(await take(store, *kinds)) == 3
        assert await take(store, *kinds) == []
        clock.advance(15)
        assert await payloads(store, *kinds) == ['"mail"']
        clock.advance(9)
        assert await payloads(store, *kinds) == ['"photo"']

    async def test_a_hold_is_its_claims_own_and_not_the_next_claimers(
        self, store: Store, clock: Clock
    ) -> None:
        await push(store, "1")
        await take_one(store, of(hold=10 * MINUTE))
        clock.advance(120)
        assert await take(store, of(hold=SECOND)) == []

    async def test_only_a_hold_that_ran_out_counts_as_lost(self, store: Store, clock: Clock) -> None:
        await push(store, "1")
        job = await take_one(store)
        await mark(store, TryAgain(job.id, job.claim, 0, "x"))
        assert (await take_one(store)).lost == 0
        for lost in (1, 2):
            clock.advance(61)
            assert (await take_one(store)).lost == lost

    async def test_its_last_error_stays_with_a_job_that_loses_its_worker(
        self, store: Store, clock: Clock
    ) -> None:
        await push(store, "1")
        job = await take_one(store)
        await mark(store, TryAgain(job.id, job.claim, 0, "the first error"))
        await take_one(store)
        clock.advance(61)
        assert (await take_one(store)).error == "the first error"

    async def test_one_hold_that_ran_out_is_found_among_many_that_did_not(
        self, store: Store, clock: Clock
    ) -> None:
        await push(store, *(str(n) for n in range(300)), kind="photo")
        assert len(await take(store, of("photo", hold=60 * MINUTE), limit=300)) == 300
        await push(store, '"late"', kind="photo")
        await take_one(store, of("photo"))
        clock.advance(61)
        assert await payloads(store, of("photo")) == ['"late"']

    async def test_a_clock_that_steps_back_frees_no_held_job(self, store: Store, clock: Clock) -> None:
        await push(store, "1")
        job = await take_one(store)
        clock.step(-3600)
        assert await take(store) == []
        assert await mark(store, Done(job.id, job.claim)) == [Kept.YES]

    # Extend

    async def test_an_extended_hold_ends_so_long_from_now(self, store: Store, clock: Clock) -> None:
        await push(store, "1")
        job = await take_one(store)
        clock.advance(50)
        assert await mark(store, Extend(job.id, job.claim, 2 * MINUTE)) == [Kept.YES]
        clock.advance(119)
        assert await take(store) == []
        clock.advance(2)
        again = await take_one(store)
        assert (again.attempts, again.lost) == (2, 1)

    async def test_a_hold_may_be_extended_again_and_again_by_one_claim(
        self, store: Store, clock: Clock
    ) -> None:
        await push(store, "1")
        job = await take_one(store)
        for _ in range(5):
            clock.advance(40)
            assert await mark(store, Extend(job.id, job.claim, HOLD)) == [Kept.YES]
            assert await take(store) == []
        assert await mark(store, Done(job.id, job.claim)) == [Kept.YES]

    async def test_a_hold_that_ran_out_is_not_had_back(self, store: Store, clock: Clock) -> None:
        await push(store, "1")
        job = await take_one(store)
        clock.advance(61)
        assert await mark(store, Extend(job.id, job.claim, HOLD)) == [Kept.LOST]
        assert (await take_one(store)).attempts == 2

    # Attempts

    async def test_a_job_that_always_loses_its_worker_is_claimed_no_more_than_its_attempts(
        self, store: Store, clock: Clock
    ) -> None:
        (id,) = await push(store, '"killer"')
        for attempt in (1, 2, 3):
            assert (await take_one(store, of(attempts=3))).attempts == attempt
            clock.advance(61)
        found = await claim(store, of(attempts=3))
        assert found.jobs == []
        (job,) = found.exhausted
        assert (job.id, job.kind, job.payload, job.attempts, job.lost) == (id, "mail", '"killer"', 3, 3)

    async def test_an_exhausted_job_is_told_once_and_kept_as_failed(self, store: Store, clock: Clock) -> None:
        (id,) = await push(store, "1")
        await take_one(store, of(attempts=1))
        clock.advance(61)
        assert [job.id for job in (await claim(store, of(attempts=1))).exhausted] == [id]
        for _ in range(2):
            found = await claim(store, of(attempts=1))
            assert (found.jobs, found.exhausted) == ([], [])
            clock.advance(600)
        assert await take(store, of(attempts=9)) == [], "a job that was failed by a claim was claimed again"
        if supports(store, Extra.FAILED):
            (failed,) = await store.failed()
            assert (failed.id, failed.attempts) == (id, 1)

    async def test_attempts_that_a_claimer_lowered_exhaust_a_job_that_waits(self, store: Store) -> None:
        await push(store, "1", "2")
        one, two = await take(store)
        await mark(store, TryAgain(one.id, one.claim, 0, "x"), TryAgain(two.id, two.claim, 0, "x"))
        one, two = await take(store)
        await mark(store, TryAgain(one.id, one.claim, 0, "x"), Fail(two.id, two.claim, "x"))
        await push(store, "3")
        found = await claim(store, of(attempts=2))
        assert [(job.payload, job.attempts, job.lost) for job in found.exhausted] == [("1", 2, 0)]
        assert [job.payload for job in found.jobs] == ["3"]

    async def test_the_attempts_are_the_claimers_own(self, store: Store, clock: Clock) -> None:
        await push(store, "1")
        await take_one(store, of(attempts=1))
        clock.advance(61)
        assert (await take_one(store, of(attempts=2))).attempts == 2

    async def test_exhausted_jobs_keep_no_other_from_being_claimed(self, store: Store, clock: Clock) -> None:
        await push(store, *(str(n) for n in range(10)))
        assert len(await take(store, of(attempts=1))) == 10
        clock.advance(61)
        await push(store, '"after"')
        exhausted = 0
        found: list[str] = []
        for _ in range(20):
            answer = await claim(store, of(attempts=1), limit=3)
            exhausted += len(answer.exhausted)
            found += [job.payload for job in answer.jobs]
        assert (exhausted, found) == (10, ['"after"'])
