"""The suite on how far running jobs are (PROGRESS), as it's shown (COUNTS)."""

from __future__ import annotations

import asyncio

import pytest

from fastjobs.core.job import Job, KeptJob
from fastjobs.core.marks import Done, Extend, Fail, Kept
from fastjobs.store import Cancelled, CountsStore, Extra, ProgressStore, Store, supports
from fastjobs.testing.clock import Clock
from fastjobs.testing.suite.subject import (
    ENDS,
    HOLD,
    NO_IDS,
    SECOND,
    MakeMark,
    Subject,
    mark,
    mark_in_the_end,
    need,
    of,
    push,
    take,
    take_one,
)

_KEEPS: dict[str, MakeMark] = {name: end for name, end in ENDS.items() if name != "Done"}
"""The marks after which the job is still kept."""


class Progress(Subject):
    """What a claim says of its job's progress is kept while that claim has it, and stays with the job."""

    async def test_a_report_is_shown_until_the_next(self, store: Store, other: Store) -> None:
        progress = _progress_store(store)
        one, two = await push(store, "1", "2")
        job, _ = await take(store)
        assert await _shown(store, one) is None
        for text in ('{"done":1,"of":3}', "0.5", '"nearly"', "null"):
            await progress.progress([(one, job.claim, text)])
            assert (await _shown(store, one), await _shown(other, one)) == (text, text)
        assert await _shown(store, two) is None

    @pytest.mark.parametrize(
        "text",
        [
            r'"\u00e4 \ud83d\ude42 \\ \" \u0000"',
            '"' + "x" * 1022 + '"',
            "[" * 500 + "]" * 500,
            "'; --",
            "%s :a ? $1",
        ],
        ids=["escapes", "1 KiB", "nested", "quote", "placeholders"],
    )
    async def test_a_reports_text_comes_back_as_it_was(self, store: Store, text: str) -> None:
        progress = _progress_store(store)
        (id,) = await push(store, "1")
        job = await take_one(store)
        await progress.progress([(id, job.claim, text)])
        assert await _shown(store, id) == text

    async def test_many_reports_are_kept_by_one_call(self, store: Store) -> None:
        progress = _progress_store(store)
        ids = await push(store, *(str(n) for n in range(1200)))
        jobs = await take(store, limit=2000)
        await progress.progress([(job.id, job.claim, job.payload) for job in jobs])
        assert [await _shown(store, id) for id in ids[::100]] == [str(n) for n in range(0, 1200, 100)]

    async def test_of_several_reports_of_one_claim_the_last_is_kept(self, store: Store) -> None:
        progress = _progress_store(store)
        one, two = await push(store, "1", "2")
        first, second = await take(store)
        await progress.progress(
            [
                (one, first.claim, "1"),
                (two, second.claim, "1"),
                (two, second.claim, "3"),
                (one, first.claim, "2"),
            ]
        )
        assert (await _shown(store, one), await _shown(store, two)) == ("2", "3")

    async def test_a_report_changes_nothing_else(self, store: Store, clock: Clock) -> None:
        progress = _progress_store(store)
        (id,) = await push(store, "1")
        job = await take_one(store)
        before = await _kept(store, id)
        clock.advance(5)
        await progress.progress([(id, job.claim, "1")])
        after = await _kept(store, id)
        assert after == before._replace(progress="1", now=clock.now())
        assert await take(store) == []
        assert await mark(store, Extend(id, job.claim, HOLD), Done(id, job.claim)) == [Kept.YES] * 2

    # Whose it is

    async def test_a_report_of_another_claim_is_left(self, store: Store, clock: Clock) -> None:
        """Of one that was lost, of none, of a job that waits, or of what is no job; the others of its call are kept."""
        progress = _progress_store(store)
        (id,) = await push(store, "1")
        old = await take_one(store)
        await progress.progress([(id, old.claim, '"old"')])
        clock.advance(HOLD / SECOND + 1)
        job = await take_one(store)
        other, waiting = await push(store, "2", "3", kind="photo")
        beside = (await take(store, of("photo"), limit=1))[0]
        unknown = [(each, 1, '"none"') for each in NO_IDS if each not in (id, other, waiting)]
        wrong = [(id, token, '"wrong"') for token in (old.claim, job.claim + 1, -1, 1 << 62)]
        await progress.progress([*wrong, *unknown, (waiting, 1, '"early"'), (other, beside.claim, '"kept"')])
        assert await _shown(store, id) == '"old"'
        assert (await _shown(store, other), await _shown(store, waiting)) == ('"kept"', None)
        await progress.progress([(id, job.claim, '"new"'), *wrong])
        assert await _shown(store, id) == '"new"'

    @pytest.mark.parametrize("end", _KEEPS.values(), ids=_KEEPS.keys())
    async def test_a_report_after_its_claims_end_is_left(self, store: Store, end: MakeMark) -> None:
        progress = _progress_store(store)
        (id,) = await push(store, "1")
        job = await take_one(store)
        await progress.progress([(id, job.claim, '"in time"')])
        assert await mark(store, end(job)) == [Kept.YES]
        await progress.progress([(id, job.claim, '"late"')])
        assert await _shown(store, id) == '"in time"'

    async def test_a_report_of_a_lost_claim_is_kept_while_no_other_took_the_job(
        self, store: Store, clock: Clock
    ) -> None:
        progress = _progress_store(store)
        (id,) = await push(store, "1")
        job = await take_one(store)
        clock.advance(HOLD / SECOND + 1)
        await progress.progress([(id, job.claim, '"still here"')])
        assert await _shown(store, id) == '"still here"'
        again = await take_one(store)
        assert (again.id, again.lost) == (id, 1)

    # How long it stays

    async def test_progress_stays_through_retries(self, store: Store, clock: Clock) -> None:
        progress = _progress_store(store)
        (id,) = await push(store, "1")
        for n, end in enumerate([ENDS["TryAgain"], ENDS["GiveBack"], ENDS["TryAgain"]]):
            job = await take_one(store)
            assert await _shown(store, id) == (str(n - 1) if n else None)
            await progress.progress([(id, job.claim, str(n))])
            await mark(store, end(job))
            assert await _shown(store, id) == str(n)
        await take_one(store)
        clock.advance(HOLD / SECOND + 1)
        await take_one(store)
        assert await _shown(store, id) == "2"

    async def test_progress_stays_with_a_failed_job_and_as_it_is_run_again(self, store: Store) -> None:
        progress = _progress_store(store, Extra.FAILED)
        assert supports(store, Extra.FAILED)
        (id,) = await push(store, "1")
        job = await take_one(store)
        await progress.progress([(id, job.claim, '"far"')])
        await mark(store, Fail(id, job.claim, "x"))
        assert await _shown(store, id) == '"far"'
        await store.run_again([id])
        assert await _shown(store, id) == '"far"'
        again = await take_one(store)
        assert await _shown(store, id) == '"far"'
        await progress.progress([(id, again.claim, '"further"'), (id, job.claim, '"late"')])
        assert await _shown(store, id) == '"further"'

    async def test_progress_goes_with_its_job(self, store: Store) -> None:
        progress = _progress_store(store)
        (id,) = await push(store, "1")
        job = await take_one(store)
        await progress.progress([(id, job.claim, '"all"')])
        await mark(store, Done(id, job.claim))
        await progress.progress([(id, job.claim, '"late"')])
        assert await _counts(store).job(id) is None
        (new,) = await push(store, "1")
        assert await _shown(store, new) is None

    async def test_the_progress_of_a_job_that_was_asked_to_stop_is_kept(self, store: Store) -> None:
        progress = _progress_store(store, Extra.CANCEL)
        assert supports(store, Extra.CANCEL)
        (id,) = await push(store, "1")
        job = await take_one(store)
        assert await store.cancel([id]) == [Cancelled.ASKED]
        await progress.progress([(id, job.claim, '"on my way out"')])
        assert await _shown(store, id) == '"on my way out"'
        assert await store.asked([(id, job.claim)]) == {id}

    async def test_reports_of_nothing_write_nothing(self, store: Store) -> None:
        progress = _progress_store(store)
        (id,) = await push(store, "1")
        job = await take_one(store)

        async def look() -> None:
            await progress.progress([])
            await progress.progress([(id, job.claim + 1, "1"), ("999999999", 1, "1")])

        await look()
        assert await _shown(store, id) is None
        await self.writes_nothing(store, look)

    # At once

    async def test_reports_at_once_beside_ends_are_each_kept_or_left(
        self, store: Store, other: Store
    ) -> None:
        progress = _progress_store(store), _progress_store(other)
        ids = await push(store, *(str(n) for n in range(4 * self.races)))
        jobs = await take(store)
        ending, going_on = jobs[::2], jobs[1::2]

        async def report(n: int) -> None:
            await progress[n % 2].progress(_reports(jobs[n:] + jobs[:n], "1"))

        async def end(job: Job) -> None:
            assert await mark_in_the_end(store, Done(job.id, job.claim)) == [Kept.YES]

        await asyncio.gather(*(report(n) for n in range(self.races)), *(end(job) for job in ending))
        await progress[0].progress(_reports(jobs, "2"))
        gone = {job.id for job in ending}
        for id in ids:
            shown = await _counts(store).job(id)
            assert (None if shown is None else shown.progress) == (None if id in gone else "2")
        kept = await mark(store, *(Done(job.id, job.claim) for job in going_on))
        assert kept == [Kept.YES] * len(going_on)


def _progress_store(store: Store, beside: Extra = Extra.COUNTS) -> ProgressStore:
    need(store, Extra.PROGRESS)
    need(store, Extra.COUNTS)
    need(store, beside)
    assert supports(store, Extra.PROGRESS)
    return store


def _counts(store: Store) -> CountsStore:
    assert supports(store, Extra.COUNTS)
    return store


async def _kept(store: Store, id: str) -> KeptJob:
    kept = await _counts(store).job(id)
    assert kept is not None
    return kept


async def _shown(store: Store, id: str) -> str | None:
    """How far the job is, which must be there."""
    return (await _kept(store, id)).progress


def _reports(jobs: list[Job], text: str) -> list[tuple[str, int, str]]:
    return [(job.id, job.claim, text) for job in jobs]
