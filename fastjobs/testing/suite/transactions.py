"""The suite on pushes through a transaction of the app's own (TRANSACTIONS), in each way that SQLAlchemy has one.

Longer than 300 lines, as it's one subject, with a test for each way that a transaction ends.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.ext.asyncio import AsyncEngine

from fastjobs.core.claiming import Claimed
from fastjobs.core.errors import NotAwaited, StoreError
from fastjobs.core.job import NewJob
from fastjobs.store import Extra, Store, TransactionStore, supports
from fastjobs.testing.suite.subject import Heard, Subject, claim, need, payloads, take
from fastjobs.testing.suite.ways import WAYS, App, Way

_BENEATH = ("Session", "Connection", "AsyncSession", "AsyncConnection")


class InTransactions(Subject):
    """What happens in a transaction of the app's.

    A suite for a store with TRANSACTIONS gives `engine` and `async_engine` fixtures, on the store's database
    where it has one: engines as an app would make them. One that is None skips its half of the tests.
    """

    @pytest.fixture
    def engine(self, store: Store) -> Engine | None:
        """The app's sync engine."""
        need(store, Extra.TRANSACTIONS)
        raise NotImplementedError(f"{type(self).__name__} gives no `engine` fixture")

    @pytest.fixture
    async def async_engine(self, store: Store) -> AsyncEngine | None:
        """The app's async engine."""
        need(store, Extra.TRANSACTIONS)
        raise NotImplementedError(f"{type(self).__name__} gives no `async_engine` fixture")

    @pytest.fixture(params=WAYS, ids=str)
    async def app(
        self,
        request: pytest.FixtureRequest,
        store: Store,
        engine: Engine | None,
        async_engine: AsyncEngine | None,
    ) -> App:
        """An app that has its transactions in one of the ways."""
        return await self.make_app(request.param, engine, async_engine)

    @pytest.fixture(params=[way for way in WAYS if way.name in ("Session", "AsyncSession")], ids=str)
    async def either(
        self,
        request: pytest.FixtureRequest,
        store: Store,
        engine: Engine | None,
        async_engine: AsyncEngine | None,
    ) -> App:
        """An app with sync sessions, and one with async ones: the other ways differ in how they push."""
        return await self.make_app(request.param, engine, async_engine)

    async def make_app(self, way: Way, engine: Engine | None, async_engine: AsyncEngine | None) -> App:
        """An app that has its transactions in this way, on whichever engine that needs."""
        chosen = engine if way.sync else async_engine
        if chosen is None:
            pytest.skip(f"{type(self).__name__} lacks an engine for a {way}")
        app = App(way, chosen)
        await app.set_up()
        return app


class FewerWays(InTransactions):
    """For another make-up of a store that has passed in every way: those that differ beneath their wrappers.

    A scoped session and SQLModel's are a Session to what is below them, whichever engine that is.
    """

    @pytest.fixture(params=[way for way in WAYS if way.name in _BENEATH], ids=str)
    async def app(
        self,
        request: pytest.FixtureRequest,
        store: Store,
        engine: Engine | None,
        async_engine: AsyncEngine | None,
    ) -> App:
        return await self.make_app(request.param, engine, async_engine)


