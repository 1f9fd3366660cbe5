"""The suite on jobs that failed for good: their list, a run again, a delete (FAILED)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fastjobs.core.job import FailedJob
from fastjobs.core.marks import Done, Fail, Kept, TryAgain
from fastjobs.store import Extra, FailedStore, Store, supports
from fastjobs.testing.clock import Clock
from fastjobs.testing.suite.subject import (
    HOLD,
    NO_IDS,
    SECOND,
    Subject,
    is_held_by,
    mark,
    need,
    of,
    payloads,
    push,
    take,
    take_one,
)


class Failed(Subject):
    """A failed job is kept with its error, listed, and runs again as from its first attempt."""

    async def test_a_failed_job_is_listed_with_its_error(self, store: Store, clock: Clock) -> None:
        failing = _failed_store(store)
        created = clock.now()
        await push(store, '{"a":1}')
        first = await take_one(store)
        await mark(store, TryAgain(first.id, first.claim, 0, "the first error"))
        clock.advance(5)
        job = await take_one(store)
        await mark(store, Fail(job.id, job.claim, "the last error"))
        assert list(await failing.failed()) == [
            FailedJob(
                id=job.id,
                kind="mail",
                payload='{"a":1}',
                attempts=2,
                error="the last error",
                failed_at=created + 5 * SECOND,
                created_at=created,
                carried=None,
                size=7,
            )
        ]

    async def test_only_failed_jobs_are_listed(self, store: Store) -> None:
        failing = _failed_store(store)
        await push(store, "1", "2", "3", "4")
        one, two, three, _ = await take(store)
        await push(store, "5")
        await mark(store, Done(one.id, one.claim), Fail(two.id, two.claim, "x"))
        await mark(store, TryAgain(three.id, three.claim, 0, "x"))
        assert [job.payload for job in await failing.failed()] == ["2"]

    async def test_the_latest_failed_is_listed_first(self, store: Store, clock: Clock) -> None:
        failing = _failed_store(store)
        await push(store, "1", "2", "3")
        one, two, three = await take(store)
        for job in (two, three, one):
            clock.advance(1)
            await mark(store, Fail(job.id, job.claim, "x"))
        assert [job.payload for job in await failing.failed()] == ["1", "3", "2"]
        assert [job.payload for job in await failing.failed(limit=2)] == ["1", "3"]

    async def test_the_list_may_be_of_one_kind(self, store: Store) -> None:
        failing = _failed_store(store)
        await _fail(store, "1", "2")
        await _fail(store, "3", kind="photo")
        assert [job.payload for job in await failing.failed(kind="photo")] == ["3"]
        assert sorted(job.payload for job in await failing.failed(kind="mail")) == ["1", "2"]
        assert await failing.failed(kind="report") == []

    async def test_a_failed_jobs_payload_is_listed_as_far_as_was_asked(self, store: Store) -> None:
        """With how many bytes the whole of it has, so that a list of large ones costs little."""
        failing = _failed_store(store)
        payload = '"' + r"\u00e4b\ud83d\ude42" * 2000 + '"'
        await _fail(store, payload, "1")
        size = len(payload)
        for cut in (0, 1, 100, size - 1, size, size + 1, None):
            listed = await failing.failed(cut=cut)
            assert [(job.payload, job.size) for job in listed] == [("1"[:cut], 1), (payload[:cut], size)]

    async def test_a_job_that_was_listed_in_part_runs_again_whole(self, store: Store) -> None:
        failing = _failed_store(store)
        (id,) = await _fail(store, '"a long one"')
        assert [job.payload for job in await failing.failed(cut=2)] == ['"a']
        assert await failing.run_again([id]) == [True]
        assert await payloads(store) == ['"a long one"']

    async def test_pages_of_the_list_have_each_job_once(self, store: Store, clock: Clock) -> None:
        """Also jobs that failed in the same microsecond, more of them than a page has."""
        failing = _failed_store(store)
        for n in range(4):
            await _fail(store, *(str(4 * n + m) for m in range(4)), kind="mail" if n % 2 else "photo")
            clock.advance(n % 2)
        for kind, size in ((None, 3), (None, 1), (None, 16), ("mail", 3)):
            seen: list[FailedJob] = []
            after: tuple[int, str] | None = None
            while page := list(await failing.failed(kind=kind, after=after, limit=size)):
                assert len(page) <= size
                seen += page
                assert len(seen) <= 16, "the pages never end"
                after = page[-1].failed_at, page[-1].id
            whole = list(await failing.failed(kind=kind))
            assert seen == whole
            assert len({job.id for job in seen}) == len(seen) == (16 if kind is None else 8)
            times = [job.failed_at for job in seen]
            assert times == sorted(times, reverse=True)

    async def test_a_job_run_again_is_due_now_and_starts_over(self, store: Store, clock: Clock) -> None:
        failing = _failed_store(store)
        (id,) = await push(store, '"a"')
        await take_one(store)
        clock.advance(HOLD / SECOND + 1)
        job = await take_one(store)
        await mark(store, Fail(job.id, job.claim, "its error"))
        clock.advance(100)
        assert await failing.run_again([id]) == [True]
        assert await failing.failed() == []
        again = await take_one(store, of(attempts=1))
        assert (again.id, again.payload, again.run_at) == (id, '"a"', clock.now())
        assert (again.attempts, again.lost, again.error) == (1, 0, "its error")
        assert again.claim > job.claim
        assert await mark(store, Done(id, again.claim)) == [Kept.YES]

    async def test_a_job_run_again_may_be_claimed_ahead_though_it_was_lost_before(
        self, store: Store, clock: Clock
    ) -> None:
        failing = _failed_store(store)
        (id,) = await push(store, "1")
        await take_one(store)
        clock.advance(61)
        job = await take_one(store)
        await mark(store, Fail(job.id, job.claim, "x"))
        await failing.run_again([id])
        assert len((await store.claim([of()], 1, ahead=1)).jobs) == 1

    async def test_a_run_again_says_of_each_job_whether_it_was_failed(self, store: Store) -> None:
        failing = _failed_store(store)
        one, two = await _fail(store, "1", "2")
        (waiting,) = await push(store, "3", after=SECOND)
        (held,) = await push(store, "4", kind="photo")
        job = await take_one(store, of("photo"))
        unknown = [id for id in NO_IDS if id not in (one, two, waiting, held)]
        assert await failing.run_again([one, waiting, held, one, *unknown]) == [True] + [False] * (
            3 + len(unknown)
        )
        assert await failing.run_again([]) == []
        assert await payloads(store) == ["1"], "a run again moved a job that waits"
        assert await mark(store, Done(job.id, job.claim)) == [Kept.YES]
        assert [each.id for each in await failing.failed()] == [two]

    async def test_a_job_may_fail_and_run_again_many_times(self, store: Store) -> None:
        failing = _failed_store(store)
        (id,) = await _fail(store, "1")
        for n in range(5):
            assert await failing.run_again([id]) == [True]
            job = await take_one(store, of(attempts=1))
            await mark(store, Fail(job.id, job.claim, f"error {n}"))
            assert [each.error for each in await failing.failed()] == [f"error {n}"]

    async def test_a_deleted_job_is_gone(self, store: Store) -> None:
        failing = _failed_store(store)
        one, two = await _fail(store, "1", "2")
        assert await failing.delete([one]) == [True]
        assert [each.id for each in await failing.failed()] == [two]
        assert await failing.run_again([one, two]) == [False, True]
        assert await payloads(store) == ["2"]

    async def test_a_delete_says_of_each_job_whether_it_was_failed(self, store: Store) -> None:
        failing = _failed_store(store)
        one, two = await _fail(store, "1", "2")
        (waiting,) = await push(store, "3")
        (held,) = await push(store, "4", kind="photo")
        job = await take_one(store, of("photo"))
        unknown = [id for id in NO_IDS if id not in (one, two, waiting, held)]
        assert await failing.delete([one, waiting, held, one, *unknown]) == [True] + [False] * (
            3 + len(unknown)
        )
        assert await failing.delete([]) == []
        assert await payloads(store) == ["3"], "a delete removed a job that waits"
        await is_held_by(store, job)
        assert [each.id for each in await failing.failed()] == [two]

    async def test_an_id_of_a_deleted_job_is_never_used_again(self, store: Store) -> None:
        failing = _failed_store(store)
        (id,) = await _fail(store, "1")
        await failing.delete([id])
        assert id not in await push(store, "2", "3")

    async def test_of_runs_again_at_once_one_has_the_job(self, store: Store) -> None:
        failing = _failed_store(store)
        (id,) = await _fail(store, "1")
        answers = await asyncio.gather(*(failing.run_again([id]) for _ in range(self.races)))
        assert sorted(map(list, answers)) == [[False]] * (self.races - 1) + [[True]]
        assert await payloads(store) == ["1"]


def _failed_store(store: Store) -> FailedStore:
    need(store, Extra.FAILED)
    assert supports(store, Extra.FAILED)
    return store


async def _fail(store: Store, *payloads: str, kind: str = "mail") -> Sequence[str]:
    """The ids of jobs that were pushed, and failed in one batch."""
    await push(store, *payloads, kind=kind)
    jobs = await take(store, of(kind))
    assert await mark(store, *(Fail(job.id, job.claim, "it failed") for job in jobs)) == [Kept.YES] * len(
        jobs
    )
    return [job.id for job in jobs]
