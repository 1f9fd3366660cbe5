"""`fastjobs.sqlite.configure`: transactions that can write begin so, in a line, beside readers that wait for nobody."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import fastjobs.sqlite
from fastjobs.core.claiming import Claimable
from fastjobs.core.errors import QueueError, StoreError
from fastjobs.core.job import NewJob
from fastjobs.stores.sql.dialects.sqlite import files, gate
from fastjobs.stores.sql.store import SQLStore

pytestmark = pytest.mark.anyio

MAIL = Claimable(kind="mail", hold=60_000_000, attempts=5)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "app.db"
    connection = sqlite3.connect(path)
    connection.executescript("CREATE TABLE t (id INTEGER PRIMARY KEY, n INT); INSERT INTO t VALUES (1, 0)")
    connection.close()
    return path


@pytest.fixture(params=["immediate", "write"])
async def engine(path: Path, request: pytest.FixtureRequest) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    fastjobs.sqlite.configure(engine, begin=request.param)
    yield engine
    await engine.dispose()


@pytest.fixture
async def immediate(path: Path) -> AsyncIterator[AsyncEngine]:
    """As `engine`, for what only holds where a transaction begins at once."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    fastjobs.sqlite.configure(engine)
    yield engine
    await engine.dispose()


def its_gate(path: Path) -> gate.Gate:
    key = files.file_key(str(path))
    assert key is not None
    return gate.gate(key)


async def value(engine: AsyncEngine, sql: str) -> Any:
    async with engine.execution_options(fastjobs_readonly=True).connect() as connection:
        return await connection.scalar(text(sql))


async def test_reads_that_are_followed_by_writes_lose_nothing(immediate: AsyncEngine, path: Path) -> None:
    async def add_one() -> None:
        for _ in range(5):
            async with AsyncSession(immediate) as session:
                n = await session.scalar(text("SELECT n FROM t"))
                await asyncio.sleep(0.001)
                await session.execute(text("UPDATE t SET n = :n"), {"n": n + 1})
                await session.commit()

    await asyncio.gather(*(add_one() for _ in range(8)))
    assert await value(immediate, "SELECT n FROM t") == 40
    assert its_gate(path)._holder is None


async def test_a_connection_is_set_up(engine: AsyncEngine) -> None:
    for name, wanted in (
        ("journal_mode", "wal"),
        ("foreign_keys", 1),
        ("busy_timeout", 5000),
        ("synchronous", 2),
    ):
        assert await value(engine, f"PRAGMA {name}") == wanted


async def test_a_second_time_is_nothing(immediate: AsyncEngine) -> None:
    begin = immediate.dialect.do_begin
    fastjobs.sqlite.configure(immediate)
    fastjobs.sqlite.configure(immediate.execution_options(fastjobs_readonly=True), timeout=1)
    assert immediate.dialect.do_begin == begin
    assert await value(immediate, "PRAGMA busy_timeout") == 5000


async def test_a_read_only_transaction_waits_for_nobody_and_cannot_write(engine: AsyncEngine) -> None:
    reader = engine.execution_options(fastjobs_readonly=True)
    async with engine.begin() as writing:
        await writing.execute(text("UPDATE t SET n = 1"))
        async with asyncio.timeout(2), reader.connect() as reading:
            assert await reading.scalar(text("SELECT n FROM t")) == 0
            with pytest.raises(OperationalError, match="readonly"):
                await reading.execute(text("UPDATE t SET n = 2"))
    async with AsyncSession(reader) as session:
        assert await session.scalar(text("SELECT n FROM t")) == 1


async def test_a_pooled_connection_never_stays_read_only_for_a_writer(path: Path) -> None:
    engine = create_engine(f"sqlite:///{path}", pool_size=1, max_overflow=0)
    fastjobs.sqlite.configure(engine)
    for n in range(3):
        with engine.execution_options(fastjobs_readonly=True).connect() as connection:
            connection.execute(text("SELECT 1"))
            if n == 1:
                connection.invalidate()
        with Session(engine) as session:
            session.execute(text("UPDATE t SET n = n + 1"))
            session.commit()
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("UPDATE t SET n = n + 1"))
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT n FROM t")) == 6
    engine.dispose()


async def test_autocommit_takes_no_turn_and_begins_nothing(engine: AsyncEngine, path: Path) -> None:
    auto = engine.execution_options(isolation_level="AUTOCOMMIT")
    async with auto.connect() as connection:
        await connection.execute(text("VACUUM"))
        await connection.execute(text("UPDATE t SET n = 7"))
        assert its_gate(path)._holder is None
        assert await value(engine, "SELECT n FROM t") == 7


