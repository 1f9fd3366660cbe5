"""The suite on keys and names in transactions of the app's own (TRANSACTIONS beside UNIQUE, LATEST, NAMES, …)."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, cast

import pytest

from fastjobs.core.job import NewJob
from fastjobs.core.marks import Done, GiveBack, HoldBack, Kept
from fastjobs.store import DoneInStore, Extra, PruneStore, Store, TransactionStore, supports
from fastjobs.testing.clock import Clock
from fastjobs.testing.suite.subject import (
    HOLD,
    MINUTE,
    SECOND,
    keyed,
    mark,
    need,
    payloads,
    push_one,
    take,
    take_one,
)
from fastjobs.testing.suite.transactions import InTransactions
from fastjobs.testing.suite.ways import App, Transaction

_ENDS = pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])


class KeysInTransactions(InTransactions):
    """A key or a name is taken as the transaction that pushes it commits, and not at all as it rolls back."""

    @_ENDS
    async def test_a_key_is_taken_as_its_transaction_commits(
        self, store: Store, either: App, commits: bool
    ) -> None:
        need(store, Extra.UNIQUE)
        async with either.begin() as tx:
            await tx.note("a transaction that has begun")
            assert await _push(store, tx, keyed("1")) is not None
            assert await _push(store, tx, keyed('"gone"')) is None, "its own push isn't seen in a transaction"
            await (tx.commit() if commits else tx.rollback())
        assert (await push_one(store, keyed("2")) is None) is commits
        assert await payloads(store) == ["1" if commits else "2"]

    async def test_a_key_goes_with_its_savepoint(self, store: Store, either: App) -> None:
        need(store, Extra.UNIQUE)
        async with either.begin() as tx:
            await tx.note("a transaction that has begun")
            savepoint = await tx.savepoint()
            assert await _push(store, tx, keyed('"gone"')) is not None
            await savepoint.rollback()
            assert await _push(store, tx, keyed("1")) is not None
            await tx.commit()
        assert await payloads(store) == ["1"]

    async def test_a_push_in_a_transaction_of_a_key_that_waits_pushes_nothing(
        self, store: Store, either: App
    ) -> None:
        need(store, Extra.UNIQUE)
        await push_one(store, keyed("1"))
        async with either.begin() as tx:
            await tx.note("kept")
            assert await _push(store, tx, keyed("2")) is None
            assert await _push(store, tx, keyed("3", "b")) is not None
            await tx.commit()
        assert await payloads(store) == ["1", "3"]
        assert await either.notes() == 1

    @_ENDS
    async def test_a_job_that_a_latest_push_meets_starts_after_that_ones_transaction(
        self, store: Store, either: App, commits: bool
    ) -> None:
        """Started before, it wouldn't see what the transaction wrote, and no other job is there that would."""
        need(store, Extra.LATEST)
        id = await push_one(store, keyed("1", latest=True))
        async with either.begin() as tx:
            await tx.note("what the job is to see")
            assert await _push(store, tx, keyed("2", latest=True)) == id
            claiming = asyncio.create_task(take(store))
            await asyncio.wait({claiming}, timeout=0.1)
            assert not claiming.done() or claiming.result() == [], "it was claimed before the commit"
            await (tx.commit() if commits else tx.rollback())
        found = await claiming or await take(store)
        assert [job.id for job in found] == [id]

    @_ENDS
    async def test_a_push_of_a_key_waits_for_the_transaction_that_pushed_it(
        self, store: Store, either: App, commits: bool
    ) -> None:
        """Told that the key's job is there, and then that transaction rolls back: nothing would be pushed."""
        need(store, Extra.UNIQUE)
        async with either.begin() as tx:
            await tx.note("a transaction that has begun")
            first = await _push(store, tx, keyed("1"))
            pushing = asyncio.create_task(push_one(store, keyed("2")))
            await asyncio.wait({pushing}, timeout=0.1)
            await (tx.commit() if commits else tx.rollback())
        second = await pushing
        assert (second is None) is commits
        job = await take_one(store)
        assert (job.id, job.payload) == ((first, "1") if commits else (second, "2"))

    @_ENDS
    async def test_a_latest_push_moves_a_job_as_its_transaction_commits(
        self, store: Store, either: App, clock: Clock, commits: bool
    ) -> None:
        need(store, Extra.LATEST)
        id = await push_one(store, keyed("1", latest=True))
        async with either.begin() as tx:
            await tx.note("a transaction that has begun")
            assert await _push(store, tx, keyed("2", after=MINUTE, latest=True)) == id
            await (tx.commit() if commits else tx.rollback())
        if commits:
            assert await take(store) == []
            clock.advance(60)
        assert await payloads(store) == ["1"]

    @_ENDS
    async def test_a_name_is_taken_as_its_transaction_commits(
        self, store: Store, either: App, commits: bool
    ) -> None:
        need(store, Extra.NAMES)
        named = NewJob(kind="mail", payload="1", name="a name")
        async with either.begin() as tx:
            await tx.note("a transaction that has begun")
            assert await _push(store, tx, named) is not None
            assert await _push(store, tx, named) is None
            pushing = asyncio.create_task(push_one(store, named._replace(payload="2")))
            await asyncio.wait({pushing}, timeout=0.1)
            await (tx.commit() if commits else tx.rollback())
        assert (await pushing is None) is commits
        assert await payloads(store) == ["1" if commits else "2"]

    async def test_a_claim_undone_waits_for_no_transaction_that_pushes_its_key(
        self, store: Store, either: App, clock: Clock
    ) -> None:
        """The mark is kept, with the key or without it. A database with one writer may have it wait, as all do."""
        need(store, Extra.UNIQUE)
        for end in ("GiveBack", "HoldBack"):
            if end == "HoldBack" and not supports(store, Extra.HOLD_BACK):
                continue
            await push_one(store, keyed("1", end))
            job = await take_one(store)
            back = GiveBack(job.id, job.claim) if end == "GiveBack" else HoldBack(job.id, job.claim, SECOND)
            async with either.begin() as tx:
                await tx.note("a transaction that has begun")
                assert await _push(store, tx, keyed("2", end)) is not None
                writing = asyncio.create_task(push_one(store, keyed("4", "another", kind="photo")))
                marking = asyncio.create_task(mark(store, back))
                written, _ = await asyncio.wait({writing}, timeout=0.2)
                marked, _ = await asyncio.wait({marking}, timeout=5 if written else 0.01)
                assert marked or not written, "a mark waits for someone's open transaction"
                await tx.commit()
            await writing
            (kept,) = await marking
            for _ in range(100):
                if kept is not Kept.BUSY:
                    break
                (kept,) = await mark(store, back)
            assert kept is Kept.YES
            assert await push_one(store, keyed("3", end)) is None
            clock.advance(1)
            assert await payloads(store) == ["1", "2"]

    @_ENDS
    async def test_a_done_in_lets_the_next_of_its_key_go_as_it_commits(
        self, store: Store, either: App, clock: Clock, commits: bool
    ) -> None:
        need(store, Extra.ONE_AT_A_TIME | Extra.DONE_IN)
        await push_one(store, keyed("1", alone=True))
        job = await take_one(store)
        await push_one(store, keyed("2", alone=True))
        assert await take(store) == []
        async with either.begin() as tx:
            await tx.note("a transaction that has begun")
            assert await _done(store, tx, job)
            await (tx.commit() if commits else tx.rollback())
        if not commits:
            assert await take(store) == []
            assert await mark(store, Done(job.id, job.claim)) == [Kept.YES]
        assert await payloads(store) == ["2"]

    async def test_no_job_of_its_key_is_claimed_while_a_done_in_is_open(
        self, store: Store, either: App, clock: Clock
    ) -> None:
        """Not before its hold has run out, at least: the transaction may yet roll back."""
        need(store, Extra.ONE_AT_A_TIME | Extra.DONE_IN)
        await push_one(store, keyed("1", alone=True))
        job = await take_one(store)
        await push_one(store, keyed("2", alone=True))
        async with either.begin() as tx:
            await tx.note("a transaction that has begun")
            assert await _done(store, tx, job)
            clock.advance(HOLD / SECOND - 1)
            looking = asyncio.create_task(take(store))
            early, _ = await asyncio.wait({looking}, timeout=0.1)
            await tx.commit()
        found = await looking
        assert not (early and found), "a job was claimed whose key's holder was not done yet"
        assert [job.payload for job in [*found, *await take(store)]] == ["2"]

    @_ENDS
    async def test_a_done_in_keeps_the_name_of_its_job(
        self, store: Store, either: App, clock: Clock, commits: bool
    ) -> None:
        need(store, Extra.NAMES | Extra.DONE_IN)
        named = NewJob(kind="mail", payload="1", name="a name", keep_name=10 * SECOND)
        await push_one(store, named)
        job = await take_one(store)
        async with either.begin() as tx:
            await tx.note("a transaction that has begun")
            assert await _done(store, tx, job)
            await (tx.commit() if commits else tx.rollback())
        assert await push_one(store, named) is None
        clock.advance(10)
        assert (await push_one(store, named) is not None) is commits

    async def test_a_sweep_wakes_a_job_that_a_transaction_had_as_its_turn_came(
        self, store: Store, either: App, clock: Clock
    ) -> None:
        """An end passes over a job whose row an open transaction has moved, rather than wait for it."""
        need(store, Extra.LATEST | Extra.ONE_AT_A_TIME | Extra.PRUNE)
        await push_one(store, keyed("1", latest=True, alone=True))
        job = await take_one(store)
        await push_one(store, keyed("2", latest=True, alone=True))
        assert await take(store) == []
        async with either.begin() as tx:
            await tx.note("a transaction that has begun")
            assert await _push(store, tx, keyed("3", latest=True, alone=True)) is not None
            marking = asyncio.create_task(mark(store, Done(job.id, job.claim)))
            await asyncio.wait({marking}, timeout=0.2)
            await tx.rollback()
        assert await marking == [Kept.YES]
        await cast("PruneStore", store).sweep()
        assert await payloads(store) == ["2"]


async def _push(store: Store, tx: Transaction, job: NewJob) -> str | None:
    need(store, Extra.TRANSACTIONS)
    answer: Any = cast("TransactionStore", store).within(tx.tx, lambda: None).push([job])
    (id,) = cast("list[str | None]", await answer if inspect.isawaitable(answer) else answer)
    return id


async def _done(store: Store, tx: Transaction, job: Any) -> bool:
    answer: Any = cast("DoneInStore", store).done_within(tx.tx, job).done()
    return bool(await answer if inspect.isawaitable(answer) else answer)
