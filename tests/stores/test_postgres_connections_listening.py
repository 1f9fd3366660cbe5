"""What a store on Postgres hears of other instances' pushes, and what becomes of that as its connection is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from fastjobs.core.job import NewJob
from fastjobs.stores.sql.dialects.postgres import listening
from fastjobs.stores.sql.dialects.postgres.database import Postgres
from fastjobs.stores.sql.store import SQLStore
from fastjobs.testing import Clock
from fastjobs.testing.suite.subject import Heard
from tests.databases.postgres import Database
from tests.stores.test_postgres_gathering import DRIVERS, engine_of

pytestmark = pytest.mark.anyio

_LISTENERS = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query ILIKE 'LISTEN%'"


@pytest.fixture(params=DRIVERS)
async def store(request: pytest.FixtureRequest, postgres_database: Database) -> AsyncIterator[SQLStore]:
    store = SQLStore(engine_of(postgres_database, request.param), clock=Clock())
    await store.open(["mail"])
    yield store
    await store.close()


@pytest.fixture
async def other(postgres_database: Database, store: SQLStore) -> AsyncIterator[SQLStore]:
    other = SQLStore(create_async_engine(postgres_database.url("asyncpg"), poolclass=NullPool), clock=Clock())
    await other.open(["mail"])
    yield other
    await other.close()


def _job(payload: str = "1") -> NewJob:
    return NewJob(kind="mail", payload=payload)


def _listener(database: Database) -> int | None:
    found = database.execute(_LISTENERS)
    return int(found[0][0]) if found else None


async def _next_listener(database: Database, but: int | None) -> int:
    async with asyncio.timeout(10):
        while True:
            found = await asyncio.to_thread(_listener, database)
            if found not in (None, but):
                assert found is not None
                return found
            await asyncio.sleep(0.01)


async def test_a_listener_that_is_killed_listens_again_wakes_once_and_says_so_once(
    store: SQLStore, other: SQLStore, postgres_database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fastjobs")
    heard = Heard(10)
    calls = 0

    def wake() -> None:
        nonlocal calls
        calls += 1
        heard.wake()

    async with store.listen(wake):
        first = await _next_listener(postgres_database, None)
        caplog.clear()
        postgres_database.execute("SELECT pg_terminate_backend(%s)", [first])
        await heard.once_more("as it listened again it woke nobody, who may have missed a push")
        assert calls == 1
        await _next_listener(postgres_database, first)
        await other.push([_job()])
        await heard.once_more("it listens no more after its connection was killed")
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


async def test_an_outage_is_told_once_however_often_it_is_tried(
    store: SQLStore,
    postgres_database: Database,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(listening, "FIRST_WAIT", 0.005)
    monkeypatch.setattr(listening, "LONGEST_WAIT", 0.01)
    heard = Heard(10)
    database = store._database
    assert isinstance(database, Postgres)
    async with store.listen(heard.wake):
        first = await _next_listener(postgres_database, None)
        caplog.clear()
        mine = database._here().listening
        opens, tries = mine._open_link, 0

        async def fail() -> None:
            nonlocal tries
            tries += 1
            raise ConnectionRefusedError("nobody is there")

        monkeypatch.setattr(mine, "_open_link", fail)
        postgres_database.execute("SELECT pg_terminate_backend(%s)", [first])
        async with asyncio.timeout(10):
            while tries < 5:
                await asyncio.sleep(0.005)
        assert len(caplog.messages) == 1
        monkeypatch.setattr(mine, "_open_link", opens)
        await heard.once_more("it never listened again")


async def test_a_server_that_is_away_as_the_block_is_entered_is_no_error(
    store: SQLStore, other: SQLStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "FIRST_WAIT", 0.01)
    database = store._database
    assert isinstance(database, Postgres)
    mine = database._here().listening
    opens = mine._open_link

    async def fail() -> None:
        raise ConnectionRefusedError("nobody is there")

    monkeypatch.setattr(mine, "_open_link", fail)
    heard = Heard(10)
    async with store.listen(heard.wake):
        monkeypatch.setattr(mine, "_open_link", opens)
        async with asyncio.timeout(10):
            while not mine._listens.is_set():
                await asyncio.sleep(0.01)
        await other.push([_job()])
        await heard.once_more("it never listened, once the server was back")


async def test_what_the_store_pushes_itself_wakes_nobody(store: SQLStore, other: SQLStore) -> None:
    heard = Heard(10)
    async with store.listen(heard.wake):
        for _ in range(5):
            await asyncio.gather(*(store.push([_job()]) for _ in range(5)))
        # What comes last comes after all that was notified before.
        again = Heard(10)
        async with other.listen(again.wake):
            await store.push([_job()])
            await again.once_more("another store heard nothing")
        await heard.settled()
        assert not heard.is_set()


async def test_pushes_in_a_row_are_all_heard_of(store: SQLStore, other: SQLStore) -> None:
    """Though they notify once in five milliseconds: after the last of them there's a notification."""
    heard = Heard(10)
    async with store.listen(heard.wake):
        for n in range(20):
            await other.push([_job(str(n))])
            if n % 4 == 3:
                heard.clear()
                await other.push([_job("last")])
                await heard.once_more("the last push of several was never heard of")