async def test_a_read_only_connection_in_autocommit_cannot_write_either(engine: AsyncEngine) -> None:
    reading = engine.execution_options(fastjobs_readonly=True, isolation_level="AUTOCOMMIT")
    async with reading.connect() as connection:
        with pytest.raises(OperationalError, match="readonly"):
            await connection.execute(text("UPDATE t SET n = 1"))
    assert await value(engine, "SELECT n FROM t") == 0


async def test_a_commit_whose_listener_raised_leaves_no_lock_behind(engine: AsyncEngine, path: Path) -> None:
    def raises(_: object) -> None:
        raise KeyError("the app's own")

    event.listen(engine.sync_engine, "commit", raises)
    async with engine.connect() as connection:
        await connection.execute(text("UPDATE t SET n = 1"))
        with pytest.raises(KeyError):
            await connection.commit()
    event.remove(engine.sync_engine, "commit", raises)
    other = sqlite3.connect(path, timeout=0)
    other.execute("BEGIN IMMEDIATE")
    other.close()
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE t SET n = n + 10"))
    assert await value(engine, "SELECT n FROM t") == 10


async def test_the_turn_ends_after_the_commit_and_not_before(engine: AsyncEngine, path: Path) -> None:
    seen: list[bool] = []

    def commit(_: object) -> None:
        seen.append(its_gate(path)._holder is not None)

    event.listen(engine.sync_engine, "commit", commit)
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE t SET n = 1"))
        assert its_gate(path)._holder is not None
    assert seen == [True]
    assert its_gate(path)._holder is None


# SQLAlchemy 2.0 leaves the driver's connection open where one was detached, or cancelled as it was opened.
leaves_connections = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@leaves_connections
@pytest.mark.parametrize("end", ["rollback", "close", "invalidate", "error", "detach"])
async def test_the_turn_ends_however_the_transaction_does(engine: AsyncEngine, path: Path, end: str) -> None:
    connection = await engine.connect()
    await connection.execute(text("UPDATE t SET n = 1"))
    assert its_gate(path)._holder is not None
    match end:
        case "rollback":
            await connection.rollback()
        case "close":
            await connection.close()
        case "invalidate":
            await connection.invalidate()
        case "detach":
            await connection.run_sync(lambda sync: sync.detach())
            await connection.rollback()
        case _:
            with pytest.raises(OperationalError):
                await connection.execute(text("no sql"))
            await connection.close()
    assert its_gate(path)._holder is None
    await connection.close()
    assert await value(engine, "SELECT n FROM t") == 0
    async with asyncio.timeout(2), engine.begin() as again:
        await again.execute(text("UPDATE t SET n = 2"))
    del connection
    gc.collect()


@leaves_connections
async def test_a_request_that_is_cancelled_gives_its_turn_on(engine: AsyncEngine, path: Path) -> None:
    for delay in (0.0, 0.0005, 0.001, 0.002, 0.005):

        async def request() -> None:
            async with AsyncSession(engine) as session:
                await session.execute(text("UPDATE t SET n = n + 1"))
                await session.commit()
                await session.execute(text("UPDATE t SET n = n + 1"))
                await asyncio.sleep(5)

        tasks = [asyncio.create_task(request()) for _ in range(4)]
        await asyncio.sleep(delay)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        async with asyncio.timeout(4), engine.begin() as connection:
            await connection.execute(text("UPDATE t SET n = n"))
    assert its_gate(path)._holder is None
    gc.collect()


async def test_one_that_waits_too_long_gets_sqlalchemy_s_own_error(path: Path) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    fastjobs.sqlite.configure(engine, timeout=0.05)
    async with engine.begin() as first:
        await first.execute(text("UPDATE t SET n = 1"))

        async def other() -> None:
            async with engine.begin():
                pass

        with pytest.raises(OperationalError, match=r"database is locked: waited 0\.05 s"):
            await asyncio.create_task(other())
    await engine.dispose()


async def test_what_follows_a_begin_that_failed_is_in_a_transaction(path: Path) -> None:
    engine = create_engine(f"sqlite:///{path}")
    fastjobs.sqlite.configure(engine, timeout=0.05)
    engine.connect().close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with engine.connect() as connection:
        with pytest.raises(OperationalError, match="database is locked"):
            connection.execute(text("UPDATE t SET n = 1"))
        other.execute("ROLLBACK")
        connection.execute(text("UPDATE t SET n = 2"))
        connection.rollback()
        assert connection.scalar(text("SELECT n FROM t")) == 0
    other.close()
    engine.dispose()


