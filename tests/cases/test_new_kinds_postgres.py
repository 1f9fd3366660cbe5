"""A kind's first push in a long transaction of the app's: nobody waits for its end, and it never fails by it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import asyncpg
import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

import fastjobs
from fastjobs import Queue, SQLStore
from fastjobs.core.errors import StoreError
from fastjobs.core.job import NewJob
from tests.databases.postgres import Database

pytestmark = pytest.mark.anyio

SOON = 3.0
"""Seconds that a push or a start may take: far less than the ten after which a call of the store's is given up."""


def _queue(engine: Engine | AsyncEngine) -> tuple[SQLStore, Queue, fastjobs.Kind[int]]:
    store = SQLStore(engine)
    queue = Queue(store, workers=0)

    @queue.kind("mail")
    async def mail(number: int) -> None: ...

    return store, queue, mail


def _async_engine(database: Database, driver: str = "asyncpg", **more: Any) -> AsyncEngine:
    return create_async_engine(database.url(driver), poolclass=NullPool, **more)


@contextlib.asynccontextmanager
async def _dawdling(database: Database, how: str) -> AsyncGenerator[None]:
    """A transaction, of a process that never opened its store, that has pushed the first job of a kind."""
    if how == "sync":
        engine = create_engine(database.url("psycopg"), poolclass=NullPool)
        _, _, mail = _queue(engine)
        with Session(engine) as session, session.begin():
            mail.in_(session).push(1)
            yield
    elif how == "raw":
        _, _, mail = _queue(_async_engine(database))
        connection = await asyncpg.connect(database.url())
        async with connection.transaction():
            await mail.in_(fastjobs.raw(connection)).push(1)
            yield
        await connection.close()
    else:
        async_engine = _async_engine(database, how)
        _, _, mail = _queue(async_engine)
        async with AsyncSession(async_engine) as tx, tx.begin():
            await mail.in_(tx).push(1)
            yield


@pytest.mark.parametrize(
    ("how", "tables"),
    [
        *((how, "there") for how in ("asyncpg", "psycopg", "sync", "raw")),
        *((how, "not there") for how in ("asyncpg", "psycopg", "sync")),  # a raw push makes none
    ],
)
async def test_a_long_transaction_with_a_kinds_first_push_keeps_no_start_and_no_push_waiting(
    postgres_database: Database, how: str, tables: str
) -> None:
    if tables == "there":
        other, _, _ = _queue(_async_engine(postgres_database))
        await other.open(["other"])
        await other.close()
    _, queue, mail = _queue(_async_engine(postgres_database))
    async with _dawdling(postgres_database, how), asyncio.timeout(SOON), queue.running():
        assert await mail.push(2) is not None
        assert len(await mail.push_many([3, 4])) == 2
    jobs = postgres_database.execute("SELECT payload FROM fastjobs_jobs ORDER BY payload")
    assert [payload for (payload,) in jobs] == ["1", "2", "3", "4"]
    kinds = {kind for (kind,) in postgres_database.execute("SELECT kind FROM fastjobs_kinds")}
    assert kinds >= {"mail"}


async def test_a_kind_whose_row_went_with_anothers_rollback_is_noted_again(
    postgres_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastjobs.stores.sql.server.kinds._AGAIN", 1)
    store, _, _ = _queue(_async_engine(postgres_database))
    await store.open([])
    holder = await asyncpg.connect(postgres_database.url())
    outer = holder.transaction()
    await outer.start()
    await holder.execute("INSERT INTO fastjobs_kinds (kind, first_seen) VALUES ('mail', 1)")
    async with asyncio.timeout(SOON):
        await store.push([NewJob(kind=each, payload="1") for each in ("mail", "other")])
    # The one that nobody has is noted, whatever becomes of the other.
    assert postgres_database.execute("SELECT kind FROM fastjobs_kinds") == [("other",)]
    await outer.rollback()
    await holder.close()
    await store.claim([], 1)
    assert postgres_database.execute("SELECT kind FROM fastjobs_kinds ORDER BY kind") == [
        ("mail",),
        ("other",),
    ]
    await store.close()


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_a_kind_that_another_noted_meanwhile_fails_no_transaction_with_a_snapshot(
    postgres_database: Database, level: str
) -> None:
    engine = _async_engine(postgres_database, isolation_level=level)
    _, _, mail = _queue(engine)
    seen, _, _ = _queue(_async_engine(postgres_database))
    await seen.open([])
    async with AsyncSession(engine) as session, session.begin():
        await session.execute(text("SELECT 1 FROM fastjobs_jobs"))  # has the snapshot
        await seen.open(["mail"])
        for number in range(3):
            await mail.in_(session).push(number)
    assert postgres_database.execute("SELECT count(*) FROM fastjobs_jobs") == [(3,)]
    await seen.close()
    await seen.close()


async def test_a_transaction_that_made_the_tables_itself_pushes_in_them(postgres_database: Database) -> None:
    # As a migration does: nothing is seen of them from outside.
    engine = create_engine(postgres_database.url("psycopg"), poolclass=NullPool)
    store, _, mail = _queue(engine)
    with Session(engine) as session:
        session.connection().exec_driver_sql(store.ddl().replace("BEGIN;", "").replace("COMMIT;", ""))
        mail.in_(session).push(1)
        session.rollback()
        assert postgres_database.execute("SELECT to_regclass('fastjobs_jobs')") == [(None,)]


@pytest.mark.parametrize("is_open", [False, True])
async def test_a_transaction_of_another_database_is_refused_and_leaves_nothing_there(
    postgres_database: Database, is_open: bool
) -> None:
    other = postgres_database.server.create_database()
    try:
        store, _, mail = _queue(_async_engine(postgres_database))
        if is_open:
            await store.open(["mail"])
        async with AsyncSession(_async_engine(other)) as session, session.begin():
            said = f"'{other.name}', and the queue's jobs are in '{postgres_database.name}'"
            with pytest.raises(StoreError, match=said):
                await mail.in_(session).push(1)
            await session.execute(text("SELECT 1"))  # the transaction is as it was
        assert other.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(0,)]
        if is_open:
            await store.close()
    finally:
        other.drop()


async def test_a_database_under_another_name_is_the_same(postgres_database: Database) -> None:
    # As a pooler may call it.
    store, _, mail = _queue(_async_engine(postgres_database))
    await store.open(["mail"])
    url = store._engine.url.set(database="by_the_pooler")
    aliased = _async_engine(postgres_database)
    aliased.sync_engine.url = url
    async with AsyncSession(aliased) as session, session.begin():
        await mail.in_(session).push(1)
    assert postgres_database.execute("SELECT count(*) FROM fastjobs_jobs") == [(1,)]
    await store.close()
