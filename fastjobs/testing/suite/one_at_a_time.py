"""The suite on jobs of which one of a kind and key is held at a time (ONE_AT_A_TIME).

Longer than 300 lines, as it's one subject: each way that a job's claim may end lets the next one go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from fastjobs.core.job import Job, NewJob
from fastjobs.core.marks import Done, Extend, Fail, GiveBack, HoldBack, Kept, TryAgain
from fastjobs.store import Extra, Store, supports
from fastjobs.testing.clock import Clock
from fastjobs.testing.suite.chance import Chance
from fastjobs.testing.suite.subject import (
    ENDS,
    HOLD,
    MINUTE,
    SECOND,
    MakeMark,
    Subject,
    claim,
    key_of,
    keyed,
    mark,
    mark_in_the_end,
    need,
    of,
    payloads,
    push,
    push_one,
    pushed,
    take,
    take_one,
)


class OneAtATime(Subject):
    """No claim returns such a job while another of its kind and key is held; then it returns the next."""

    async def test_a_job_waits_while_another_of_its_key_is_held(self, store: Store, other: Store) -> None:
        running = await _running(store)
        assert await push_one(store, keyed("2", alone=True)) is not None
        for each in (store, other, store):
            assert await take(each) == [], "two jobs of one key are held at once"
        assert await mark(store, Done(running.id, running.claim)) == [Kept.YES]
        assert await payloads(other) == ["2"]

    @pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
    async def test_the_end_of_a_claim_lets_one_of_its_key_go(self, store: Store, end: MakeMark) -> None:
        running = await _running(store)
        await push_one(store, keyed("2", alone=True))
        assert await take(store) == []
        assert await mark(store, end(running)) == [Kept.YES]
        left = {"1", "2"} if end in (ENDS["TryAgain"], ENDS["GiveBack"]) else {"2"}
        while left:
            job = await take_one(store)
            assert await take(store) == []
            left.remove(job.payload)
            await mark(store, Done(job.id, job.claim))

    async def test_a_job_that_goes_back_for_later_lets_the_next_go_at_once(
        self, store: Store, clock: Clock
    ) -> None:
        running = await _running(store)
        await push_one(store, keyed("2", alone=True))
        assert await take(store) == []
        await mark(store, TryAgain(running.id, running.claim, MINUTE, "x"))
        second = await take_one(store)
        assert second.payload == "2"
        clock.advance(59)
        assert await mark(store, Extend(second.id, second.claim, 10 * HOLD)) == [Kept.YES]
        clock.advance(2)
        assert await take(store) == [], "a job that ran before is held beside another of its key"
        await mark(store, Done(second.id, second.claim))
        assert await payloads(store) == ["1"]

    async def test_a_held_back_kinds_next_job_of_a_key_goes_after_its_time(
        self, store: Store, clock: Clock
    ) -> None:
        need(store, Extra.HOLD_BACK)
        running = await _running(store)
        await push_one(store, keyed("2", alone=True))
        assert await take(store) == []
        await mark(store, HoldBack(running.id, running.claim, SECOND, after=MINUTE))
        assert await take(store) == []
        clock.advance(1)
        assert await payloads(store) == ["2"]

    async def test_other_keys_and_kinds_and_jobs_that_are_not_so_run_beside_it(self, store: Store) -> None:
        await _running(store)
        await store.push(
            [
                keyed("2", "a", alone=True),
                keyed("3", "b", alone=True),
                keyed("4", "a", kind="photo", alone=True),
                NewJob(kind="mail", payload="5"),
                NewJob(kind="photo", payload="6", key=key_of("b")),
            ]
        )
        kinds = of("mail"), of("photo")
        assert sorted(await payloads(store, *kinds)) == ["3", "4", "5", "6"]
        # One that was pushed by an instance that doesn't ask for it yet.
        assert await push_one(store, keyed("7", "b")) is not None
        assert await payloads(store, *kinds) == ["7"]

    async def test_jobs_of_a_key_are_claimed_in_the_order_they_are_due(
        self, store: Store, clock: Clock
    ) -> None:
        need(store, Extra.ONE_AT_A_TIME)
        await _several(store, clock, 4)
        for payload in ("3", "2", "1", "0"):
            job = await take_one(store)
            assert job.payload == payload
            await mark(store, Done(job.id, job.claim))

    async def test_one_claim_returns_one_of_a_key(self, store: Store, clock: Clock) -> None:
        need(store, Extra.ONE_AT_A_TIME)
        await _several(store, clock, 3)
        await push_one(store, keyed('"b"', "b", alone=True))
        assert await payloads(store, limit=100) == ["2", '"b"']

    async def test_jobs_that_wait_for_another_take_no_room(self, store: Store, clock: Clock) -> None:
        """Nor do they keep whatever is due after them from being claimed."""
        need(store, Extra.ONE_AT_A_TIME)
        await _several(store, clock, 12)
        await push(store, *(f'"{n}"' for n in range(3)))
        await push(store, '"photo"', kind="photo")
        kinds = of("mail"), of("photo")
        assert await payloads(store, *kinds, limit=1) == ["11"]
        assert await payloads(store, *kinds, limit=2) == ['"0"', '"1"']
        assert await payloads(store, *kinds, limit=2) == ['"2"', '"photo"']

    async def test_jobs_that_wait_for_another_give_no_worker_more_than_is_free(
        self, store: Store, clock: Clock
    ) -> None:
        """Jobs that are for free workers alone are no more than these, though some of them were passed over."""
        await _others_behind(store, clock)
        found = await store.claim([of(ahead_ok=False)], 4, ahead=2)
        assert {job.payload for job in found.jobs} <= {'"b"', '"c"'}

    async def test_jobs_that_wait_for_another_let_no_more_than_the_limit_go(
        self, store: Store, clock: Clock
    ) -> None:
        await _others_behind(store, clock)
        found = await store.claim([of(limit=2)], 4)
        assert {job.payload for job in found.jobs} <= {'"b"', '"c"'}

    async def test_a_claim_that_passed_over_jobs_does_not_leave_others_behind(
        self, store: Store, clock: Clock
    ) -> None:
        """One that comes back short for them says `again`, so that whoever asked doesn't sleep a poll."""
        need(store, Extra.ONE_AT_A_TIME)
        await _several(store, clock, 30)
        await take_one(store, of("mail", limit=1))
        await push(store, '"after"', kind="mail")
        found = await store.claim([of()], 1)
        for _ in range(100):
            if found.jobs or not found.again:
                break
            found = await store.claim([of()], 1)
        assert [job.payload for job in found.jobs] == ['"after"']

    async def test_a_job_that_waits_for_another_is_not_asked_for_at_once(self, store: Store) -> None:
        """Once it's been passed over, no claim says that something is due now: the other's end wakes."""
        await _running(store)
        await push_one(store, keyed("2", alone=True))
        assert await take(store) == []
        found = await store.claim([of()], 5)
        assert (found.jobs, found.again) == ([], False)
        assert found.next_in is None or found.next_in > 0

    async def test_a_claim_of_jobs_that_wait_for_another_writes_nothing(self, store: Store) -> None:
        await _running(store)
        await push_one(store, keyed("2", alone=True))
        assert await take(store) == []

        async def look() -> None:
            assert await take(store) == []

        await self.writes_nothing(store, look)

    # Keys

    async def test_a_job_that_waits_for_another_has_its_key(self, store: Store) -> None:
        running = await _running(store)
        assert await push_one(store, keyed("2", alone=True)) is not None
        assert await take(store) == []
        assert await push_one(store, keyed("3", alone=True)) is None
        await mark(store, Done(running.id, running.claim))
        assert await push_one(store, keyed("4", alone=True)) is None
        assert await payloads(store) == ["2"]
        assert await push_one(store, keyed("5", alone=True)) is not None

    async def test_a_give_back_beside_one_that_waits_leaves_it_its_key(self, store: Store) -> None:
        running = await _running(store)
        await push_one(store, keyed("2", alone=True))
        assert await take(store) == []
        assert await mark(store, GiveBack(running.id, running.claim)) == [Kept.YES]
        assert await push_one(store, keyed("3", alone=True)) is None
        job = await take_one(store)
        await mark(store, Done(job.id, job.claim))
        assert {job.payload, *await payloads(store)} == {"1", "2"}

    async def test_a_job_run_again_waits_for_another_of_its_key(self, store: Store) -> None:
        need(store, Extra.FAILED)
        first = await _running(store)
        assert supports(store, Extra.FAILED)
        await mark(store, Fail(first.id, first.claim, "x"))
        await push_one(store, keyed("2", alone=True))
        second = await take_one(store)
        assert await store.run_again([first.id]) == [True]
        assert await take(store) == [], "a job that was run again is held beside another of its key"
        await mark(store, Done(second.id, second.claim))
        assert (await take_one(store)).id == first.id

    # Holds

    async def test_an_extended_hold_keeps_the_next_waiting(self, store: Store, clock: Clock) -> None:
        running = await _running(store)
        await push_one(store, keyed("2", alone=True))
        for _ in range(4):
            clock.advance(40)
            assert await mark(store, Extend(running.id, running.claim, HOLD)) == [Kept.YES]
            assert await take(store) == [], "a job was claimed while another's hold of its key was extended"
        await mark(store, Done(running.id, running.claim))
        assert await payloads(store) == ["2"]

    async def test_a_hold_that_ran_out_lets_one_of_its_key_go(self, store: Store, clock: Clock) -> None:
        await _running(store)
        await push_one(store, keyed("2", alone=True))
        assert await take(store) == []
        clock.advance(HOLD / SECOND - 0.001)
        assert await take(store) == []
        clock.advance(0.002)
        left = {"1", "2"}
        while left:
            job = await take_one(store)
            assert await take(store) == []
            left.remove(job.payload)
            await mark(store, Done(job.id, job.claim))

    async def test_a_job_that_used_up_its_attempts_lets_the_next_of_its_key_go(
        self, store: Store, clock: Clock
    ) -> None:
        await _running(store)
        await push_one(store, keyed("2", alone=True))
        assert await take(store, of(attempts=1)) == []
        clock.advance(HOLD / SECOND + 1)
        first, second = await claim(store, of(attempts=1)), await claim(store, of(attempts=1))
        assert [job.payload for job in [*first.exhausted, *second.exhausted]] == ["1"]
        assert [job.payload for job in [*first.jobs, *second.jobs]] == ["2"]

    async def test_a_job_that_was_to_be_the_next_and_has_no_attempts_left_lets_another_go(
        self, store: Store, clock: Clock
    ) -> None:
        tried = await _running(store)
        assert await mark(store, TryAgain(tried.id, tried.claim, SECOND, "x")) == [Kept.YES]
        await push_one(store, keyed("2", alone=True))
        running = await take_one(store)
        await push_one(store, keyed("3", alone=True, after=2 * SECOND))
        clock.advance(3)
        assert await take(store) == []
        assert await mark(store, Done(running.id, running.claim)) == [Kept.YES]
        # A deploy has made them fewer.
        found = await claim(store, of(attempts=1))
        assert [job.payload for job in found.exhausted] == ["1"]
        assert [job.payload for job in [*found.jobs, *await take(store, of(attempts=1))]] == ["3"]

    async def test_a_late_mark_lets_no_other_of_its_key_go(self, store: Store, clock: Clock) -> None:
        old = await _running(store)
        await push_one(store, keyed("2", alone=True))
        assert await take(store) == []
        clock.advance(HOLD / SECOND + 1)
        held = await take_one(store)
        late = [end(old) for end in ENDS.values()]
        if held.id == old.id:
            assert await mark(store, *late) == [Kept.LOST] * len(late)
        else:
            assert await mark(store, late[0]) == [Kept.YES]
        assert await take(store) == [], "the mark of an old claim let a second job of the key go"
        assert await mark(store, Done(held.id, held.claim)) == [Kept.YES]

    @pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
    async def test_the_mark_of_a_hold_that_ran_out_frees_nothing_of_the_next_holders(
        self, store: Store, clock: Clock, end: MakeMark
    ) -> None:
        """The first job's worker is late, another of the key runs by now, and the first's claim is nobody else's."""
        need(store, Extra.ONE_AT_A_TIME)
        await push_one(store, keyed("1", alone=True))
        late = await take_one(store)
        await push_one(store, keyed("2", at=0, alone=True))
        assert await take(store) == []
        clock.advance(HOLD / SECOND + 1)
        held = await take_one(store)
        assert held.payload == "2", "the job that is due first is claimed first"
        assert await push_one(store, keyed("3", alone=True)) is not None
        assert await mark(store, end(late)) == [Kept.YES]
        assert await take(store) == [], "the mark of an old claim let a second job of the key go"
        left = {"1", "3"} if end in (ENDS["TryAgain"], ENDS["GiveBack"]) else {"3"}
        while left:
            assert await mark(store, Done(held.id, held.claim)) == [Kept.YES]
            held = await take_one(store)
            left.remove(held.payload)

    async def test_a_batch_of_ends_lets_one_of_each_key_go(self, store: Store) -> None:
        need(store, Extra.ONE_AT_A_TIME)
        keys = [str(n) for n in range(12)]
        pushed(await store.push([keyed(f'"{each} first"', each, alone=True) for each in keys]))
        first = await take(store)
        pushed(await store.push([keyed(f'"{each} next"', each, alone=True) for each in keys]))
        assert await take(store) == []
        ends: Sequence[MakeMark] = [
            ENDS["Done"],
            ENDS["Fail"],
            lambda job: GiveBack(job.id, job.claim, MINUTE),
        ]
        marks = [ends[n % 3](job) for n, job in enumerate(first)]
        assert await mark(store, *marks) == [Kept.YES] * len(marks)
        assert sorted(await payloads(store)) == sorted(f'"{each} next"' for each in keys)
        assert await take(store) == []

    # At once

    async def test_of_claims_at_once_one_has_a_jobs_key(
        self, store: Store, other: Store, clock: Clock
    ) -> None:
        need(store, Extra.ONE_AT_A_TIME)
        keys = [str(n) for n in range(5)]
        await _several(store, clock, 4, *keys)
        for round in range(4):
            found = await asyncio.gather(*(take([store, other][n % 2]) for n in range(self.races)))
            jobs = [job for each in found for job in each] + await take(store)
            assert len(jobs) == len(keys), f"round {round}: {len(jobs)} jobs of {len(keys)} keys were claimed"
            assert {job.payload.split()[0] for job in jobs} == {f'"{each}' for each in keys}
            assert await mark(store, *(Done(job.id, job.claim) for job in jobs)) == [Kept.YES] * len(keys)

    async def test_workers_at_once_never_hold_two_of_a_key(
        self, store: Store, other: Store, clock: Clock
    ) -> None:
        """On two instances, some of which die with what they hold, while others push; and no job is forgotten."""
        need(store, Extra.ONE_AT_A_TIME)
        keys = [str(n) for n in range(5)]
        chance = Chance(11)
        terms = of(hold=10 * SECOND, attempts=1000)
        held: dict[tuple[str, int], tuple[str, int]] = {}
        dead: set[tuple[str, int]] = set()
        left = set(pushed(await store.push([keyed(f'"{each}"', each, alone=True) for each in keys])))
        more = 60

        async def work(through: Store, job: Job, until: int) -> None:
            nonlocal more
            # It's noted from after its claim until before its mark: never longer than it's held.
            now = clock.now()
            beside = [id for id, (key, end) in held.items() if key == job.payload and end > now]
            assert not beside or until <= now, f"{beside} and {job.id} are held at once, and have one key"
            this = job.id, job.claim
            held[this] = job.payload, until
            await asyncio.sleep(0)
            if more:
                more -= 1
                id = await push_one(through, keyed(job.payload, job.payload.strip('"'), alone=True))
                left.update([] if id is None else [id])
            if chance.random() < 0.08:
                dead.add(this)
                return
            del held[this]
            if chance.random() < 0.3:
                await mark_in_the_end(through, TryAgain(*this, chance.choice((0, SECOND)), "x"))
            elif await mark_in_the_end(through, Done(*this)) == [Kept.YES]:
                left.discard(job.id)

        async def worker(through: Store) -> None:
            idle = 0
            while (left or more) and idle < 2000:
                found = await through.claim([terms], chance.randint(1, 3))
                await asyncio.gather(*(work(through, job, found.now + 10 * SECOND) for job in found.jobs))
                if found.jobs:
                    idle = 0
                    continue
                idle += 1
                if dead.issuperset(held):
                    clock.advance(1)
                    if idle > 30 and supports(through, Extra.PRUNE):
                        await through.sweep()
                await asyncio.sleep(0.001)

        await asyncio.gather(*(worker([store, other][n % 2]) for n in range(self.races)))
        assert not left, f"{len(left)} jobs were never claimed again"


async def _others_behind(store: Store, clock: Clock) -> None:
    """One of a key is held, another of it is due, and behind it three of other keys."""
    await _running(store)
    await push_one(store, keyed("2", alone=True))
    for key in "bcd":
        clock.advance(0.001)
        await push_one(store, keyed(f'"{key}"', key, alone=True))


async def _running(store: Store) -> Job:
    """A held job of a key."""
    need(store, Extra.ONE_AT_A_TIME)
    await push_one(store, keyed("1", alone=True))
    return await take_one(store)


async def _several(store: Store, clock: Clock, count: int, *keys: str) -> None:
    """Pushes so many jobs of each key that are due, the last one first: each has let its key go by a run.

    Keys that are named are in their payloads too.
    """
    for n in range(count):
        payloads = {f'"{key} {n}"': key for key in keys} or {str(n): "a"}
        pushed(await store.push([keyed(payload, key, alone=True) for payload, key in payloads.items()]))
        jobs = await take(store)
        assert {job.payload for job in jobs} == set(payloads)
        again = [TryAgain(job.id, job.claim, (1000 - n) * SECOND, "x") for job in jobs]
        assert await mark(store, *again) == [Kept.YES] * len(jobs)
    clock.advance(1000)
