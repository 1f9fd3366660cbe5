"""The suite on looks, cancels and progress while a transaction of the app's is open (TRANSACTIONS, DONE_IN)."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine
from typing import Any, TypeVar, cast

import pytest

from fastjobs.core.job import Job, JobState, KeptJob, NewJob
from fastjobs.core.marks import Extend, Kept
from fastjobs.store import (
    Cancelled,
    CancelStore,
    CountsStore,
    DoneInStore,
    Extra,
    PauseStore,
    ProgressStore,
    Store,
    TransactionStore,
)
from fastjobs.testing.clock import Clock
from fastjobs.testing.suite.cancel import cancel_in_the_end
from fastjobs.testing.suite.subject import (
    HOLD,
    MINUTE,
    SECOND,
    keyed,
    mark,
    need,
    payloads,
    push,
    push_one,
    take,
    take_one,
)
from fastjobs.testing.suite.transactions import InTransactions
from fastjobs.testing.suite.ways import App, Transaction

_ENDS = pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
_T = TypeVar("_T")


class LooksInTransactions(InTransactions):
    """A look waits for no transaction and sees none of what is open; a cancel says that it's busy, or waits."""

    async def test_a_look_sees_nothing_of_an_open_transaction(self, store: Store, either: App) -> None:
        counts = _counts(store, Extra.TRANSACTIONS)
        (first,) = await push(store, "1")
        async with either.begin() as tx:
            await tx.note("a transaction that has begun")
            id = await _push(store, tx, NewJob(kind="mail", payload="2"))
            assert id is not None
            (row,) = await counts.counts()
            assert (row.kind, row.waiting) == ("mail", 1)
            assert await counts.job(id) is None
            assert [job.id for job in await counts.jobs("mail", JobState.WAITING)] == [first]
            await tx.commit()
        (row,) = await counts.counts()
        assert row.waiting == 2
        assert (await _shown(counts, id)).payload == "2"

    @_ENDS
    async def test_a_job_that_a_transaction_moves_is_shown_where_it_was(
        self, store: Store, either: App, clock: Clock, commits: bool
    ) -> None:
        counts = _counts(store, Extra.LATEST)
        was = clock.now()
        id = await push_one(store, keyed("1", latest=True))
        assert id is not None
        async with either.begin() as tx:
            await tx.note("a transaction that has begun")
            assert await _push(store, tx, keyed("2", after=MINUTE, latest=True)) == id
            shown = await _shown(counts, id)
            assert (shown.state, shown.run_at) == (JobState.WAITING, was)
            assert [job.id for job in await counts.jobs("mail", JobState.WAITING)] == [id]
            assert [(row.waiting, row.due, row.oldest) for row in await counts.counts()] == [(1, 1, 0)]
            await (tx.commit() if commits else tx.rollback())
        assert (await _shown(counts, id)).run_at == was + (MINUTE if commits else 0)
        assert [(row.waiting, row.due) for row in await counts.counts()] == [(1, 0 if commits else 1)]

    @_ENDS
    async def test_a_job_that_a_transaction_does_is_shown_as_held(
        self, store: Store, either: App, commits: bool
    ) -> None:
        counts = _counts(store, Extra.DONE_IN)
        job = await _held(store)
        async with either.begin() as tx:
            await tx.note("a transaction that has begun")
            assert await _done(store, tx, job)
            assert (await _shown(counts, job.id)).state is JobState.HELD
            assert [each.id for each in await counts.jobs("mail", JobState.HELD)] == [job.id]
            assert [(row.waiting, row.held) for row in await counts.counts()] == [(0, 1)]
            await (tx.commit() if commits else tx.rollback())
        assert (await counts.job(job.id) is None) is commits
        assert [row.held for row in await counts.counts()] == [0 if commits else 1]

    async def test_a_look_for_those_asked_to_stop_waits_for_no_transaction(
        self, store: Store, either: App
    ) -> None:
        cancels = _cancels(store, Extra.DONE_IN)
        job, other = await _held(store), await _held(store)
        await cancels.cancel([job.id])
        async with either.begin() as tx:
            await tx.note("a transaction that has begun")
            assert await _done(store, tx, job)
            assert await cancels.asked([(job.id, job.claim), (other.id, other.claim)]) == {job.id}
            await tx.commit()
        assert await cancels.asked([(job.id, job.claim)]) == set()

    @_ENDS
    async def test_a_cancel_of_a_job_that_a_transaction_does_is_busy_or_waits(
        self, store: Store, either: App, commits: bool
    ) -> None:
        """One that is busy has changed nothing, and keeps no other of its call from being cancelled."""
        cancels = _cancels(store, Extra.DONE_IN)
        job = await _held(store)
        (waiting,) = await push(store, "2")
        async with either.begin() as tx:
            await tx.note("a transaction that has begun")
            assert await _done(store, tx, job)
            cancelling, early = await _meanwhile(cancels.cancel([job.id, waiting]))
            await (tx.commit() if commits else tx.rollback())
        answer, beside = await cancelling
        assert beside is Cancelled.REMOVED
        if early:
            assert answer is Cancelled.BUSY
        if answer is Cancelled.BUSY:
            if not commits:
                assert await mark(store, Extend(job.id, job.claim, HOLD)) == [Kept.YES]
            (answer,) = await cancel_in_the_end(cancels, job.id)
        assert answer is (Cancelled.NOT_THERE if commits else Cancelled.ASKED)
        kept = await mark(store, Extend(job.id, job.claim, HOLD))
        assert kept == [Kept.LOST if commits else Kept.STOP]
        assert await take(store) == []

    @_ENDS
    async def test_a_lost_job_that_a_transaction_does_is_not_removed_meanwhile(
        self, store: Store, either: App, clock: Clock, commits: bool
    ) -> None:
        cancels = _cancels(store, Extra.DONE_IN)
        job = await _held(store)
        clock.advance(HOLD / SECOND + 1)
        async with either.begin() as tx:
            await tx.note("a transaction that has begun")
            assert await _done(store, tx, job)
            cancelling, early = await _meanwhile(cancels.cancel([job.id]))
            await (tx.commit() if commits else tx.rollback())
        answer = await cancelling
        assert not early or answer == [Cancelled.BUSY]
        if answer == [Cancelled.BUSY]:
            answer = await cancel_in_the_end(cancels, job.id)
        assert answer == [Cancelled.NOT_THERE if commits else Cancelled.REMOVED]
        assert await take(store) == []

    @_ENDS
    async def test_a_job_that_a_transaction_moves_is_cancelled_after_it(
        self, store: Store, either: App, commits: bool
    ) -> None:
        cancels = _cancels(store, Extra.LATEST)
        id = await push_one(store, keyed("1", latest=True))
        assert id is not None
        async with either.begin() as tx:
            await tx.note("a transaction that has begun")
            assert await _push(store, tx, keyed("2", after=MINUTE, latest=True)) == id
            cancelling, early = await _meanwhile(cancels.cancel([id]))
            await (tx.commit() if commits else tx.rollback())
        answer = await cancelling
        assert not early or answer == [Cancelled.BUSY]
        if answer == [Cancelled.BUSY]:
            answer = await cancel_in_the_end(cancels, id)
        assert answer == [Cancelled.REMOVED]
        second = await push_one(store, keyed("3", latest=True))
        assert second not in (None, id)
        assert await payloads(store) == ["3"]

    @_ENDS
    async def test_a_job_that_a_transaction_pushes_is_not_there_until_it_commits(
        self, store: Store, either: App, commits: bool
    ) -> None:
        cancels = _cancels(store, Extra.TRANSACTIONS)
        async with either.begin() as tx:
            await tx.note("a transaction that has begun")
            id = await _push(store, tx, NewJob(kind="mail", payload="1"))
            assert id is not None
            cancelling, early = await _meanwhile(cancels.cancel([id]))
            await (tx.commit() if commits else tx.rollback())
        answer = await cancelling
        there = [Cancelled.REMOVED if commits else Cancelled.NOT_THERE]
        if early:
            assert answer == [Cancelled.NOT_THERE]
        if answer == [Cancelled.NOT_THERE]:
            answer = await cancel_in_the_end(cancels, id)
        assert answer == there
        assert await take(store) == []

    @_ENDS
    async def test_a_report_leaves_a_job_that_a_transaction_does(
        self, store: Store, either: App, commits: bool
    ) -> None:
        """And nobody waits for the transaction's end who needn't: the others of its call are kept."""
        counts = _counts(store, Extra.DONE_IN | Extra.PROGRESS)
        progress = cast("ProgressStore", store)
        job, other = await _held(store), await _held(store)
        async with either.begin() as tx:
            await tx.note("a transaction that has begun")
            assert await _done(store, tx, job)
            reports = [(job.id, job.claim, "1"), (other.id, other.claim, "2")]
            reporting, _ = await _meanwhile(progress.progress(reports))
            await (tx.commit() if commits else tx.rollback())
        await reporting
        assert (await _shown(counts, other.id)).progress == "2"
        await progress.progress([(job.id, job.claim, "3")])
        kept = await counts.job(job.id)
        assert (None if kept is None else kept.progress) == (None if commits else "3")

    async def test_what_a_transaction_pushes_of_a_kind_that_is_paused_meanwhile_waits(
        self, store: Store, either: App
    ) -> None:
        need(store, Extra.PAUSE | Extra.TRANSACTIONS)
        pauses = cast("PauseStore", store)
        await push(store, "1")
        assert await payloads(store) == ["1"]
        async with either.begin() as tx:
            await tx.note("a transaction that has begun")
            assert await _push(store, tx, NewJob(kind="mail", payload="2")) is not None
            pausing, _ = await _meanwhile(pauses.pause("mail", True))
            await tx.commit()
        assert await pausing is True
        assert await take(store) == []
        await pauses.pause("mail", False)
        assert await payloads(store) == ["2"]


