"""The suite on cancelling jobs that wait, and asking those that run to stop (CANCEL).

Longer than 300 lines, as it's one subject: a cancel lets go whatever a job in its state has.
"""

from __future__ import annotations

import asyncio

import pytest

from fastjobs.core.job import Job, NewJob
from fastjobs.core.marks import Done, Extend, Fail, GiveBack, Kept, TryAgain
from fastjobs.store import Cancelled, CancelStore, Extra, Store, supports
from fastjobs.testing.clock import Clock
from fastjobs.testing.suite.subject import (
    ENDS,
    HOLD,
    MARKS,
    MINUTE,
    NO_IDS,
    SECOND,
    Heard,
    MakeMark,
    Subject,
    is_held_by,
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

_BACK: dict[str, MakeMark] = {name: ENDS[name] for name in ("TryAgain", "GiveBack")}
"""The marks after which the job waits."""


class Cancels(Subject):
    """A cancel removes a job that waits, with its key and its name, and asks one that is held to stop."""

    async def test_a_cancelled_job_that_waits_is_gone(self, store: Store) -> None:
        cancels = cancel_store(store)
        one, two = await push(store, "1", "2")
        assert await cancels.cancel([one]) == [Cancelled.REMOVED]
        assert await cancels.cancel([one]) == [Cancelled.NOT_THERE]
        assert [job.id for job in await take(store)] == [two]
        if supports(store, Extra.FAILED):
            assert await store.failed() == [], "a cancelled job is kept as failed"
        if supports(store, Extra.COUNTS):
            assert await store.job(one) is None

    async def test_a_job_may_be_cancelled_through_another_instance(self, store: Store, other: Store) -> None:
        (waiting,) = await push(store, "1")
        assert await cancel_store(other).cancel([waiting]) == [Cancelled.REMOVED]
        (held,) = await push(store, "2")
        job = await take_one(store)
        assert await cancel_store(other).cancel([held]) == [Cancelled.ASKED]
        assert await cancel_store(store).asked([(job.id, job.claim)]) == {held}

    async def test_a_cancelled_job_that_is_due_later_is_not_waited_for(self, store: Store) -> None:
        cancels = cancel_store(store)
        (id,) = await push(store, "1", after=MINUTE)
        assert (await store.claim([of()], 1)).next_in is not None
        assert await cancels.cancel([id]) == [Cancelled.REMOVED]
        assert (await store.claim([of()], 1)).next_in is None

    @pytest.mark.parametrize("back", _BACK.values(), ids=_BACK.keys())
    async def test_a_job_that_waits_again_is_removed(self, store: Store, back: MakeMark) -> None:
        cancels = cancel_store(store)
        (id,) = await push(store, "1")
        job = await take_one(store)
        await mark(store, back(job))
        assert await cancels.cancel([id]) == [Cancelled.REMOVED]
        assert await take(store) == []

    async def test_a_failed_job_is_not_cancelled(self, store: Store) -> None:
        cancels = cancel_store(store, Extra.FAILED)
        assert supports(store, Extra.FAILED)
        (id,) = await push(store, "1")
        job = await take_one(store)
        await mark(store, Fail(id, job.claim, "x"))
        assert await cancels.cancel([id]) == [Cancelled.NOT_THERE]
        assert [each.id for each in await store.failed()] == [id]
        assert await store.run_again([id]) == [True]
        assert await cancels.cancel([id]) == [Cancelled.REMOVED]
        assert await take(store) == []

    async def test_a_cancel_says_of_each_job_what_became_of_it(self, store: Store) -> None:
        cancels = cancel_store(store)
        (held,) = await push(store, "1")
        job = await take_one(store)
        one, two, left = await push(store, "2", "3", "4", after=MINUTE)
        unknown = [id for id in NO_IDS if id not in (held, one, two, left)]
        asked = [two, *unknown, held, two, one, held]
        assert await cancels.cancel(asked) == [
            Cancelled.REMOVED,
            *(Cancelled.NOT_THERE for _ in unknown),
            Cancelled.ASKED,
            Cancelled.NOT_THERE,
            Cancelled.REMOVED,
            Cancelled.ASKED,
        ]
        assert await cancels.cancel([]) == []
        assert await cancels.cancel([left]) == [Cancelled.REMOVED]
        assert await mark(store, Done(held, job.claim)) == [Kept.YES]

    async def test_many_jobs_are_cancelled_by_one_call(self, store: Store) -> None:
        cancels = cancel_store(store)
        ids = await push(store, *(str(n) for n in range(1200)))
        held = {job.id for job in await take(store, limit=200)}
        answers = await cancels.cancel(ids[::-1])
        assert answers == [Cancelled.ASKED if id in held else Cancelled.REMOVED for id in ids[::-1]]
        assert await take(store, limit=2000) == []

    async def test_an_id_of_a_cancelled_job_is_never_used_again(self, store: Store) -> None:
        cancels = cancel_store(store)
        (id,) = await push(store, "1")
        await cancels.cancel([id])
        assert id not in await push(store, "2", "3")

    # A job that is held

    async def test_a_held_job_is_asked_to_stop_and_stays_held(self, store: Store, clock: Clock) -> None:
        cancels = cancel_store(store)
        (id,) = await push(store, "1")
        job = await take_one(store)
        assert await cancels.cancel([id]) == [Cancelled.ASKED]
        clock.advance(40)
        for _ in range(2):
            assert await mark(store, Extend(id, job.claim, HOLD)) == [Kept.STOP]
            clock.advance(40)
            assert await take(store) == [], "the hold of a job that was asked to stop was not extended"
        assert await cancels.cancel([id]) == [Cancelled.ASKED]
        assert await mark(store, Done(id, job.claim)) == [Kept.YES]
        assert await cancels.cancel([id]) == [Cancelled.NOT_THERE]

    async def test_those_asked_to_stop_are_named(self, store: Store, other: Store) -> None:
        cancels = cancel_store(store)
        ids = await push(store, *(str(n) for n in range(6)))
        held = [(job.id, job.claim) for job in await take(store)]
        assert await cancels.asked(held) == set()
        await cancels.cancel(ids[1:3])
        for each in (cancels, cancel_store(other)):
            assert await each.asked(held) == set(ids[1:3])
            assert await each.asked(held[2:]) == {ids[2]}
            assert await each.asked([]) == set()
        unknown = [(id, 1) for id in NO_IDS if id not in ids]
        assert await cancels.asked([*unknown, held[1]]) == {ids[1]}

    async def test_many_may_be_looked_after_at_once(self, store: Store) -> None:
        cancels = cancel_store(store)
        ids = await push(store, *(str(n) for n in range(1200)))
        held = [(job.id, job.claim) for job in await take(store, limit=2000)]
        await cancels.cancel(ids[::3])
        assert await cancels.asked(held) == set(ids[::3])

    async def test_another_claim_than_the_jobs_was_not_asked(self, store: Store) -> None:
        cancels = cancel_store(store)
        (id,) = await push(store, "1")
        job = await take_one(store)
        await cancels.cancel([id])
        for token in (job.claim + 1, job.claim - 1, -1, 1 << 62):
            assert await cancels.asked([(id, token)]) == set()
        assert await cancels.asked([(id, job.claim)]) == {id}

    async def test_a_look_for_those_asked_writes_nothing(self, store: Store) -> None:
        cancels = cancel_store(store)
        ids = await push(store, "1", "2")
        held = [(job.id, job.claim) for job in await take(store)]
        await cancels.cancel(ids[:1])

        async def look() -> None:
            assert await cancels.asked(held) == {ids[0]}

        await look()
        await self.writes_nothing(store, look)

    @pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
    async def test_any_end_of_a_job_that_was_asked_to_stop_is_kept(self, store: Store, end: MakeMark) -> None:
        """And is told YES: only Extend answers STOP."""
        cancels = cancel_store(store)
        (id,) = await push(store, "1")
        job = await take_one(store)
        await cancels.cancel([id])
        assert await mark(store, end(job)) == [Kept.YES]
        assert await cancels.asked([(id, job.claim)]) == set(), "a claim that is over is named"
        waits = end in _BACK.values()
        assert await cancels.cancel([id]) == [Cancelled.REMOVED if waits else Cancelled.NOT_THERE]

    async def test_of_a_batch_of_extends_the_asked_are_told(self, store: Store) -> None:
        cancels = cancel_store(store)
        ids = await push(store, *(str(n) for n in range(9)))
        jobs = await take(store)
        await cancels.cancel(ids[1::3])
        kept = await mark(store, *(Extend(job.id, job.claim, HOLD) for job in jobs))
        assert kept == [Kept.YES, Kept.STOP, Kept.YES] * 3

    # A hold that ran out

    async def test_a_job_whose_hold_ran_out_is_removed(self, store: Store, clock: Clock) -> None:
        cancels = cancel_store(store)
        one, two = await push(store, "1", "2")
        jobs = await take(store, of(hold=10 * SECOND))
        assert await cancels.cancel([two]) == [Cancelled.ASKED]
        clock.advance(9.999)
        assert await cancels.cancel([one]) == [Cancelled.ASKED]
        clock.advance(0.002)
        assert await cancels.cancel([one, two]) == [Cancelled.REMOVED] * 2
        assert await cancels.asked([(job.id, job.claim) for job in jobs]) == set()
        for job in jobs:
            late = [make(job) for make in MARKS.values()]
            assert await mark(store, *late) == [Kept.LOST] * len(late)
        assert await take(store) == []

    async def test_a_lost_job_that_a_claim_passed_over_is_removed(self, store: Store, clock: Clock) -> None:
        cancels = cancel_store(store)
        await push(store, "1", "2")
        jobs = await take(store)
        clock.advance(HOLD / SECOND + 1)
        again = (await take(store, limit=1))[0]
        (lost,) = [job for job in jobs if job.id != again.id]
        assert await cancels.cancel([lost.id]) == [Cancelled.REMOVED]
        assert await mark(store, Done(lost.id, lost.claim)) == [Kept.LOST]
        await is_held_by(store, again)

    # Keys and names

    async def test_a_cancelled_job_lets_its_key_go(self, store: Store) -> None:
        cancels = cancel_store(store, Extra.UNIQUE)
        for n in range(3):
            id = await push_one(store, keyed(str(n), after=MINUTE))
            assert id is not None, "a cancelled job has its key"
            assert await push_one(store, keyed('"gone"')) is None
            assert await cancels.cancel([id]) == [Cancelled.REMOVED]

    async def test_a_cancelled_job_is_not_moved(self, store: Store) -> None:
        cancels = cancel_store(store, Extra.LATEST)
        id = await push_one(store, keyed('"gone"', after=MINUTE, latest=True))
        assert id is not None
        await cancels.cancel([id])
        second = await push_one(store, keyed("2", latest=True))
        assert second not in (None, id)
        job = await take_one(store)
        assert (job.id, job.payload) == (second, "2")

    async def test_a_cancel_leaves_a_key_that_another_has_by_now(self, store: Store, clock: Clock) -> None:
        """Of a job whose claim let the key go: while it's held, as its hold ran out, and as it tries again."""
        cancels = cancel_store(store, Extra.UNIQUE)
        for lost in (False, True):
            await push_one(store, keyed("1"))
            first = await take_one(store)
            second = await push_one(store, keyed("2", after=5 * MINUTE))
            assert second is not None
            assert await cancels.cancel([first.id]) == [Cancelled.ASKED]
            assert await push_one(store, keyed('"gone"')) is None
            if lost:
                clock.advance(HOLD / SECOND + 1)
            else:
                await mark(store, TryAgain(first.id, first.claim, 0, "x"))
            assert await cancels.cancel([first.id]) == [Cancelled.REMOVED]
            assert await push_one(store, keyed('"gone"')) is None, "a cancel took another job's key"
            assert await cancels.cancel([second]) == [Cancelled.REMOVED]

    async def test_a_cancelled_jobs_name_is_kept_as_long_as_a_done_ones(
        self, store: Store, clock: Clock
    ) -> None:
        cancels = cancel_store(store, Extra.NAMES)
        named = NewJob(kind="mail", payload="1", name="a name", keep_name=10 * SECOND)
        plain = NewJob(kind="mail", payload="1", name="another")
        ids = pushed(await store.push([named, plain]))
        clock.advance(30)
        assert await cancels.cancel(ids) == [Cancelled.REMOVED] * 2
        clock.advance(9.999999)
        assert [id is None for id in await store.push([named, plain])] == [True, False]
        clock.advance(0.000001)
        assert await push_one(store, named) is not None

    async def test_a_job_with_everything_is_cancelled_in_any_state(self, store: Store, clock: Clock) -> None:
        """A key, latest, a name, one at a time: none is left behind that keeps the same from being pushed."""
        cancels = cancel_store(store, Extra.LATEST | Extra.NAMES | Extra.ONE_AT_A_TIME)
        new = keyed("1", latest=True, alone=True, name="its name")

        async def held() -> Job:
            job = await take_one(store)
            assert await cancels.cancel([job.id]) == [Cancelled.ASKED]
            return job

        async def waits() -> None:
            pass

        async def tries_again() -> None:
            job = await held()
            await mark(store, TryAgain(job.id, job.claim, MINUTE, "x"))

        async def was_given_back() -> None:
            job = await held()
            await mark(store, GiveBack(job.id, job.claim))

        async def lost_its_worker() -> None:
            await held()
            clock.advance(HOLD / SECOND + 1)

        async def was_moved() -> None:
            moved = await push_one(store, new._replace(name=None, after=MINUTE))
            assert moved is not None

        for stands in (waits, tries_again, was_given_back, lost_its_worker, was_moved):
            id = await push_one(store, new)
            assert id is not None, f"before one that {stands.__name__}"
            await stands()
            assert await cancels.cancel([id]) == [Cancelled.REMOVED]
            assert await take(store) == []
        assert await push_one(store, new) is not None
        assert await payloads(store) == ["1"]

    # One at a time, and at once

    async def test_a_cancelled_job_that_waits_for_another_is_gone(self, store: Store) -> None:
        cancels = cancel_store(store, Extra.ONE_AT_A_TIME)
        running, parked = await _parked(store)
        assert await cancels.cancel([parked]) == [Cancelled.REMOVED]
        assert await push_one(store, keyed("3", alone=True)) is not None, "it has its key"
        assert await take(store) == []
        assert await mark(store, Done(running.id, running.claim)) == [Kept.YES]
        assert await payloads(store) == ["3"]

    async def test_a_held_job_keeps_others_of_its_key_waiting_until_it_ends(
        self, store: Store, clock: Clock
    ) -> None:
        cancels = cancel_store(store, Extra.ONE_AT_A_TIME)
        running, _ = await _parked(store)
        assert await cancels.cancel([running.id]) == [Cancelled.ASKED]
        assert await take(store) == [], "a job was claimed beside one of its key that was only asked to stop"
        assert await mark(store, Extend(running.id, running.claim, HOLD)) == [Kept.STOP]
        assert await take(store) == []
        assert await mark(store, Done(running.id, running.claim)) == [Kept.YES]
        assert await payloads(store) == ["2"]

    async def test_a_cancel_of_a_lost_job_lets_the_next_of_its_key_go(
        self, store: Store, clock: Clock
    ) -> None:
        cancels = cancel_store(store, Extra.ONE_AT_A_TIME)
        running, parked = await _parked(store)
        clock.advance(HOLD / SECOND + 1)
        assert await cancels.cancel([running.id]) == [Cancelled.REMOVED]
        assert [job.id for job in (await store.claim([of()], 5)).jobs] == [parked], "it was left to the sweep"
        assert await mark(store, Done(running.id, running.claim)) == [Kept.LOST]
        assert await push_one(store, keyed("3", alone=True)) is not None
        assert await take(store) == [], "the late mark of a cancelled job let a second of its key go"

    async def test_a_cancel_of_the_job_whose_turn_it_is_lets_the_next_of_its_key_go(
        self, store: Store, clock: Clock
    ) -> None:
        cancels = cancel_store(store, Extra.ONE_AT_A_TIME)
        waiting: list[str] = []
        for n in range(3):
            await push_one(store, keyed(str(n), alone=True))
            job = await take_one(store)
            waiting.append(job.id)
            await mark(store, TryAgain(job.id, job.claim, (10 + n) * SECOND, "x"))
        await push_one(store, keyed("3", alone=True))
        running = await take_one(store)
        clock.advance(20)
        assert await take(store) == []
        assert await mark(store, Done(running.id, running.claim)) == [Kept.YES]
        for n, id in enumerate(waiting[:2]):
            assert await cancels.cancel([id]) == [Cancelled.REMOVED]
            found = await store.claim([of(limit=1)], 5)
            if n == 1:
                assert [job.id for job in found.jobs] == waiting[2:]
            else:
                assert [job.id for job in found.jobs] == waiting[1:2]
                (job,) = found.jobs
                assert await mark(store, GiveBack(job.id, job.claim)) == [Kept.YES]

    async def test_a_batch_of_cancels_lets_one_of_each_key_go(self, store: Store, clock: Clock) -> None:
        cancels = cancel_store(store, Extra.ONE_AT_A_TIME)
        keys = [str(n) for n in range(12)]
        lost = pushed(await store.push([keyed(f'"{each} first"', each, alone=True) for each in keys]))
        assert len(await take(store)) == 12
        pushed(await store.push([keyed(f'"{each} next"', each, alone=True) for each in keys]))
        assert await take(store) == []
        clock.advance(HOLD / SECOND + 1)
        assert await cancels.cancel(lost) == [Cancelled.REMOVED] * 12
        assert sorted(await payloads(store)) == sorted(f'"{each} next"' for each in keys)

    async def test_a_cancel_of_a_lost_job_makes_room_for_another_of_its_kind(
        self, store: Store, clock: Clock
    ) -> None:
        cancels = cancel_store(store, Extra.AT_ONCE)
        await push(store, "1", "2")
        job = await take_one(store, of(at_once=1))
        assert await cancels.cancel([job.id]) == [Cancelled.ASKED]
        assert await take(store, of(at_once=1)) == [], "a job that was only asked to stop counts no more"
        clock.advance(HOLD / SECOND + 1)
        assert await cancels.cancel([job.id]) == [Cancelled.REMOVED]
        assert await payloads(store, of(at_once=1)) == ["2"]
        assert await take(store, of(at_once=1)) == []

    async def test_a_cancel_that_lets_the_next_of_its_key_go_wakes_others(
        self, store: Store, other: Store, clock: Clock
    ) -> None:
        cancels = cancel_store(store, Extra.ONE_AT_A_TIME | Extra.LISTEN)
        assert supports(other, Extra.LISTEN)
        running, parked = await _parked(store)
        clock.advance(HOLD / SECOND + 1)
        heard = Heard(self.heard_within)
        async with other.listen(heard.wake):
            assert await cancels.cancel([running.id]) == [Cancelled.REMOVED]
            await heard.once_more("a cancel that let another job go woke nobody")
            assert [job.id for job in await take(other)] == [parked]

    # At once

    async def test_of_cancels_at_once_one_removes_the_job(self, store: Store, other: Store) -> None:
        cancels = cancel_store(store), cancel_store(other)
        ids = await push(store, *(str(n) for n in range(5)))
        answers = await asyncio.gather(
            *(cancel_in_the_end(cancels[n % 2], *ids[:: 1 - 2 * (n % 2)]) for n in range(self.races))
        )
        straight = [each[:: 1 - 2 * (n % 2)] for n, each in enumerate(answers)]
        for told in zip(*straight, strict=True):
            assert sorted(each.name for each in told) == ["NOT_THERE"] * (self.races - 1) + ["REMOVED"]
        assert await take(store) == []

    async def test_a_job_is_removed_or_claimed_and_asked_to_stop(self, store: Store, other: Store) -> None:
        cancels = cancel_store(store), cancel_store(other)
        for _ in range(5):
            ids = await push(store, *(str(n) for n in range(self.races)))
            ends = [cancel_in_the_end(cancels[n % 2], id) for n, id in enumerate(ids)]
            claims = [take([store, other][n % 2], limit=1) for n in range(self.races)]
            half = self.races // 2
            first, claimed, last = await asyncio.gather(
                asyncio.gather(*ends[:half]), asyncio.gather(*claims), asyncio.gather(*ends[half:])
            )
            jobs = {job.id: job for each in claimed for job in each}
            for id, (answer,) in zip(ids, [*first, *last], strict=True):
                assert answer is (Cancelled.ASKED if id in jobs else Cancelled.REMOVED)
            stopped = await mark_in_the_end(store, *(Extend(id, job.claim, HOLD) for id, job in jobs.items()))
            assert stopped == [Kept.STOP] * len(jobs)
            await mark(store, *(Done(id, job.claim) for id, job in jobs.items()))
            assert await take(store) == []

    async def test_a_cancel_beside_the_end_of_its_job_keeps_the_end(self, store: Store, other: Store) -> None:
        cancels = cancel_store(other)
        await push(store, *(str(n) for n in range(2 * self.races)))
        jobs = await take(store)
        assert len(jobs) == 2 * self.races
        answers, kept = await asyncio.gather(
            asyncio.gather(*(cancel_in_the_end(cancels, job.id) for job in jobs)),
            asyncio.gather(*(mark_in_the_end(store, Done(job.id, job.claim)) for job in jobs)),
        )
        assert kept == [[Kept.YES]] * len(jobs)
        assert {each for (each,) in answers} <= {Cancelled.ASKED, Cancelled.NOT_THERE}
        assert await take(store) == []

    async def test_a_push_beside_a_cancel_is_refused_or_kept(self, store: Store, other: Store) -> None:
        cancels = cancel_store(other, Extra.UNIQUE)
        for _ in range(5):
            first = await push_one(store, keyed("1"))
            assert first is not None
            answer, ids = await asyncio.gather(
                cancel_in_the_end(cancels, first),
                asyncio.gather(*(push_one(store, keyed("2")) for _ in range(3))),
            )
            assert answer == [Cancelled.REMOVED]
            kept = [id for id in ids if id is not None]
            assert len(kept) <= 1, "two jobs of one key wait"
            jobs = await take(store)
            assert [job.id for job in jobs] == kept
            await mark(store, *(Done(job.id, job.claim) for job in jobs))

    async def test_cancels_beside_workers_never_have_two_of_a_key_held(
        self, store: Store, other: Store
    ) -> None:
        """And leave no job of a key waiting for nobody."""
        cancels = cancel_store(store, Extra.ONE_AT_A_TIME), cancel_store(other)
        running: set[str] = set()
        pushed_ids: set[str] = set()
        gone: set[str] = set()
        more, pushers = 60, 2

        async def work(through: Store) -> None:
            while pushers or pushed_ids - gone:
                jobs = (await through.claim([of()], 2)).jobs
                keys = {job.payload for job in jobs}
                assert len(keys) == len(jobs), "one claim returned two jobs of one key"
                assert not keys & running, "two jobs of one key are held at once"
                running.update(keys)
                for job in jobs:
                    await _turns(7)
                    running.discard(job.payload)
                    gone.add(job.id)
                    assert await mark_in_the_end(through, Done(job.id, job.claim)) == [Kept.YES]
                await _turns(1)

        async def push_and_cancel(n: int) -> None:
            nonlocal more, pushers
            while more:
                more -= 1
                left = more
                key = str(left % 3)
                id = await push_one([store, other][n], keyed(f'"{key}"', key, alone=True))
                if id is None:
                    continue
                pushed_ids.add(id)
                await _turns(2)
                if left % 2 and await cancel_in_the_end(cancels[n], id) == [Cancelled.REMOVED]:
                    gone.add(id)
            pushers -= 1

        await asyncio.gather(push_and_cancel(0), push_and_cancel(1), work(store), work(other))
        assert await take(store) == []


async def cancel_in_the_end(store: CancelStore, *ids: str) -> list[Cancelled]:
    """As `cancel`, and again, for a second, while another transaction has one of the rows, as in a race it may."""
    answers = list(await store.cancel(ids))
    for _ in range(200):
        busy = [n for n, each in enumerate(answers) if each is Cancelled.BUSY]
        if not busy:
            break
        await asyncio.sleep(0.005)
        for n, each in zip(busy, await store.cancel([ids[n] for n in busy]), strict=True):
            answers[n] = each
    return answers


async def _turns(count: int) -> None:
    """Lets others have so many turns of the loop, so that what comes in between is the same in each run."""
    for _ in range(count):
        await asyncio.sleep(0)


def cancel_store(store: Store, beside: Extra = Extra.CANCEL) -> CancelStore:
    need(store, Extra.CANCEL)
    need(store, beside)
    assert supports(store, Extra.CANCEL)
    return store


async def _parked(store: Store) -> tuple[Job, str]:
    """A held job, and the id of one of its key that waits for it."""
    await push_one(store, keyed("1", alone=True))
    running = await take_one(store)
    (parked,) = pushed(await store.push([keyed("2", alone=True)]))
    assert await take(store) == []
    return running, parked
