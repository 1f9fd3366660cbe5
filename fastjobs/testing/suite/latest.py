"""The suite on pushes that move the job that waits (LATEST).

Longer than 300 lines, as it's one subject: what is moved, how far, and what becomes of those beside it.
"""

from __future__ import annotations

import asyncio

from fastjobs.core.marks import Done, GiveBack, Kept, TryAgain
from fastjobs.store import Extra, Store, supports
from fastjobs.testing.clock import Clock
from fastjobs.testing.suite.subject import (
    MINUTE,
    SECOND,
    Subject,
    claim,
    keyed,
    mark,
    need,
    payloads,
    push,
    push_one,
    take,
    take_one,
)


class Latest(Subject):
    """A latest push of a key whose job waits gives that job its time, and answers its id."""

    async def test_a_latest_push_with_none_waiting_is_a_push(self, store: Store, clock: Clock) -> None:
        need(store, Extra.LATEST)
        id = await push_one(store, keyed("1", after=MINUTE, latest=True))
        assert id is not None
        due = clock.now() + MINUTE
        assert await take(store) == []
        clock.advance(60)
        job = await take_one(store)
        assert (job.id, job.payload, job.run_at) == (id, "1", due)

    async def test_a_latest_push_moves_the_job_that_waits_to_later(self, store: Store, clock: Clock) -> None:
        need(store, Extra.LATEST)
        id = await push_one(store, keyed("1", after=10 * SECOND, latest=True))
        for _ in range(5):
            clock.advance(9)
            assert await push_one(store, keyed("2", after=10 * SECOND, latest=True)) == id
        clock.advance(9.999999)
        assert await take(store) == [], "a job was claimed before the time that the last push gave it"
        clock.advance(0.000001)
        job = await take_one(store)
        assert (job.id, job.run_at, job.attempts) == (id, clock.now(), 1)

    async def test_a_latest_push_moves_the_job_that_waits_to_earlier(
        self, store: Store, clock: Clock
    ) -> None:
        need(store, Extra.LATEST)
        id = await push_one(store, keyed("1", after=60 * MINUTE, latest=True))
        assert await push_one(store, keyed("2", after=5 * SECOND, latest=True)) == id
        found = await claim(store)
        assert found.jobs == []
        assert found.next_in is not None
        assert 0 < found.next_in <= 5 * SECOND, "next_in doesn't know of the time that a push gave"
        clock.advance(5)
        assert (await take_one(store)).id == id

    async def test_a_latest_push_moves_a_job_to_a_given_time(self, store: Store, clock: Clock) -> None:
        need(store, Extra.LATEST)
        id = await push_one(store, keyed("1", latest=True))
        at = clock.now() + 30 * SECOND
        assert await push_one(store, keyed("2", at=at, latest=True)) == id
        clock.advance(29)
        assert await take(store) == []
        clock.advance(1)
        assert (await take_one(store)).run_at == at

    async def test_what_a_moved_job_was_pushed_with_stays(self, store: Store, clock: Clock) -> None:
        need(store, Extra.LATEST)
        carried = ('{"n":"1"}', '{"n":"2"}') if supports(store, Extra.CARRY) else (None, None)
        await push_one(store, keyed('"first"', latest=True, carried=carried[0]))
        await push_one(store, keyed('"second"', latest=True, carried=carried[1]))
        job = await take_one(store)
        assert (job.payload, job.carried) == ('"first"', carried[0])

    async def test_a_job_pushed_without_latest_is_moved_by_a_latest_push(
        self, store: Store, clock: Clock
    ) -> None:
        """It's the push that moves, as a kind may have become latest since."""
        need(store, Extra.LATEST)
        id = await push_one(store, keyed("1"))
        assert await push_one(store, keyed("2", after=MINUTE, latest=True)) == id
        assert await take(store) == []
        assert await push_one(store, keyed("3")) is None, "a push that isn't latest moved a job"
        assert await take(store) == []
        clock.advance(60)
        assert await payloads(store) == ["1"]

    async def test_a_moved_job_takes_its_place_by_its_new_time(self, store: Store, clock: Clock) -> None:
        need(store, Extra.LATEST)
        await push_one(store, keyed("1", after=10 * SECOND, latest=True))
        await push(store, "2", after=20 * SECOND)
        await push(store, "3", after=40 * SECOND)
        await push_one(store, keyed("1", after=30 * SECOND, latest=True))
        clock.advance(60)
        assert await payloads(store) == ["2", "1", "3"]

    async def test_a_latest_push_moves_its_kinds_and_keys_job_alone(self, store: Store, clock: Clock) -> None:
        need(store, Extra.LATEST)
        one = await push_one(store, keyed("1", "a", latest=True))
        await push_one(store, keyed("2", "b", latest=True))
        photo = await push_one(store, keyed("3", "a", kind="photo", after=MINUTE, latest=True))
        assert photo not in (None, one)
        assert await push_one(store, keyed("4", "a", after=MINUTE, latest=True)) == one
        assert await payloads(store) == ["2"]

    async def test_of_one_push_the_last_latest_of_a_key_says_when(self, store: Store, clock: Clock) -> None:
        need(store, Extra.LATEST)
        ids = await store.push(
            [
                keyed("1", "a", after=SECOND, latest=True),
                keyed("2", "b", latest=True),
                keyed("3", "a", after=MINUTE, latest=True),
                keyed("4", "a", after=30 * SECOND, latest=True),
                keyed("5", "a"),
            ]
        )
        assert ids == [ids[0], ids[1], ids[0], ids[0], None]
        assert None not in ids[:2]
        assert await payloads(store) == ["2"]
        clock.advance(29)
        assert await take(store) == []
        clock.advance(1)
        assert await payloads(store) == ["1"]

    # What isn't moved

    async def test_a_latest_push_moves_no_job_that_is_held(self, store: Store, clock: Clock) -> None:
        need(store, Extra.LATEST)
        await push_one(store, keyed("1", latest=True))
        job = await take_one(store)
        id = await push_one(store, keyed("2", after=SECOND, latest=True))
        assert id not in (None, job.id)
        assert await mark(store, Done(job.id, job.claim)) == [Kept.YES]
        clock.advance(1)
        assert (await take_one(store)).id == id

    async def test_a_latest_push_moves_no_job_that_let_its_key_go(self, store: Store) -> None:
        need(store, Extra.LATEST)
        await push_one(store, keyed("1", latest=True))
        job = await take_one(store)
        await mark(store, TryAgain(job.id, job.claim, 0, "x"))
        assert await push_one(store, keyed("2", after=MINUTE, latest=True)) not in (None, job.id)
        assert (await take_one(store)).id == job.id

    async def test_a_latest_push_moves_a_job_that_has_its_key_again(self, store: Store, clock: Clock) -> None:
        need(store, Extra.LATEST)
        await push_one(store, keyed("1", latest=True))
        job = await take_one(store)
        await mark(store, GiveBack(job.id, job.claim))
        assert await push_one(store, keyed("2", after=MINUTE, latest=True)) == job.id
        assert await take(store) == []
        clock.advance(60)
        again = await take_one(store)
        assert (again.id, again.attempts) == (job.id, 1)

    # How far

    async def test_a_job_is_moved_no_further_than_at_most_from_its_first_push(
        self, store: Store, clock: Clock
    ) -> None:
        need(store, Extra.LATEST)

        async def again() -> str | None:
            return await push_one(store, keyed("1", after=10 * SECOND, latest=True, at_most=30 * SECOND))

        id = await again()
        cap = clock.now() + 30 * SECOND
        for _ in range(4):
            clock.advance(7)
            assert await take(store) == []
            assert await again() == id
        clock.advance(1.999999)
        assert await take(store) == [], "a push brought a job forward from the furthest it can be moved to"
        clock.advance(0.000001)
        job = await take_one(store)
        assert (job.id, job.run_at) == (id, cap)

    async def test_a_push_past_at_most_has_the_job_due_then(self, store: Store, clock: Clock) -> None:
        """Which may be in the past: it's due at once."""
        need(store, Extra.LATEST)
        await push_one(store, keyed("1", after=60 * MINUTE))
        cap = clock.now() + 30 * SECOND
        clock.advance(60)
        await push_one(store, keyed("1", after=10 * SECOND, latest=True, at_most=30 * SECOND))
        assert (await take_one(store)).run_at == cap

    async def test_at_most_holds_back_no_earlier_time(self, store: Store, clock: Clock) -> None:
        need(store, Extra.LATEST)
        await push_one(store, keyed("1", after=20 * SECOND, latest=True, at_most=30 * SECOND))
        clock.advance(1)
        await push_one(store, keyed("1", after=2 * SECOND, latest=True, at_most=30 * SECOND))
        clock.advance(2)
        assert await payloads(store) == ["1"]

    async def test_at_most_counts_from_the_first_push_of_the_job_that_waits(
        self, store: Store, clock: Clock
    ) -> None:
        need(store, Extra.LATEST)
        for _ in range(2):
            await push_one(store, keyed("1", after=20 * SECOND, latest=True, at_most=30 * SECOND))
            clock.advance(20)
            job = await take_one(store)
            await mark(store, Done(job.id, job.claim))
        await push_one(store, keyed("1", after=20 * SECOND, latest=True, at_most=30 * SECOND))
        clock.advance(5)
        await push_one(store, keyed("1", after=20 * SECOND, latest=True, at_most=30 * SECOND))
        clock.advance(19)
        assert await take(store) == [], "at_most was counted from the push of a job that is done"
        clock.advance(1)
        assert await payloads(store) == ["1"]

    # Parked

    async def test_a_latest_push_moves_a_job_that_waits_for_another_of_its_key(
        self, store: Store, clock: Clock
    ) -> None:
        need(store, Extra.LATEST | Extra.ONE_AT_A_TIME)
        await push_one(store, keyed("1", latest=True, alone=True))
        running = await take_one(store)
        id = await push_one(store, keyed("2", latest=True, alone=True))
        assert await take(store) == []
        assert await push_one(store, keyed("3", after=30 * SECOND, latest=True, alone=True)) == id
        assert await mark(store, Done(running.id, running.claim)) == [Kept.YES]
        clock.advance(29)
        assert await take(store) == []
        clock.advance(1)
        job = await take_one(store)
        assert (job.id, job.payload) == (id, "2")

    # At once

    async def test_a_latest_push_that_moves_the_next_of_its_key_to_later_lets_another_go(
        self, store: Store, clock: Clock
    ) -> None:
        need(store, Extra.LATEST | Extra.ONE_AT_A_TIME)
        await push_one(store, keyed("tried", alone=True))
        job = await take_one(store)
        assert await mark(store, TryAgain(job.id, job.claim, 2 * SECOND, "x")) == [Kept.YES]
        await push_one(store, keyed("running", alone=True))
        running = await take_one(store)
        await push_one(store, keyed("next", alone=True, latest=True, after=SECOND))
        clock.advance(3)
        assert await take(store) == []
        assert await mark(store, Done(running.id, running.claim)) == [Kept.YES]
        await push_one(store, keyed("later", alone=True, latest=True, after=MINUTE))
        assert await payloads(store) == ["tried"], "it waits for one that is to run much later"

    async def test_of_latest_pushes_at_once_one_job_waits(self, store: Store, other: Store) -> None:
        need(store, Extra.LATEST)
        for n in range(4):
            ids = await asyncio.gather(
                *(
                    push_one([store, other][m % 2], keyed("1", str(n), latest=True))
                    for m in range(2 * self.races)
                )
            )
            assert len(set(ids)) == 1, "latest pushes of one key at once are of several jobs"
            assert (await take_one(store)).id == ids[0]

    async def test_a_latest_push_beside_a_claim_moves_the_job_or_pushes_another(
        self, store: Store, other: Store, clock: Clock
    ) -> None:
        """Never does the push answer a job that was claimed as it moved it: what it asked for would not run."""
        need(store, Extra.LATEST)
        for n in range(12):
            old = await push_one(store, keyed("1", str(n), latest=True))
            new, first, second = await asyncio.gather(
                push_one(other, keyed("2", str(n), after=MINUTE, latest=True)), take(store), take(other)
            )
            got = [*first, *second]
            assert new is not None
            if new == old:
                assert got == [], "a job was claimed that a push had moved on"
            else:
                assert [job.id for job in got] == [old]
            assert await take(store) == []
            clock.advance(59)
            assert await mark(store, *(Done(job.id, job.claim) for job in got)) == [Kept.YES] * len(got)
            clock.advance(1)
            job = await take_one(store)
            assert job.id == new
            await mark(store, Done(job.id, job.claim))

    async def test_the_last_of_many_latest_pushes_runs_no_earlier_than_it_says(
        self, store: Store, other: Store, clock: Clock
    ) -> None:
        """Batches that name the same keys in other orders: nobody waits for whoever waits for him."""
        need(store, Extra.LATEST)
        keys = [str(n) for n in range(10)]
        await asyncio.gather(
            *(
                [store, other][n % 2].push(
                    [
                        keyed("1", each, after=n * SECOND, latest=True)
                        for each in (keys if n % 3 else reversed(keys))
                    ]
                )
                for n in range(self.races)
            )
        )
        last = [keyed("2", each, after=MINUTE, latest=True) for each in keys]
        ids = await store.push(last)
        assert None not in ids
        clock.advance(59)
        assert await take(store) == []
        clock.advance(1)
        assert sorted(job.id for job in await take(store)) == sorted(id for id in ids if id is not None)