async def _meanwhile(call: Coroutine[Any, Any, _T]) -> tuple[asyncio.Task[_T], bool]:
    """The call made while a transaction is open, and whether it has answered; one that waits has yet to."""
    task = asyncio.create_task(call)
    done, _ = await asyncio.wait({task}, timeout=0.2)
    return task, bool(done)


def _counts(store: Store, beside: Extra) -> CountsStore:
    need(store, Extra.COUNTS | beside)
    return cast("CountsStore", store)


def _cancels(store: Store, beside: Extra) -> CancelStore:
    need(store, Extra.CANCEL | beside)
    return cast("CancelStore", store)


async def _shown(store: CountsStore, id: str) -> KeptJob:
    shown = await store.job(id)
    assert shown is not None, f"{id} is not shown"
    return shown


async def _held(store: Store) -> Job:
    await push(store, "1")
    return await take_one(store)


async def _push(store: Store, tx: Transaction, job: NewJob) -> str | None:
    need(store, Extra.TRANSACTIONS)
    answer: Any = cast("TransactionStore", store).within(tx.tx, lambda: None).push([job])
    (id,) = cast("list[str | None]", await answer if inspect.isawaitable(answer) else answer)
    return id


async def _done(store: Store, tx: Transaction, job: Job) -> bool:
    answer: Any = cast("DoneInStore", store).done_within(tx.tx, job).done()
    return bool(await answer if inspect.isawaitable(answer) else answer)
