"""The suite on marking a job done through a transaction of the app's own (DONE_IN).

Longer than 300 lines, as it's one subject, with a test for each way that a transaction ends.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, cast

import pytest
from sqlalchemy import event

from fastjobs.core.claiming import Claimed
from fastjobs.core.errors import NotAwaited, StoreError
from fastjobs.core.job import Job
from fastjobs.core.marks import Done, Fail, Kept, Mark, TryAgain
from fastjobs.store import DoneInStore, Ender, Extra, Store, SyncEnder, TransactionStore, supports
from fastjobs.testing.clock import Clock
from fastjobs.testing.suite.subject import claim, is_held_by, mark, need, of, payloads, push, take, take_one
from fastjobs.testing.suite.transactions import InTransactions
from fastjobs.testing.suite.ways import App, Transaction


class DoneIn(InTransactions):
    """A job is done as the transaction commits, and not at all as it, or its savepoint, rolls back."""

    async def test_a_job_is_done_as_its_transaction_commits(self, store: Store, app: App) -> None:
        job = await _held(store)
        async with app.begin() as tx:
            await tx.note("kept beside the end")
            assert await _done(store, tx, job) is True
            await tx.commit()
        assert await mark(store, Done(job.id, job.claim)) == [Kept.LOST]
        assert await take(store) == []
        assert await app.notes() == 1

    async def test_a_done_in_is_sync_where_its_transaction_is(self, store: Store, app: App) -> None:
        job = await _held(store)
        async with app.begin() as tx:
            ender = _store(store).done_within(tx.tx, job)
            assert ender.sync is app.way.sync
            answer: Any = ender.done()
            assert inspect.isawaitable(answer) is not app.way.sync
            assert (await answer if inspect.isawaitable(answer) else answer) is True
            await tx.commit()
        assert await mark(store, Done(job.id, job.claim)) == [Kept.LOST]

    async def test_a_done_in_that_is_rolled_back_leaves_the_job_with_its_holder(
        self, store: Store, app: App
    ) -> None:
        job = await _held(store)
        async with app.begin() as tx:
            await tx.note("gone")
            assert await _done(store, tx, job)
            await tx.rollback()
        await is_held_by(store, job)
        assert await app.notes() == 0

    async def test_a_done_in_goes_with_a_close_that_commits_nothing(self, store: Store, app: App) -> None:
        job = await _held(store)
        async with app.begin() as tx:
            assert await _done(store, tx, job)
        await is_held_by(store, job)

    async def test_a_done_in_goes_with_its_savepoint_in_a_transaction_that_commits(
        self, store: Store, app: App
    ) -> None:
        job = await _held(store)
        async with app.begin() as tx:
            await tx.note("kept")
            savepoint = await tx.savepoint()
            assert await _done(store, tx, job)
            await savepoint.rollback()
            await tx.commit()
        await is_held_by(store, job)
        assert await app.notes() == 1

    async def test_a_done_in_of_a_released_savepoint_goes_with_its_transaction(
        self, store: Store, app: App
    ) -> None:
        kept, gone = await _held(store), await _held(store)
        for job, commits in ((kept, False), (gone, True)):
            async with app.begin() as tx:
                await tx.note("a transaction that has begun")
                savepoint = await tx.savepoint()
                assert await _done(store, tx, job)
                await savepoint.commit()
                await (tx.commit() if commits else tx.rollback())
        assert await mark(store, Done(gone.id, gone.claim)) == [Kept.LOST]
        await is_held_by(store, kept)

    async def test_a_commit_that_fails_leaves_the_job_with_its_holder(self, store: Store, app: App) -> None:
        def fail(connection: object) -> None:
            raise ConnectionError("the commit failed")

        job = await _held(store)
        async with app.begin() as tx:
            await tx.note("gone")
            assert await _done(store, tx, job)
            event.listen(app.sync_engine, "commit", fail)
            try:
                with pytest.raises(ConnectionError, match="the commit failed"):
                    await tx.commit()
            finally:
                event.remove(app.sync_engine, "commit", fail)
            await tx.rollback()
        await is_held_by(store, job)

    async def test_the_mark_of_a_done_in_that_was_rolled_back_is_kept(
        self, store: Store, app: App, clock: Clock
    ) -> None:
        job = await _held(store)
        async with app.begin() as tx:
            assert await _done(store, tx, job)
            await tx.rollback()
        assert await mark(store, TryAgain(job.id, job.claim, 0, "not committed")) == [Kept.YES]
        again = await take_one(store)
        assert (again.attempts, again.error) == (2, "not committed")

    # The fence.

    async def test_a_done_in_of_a_claim_that_was_lost_changes_nothing(
        self, store: Store, app: App, clock: Clock
    ) -> None:
        old = await _held(store)
        clock.advance(61)
        held = await take_one(store)
        async with app.begin() as tx:
            await tx.note("the app's to roll back")
            assert await _done(store, tx, old) is False
            await tx.commit()
        await is_held_by(store, held)

    async def test_a_done_in_with_a_token_of_no_claim_changes_nothing(self, store: Store, app: App) -> None:
        job = await _held(store)
        async with app.begin() as tx:
            for token in (job.claim + 1, job.claim - 1, job.claim + 1000, -1):
                assert await _done(store, tx, job._replace(claim=token)) is False
            for id in ("0", "-1", "999999999", "9" * 40, "x", ""):
                assert await _done(store, tx, job._replace(id=id)) is False
            await tx.commit()
        await is_held_by(store, job)

    async def test_a_done_in_of_a_job_that_was_marked_changes_nothing(self, store: Store, app: App) -> None:
        job = await _held(store)
        failed = await _held(store)
        await mark(store, TryAgain(job.id, job.claim, 0, "x"), Fail(failed.id, failed.claim, "x"))
        async with app.begin() as tx:
            assert await _done(store, tx, job) is False
            assert await _done(store, tx, failed) is False
            await tx.commit()
        assert (await take_one(store)).id == job.id
        if supports(store, Extra.FAILED):
            assert [each.id for each in await store.failed()] == [failed.id]

    async def test_a_job_whose_hold_ran_out_is_done_while_no_claim_took_it(
        self, store: Store, app: App, clock: Clock
    ) -> None:
        job = await _held(store)
        clock.advance(600)
        async with app.begin() as tx:
            assert await _done(store, tx, job) is True
            await tx.commit()
        assert await take(store) == []

    # Meanwhile.

    async def test_no_claim_has_a_job_while_the_transaction_that_does_it_is_open(
        self, store: Store, app: App, clock: Clock
    ) -> None:
        """Not after its hold, and not by a claim that fails what has used up its attempts either."""
        for attempts in (5, 1):
            job = await _held(store)
            async with app.begin() as tx:
                assert await _done(store, tx, job)
                clock.advance(61)
                early = await _look(store, attempts)
                await tx.commit()
                if early is not None:
                    found = await early
                    assert (found.jobs, found.exhausted) == ([], [])
            assert await take(store) == []
            if supports(store, Extra.FAILED):
                assert await store.failed() == []

    async def test_a_job_whose_hold_ran_out_meanwhile_is_claimed_after_the_rollback(
        self, store: Store, app: App, clock: Clock
    ) -> None:
        job = await _held(store)
        async with app.begin() as tx:
            assert await _done(store, tx, job)
            clock.advance(61)
            await tx.rollback()
        again = await take_one(store)
        assert (again.id, again.attempts, again.lost) == (job.id, 2, 1)

    @pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
    async def test_a_mark_meanwhile_is_busy_or_waits(self, store: Store, app: App, commits: bool) -> None:
        job = await _held(store)
        async with app.begin() as tx:
            assert await _done(store, tx, job)
            early = asyncio.create_task(mark(store, TryAgain(job.id, job.claim, 0, "early")))
            done, _ = await asyncio.wait({early}, timeout=0.2)
            if done:
                assert early.result() == [Kept.BUSY]
            await (tx.commit() if commits else tx.rollback())
        (kept,) = await early
        if kept is Kept.BUSY:
            (kept,) = await _until_free(store, TryAgain(job.id, job.claim, 0, "later"))
        assert kept is (Kept.LOST if commits else Kept.YES)

    async def test_other_jobs_are_claimed_and_marked_meanwhile_or_after_it(
        self, store: Store, app: App
    ) -> None:
        job = await _held(store)
        other = await _held(store)
        await push(store, '"new"')
        async with app.begin() as tx:
            assert await _done(store, tx, job)
            marking = asyncio.create_task(mark(store, Done(other.id, other.claim)))
            claiming = asyncio.create_task(payloads(store))
            await asyncio.wait({marking, claiming}, timeout=0.2)
            await tx.commit()
        assert (await marking, await claiming) == ([Kept.YES], ['"new"'])

    # Beside it.

    @pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
    async def test_a_push_beside_a_done_in_is_kept_with_it(
        self, store: Store, app: App, commits: bool
    ) -> None:
        need(store, Extra.TRANSACTIONS)
        job = await _held(store)
        async with app.begin() as tx:
            pusher = cast("TransactionStore", store).within(tx.tx, lambda: None)
            await tx.push(pusher, '"next"')
            assert await _done(store, tx, job)
            await (tx.commit() if commits else tx.rollback())
        if commits:
            assert await payloads(store) == ['"next"']
            assert await mark(store, Done(job.id, job.claim)) == [Kept.LOST]
        else:
            await is_held_by(store, job)

    async def test_committed_is_told_of_the_commit_of_a_done_in(self, store: Store, app: App) -> None:
        calls: list[str] = []
        job = await _held(store)
        async with app.begin() as tx:
            ender = _store(store).done_within(tx.tx, job, lambda: calls.append("committed"))
            assert await _awaited(ender)
            assert calls == []
            await tx.commit()
        assert calls

    async def test_a_done_in_that_was_not_awaited_fails_the_commit(self, store: Store, app: App) -> None:
        job = await _held(store)
        async with app.begin() as tx:
            await tx.note("gone")
            _store(store).done_within(tx.tx, job, lambda: None, lambda: "never awaited")
            with pytest.raises(NotAwaited, match="never awaited"):
                await tx.commit()
            await tx.rollback()
        assert await app.notes() == 0
        await is_held_by(store, job)

    @pytest.mark.parametrize("nothing", [None, 1, "tx", object(), object], ids=lambda it: type(it).__name__)
    async def test_a_done_in_of_what_is_no_transaction_is_refused(
        self, store: Store, nothing: object
    ) -> None:
        need(store, Extra.DONE_IN)
        with pytest.raises(StoreError):
            _store(store).done_within(nothing, Job("1", "mail", "1", 0, 1, claim=1))


def _store(store: Store) -> DoneInStore:
    return cast("DoneInStore", store)


async def _held(store: Store) -> Job:
    need(store, Extra.DONE_IN)
    await push(store, "1")
    return await take_one(store)


async def _done(store: Store, tx: Transaction, job: Job) -> bool:
    return await _awaited(_store(store).done_within(tx.tx, job))


async def _awaited(ender: Ender | SyncEnder) -> bool:
    answer: Any = ender.done()
    return bool(await answer if inspect.isawaitable(answer) else answer)


async def _look(store: Store, attempts: int) -> asyncio.Task[Claimed] | None:
    """A claim made meanwhile; None once it has answered, with nothing. One that waits has yet to."""
    early = asyncio.create_task(claim(store, of(attempts=attempts)))
    done, _ = await asyncio.wait({early}, timeout=0.2)
    if not done:
        return early
    found = early.result()
    assert (found.jobs, found.exhausted) == ([], []), "a claim took a job that is being done"
    return None


async def _until_free(store: Store, each: Mark) -> list[Kept]:
    while True:
        kept = await mark(store, each)
        if kept != [Kept.BUSY]:
            return kept
        await asyncio.sleep(0.001)