class Transactions(InTransactions):
    """A push through a transaction is kept as it commits, and not at all as it, or its savepoint, rolls back."""

    async def test_a_push_is_kept_as_its_transaction_commits(self, store: Store, app: App) -> None:
        within, calls = _within(store)
        async with app.begin() as tx:
            await tx.note("kept beside the jobs")
            ids = await tx.push(within(tx.tx), "1", "2")
            early = await _look(store)
            await tx.commit()
            found = [*(await early).jobs, *await take(store)]
        assert [(job.id, job.payload) for job in found] == list(zip(ids, ("1", "2"), strict=True))
        assert await app.notes() == 1
        assert await _heard(calls)

    async def test_a_push_is_sync_where_its_transaction_is(self, store: Store, app: App) -> None:
        within, _ = _within(store)
        async with app.begin() as tx:
            pusher = within(tx.tx)
            assert pusher.sync is app.way.sync
            answer: Any = pusher.push([NewJob(kind="mail", payload="1")])
            assert inspect.isawaitable(answer) is not app.way.sync
            ids = await answer if inspect.isawaitable(answer) else answer
            assert len(ids) == 1
            await tx.commit()
        assert await payloads(store) == ["1"]

    async def test_a_push_of_no_jobs_in_a_transaction_answers_no_ids(self, store: Store, app: App) -> None:
        within, _ = _within(store)
        async with app.begin() as tx:
            assert list(await tx.push(within(tx.tx))) == []
            await tx.commit()
        assert await take(store) == []

    async def test_a_push_goes_with_a_rollback(self, store: Store, app: App) -> None:
        within, _ = _within(store)
        async with app.begin() as tx:
            await tx.note("gone")
            await tx.push(within(tx.tx), "1")
            await tx.rollback()
            assert await take(store) == []
            await tx.push(within(tx.tx), "2")
            await tx.commit()
        assert await payloads(store) == ["2"]
        assert await app.notes() == 0

    async def test_a_push_goes_with_a_close_that_commits_nothing(self, store: Store, app: App) -> None:
        within, _ = _within(store)
        async with app.begin() as tx:
            await tx.note("gone")
            await tx.push(within(tx.tx), "1")
        assert await take(store) == []
        assert await app.notes() == 0

    async def test_a_push_goes_with_its_savepoint_in_a_transaction_that_commits(
        self, store: Store, app: App
    ) -> None:
        within, _ = _within(store)
        async with app.begin() as tx:
            await tx.note("a transaction that has begun")
            pusher = within(tx.tx)
            await tx.push(pusher, "1")
            savepoint = await tx.savepoint()
            await tx.push(pusher, '"gone"')
            await savepoint.rollback()
            await tx.push(pusher, "2")
            await tx.commit()
        assert await payloads(store) == ["1", "2"]

    async def test_a_push_in_a_released_savepoint_is_kept_as_its_transaction_commits(
        self, store: Store, app: App
    ) -> None:
        within, _ = _within(store)
        async with app.begin() as tx:
            await tx.note("a transaction that has begun")
            savepoint = await tx.savepoint()
            await tx.push(within(tx.tx), "1")
            await savepoint.commit()
            await tx.commit()
        assert await payloads(store) == ["1"]

    async def test_a_push_in_a_released_savepoint_goes_with_the_rollback_of_its_transaction(
        self, store: Store, app: App
    ) -> None:
        within, _ = _within(store)
        async with app.begin() as tx:
            await tx.note("gone")
            savepoint = await tx.savepoint()
            await tx.push(within(tx.tx), "1")
            await savepoint.commit()
            await tx.rollback()
        assert await take(store) == []

    async def test_a_push_in_a_released_savepoint_goes_with_the_savepoint_around_it(
        self, store: Store, app: App
    ) -> None:
        within, _ = _within(store)
        async with app.begin() as tx:
            await tx.note("a transaction that has begun")
            pusher = within(tx.tx)
            outer = await tx.savepoint()
            inner = await tx.savepoint()
            await tx.push(pusher, '"gone"')
            await inner.commit()
            await outer.rollback()
            kept = await tx.savepoint()
            await tx.push(pusher, "1")
            await kept.commit()
            await tx.commit()
        assert await payloads(store) == ["1"]

    async def test_a_commit_that_fails_keeps_no_push(self, store: Store, app: App) -> None:
        within, _ = _within(store)

        def fail(connection: object) -> None:
            raise ConnectionError("the commit failed")

        async with app.begin() as tx:
            await tx.note("gone")
            await tx.push(within(tx.tx), "1")
            event.listen(app.sync_engine, "commit", fail)
            try:
                with pytest.raises(ConnectionError, match="the commit failed"):
                    await tx.commit()
            finally:
                event.remove(app.sync_engine, "commit", fail)
            await tx.rollback()
        assert await take(store) == []
        assert await app.notes() == 0

    async def test_committed_is_called_after_the_outermost_commit_alone(self, store: Store, app: App) -> None:
        """Then a claim finds what was pushed: also one that was woken by the call itself."""
        within, calls = _within(store)
        async with app.begin() as tx:
            await tx.note("a transaction that has begun")
            savepoint = await tx.savepoint()
            await tx.push(within(tx.tx), "1")
            assert calls == [], "committed was called by a push"
            await savepoint.commit()
            await asyncio.sleep(0)
            assert calls == [], "committed was called by a savepoint's release"
            await tx.commit()
        assert await _heard(calls), "committed was never called"
        assert await payloads(store) == ["1"]

    async def test_committed_is_called_after_each_commit_of_a_session(self, store: Store, app: App) -> None:
        within, calls = _within(store)
        async with app.begin() as tx:
            pusher = within(tx.tx)
            await tx.push(pusher, "1")
            await tx.commit()
        assert await _heard(calls)
        assert await payloads(store) == ["1"]
        calls.clear()
        async with app.begin() as tx:
            for payload in ("2", "3"):
                await tx.push(within(tx.tx), payload)
                await tx.commit()
                assert await payloads(store) == [payload]
        assert await _heard(calls)

    async def test_a_pusher_serves_the_transactions_after_its_first(self, store: Store, app: App) -> None:
        within, calls = _within(store)
        async with app.begin() as tx:
            pusher = within(tx.tx)
            await tx.push(pusher, "1")
            await tx.commit()
            await tx.push(pusher, '"gone"')
            await tx.rollback()
            await tx.push(pusher, "2")
            await tx.commit()
        assert await payloads(store) == ["1", "2"]
        assert await _heard(calls)

    async def test_a_transaction_that_is_rolled_back_takes_nothing_of_another(
        self, store: Store, app: App
    ) -> None:
        within, _ = _within(store)
        for n in range(6):
            async with app.begin() as tx:
                await tx.push(within(tx.tx), str(n))
                await (tx.commit() if n % 2 else tx.rollback())
        assert await payloads(store) == ["1", "3", "5"]

    async def test_ids_of_pushes_in_transactions_are_never_used_again(self, store: Store, app: App) -> None:
        within, _ = _within(store)
        ids: list[str | None] = []
        for _ in range(3):
            async with app.begin() as tx:
                ids += await tx.push(within(tx.tx), "1", "2")
                await tx.commit()
            ids += await store.push([NewJob(kind="mail", payload="3")])
        assert None not in ids
        assert len(set(ids)) == 9

    async def test_a_push_in_anothers_transaction_wakes_as_it_commits(
        self, store: Store, other: Store, app: App
    ) -> None:
        """A wake before the commit may come, and is for nothing."""
        need(store, Extra.LISTEN)
        assert supports(store, Extra.LISTEN)
        within, _ = _within(other)
        heard = Heard(self.heard_within)
        async with store.listen(heard.wake), app.begin() as tx:
            await tx.push(within(tx.tx), "1")
            await heard.settled()
            heard.clear()
            await tx.commit()
            await heard.once_more("the commit of a push in another's transaction woke nobody")
            assert await payloads(store) == ["1"]

    # unfinished

    async def test_a_push_that_was_not_awaited_fails_the_commit(self, store: Store, app: App) -> None:
        within, _ = _within(store, lambda: "a push of 'mail' was never awaited")
        async with app.begin() as tx:
            await tx.note("gone")
            await tx.push(within(tx.tx), '"gone"')
            with pytest.raises(NotAwaited, match="a push of 'mail' was never awaited"):
                await tx.commit()
            await tx.rollback()
        assert await take(store) == []
        assert await app.notes() == 0

    async def test_a_transaction_with_a_push_that_was_not_awaited_and_no_other_fails_too(
        self, store: Store, app: App
    ) -> None:
        within, _ = _within(store, lambda: "never awaited")
        async with app.begin() as tx:
            await tx.note("gone")
            within(tx.tx)
            with pytest.raises(NotAwaited):
                await tx.commit()
            await tx.rollback()
        assert await app.notes() == 0

    async def test_unfinished_is_asked_by_the_outermost_commit_alone(self, store: Store, app: App) -> None:
        waiting: list[str] = ["not yet"]
        within, _ = _within(store, lambda: waiting[0] if waiting else None)
        async with app.begin() as tx:
            await tx.note("a transaction that has begun")
            savepoint = await tx.savepoint()
            await tx.push(within(tx.tx), "1")
            await savepoint.commit()
            waiting.clear()
            await tx.commit()
        assert await payloads(store) == ["1"]

    async def test_a_rollback_asks_for_nothing(self, store: Store, app: App) -> None:
        within, _ = _within(store, lambda: "never awaited")
        async with app.begin() as tx:
            await tx.note("gone")
            await tx.push(within(tx.tx), '"gone"')
            await tx.rollback()
        assert await take(store) == []

    # What is no transaction

    @pytest.mark.parametrize("nothing", [None, 1, "tx", object(), object], ids=lambda it: type(it).__name__)
    async def test_what_is_no_transaction_is_refused(self, store: Store, nothing: object) -> None:
        within, _ = _within(store)
        with pytest.raises(StoreError):
            within(nothing)


def _within(
    store: Store, unfinished: Callable[[], str | None] = lambda: None
) -> tuple[Callable[[object], Any], list[str]]:
    """`within` with a `committed` that notes its calls."""
    need(store, Extra.TRANSACTIONS)
    assert supports(store, Extra.TRANSACTIONS)
    calls: list[str] = []
    opened: TransactionStore = store
    return (lambda tx: opened.within(tx, lambda: calls.append("committed"), unfinished)), calls


async def _look(store: Store) -> asyncio.Task[Claimed]:
    """A claim made while a transaction is open, which must find nothing of it.

    A database with one writer may have the claim wait for the transaction's end: then it's what comes after.
    """
    early = asyncio.create_task(claim(store))
    done, _ = await asyncio.wait({early}, timeout=0.2)
    if done:
        assert early.result().jobs == [], "a claim found a job whose transaction hasn't committed"
    return early


async def _heard(calls: list[str]) -> bool:
    """Whether `committed` was called, or is within a second: it may come from another thread, and a little late."""
    for _ in range(200):
        if calls:
            return True
        await asyncio.sleep(0.005)
    return False
