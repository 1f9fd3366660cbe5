"""The suite on counting jobs and looking at them (COUNTS).

Longer than 300 lines, as it's one subject: what each state of a job and of its kind looks like.
"""

from __future__ import annotations

import asyncio

import pytest

from fastjobs.core.errors import StoreError
from fastjobs.core.job import FailedJob, Job, JobState, KeptJob, NewJob
from fastjobs.core.marks import Done, Extend, Fail, HoldBack, Kept, TryAgain
from fastjobs.store import CountsStore, Extra, KindCount, Store, supports
from fastjobs.testing.clock import Clock
from fastjobs.testing.suite.subject import (
    HOLD,
    MINUTE,
    NO_IDS,
    SECOND,
    Subject,
    keyed,
    mark,
    mark_in_the_end,
    need,
    of,
    push,
    push_one,
    pushed,
    take,
    take_one,
)


class Counts(Subject):
    """Jobs are counted by kind and state, up to a cap, and each is shown with what says why it isn't running."""

    async def test_a_kinds_jobs_are_counted_by_where_they_stand(self, store: Store, clock: Clock) -> None:
        counts = _counts_store(store)
        await push(store, "1", "2", "3")
        held, failing, again = await take(store)
        await mark(store, Fail(failing.id, failing.claim, "x"), TryAgain(again.id, again.claim, MINUTE, "x"))
        await push(store, "4", "5")
        clock.advance(7)
        assert await counts.counts() == [
            _count("mail", waiting=3, due=2, held=1, failed=1, oldest=7 * SECOND)
        ]
        assert await mark(store, Done(held.id, held.claim)) == [Kept.YES]
        assert await counts.counts() == [_count("mail", waiting=3, due=2, failed=1, oldest=7 * SECOND)]

    async def test_another_instance_counts_the_same(self, store: Store, other: Store) -> None:
        await push(store, "1", "2")
        await take(store, limit=1)
        assert await _counts_store(other).counts() == [_count("mail", waiting=1, due=1, held=1, oldest=0)]

    async def test_a_job_that_waits_for_another_of_its_key_is_counted_apart(self, store: Store) -> None:
        counts = _counts_store(store, Extra.ONE_AT_A_TIME)
        await _parked(store)
        await push(store, '"waits"')
        assert await counts.counts() == [_count("mail", waiting=1, due=1, held=1, parked=1, oldest=0)]

    async def test_a_lost_job_is_counted_as_held_until_a_claim_sees_it(
        self, store: Store, clock: Clock
    ) -> None:
        counts = _counts_store(store)
        await push(store, "1")
        await take_one(store)
        clock.advance(HOLD / SECOND + 1)
        assert await counts.counts() == [_count("mail", held=1)]
        assert (await take_one(store)).lost == 1
        assert await counts.counts() == [_count("mail", held=1)]

    async def test_a_job_comes_due_in_time(self, store: Store, clock: Clock) -> None:
        counts = _counts_store(store)
        await push(store, "1", after=10 * SECOND)
        clock.advance(9.999999)
        assert await counts.counts() == [_count("mail", waiting=1)]
        clock.advance(0.000001)
        assert await counts.counts() == [_count("mail", waiting=1, due=1, oldest=0)]

    async def test_the_oldest_is_the_waiting_job_that_is_due_longest(
        self, store: Store, clock: Clock
    ) -> None:
        counts = _counts_store(store)
        now = clock.now()
        for seconds in (3, 60, 20):
            await push(store, str(seconds), at=now - seconds * SECOND)
        await push(store, "0", after=MINUTE)
        for oldest in (60, 20, 3):
            for cap in (10_000, 1, 0):
                (row,) = await counts.counts(cap=cap)
                assert row.oldest == oldest * SECOND, f"with a cap of {cap}"
            job = (await take(store, limit=1))[0]
            assert job.payload == str(oldest)
        (row,) = await counts.counts()
        assert row.oldest is None

    async def test_each_kind_is_counted_for_itself_in_the_order_of_the_names(self, store: Store) -> None:
        counts = _counts_store(store)
        kinds = ["photo", "Mail", "mail", "a.b", "a-b", "a_b", "a:b", "Z1", "zz", "0", "x" * 100]
        for n, kind in enumerate(kinds):
            await push(store, *(str(m) for m in range(n + 1)), kind=kind)
        found = await counts.counts()
        assert [(row.kind, row.waiting) for row in found] == sorted(
            (kind, n + 1) for n, kind in enumerate(kinds)
        )

    async def test_a_kind_whose_jobs_are_done_is_still_listed(self, store: Store) -> None:
        counts = _counts_store(store)
        await push(store, "1")
        job = await take_one(store)
        await mark(store, Done(job.id, job.claim))
        assert await counts.counts() == [_count("mail")]

    async def test_a_registered_kind_is_listed_before_its_first_push(
        self, store: Store, other: Store
    ) -> None:
        counts = _counts_store(other)
        need(store, Extra.LIFECYCLE)
        assert supports(store, Extra.LIFECYCLE)
        await store.open(["report", "mail"])
        try:
            await push(store, "1", kind="photo")
            assert await counts.counts() == [
                _count("mail"),
                _count("photo", waiting=1, due=1, oldest=0),
                _count("report"),
            ]
        finally:
            await store.close()

    async def test_no_number_goes_past_one_more_than_the_cap(self, store: Store) -> None:
        counts = _counts_store(store)
        numbers = (2, 3, 4, 6)
        for n in numbers:
            texts = [str(m) for m in range(n)]
            await push(store, *texts, kind=f"later-{n}", after=MINUTE)
            await push(store, *texts, kind=f"due-{n}")
            await push(store, *texts, kind=f"held-{n}")
            assert len(await take(store, of(f"held-{n}"))) == n
            await push(store, *texts, kind=f"failed-{n}")
            jobs = await take(store, of(f"failed-{n}"))
            assert await mark(store, *(Fail(job.id, job.claim, "x") for job in jobs)) == [Kept.YES] * n
        for cap, capped in ((3, (2, 3, 4, 4)), (0, (1, 1, 1, 1)), (6, numbers), (10_000, numbers)):
            found = {row.kind: row for row in await counts.counts(cap=cap)}
            for n, told in zip(numbers, capped, strict=True):
                assert found[f"later-{n}"] == _count(f"later-{n}", waiting=told)
                assert found[f"due-{n}"] == _count(f"due-{n}", waiting=told, due=told, oldest=0)
                assert found[f"held-{n}"] == _count(f"held-{n}", held=told)
                assert found[f"failed-{n}"] == _count(f"failed-{n}", failed=told)

    async def test_the_number_of_jobs_that_wait_for_another_is_capped_too(
        self, store: Store, clock: Clock
    ) -> None:
        counts = _counts_store(store, Extra.ONE_AT_A_TIME)
        keys = [str(n) for n in range(5)]
        pushed(await store.push([keyed("1", key, alone=True) for key in keys]))
        assert len(await take(store)) == 5
        pushed(await store.push([keyed("2", key, alone=True) for key in keys]))
        assert await take(store) == []
        for cap, told in ((3, 4), (4, 5), (5, 5)):
            assert [row.parked for row in await counts.counts(cap=cap)] == [told]

    async def test_a_kind_that_is_held_back_says_for_how_long(self, store: Store, clock: Clock) -> None:
        counts = _counts_store(store, Extra.HOLD_BACK)
        (id,) = await push(store, "1")
        job = await take_one(store)
        until = clock.now() + 10 * SECOND
        await mark(store, HoldBack(job.id, job.claim, 10 * SECOND))
        clock.advance(4)
        (row,) = await counts.counts()
        assert (row.held_back, (await _job(counts, id)).kind_held_until) == (6 * SECOND, until)
        clock.advance(7)
        (row,) = await counts.counts()
        assert row.held_back == 0

    # One job

    async def test_a_waiting_job_is_shown_as_it_was_pushed(self, store: Store, clock: Clock) -> None:
        counts = _counts_store(store)
        pushed_at = clock.now()
        (id,) = await push(store, '{"a":1}', after=MINUTE)
        clock.advance(5)
        assert await counts.job(id) == KeptJob(
            id=id,
            kind="mail",
            state=JobState.WAITING,
            payload='{"a":1}',
            size=7,
            run_at=pushed_at + MINUTE,
            created_at=pushed_at,
            attempts=0,
            lost=0,
            error=None,
            held_until=None,
            failed_at=None,
            carried=None,
            name=None,
            has_key=False,
            stop_asked=False,
            progress=None,
            behind=None,
            kind_held_until=0,
            kind_paused=False,
            kind_held=0,
            now=pushed_at + 5 * SECOND,
        )

    async def test_a_job_shows_its_name_whether_it_has_a_key_and_what_it_carries(self, store: Store) -> None:
        """Its key also once it has let it go."""
        counts = _counts_store(store, Extra.UNIQUE | Extra.NAMES | Extra.CARRY)
        id = await push_one(store, keyed("1", name="a name", carried='{"request-id":"r1"}'))
        for _ in range(2):
            job = await _job(counts, id)
            assert (job.has_key, job.name, job.carried) == (True, "a name", '{"request-id":"r1"}')
            await take(store)

    async def test_a_held_job_shows_until_when(self, store: Store, clock: Clock) -> None:
        counts = _counts_store(store)
        (id,) = await push(store, "1")
        now = clock.now()
        job = await take_one(store)
        shown = await _job(counts, id)
        assert (shown.state, shown.attempts, shown.held_until) == (JobState.HELD, 1, now + HOLD)
        clock.advance(10)
        await mark(store, Extend(id, job.claim, 5 * MINUTE))
        assert (await _job(counts, id)).held_until == now + 10 * SECOND + 5 * MINUTE

    async def test_a_lost_job_is_shown_as_held_by_a_hold_that_ran_out(
        self, store: Store, clock: Clock
    ) -> None:
        counts = _counts_store(store)
        (id,) = await push(store, "1")
        until = clock.now() + HOLD
        await take_one(store)
        clock.advance(HOLD / SECOND + 1)
        shown = await _job(counts, id)
        assert (shown.state, shown.held_until, shown.kind_held) == (JobState.HELD, until, 0)
        assert shown.now > until
        await take_one(store)
        shown = await _job(counts, id)
        assert (shown.state, shown.attempts, shown.lost) == (JobState.HELD, 2, 1)
        assert shown.held_until == clock.now() + HOLD

    async def test_a_job_to_try_again_shows_its_error_and_when(self, store: Store, clock: Clock) -> None:
        counts = _counts_store(store)
        (id,) = await push(store, "1")
        job = await take_one(store)
        await mark(store, TryAgain(id, job.claim, MINUTE, "it was out of luck"))
        shown = await _job(counts, id)
        assert (shown.state, shown.run_at, shown.held_until) == (
            JobState.WAITING,
            clock.now() + MINUTE,
            None,
        )
        assert (shown.attempts, shown.error) == (1, "it was out of luck")

    async def test_a_failed_job_shows_its_error_and_since_when(self, store: Store, clock: Clock) -> None:
        counts = _counts_store(store, Extra.FAILED)
        assert supports(store, Extra.FAILED)
        (id,) = await push(store, "1")
        job = await take_one(store)
        clock.advance(3)
        await mark(store, Fail(id, job.claim, "it failed"))
        shown = await _job(counts, id)
        assert (shown.state, shown.failed_at, shown.held_until) == (JobState.FAILED, clock.now(), None)
        assert (shown.attempts, shown.error) == (1, "it failed")
        await store.run_again([id])
        shown = await _job(counts, id)
        assert (shown.state, shown.failed_at, shown.attempts) == (JobState.WAITING, None, 0)

    async def test_the_list_of_failed_jobs_shows_of_each_what_a_look_at_it_does(
        self, store: Store, clock: Clock
    ) -> None:
        counts = _counts_store(store, Extra.FAILED)
        assert supports(store, Extra.FAILED)
        new = NewJob("mail", "1")
        if supports(store, Extra.NAMES):
            new = new._replace(name="once")
        if supports(store, Extra.UNIQUE):
            new = new._replace(key=b"k" * 32)
        if supports(store, Extra.CARRY):
            new = new._replace(carried='{"request_id":"r"}')
        (id,) = await store.push([new])
        await push(store, "2")
        await take(store)
        clock.advance(HOLD / SECOND + 1)
        for job in await take(store):
            if supports(store, Extra.PROGRESS) and job.id == id:
                await store.progress([(job.id, job.claim, '{"step":7}')])
            await mark(store, Fail(job.id, job.claim, "it failed"))
        failed = await store.failed()
        assert len(failed) == 2
        for listed in failed:
            shown = await _job(counts, listed.id)
            assert listed == FailedJob(
                id=shown.id,
                kind=shown.kind,
                payload=shown.payload,
                attempts=shown.attempts,
                error=shown.error,
                failed_at=shown.failed_at or 0,
                created_at=shown.created_at,
                carried=shown.carried,
                size=shown.size,
                lost=1,
                name=new.name if shown.id == id else None,
                has_key=shown.id == id and new.key is not None,
                progress='{"step":7}' if shown.id == id and supports(store, Extra.PROGRESS) else None,
            )
            assert (shown.lost, shown.name, shown.has_key) == (listed.lost, listed.name, listed.has_key)
            assert shown.progress == listed.progress

    async def test_a_job_that_is_gone_is_not_shown(self, store: Store) -> None:
        counts = _counts_store(store)
        done, kept = await push(store, "1", "2")
        job = await take_one(store, of(limit=1))
        await mark(store, Done(done, job.claim))
        assert await counts.job(done) is None
        assert (await _job(counts, kept)).payload == "2"
        for id in NO_IDS:
            assert id in (done, kept) or await counts.job(id) is None, f"{id!r} is shown"

    async def test_a_payload_is_shown_as_far_as_was_asked(self, store: Store) -> None:
        """With how many bytes the whole of it has, in a page too."""
        counts = _counts_store(store)
        payload = '"' + r"\u00e4b\ud83d\ude42" * 2000 + '"'
        (id,) = await push(store, payload)
        size = len(payload)
        for cut in (0, 1, 100, size - 1, size, size + 1, None):
            shown = [await _job(counts, id, cut=cut), *await counts.jobs("mail", JobState.WAITING, cut=cut)]
            assert [(job.payload, job.size) for job in shown] == [(payload[:cut], size)] * 2

    async def test_a_job_that_waits_for_another_says_for_which(self, store: Store, clock: Clock) -> None:
        counts = _counts_store(store, Extra.ONE_AT_A_TIME)
        running, parked = await _parked(store)
        await push(store, '"another"')
        await take(store)
        shown = await _job(counts, parked)
        assert (shown.state, shown.behind) == (JobState.PARKED, running.id)
        assert (await _job(counts, running.id)).behind is None
        clock.advance(HOLD / SECOND + 1)
        shown = await _job(counts, parked)
        assert (shown.state, shown.behind) == (JobState.PARKED, None), "a hold that ran out holds nobody up"

    async def test_a_job_whose_turn_it_is_waits_for_no_other(self, store: Store) -> None:
        counts = _counts_store(store, Extra.ONE_AT_A_TIME)
        running, parked = await _parked(store)
        assert await mark(store, Done(running.id, running.claim)) == [Kept.YES]
        shown = await _job(counts, parked)
        assert (shown.state, shown.behind) == (JobState.WAITING, None)

    async def test_a_job_says_how_many_of_its_kind_are_held(self, store: Store, clock: Clock) -> None:
        counts = _counts_store(store)
        await push(store, *(str(n) for n in range(5)))
        await push(store, "1", kind="photo")
        assert len(await take(store, of("photo"))) == 1
        assert len(await take(store, of(hold=10 * SECOND), limit=2)) == 2
        assert len(await take(store, limit=1)) == 1
        waiting = await counts.jobs("mail", JobState.WAITING)
        assert [job.kind_held for job in waiting] == [3, 3]
        clock.advance(11)
        waiting = await counts.jobs("mail", JobState.WAITING)
        assert [job.kind_held for job in waiting] == [1, 1], "a hold that ran out counts as held"

    async def test_how_many_of_a_kind_are_held_is_capped(self, store: Store) -> None:
        counts = _counts_store(store)
        ids = await push(store, *(str(n) for n in range(1010)))
        assert len(await take(store, limit=2000)) == 1010
        assert (await _job(counts, ids[0])).kind_held == 1001

    # Pages of jobs

    async def test_waiting_jobs_are_listed_in_the_order_they_are_due(
        self, store: Store, clock: Clock
    ) -> None:
        counts = _counts_store(store)
        now = clock.now()
        for seconds in (30, -5, 10, -5):
            await push(store, str(seconds), at=now + seconds * SECOND)
        await push(store, '"photo"', kind="photo")
        await push(store, '"held"', at=now - MINUTE)
        (held,) = await take(store, limit=1)
        await push(store, '"failed"', at=now - MINUTE)
        (failing,) = await take(store, limit=1)
        await mark(store, Fail(failing.id, failing.claim, "x"))
        listed = await counts.jobs("mail", JobState.WAITING)
        assert [job.payload for job in listed] == ["-5", "-5", "10", "30"]
        assert [job.id for job in listed[:2]] == sorted((job.id for job in listed[:2]), key=int)
        assert [job.id for job in await counts.jobs("mail", JobState.HELD)] == [held.id]
        assert await counts.jobs("report", JobState.WAITING) == []

    async def test_held_jobs_are_listed_in_the_order_their_holds_end(self, store: Store) -> None:
        counts = _counts_store(store)
        for n, minutes in enumerate((3, 1, 2)):
            await push(store, str(minutes))
            (job,) = await take(store, of(hold=minutes * MINUTE))
            assert job.payload == str(minutes), f"{n} jobs are held"
        listed = await counts.jobs("mail", JobState.HELD)
        assert [job.payload for job in listed] == ["1", "2", "3"]
        assert await counts.jobs("mail", JobState.WAITING) == []

    @pytest.mark.parametrize("state", [JobState.WAITING, JobState.HELD], ids=str)
    async def test_pages_of_a_kinds_jobs_have_each_once(
        self, store: Store, clock: Clock, state: JobState
    ) -> None:
        """Also those of one microsecond, more of them than a page has."""
        counts = _counts_store(store)
        for n in range(3):
            await push(store, *(str(4 * n + m) for m in range(4)), at=clock.now() - (n % 2) * SECOND)
        if state is JobState.HELD:
            for seconds, limit in ((10, 5), (20, 4), (10, 3)):
                assert len(await take(store, of(hold=seconds * SECOND), limit=limit)) == limit
        whole = await counts.jobs("mail", state)
        assert len({job.id for job in whole}) == len(whole) == 12
        for size in (1, 3, 5, 12):
            seen: list[KeptJob] = []
            after: tuple[int, str] | None = None
            while page := await counts.jobs("mail", state, after=after, limit=size):
                assert len(page) <= size
                seen += page
                assert len(seen) <= 12, "the pages never end"
                last = page[-1]
                after = last.run_at if state is JobState.WAITING else last.held_until or 0, last.id
            assert seen == whole
        assert await counts.jobs("mail", state, limit=0) == []

    async def test_a_page_goes_on_behind_a_job_that_is_gone(self, store: Store) -> None:
        counts = _counts_store(store)
        await push(store, "1", "2", "3", "4")
        first = await counts.jobs("mail", JobState.WAITING, limit=2)
        for job in await take(store, limit=2):
            await mark(store, Done(job.id, job.claim))
        after = first[-1].run_at, first[-1].id
        listed = await counts.jobs("mail", JobState.WAITING, after=after)
        assert [job.payload for job in listed] == ["3", "4"]

    async def test_a_page_tells_of_a_job_what_is_told_of_it_alone(self, store: Store) -> None:
        counts = _counts_store(store)
        await push(store, "1", "2", "3", "4")
        for job in await take(store, limit=2):
            await mark(store, Extend(job.id, job.claim, MINUTE))
        for state in (JobState.WAITING, JobState.HELD):
            listed = await counts.jobs("mail", state)
            assert len(listed) == 2
            assert listed == [await counts.job(job.id) for job in listed]

    async def test_failed_and_parked_jobs_are_not_listed_here(self, store: Store) -> None:
        counts = _counts_store(store)
        await push(store, "1")
        for state in (JobState.FAILED, JobState.PARKED):
            with pytest.raises(StoreError):
                await counts.jobs("mail", state)
        assert len(await counts.jobs("mail", JobState.WAITING)) == 1

    # A read alone

    async def test_a_look_writes_nothing(self, store: Store, clock: Clock) -> None:
        counts = _counts_store(store)
        ids = await push(store, "1", "2")
        await take(store, limit=1)
        clock.advance(HOLD / SECOND + 1)

        async def look() -> None:
            assert await counts.counts() == [_count("mail", waiting=1, due=1, held=1, oldest=61 * SECOND)]
            assert (await _job(counts, ids[0])).state is JobState.HELD
            assert len(await counts.jobs("mail", JobState.WAITING)) == 1

        await look()
        await self.writes_nothing(store, look)

    async def test_looks_at_once_are_in_nobodys_way(self, store: Store, other: Store) -> None:
        counts = _counts_store(store), _counts_store(other)
        left = set(await push(store, *(str(n) for n in range(4 * self.races))))

        async def look(through: CountsStore) -> None:
            while left:
                (row,) = await through.counts()
                assert 0 <= row.due <= row.waiting <= 4 * self.races
                listed = await through.jobs("mail", JobState.WAITING, limit=3)
                assert {job.state for job in listed} <= {JobState.WAITING}
                await asyncio.sleep(0)

        async def work(through: Store) -> None:
            while left:
                for job in await take(through, limit=2):
                    assert await mark_in_the_end(through, Done(job.id, job.claim)) == [Kept.YES]
                    left.discard(job.id)
                await asyncio.sleep(0)

        await asyncio.gather(look(counts[0]), look(counts[1]), work(store), work(other))
        assert await counts[0].counts() == [_count("mail")]


def _counts_store(store: Store, beside: Extra = Extra.COUNTS) -> CountsStore:
    need(store, Extra.COUNTS)
    need(store, beside)
    assert supports(store, Extra.COUNTS)
    return store


def _count(
    kind: str,
    *,
    waiting: int = 0,
    due: int = 0,
    held: int = 0,
    parked: int = 0,
    failed: int = 0,
    oldest: int | None = None,
) -> KindCount:
    """A kind that is neither held back nor paused."""
    return KindCount(kind, waiting, due, held, parked, failed, oldest, held_back=0, paused=False)


async def _job(store: CountsStore, id: str | None, *, cut: int | None = None) -> KeptJob:
    """The job, which must be there."""
    assert id is not None
    job = await store.job(id, cut=cut)
    assert job is not None, f"{id} is not shown"
    assert job.id == id
    return job


async def _parked(store: Store) -> tuple[Job, str]:
    """A held job, and the id of one of its key that waits for it."""
    await push_one(store, keyed("1", alone=True))
    running = await take_one(store)
    (parked,) = pushed(await store.push([keyed("2", alone=True)]))
    assert await take(store) == []
    return running, parked