async def test_a_task_s_second_write_transaction_is_refused_at_once(immediate: AsyncEngine) -> None:
    async with asyncio.timeout(2), immediate.begin() as first:
        await first.execute(text("UPDATE t SET n = 1"))
        with pytest.raises(OperationalError, match="this task has a write transaction open"):
            async with immediate.begin():
                pass
    assert await value(immediate, "SELECT n FROM t") == 1


async def test_a_push_by_the_store_from_a_task_with_a_write_transaction_raises_at_once(
    engine: AsyncEngine,
) -> None:
    store = SQLStore(engine)
    for _ in range(2):
        async with asyncio.timeout(2), engine.begin() as connection:
            await connection.execute(text("UPDATE t SET n = 1"))
            with pytest.raises(QueueError, match=r"push through kind\.in_\(tx\)"):
                await store.push([NewJob(kind="mail", payload="1")])
            with pytest.raises(QueueError, match="transaction open that may write"):
                await store.claim([MAIL], 1)
        await store.push([NewJob(kind="mail", payload="1")])
    assert len((await store.claim([MAIL], 5)).jobs) == 2
    await store.close()


async def test_the_writer_and_the_app_take_turns(engine: AsyncEngine, path: Path) -> None:
    store = SQLStore(engine)
    await store.open(["mail"])
    busy = True

    async def pushes() -> None:
        while busy:
            await store.push([NewJob(kind="mail", payload="1")])

    tasks = [asyncio.create_task(pushes()) for _ in range(8)]
    async with asyncio.timeout(10):
        for _ in range(30):
            async with engine.begin() as connection:
                await connection.execute(text("UPDATE t SET n = n + 1"))
    busy = False
    await asyncio.gather(*tasks)
    assert await value(engine, "SELECT n FROM t") == 30
    await store.close()


async def test_claims_wait_for_an_app_s_long_transaction(engine: AsyncEngine) -> None:
    store = SQLStore(engine)
    await store.push([NewJob(kind="mail", payload="1")])
    connection = await asyncio.create_task(_begun(engine))
    claim = asyncio.create_task(store.claim([MAIL], 1))
    await asyncio.sleep(0.3)
    assert not claim.done()
    await connection.commit()
    await connection.close()
    assert len((await claim).jobs) == 1
    await store.close()


async def _begun(engine: AsyncEngine) -> Any:
    # In a task of its own, as another request is.
    connection = await engine.connect()
    await connection.execute(text("UPDATE t SET n = 1"))
    return connection


async def test_an_engine_that_made_itself_a_new_pool_is_configured_still(
    immediate: AsyncEngine, path: Path
) -> None:
    await immediate.dispose()
    async with immediate.begin() as connection:
        assert its_gate(path)._holder is not None
        assert await connection.scalar(text("PRAGMA foreign_keys")) == 1
    assert its_gate(path)._holder is None


async def test_an_in_memory_engine_keeps_the_driver_s_ways() -> None:
    engine = create_async_engine("sqlite+aiosqlite://")
    fastjobs.sqlite.configure(engine)
    async with AsyncSession(engine) as one, AsyncSession(engine) as two:
        await one.execute(text("CREATE TABLE u (n INT)"))
        await two.execute(text("INSERT INTO u VALUES (1)"))
        await one.commit()
        assert await two.scalar(text("SELECT n FROM u")) == 1
    await engine.dispose()


def test_what_is_no_sqlite_engine_is_refused() -> None:
    with pytest.raises(StoreError, match="not str"):
        fastjobs.sqlite.configure(cast("Engine", "sqlite:///app.db"))
    engine = create_engine("sqlite:///app.db")
    engine.dialect.name = "oracle"
    with pytest.raises(StoreError, match="is for SQLite, and this engine is for oracle"):
        fastjobs.sqlite.configure(engine)
    with pytest.raises(
        StoreError, match="has a store for mariadb, mysql, postgresql, sqlite, and none for oracle"
    ):
        SQLStore(engine)


async def test_sync_sessions_in_threads_wait_for_each_other(path: Path) -> None:
    engine: Engine = create_engine(f"sqlite:///{path}")
    fastjobs.sqlite.configure(engine)

    def add_one() -> None:
        with Session(engine) as session:
            n = session.execute(text("SELECT n FROM t")).scalar_one()
            session.execute(text("UPDATE t SET n = :n"), {"n": n + 1})
            session.commit()

    await asyncio.gather(*(asyncio.to_thread(add_one) for _ in range(30)))
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT n FROM t")) == 30
    engine.dispose()