async def test_an_idle_listener_leaves_with_its_block(store: SQLStore, postgres_database: Database) -> None:
    async with store.listen(lambda: None):
        await _next_listener(postgres_database, None)
    async with asyncio.timeout(10):
        while await asyncio.to_thread(_listener, postgres_database) is not None:
            await asyncio.sleep(0.01)


# In transactions of the app's


def _note_statements(engine: Engine, statements: list[str]) -> None:
    def note(connection: object, cursor: object, text: str, *_: object) -> None:
        statements.append(text)

    event.listen(engine, "before_cursor_execute", note)


def _notifies(statements: list[str]) -> list[str]:
    return [each for each in statements if "pg_notify" in each]


async def test_a_push_in_a_transaction_is_heard_of_after_its_commit_from_the_queues_own_connection(
    store: SQLStore, other: SQLStore, postgres_database: Database
) -> None:
    engine = create_async_engine(postgres_database.url("asyncpg"), poolclass=NullPool)
    statements: list[str] = []
    _note_statements(engine.sync_engine, statements)
    heard = Heard(10)
    async with store.listen(heard.wake):
        async with AsyncSession(engine) as session:
            pusher: Any = other.within(session, lambda: None)
            await pusher.push([_job()])
            assert not heard.is_set()
            await session.commit()
        await heard.once_more("a push in a transaction was never heard of")
    assert statements
    assert _notifies(statements) == []


async def test_a_push_in_a_transaction_notifies_in_it_where_the_store_is_open_on_no_loop(
    store: SQLStore, postgres_database: Database
) -> None:
    def push() -> list[str]:
        engine = create_engine(postgres_database.url("psycopg"), poolclass=NullPool)
        statements: list[str] = []
        _note_statements(engine, statements)
        script = SQLStore(engine, clock=Clock())
        with Session(engine) as session:
            pusher = script.within(session, lambda: None)
            assert pusher.sync
            pusher.push([_job()])
            session.commit()
        return statements

    heard = Heard(10)
    async with store.listen(heard.wake):
        statements = await asyncio.to_thread(push)
        await heard.once_more("a script's push in a transaction was never heard of")
    assert len(_notifies(statements)) == 1


async def test_a_push_in_a_transaction_that_rolls_back_wakes_nobody(
    store: SQLStore, other: SQLStore, postgres_database: Database
) -> None:
    engine = create_async_engine(postgres_database.url("asyncpg"), poolclass=NullPool)
    heard = Heard(10)
    async with store.listen(heard.wake):
        async with AsyncSession(engine) as session:
            pusher: Any = other.within(session, lambda: None)
            await pusher.push([_job()])
            await session.rollback()
        await asyncio.sleep(0.05)
        assert not heard.is_set()


async def test_a_script_that_ends_at_once_is_heard_of(store: SQLStore, postgres_database: Database) -> None:
    """Its last push may have been too soon after another to notify by itself."""

    async def script() -> None:
        pushes = SQLStore(create_async_engine(postgres_database.url("asyncpg"), poolclass=NullPool))
        await pushes.open(["mail"])
        await pushes.push([_job()])
        heard.clear()
        await pushes.push([_job()])

    for _ in range(5):
        heard = Heard(10)
        async with store.listen(heard.wake):
            await asyncio.to_thread(asyncio.run, script())
            await heard.once_more("a script's last push was never heard of")
