"""The suite on which jobs a claim takes, in which order, and what it says of those it leaves."""

from __future__ import annotations

import asyncio

from fastjobs.core.job import Job
from fastjobs.core.marks import Done, GiveBack, Kept, TryAgain
from fastjobs.store import Store
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


class Claiming(Subject):
    """Only jobs of these kinds that are due, at most so many, the most urgent first, and never one twice."""

    # Which

    async def test_a_claim_takes_only_the_kinds_it_names(self, store: Store) -> None:
        await push(store, "1", kind="mail")
        await push(store, "2", kind="photo")
        await push(store, "3", kind="report")
        assert sorted(await payloads(store, of("mail"), of("report"))) == ["1", "3"]

    async def test_a_job_of_another_kind_is_left_as_it_is(self, store: Store, clock: Clock) -> None:
        await push(store, "1", kind="photo")
        for _ in range(3):
            found = await claim(store, of("mail", attempts=1))
            assert (found.jobs, found.exhausted) == ([], [])
            clock.advance(600)
        job = await take_one(store, of("photo", attempts=1))
        assert (job.attempts, job.lost) == (1, 0)

    async def test_a_claim_of_no_kinds_takes_nothing(self, store: Store) -> None:
        await push(store, "1")
        assert (await store.claim([], 10)).jobs == []
        assert await payloads(store) == ["1"]

    async def test_a_claim_takes_at_most_its_limit(self, store: Store) -> None:
        await push(store, "1", "2", "3", "4", "5")
        assert await payloads(store, limit=2) == ["1", "2"]
        assert await payloads(store, limit=2) == ["3", "4"]
        assert await payloads(store, limit=2) == ["5"]

    async def test_a_claim_with_no_room_takes_nothing(self, store: Store) -> None:
        await push(store, "1")
        assert (await store.claim([of()], 0)).jobs == []
        assert await payloads(store) == ["1"]

    async def test_a_claim_takes_at_most_a_kinds_limit_of_it(self, store: Store) -> None:
        await push(store, "1", "2", "3")
        await push(store, "4", "5", "6", kind="photo")
        await push(store, "7", kind="report")
        kinds = of("mail", limit=2), of("photo"), of("report", limit=0)
        assert await payloads(store, *kinds) == ["1", "2", "4", "5", "6"]
        assert await payloads(store, *kinds) == ["3"]
        assert await payloads(store, of("report")) == ["7"]

    async def test_a_job_is_not_claimed_before_its_time(self, store: Store, clock: Clock) -> None:
        await push(store, "1", after=2 * SECOND)
        clock.advance(1.999999)
        assert await take(store) == []
        clock.advance(0.000001)
        assert await payloads(store) == ["1"]

    # In which order

    async def test_jobs_are_taken_in_the_order_they_are_due(self, store: Store, clock: Clock) -> None:
        for payload, after in (("3", 30), ("1", 10), ("4", 40), ("2", 20), ("5", 50)):
            await push(store, payload, after=after * SECOND)
        clock.advance(60)
        assert await payloads(store, limit=3) == ["1", "2", "3"]
        assert await payloads(store, limit=3) == ["4", "5"]

    async def test_jobs_due_at_one_time_are_taken_in_the_order_of_their_pushes(self, store: Store) -> None:
        for n in range(12):
            await push(store, str(n))
        assert await payloads(store, limit=11) == [str(n) for n in range(11)]

    async def test_the_order_goes_over_all_kinds(self, store: Store, clock: Clock) -> None:
        for payload, kind, after in (
            ("4", "photo", 40),
            ("1", "photo", 10),
            ("2", "mail", 20),
            ("5", "mail", 50),
            ("3", "report", 30),
        ):
            await push(store, payload, kind=kind, after=after * SECOND)
        clock.advance(60)
        kinds = of("mail"), of("photo"), of("report")
        assert await payloads(store, *kinds, limit=3) == ["1", "2", "3"]
        assert await payloads(store, *kinds) == ["4", "5"]

    async def test_a_kind_of_a_higher_priority_is_taken_first(self, store: Store, clock: Clock) -> None:
        await push(store, "3", "4", kind="report")
        clock.advance(1)
        await push(store, "1", kind="mail")
        await push(store, "2", kind="photo")
        kinds = of("report"), of("mail", priority=5), of("photo", priority=5)
        assert await payloads(store, *kinds, limit=3) == ["1", "2", "3"]
        assert await payloads(store, *kinds, limit=3) == ["4"]

    async def test_a_job_that_runs_again_takes_its_place_by_its_new_time(
        self, store: Store, clock: Clock
    ) -> None:
        await push(store, "1")
        job = await take_one(store)
        await push(store, "2", after=5 * SECOND)
        await push(store, "3", after=15 * SECOND)
        await mark(store, TryAgain(job.id, job.claim, 10 * SECOND, "x"))
        clock.advance(60)
        assert await payloads(store) == ["2", "1", "3"]

    async def test_a_job_given_back_has_its_place_again(self, store: Store, clock: Clock) -> None:
        await push(store, "1")
        job = await take_one(store)
        clock.advance(1)
        await push(store, "2")
        clock.advance(1)
        await mark(store, GiveBack(job.id, job.claim))
        assert await payloads(store) == ["1", "2"]

    # What it tells

    async def test_a_claim_counts_an_attempt(self, store: Store) -> None:
        await push(store, "1")
        for attempt in (1, 2, 3):
            job = await take_one(store)
            assert job.attempts == attempt
            await mark(store, TryAgain(job.id, job.claim, 0, "x"))

    async def test_the_claim_token_only_grows(self, store: Store, clock: Clock) -> None:
        await push(store, "1")
        job = await take_one(store)
        tokens = [job.claim]
        for end in (TryAgain(job.id, 0, 0, "x"), GiveBack(job.id, 0), None, GiveBack(job.id, 0)):
            if isinstance(end, TryAgain):
                await mark(store, TryAgain(job.id, job.claim, 0, "x"))
            elif isinstance(end, GiveBack):
                await mark(store, GiveBack(job.id, job.claim))
            else:
                clock.advance(HOLD / SECOND + 1)
            job = await take_one(store)
            tokens.append(job.claim)
        assert tokens == sorted(set(tokens))

    async def test_a_claim_tells_the_stores_now(self, store: Store, clock: Clock) -> None:
        clock.advance(12.345)
        assert (await claim(store)).now == clock.now()

    async def test_next_in_is_none_while_no_job_of_these_kinds_waits(self, store: Store) -> None:
        assert (await claim(store)).next_in is None
        await push(store, "1", kind="photo", after=SECOND)
        assert (await claim(store)).next_in is None

    async def test_next_in_is_never_later_than_the_next_job_is_due(self, store: Store, clock: Clock) -> None:
        await push(store, "1", after=10 * SECOND)
        await push(store, "2", kind="photo", after=5 * SECOND)
        await push(store, "3", kind="photo", after=50 * SECOND)
        await push(store, "4", kind="report", after=MINUTE)
        for kinds, truth in (
            ((of("mail"),), 10),
            ((of("photo"),), 5),
            ((of("report"), of("photo"), of("mail")), 5),
            ((of("report"),), 60),
        ):
            found = await claim(store, *kinds)
            assert found.next_in is not None, "a job waits, and next_in says that none does"
            assert 0 <= found.next_in <= truth * SECOND
        others = await claim(store, of("photo"), others=of(""))
        assert others.next_in is not None
        assert 0 <= others.next_in <= 5 * SECOND
        clock.advance(7)
        found = await claim(store, of("mail"), of("photo"))
        assert [job.payload for job in found.jobs] == ["2"]
        assert found.next_in is not None
        assert 0 <= found.next_in <= 3 * SECOND

    async def test_next_in_knows_of_a_job_that_runs_again(self, store: Store) -> None:
        await push(store, "1")
        job = await take_one(store)
        await mark(store, TryAgain(job.id, job.claim, 3 * SECOND, "x"))
        found = await claim(store)
        assert found.next_in is not None
        assert 0 <= found.next_in <= 3 * SECOND

    async def test_a_claim_that_finds_nothing_writes_nothing(self, store: Store) -> None:
        await push(store, "1", after=MINUTE)
        await push(store, "2", kind="photo")
        await take(store, of("photo"))

        async def look() -> None:
            assert await take(store, of("mail"), of("photo")) == []

        await self.writes_nothing(store, look)

    # What waits for a worker

    async def test_any_job_may_be_claimed_ahead(self, store: Store) -> None:
        await push(store, "1", "2", "3", "4")
        assert len((await claim(store, limit=4, ahead=3)).jobs) == 4

    async def test_a_kind_that_is_not_ahead_ok_is_only_claimed_for_a_free_worker(self, store: Store) -> None:
        await push(store, "1", "2", "3", "4")
        await push(store, "5", "6", kind="photo")
        found = await claim(store, of(ahead_ok=False), of("photo"), limit=5, ahead=3)
        assert [job.payload for job in found.jobs] == ["1", "2", "5", "6"]

    async def test_a_job_that_lost_its_worker_is_only_claimed_for_a_free_one(
        self, store: Store, clock: Clock
    ) -> None:
        await push(store, "1", "2", "3")
        assert len(await take(store)) == 3
        clock.advance(61)
        await push(store, "4", "5")
        found = await claim(store, limit=3, ahead=2)
        assert [job.payload for job in found.jobs] == ["1", "4", "5"]
        assert [job.payload for job in (await claim(store, limit=3, ahead=3)).jobs] == []
        assert [job.payload for job in (await claim(store, limit=3, ahead=1)).jobs] == ["2", "3"]

    async def test_a_job_that_lost_its_worker_once_stays_so(self, store: Store, clock: Clock) -> None:
        await push(store, "1")
        await take_one(store)
        clock.advance(61)
        job = await take_one(store)
        await mark(store, TryAgain(job.id, job.claim, 0, "x"))
        assert (await claim(store, limit=2, ahead=2)).jobs == []
        assert (await take_one(store)).lost == 1

    # At once

    async def test_of_claims_at_once_each_job_goes_to_one(self, store: Store) -> None:
        await push(store, *(str(n) for n in range(100)))

        async def claimer() -> list[Job]:
            mine: list[Job] = []
            while (found := (await claim(store, limit=7)).jobs) and len(mine) < 200:
                mine += found
            return mine

        got = [job for mine in await asyncio.gather(*(claimer() for _ in range(self.races))) for job in mine]
        assert len(got) == len({job.id for job in got}), "two claims have one job"
        got += await take(store)
        assert sorted(int(job.payload) for job in got) == list(range(100))
        assert await mark(store, *(Done(job.id, job.claim) for job in got)) == [Kept.YES] * 100

    async def test_of_claims_at_once_one_takes_a_job_whose_hold_ran_out(
        self, store: Store, clock: Clock
    ) -> None:
        await push(store, *(str(n) for n in range(10)))
        late = await take(store)
        clock.advance(61)
        claims = await asyncio.gather(*(claim(store) for _ in range(self.races)))
        got = [job for found in claims for job in found.jobs] + await take(store)
        assert sorted(int(job.payload) for job in got) == list(range(10))
        assert await mark(store, *(Done(job.id, job.claim) for job in late)) == [Kept.LOST] * 10
        assert await mark(store, *(Done(job.id, job.claim) for job in got)) == [Kept.YES] * 10
