"""Pushes through the store's own connections gather while one is under way, and each is answered for itself."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncIterator, Generator, Sequence
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from fastjobs.core.claiming import Claimable
from fastjobs.core.job import NewJob
from fastjobs.stores.sql.dialects.postgres import push as pushing
from fastjobs.stores.sql.dialects.postgres.database import Postgres
from fastjobs.stores.sql.store import SQLStore
from fastjobs.testing import Clock
from tests.databases.postgres import Database

pytestmark = pytest.mark.anyio

DRIVERS = ("asyncpg", "psycopg", "psycopg in threads")
_asked_by: contextvars.ContextVar[str] = contextvars.ContextVar("_asked_by", default="nobody")


def engine_of(database: Database, driver: str, **more: Any) -> Engine | AsyncEngine:
    if driver == "psycopg in threads":
        return create_engine(database.url("psycopg"), poolclass=NullPool, **more)
    return create_async_engine(database.url(driver), poolclass=NullPool, **more)


@pytest.fixture(params=DRIVERS)
async def store(request: pytest.FixtureRequest, postgres_database: Database) -> AsyncIterator[SQLStore]:
    store = SQLStore(engine_of(postgres_database, request.param), clock=Clock())
    await store.open(["mail"])
    yield store
    await store.close()


@contextlib.contextmanager
def locked(database: Database) -> Generator[None, None, None]:
    """Has whoever uses the jobs wait."""
    with psycopg.connect(database.url()) as holder:
        holder.execute("LOCK TABLE fastjobs_jobs IN ACCESS EXCLUSIVE MODE")
        yield
        holder.rollback()


class _Sent:
    """Each statement's number of jobs, and the context that it was sent in."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.asked_by: set[str] = set()


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> _Sent:
    sent, original = _Sent(), pushing.push

    async def push(
        link: Any, statements: Any, jobs: Sequence[NewJob], *more: Any, **how: Any
    ) -> list[str | None]:
        sent.sizes.append(len(jobs))
        sent.asked_by.add(_asked_by.get())
        return await original(link, statements, jobs, *more, **how)

    monkeypatch.setattr(pushing, "push", push)
    return sent


async def _push(store: SQLStore, *payloads: str) -> list[str | None]:
    return await store.push([NewJob(kind="mail", payload=each) for each in payloads])


async def _kept(store: SQLStore) -> dict[str | None, str]:
    """What is kept, by id."""
    claimed = await store.claim([Claimable(kind="mail", hold=60_000_000, attempts=5)], 10_000)
    return {job.id: job.payload for job in claimed.jobs}


async def test_pushes_at_once_are_few_statements_and_each_has_its_own_ids(
    store: SQLStore, sent: _Sent
) -> None:
    asked = [[f"{n}", f"{n}.1"][: 1 + n % 2] for n in range(16)]
    answers = await asyncio.gather(*(_push(store, *each) for each in asked))
    assert sum(sent.sizes) == 24
    assert len(sent.sizes) <= 3
    kept = await _kept(store)
    assert [[kept[id] for id in ids] for ids in answers] == asked


async def test_an_idle_queue_pushes_at_once_and_has_no_task(store: SQLStore, sent: _Sent) -> None:
    database = store._database
    assert isinstance(database, Postgres)
    gathering = database._here().gathering
    before = len(asyncio.all_tasks())
    await _push(store, "1")
    await asyncio.sleep(0)
    assert sent.sizes == [1]
    assert gathering._task is None
    assert len(asyncio.all_tasks()) <= before


async def test_a_statement_is_sent_in_nobodys_context(store: SQLStore, sent: _Sent) -> None:
    token = _asked_by.set("a request")
    await _push(store, "1")
    _asked_by.reset(token)
    assert sent.asked_by == {"nobody"}


async def test_one_that_cannot_be_kept_sinks_no_other(store: SQLStore) -> None:
    asked = ["1", "2", '"\0"', "4"]
    answers = await asyncio.gather(*(_push(store, each) for each in asked), return_exceptions=True)
    assert [isinstance(each, BaseException) for each in answers] == [False, False, True, False]
    assert sorted((await _kept(store)).values()) == ["1", "2", "4"]


async def test_a_calls_jobs_are_kept_all_or_none(store: SQLStore) -> None:
    answers = await asyncio.gather(
        _push(store, "1", "2"), _push(store, "3", '"\0"', "5"), return_exceptions=True
    )
    assert isinstance(answers[1], Exception)
    assert sorted((await _kept(store)).values()) == ["1", "2"]


async def test_a_statement_has_a_thousand_jobs_of_several_calls_at_most(store: SQLStore, sent: _Sent) -> None:
    await asyncio.gather(*(_push(store, *map(str, range(400))) for _ in range(5)))
    assert sum(sent.sizes) == 2000
    assert max(sent.sizes) <= 1000
    sent.sizes.clear()
    await _push(store, *map(str, range(2500)))
    assert sent.sizes == [2500]


async def test_one_that_is_cancelled_leaves_the_others(store: SQLStore, postgres_database: Database) -> None:
    first = asyncio.create_task(_push(store, "1"))
    others = [asyncio.create_task(_push(store, str(n))) for n in range(2, 6)]
    await asyncio.sleep(0)
    first.cancel()
    others[1].cancel()
    answers = await asyncio.gather(first, *others, return_exceptions=True)
    assert [isinstance(each, asyncio.CancelledError) for each in answers] == [True, False, True, False, False]
    kept = await _kept(store)
    assert {"2", "4", "5"} <= set(kept.values()) <= {"1", "2", "3", "4", "5"}


async def test_what_waits_behind_one_that_was_cancelled_is_sent(
    store: SQLStore, postgres_database: Database
) -> None:
    # The statement of the first is held up, so that all others gather behind it.
    with locked(postgres_database):
        first = asyncio.create_task(_push(store, "1"))
        await until_blocked(postgres_database)
        others = [asyncio.create_task(_push(store, str(n))) for n in range(2, 4)]
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
    async with asyncio.timeout(10):
        await asyncio.gather(*others)
    assert {"2", "3"} <= set((await _kept(store)).values())


async def test_pushes_whose_outcome_is_unknown_raise_and_are_never_sent_again(
    store: SQLStore, postgres_database: Database, sent: _Sent
) -> None:
    with locked(postgres_database):
        asked = [asyncio.create_task(_push(store, str(n))) for n in range(4)]
        pid = await until_blocked(postgres_database)
        postgres_database.execute("SELECT pg_terminate_backend(%s)", [pid])
        answers = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(each, Exception) for each in answers)
    assert sent.sizes == [4]
    assert await _push(store, "later")
    assert set((await _kept(store)).values()) == {"later"}


async def until_blocked(database: Database) -> int:
    """The pid of the one backend that waits for a lock."""
    async with asyncio.timeout(10):
        while True:
            found = await asyncio.to_thread(
                database.execute,
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
                " AND wait_event_type = 'Lock'",
            )
            if found:
                return int(found[0][0])
            await asyncio.sleep(0.01)
