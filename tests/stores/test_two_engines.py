"""An app with an async engine for its routes and queue, and a sync one of the same database for its `def` handlers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

import fastjobs
from fastjobs import Queue, SQLStore
from tests.databases.postgres import Database

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite", "postgres"])
def engines(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[AsyncEngine, Engine]]:
    if request.param == "sqlite":
        file = tmp_path / "app.db"
        loops, threads = (
            create_async_engine(f"sqlite+aiosqlite:///{file}"),
            create_engine(f"sqlite:///{file}"),
        )
        fastjobs.sqlite.configure(loops)
        fastjobs.sqlite.configure(threads)
    else:
        database: Database = request.getfixturevalue("postgres_database")
        loops = create_async_engine(database.url("asyncpg"), poolclass=NullPool)
        threads = create_engine(database.url("psycopg"), poolclass=NullPool)
    with threads.begin() as connection:
        connection.execute(text("CREATE TABLE notes (note TEXT)"))
    yield loops, threads
    threads.dispose()


async def test_a_def_handler_pushes_and_ends_its_job_through_a_session_of_the_sync_engine(
    engines: tuple[AsyncEngine, Engine],
) -> None:
    loops, threads = engines
    store = SQLStore(loops)
    queue = Queue(store)
    seen: list[tuple[str, int]] = []

    @queue.kind("first", attempts=1)
    def first(note: str) -> None:
        with Session(threads) as session, session.begin():
            session.execute(text("INSERT INTO notes VALUES (:note)"), {"note": note})
            second.in_(session).push(note)
            fastjobs.current_job().done_in(session)
            if note == "gone":
                raise ConnectionRefusedError

    @queue.kind("second")
    def second(note: str) -> None:
        with Session(threads) as session:
            seen.append((note, session.scalar(text("SELECT count(*) FROM notes")) or 0))

    await first.push_many(["kept", "gone"])
    await queue.drain()
    assert seen == [("kept", 1)]
    assert [job.payload for job in await queue.failed()] == ['"gone"']
    assert [(each.kind, each.waiting, each.held) for each in await queue.counts()] == [
        ("first", 0, 0),
        ("second", 0, 0),
    ]
    await store.close()
    await loops.dispose()
