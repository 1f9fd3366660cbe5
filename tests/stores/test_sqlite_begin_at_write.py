"""`configure(engine, begin="write")`: reads are in no transaction, and the first write begins one, in its turn."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy import Connection, Engine, create_engine, insert, select, text
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import fastjobs.sqlite
from fastjobs.core.claiming import Claimable
from fastjobs.core.errors import QueueError, StoreError
from fastjobs.core.job import NewJob
from fastjobs.stores.sql.dialects.sqlite import files, gate
from fastjobs.stores.sql.dialects.sqlite.reading import only_reads
from fastjobs.stores.sql.store import SQLStore

pytestmark = pytest.mark.anyio

MAIL = Claimable(kind="mail", hold=60_000_000, attempts=5)
JOB = NewJob(kind="mail", payload="1")


class Base(DeclarativeBase):
    pass


class Row(Base):
    __tablename__ = "t"
    id: Mapped[int] = mapped_column(primary_key=True)
    n: Mapped[int] = mapped_column(unique=True)


ADD = text("UPDATE t SET n = n + 1 WHERE id = 1")
MORE = """
    WITH RECURSIVE more (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM more WHERE n < 499)
    INSERT INTO t SELECT n, n FROM more
"""
N = text("SELECT n FROM t WHERE id = 1")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "app.db"
    connection = sqlite3.connect(path)
    connection.executescript(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, n INT UNIQUE); INSERT INTO t VALUES (1, 0)"
    )
    connection.close()
    return path


@pytest.fixture
def engine(path: Path) -> Iterator[Engine]:
    engine = create_engine(f"sqlite:///{path}")
    fastjobs.sqlite.configure(engine, begin="write")
    yield engine
    engine.dispose()


@pytest.fixture
async def async_engine(path: Path) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    fastjobs.sqlite.configure(engine, begin="write")
    yield engine
    await engine.dispose()


@pytest.fixture
def other(path: Path) -> Iterator[sqlite3.Connection]:
    """Another program's connection to the file."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=0)
    yield connection
    connection.close()


@pytest.fixture
def its_gate(path: Path) -> gate.Gate:
    key = files.file_key(str(path))
    assert key is not None
    return gate.gate(key)


def is_begun(connection: Connection) -> bool:
    driver: Any = connection.connection.driver_connection
    return bool(driver.in_transaction)


def is_free(its_gate: gate.Gate) -> bool:
    return its_gate._holder is None


# What begins a transaction, and what doesn't


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 1",
        "  select n from t",
        "-- a comment; UPDATE\n\t/* another\n */ SELECT 1",
        "VALUES (1), (2)",
        "EXPLAIN QUERY PLAN UPDATE t SET n = 1",
        "PRAGMA user_version",
        "PRAGMA main.journal_mode;",
        'PRAGMA main.table_info("t")',
        "PRAGMA wal_checkpoint(TRUNCATE)",
    ],
)
def test_what_only_reads_is_known(statement: str) -> None:
    assert only_reads(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "",
        "INSERT INTO t VALUES (2, 2)",
        "replace into t values (1, 1)",
        "/* SELECT */ DELETE FROM t",
        "-- SELECT 1",
        "/* SELECT 1",
        "SELECTED",
        "WITH x AS (SELECT 1) UPDATE t SET n = 1",
        "SAVEPOINT a",
        "BEGIN",
        "CREATE TABLE u (n INT)",
        "VACUUM",
        "PRAGMA user_version = 3",
        "PRAGMA user_version(3)",
        "PRAGMA main.journal_mode(DELETE)",
        "PRAGMA optimize",
        "PRAGMA incremental_vacuum(5)",
        "PRAGMA",
    ],
)
def test_all_else_counts_as_a_write(statement: str) -> None:
    assert not only_reads(statement)


def test_a_long_text_with_no_statement_in_it_is_looked_at_once() -> None:
    assert not only_reads("/* a */ " * 10_000 + "(")
    assert not only_reads(" " * 100_000 + "(")


def _driver_sql(connection: Connection) -> None:
    connection.exec_driver_sql("UPDATE t SET n = 2")


def _many(connection: Connection) -> None:
    connection.exec_driver_sql("INSERT INTO t VALUES (?, ?)", [(2, 2), (3, 3)])


def _many_returning(connection: Connection) -> None:
    found = connection.execute(insert(Row).returning(Row.id), [{"n": 2}, {"n": 3}])
    assert len(found.all()) == 2


def _with_in_front(connection: Connection) -> None:
    found = select(Row.id).where(Row.id == 1).cte()
    connection.execute(insert(Row).from_select(["n"], select(found.c.id + 1)))


def _for_update(connection: Connection) -> None:
    assert connection.scalar(select(Row.n).with_for_update()) == 0


def _by_the_orm(connection: Connection) -> None:
    with Session(connection, join_transaction_mode="control_fully") as session:
        session.add(Row(n=2))
        session.flush()
        # Not closed by the rollback of its end, as the test looks at it still.
        assert is_begun(connection)
        session.commit()
    connection.execute(ADD)


def _ddl(connection: Connection) -> None:
    connection.execute(text("CREATE TABLE u (n INT)"))


def _savepoint(connection: Connection) -> None:
    connection.begin_nested()


@pytest.mark.parametrize(
    "write",
    [_driver_sql, _many, _many_returning, _with_in_front, _for_update, _by_the_orm, _ddl, _savepoint],
    ids=lambda write: write.__name__.strip("_"),
)
def test_the_first_write_begins_the_transaction_and_takes_its_turn(
    engine: Engine, its_gate: gate.Gate, write: Callable[[Connection], None]
) -> None:
    # A view of the engine does as the engine.
    with engine.execution_options(something="else").connect() as connection:
        assert connection.scalar(N) == 0
        selected = select(Row.id).cte()
        assert connection.scalars(select(selected.c.id)).all() == [1]
        assert connection.execute(text("PRAGMA table_info(t)")).all()
        assert not is_begun(connection)
        assert is_free(its_gate)
        write(connection)
        assert is_begun(connection)
        assert not is_free(its_gate)
        connection.rollback()
        assert is_free(its_gate)
        assert not is_begun(connection)


def test_a_session_s_row_for_update_takes_its_turn(engine: Engine, its_gate: gate.Gate) -> None:
    with Session(engine) as session:
        row = session.get(Row, 1)
        assert is_free(its_gate)
        assert session.get(Row, 1, with_for_update=True) is row
        assert not is_free(its_gate)
        session.rollback()
        assert row is not None
        session.refresh(row)
        assert is_free(its_gate)
        session.refresh(row, with_for_update=True)
        assert not is_free(its_gate)
    assert is_free(its_gate)


# Reads


def test_reads_see_what_others_commit_and_wait_for_nobody(engine: Engine, other: sqlite3.Connection) -> None:
    with Session(engine) as session:
        assert session.scalar(N) == 0
        other.execute("UPDATE t SET n = 5")
        assert session.scalar(N) == 5
        other.execute("BEGIN IMMEDIATE")
        other.execute("UPDATE t SET n = 6")
        assert session.scalar(N) == 5
        session.commit()
        session.rollback()
        assert session.scalar(N) == 5
        other.execute("COMMIT")
        assert session.scalar(N) == 6


def test_an_update_from_a_stale_read_is_lost_and_one_for_update_is_not(engine: Engine) -> None:
    for lock, left in ((False, 1), (True, 3)):
        with Session(engine) as one, Session(engine) as two:
            mine = one.get(Row, 1)
            assert mine is not None
            yours = two.get(Row, 1)
            assert yours is not None
            if lock:
                one.refresh(mine, with_for_update=True)
            mine.n += 1
            one.commit()
            if lock:
                two.refresh(yours, with_for_update=True)
            yours.n += 1
            two.commit()
            assert two.scalar(N) == left


async def test_a_read_keeps_no_turn_from_the_queue(async_engine: AsyncEngine) -> None:
    store = SQLStore(async_engine)
    async with asyncio.timeout(20), AsyncSession(async_engine) as session:
        assert await session.scalar(N) == 0
        await store.push([JOB])
        row = await session.get(Row, 1)
        assert row is not None
        row.n = 7
        await session.commit()
        await session.refresh(row)
        assert len((await store.claim([MAIL], 5)).jobs) == 1
    await store.close()


def test_rows_that_nobody_has_fetched_yet_keep_no_write_from_its_turn(
    engine: Engine, other: sqlite3.Connection
) -> None:
    other.execute(MORE)
    with engine.connect() as connection:
        found = connection.execute(select(Row.id).order_by(Row.id))
        plain = connection.exec_driver_sql("SELECT id AS number FROM t ORDER BY id")
        assert next(found) == (1,)
        other.execute("UPDATE t SET n = -1 WHERE id = 1")
        connection.execute(ADD)
        assert len(found.all()) == 498
        assert [dict(row) for row in plain.mappings().fetchmany(2)] == [{"number": 1}, {"number": 2}]
        connection.commit()
        assert connection.scalar(N) == 0


def test_a_write_amid_a_stream_that_is_out_of_date_says_what_to_do(
    engine: Engine, other: sqlite3.Connection, its_gate: gate.Gate
) -> None:
    other.execute(MORE)
    with engine.connect() as connection:
        found = connection.execution_options(yield_per=2).execute(select(Row.id))
        next(found)
        other.execute("UPDATE t SET n = -1 WHERE id = 1")
        with pytest.raises(OperationalError, match="Read all its rows before the first write"):
            connection.execute(ADD)
        assert is_free(its_gate)
        found.close()
        connection.execute(ADD)
        connection.commit()
        assert connection.scalar(N) == 0


# The end


def test_a_rollback_leaves_nothing_and_a_commit_all(engine: Engine) -> None:
    with Session(engine) as session:
        for commits in (False, True):
            assert session.scalar(N) == 0
            session.execute(ADD)
            session.add(Row(n=100))
            session.flush()
            (session.commit if commits else session.rollback)()
        assert session.scalars(select(Row.n).order_by(Row.id)).all() == [1, 100]


def test_a_released_savepoint_goes_with_the_rollback_around_it(engine: Engine) -> None:
    with Session(engine) as session:
        assert session.scalar(N) == 0
        with session.begin_nested():
            session.execute(ADD)
        session.rollback()
        assert session.scalar(N) == 0
        session.execute(ADD)
        with pytest.raises(IntegrityError), session.begin_nested():
            session.add(Row(id=1, n=9))
        session.commit()
        assert session.scalar(N) == 1


@pytest.mark.parametrize("end", ["read", "commit", "rollback", "close", "error", "refused"])
def test_a_connection_goes_back_to_its_pool_with_no_transaction_and_no_turn(
    path: Path, its_gate: gate.Gate, end: str
) -> None:
    engine = create_engine(f"sqlite:///{path}", pool_size=1, max_overflow=0)
    fastjobs.sqlite.configure(engine, begin="write")
    with engine.connect() as connection:
        connection.execute(text("CREATE TABLE u (of INT REFERENCES t DEFERRABLE INITIALLY DEFERRED)"))
        connection.commit()
        assert connection.scalar(N) == 0
        if end != "read":
            connection.execute(ADD)
        match end:
            case "commit":
                connection.commit()
            case "rollback":
                connection.rollback()
            case "error":
                with pytest.raises(IntegrityError):
                    connection.execute(text("INSERT INTO t VALUES (1, 9)"))
            case "refused":
                connection.execute(text("INSERT INTO u VALUES (99)"))
                with pytest.raises(IntegrityError):
                    connection.commit()
            case _:
                pass
    assert is_free(its_gate)
    with engine.connect() as connection:
        assert not is_begun(connection)
        assert connection.scalar(N) == (end == "commit")
        assert not is_begun(connection)
    engine.dispose()


# Waiting


async def test_one_that_waited_in_vain_can_go_on(path: Path, other: sqlite3.Connection) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    fastjobs.sqlite.configure(engine, begin="write", timeout=0.05)
    async with engine.connect() as connection:
        assert await connection.scalar(N) == 0
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(OperationalError, match="database is locked"):
            await connection.execute(ADD)
        assert await connection.scalar(N) == 0
        other.execute("ROLLBACK")
        await connection.execute(ADD)
        await connection.rollback()
        assert await connection.scalar(N) == 0
        await connection.execute(ADD)
        await connection.commit()
    assert other.execute("SELECT n FROM t").fetchall() == [(1,)]
    await engine.dispose()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_one_that_is_cancelled_while_it_waits_leaves_the_line(
    async_engine: AsyncEngine, its_gate: gate.Gate
) -> None:
    async def request() -> None:
        async with AsyncSession(async_engine) as session:
            await session.scalar(N)
            await session.execute(ADD)
            await session.commit()

    async with asyncio.timeout(20):
        async with async_engine.begin() as first:
            await first.execute(ADD)
            waiting = [asyncio.create_task(request()) for _ in range(3)]
            while len(its_gate._line) < 3:
                await asyncio.sleep(0.001)
            waiting[1].cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting[1]
            assert len(its_gate._line) == 2
        await asyncio.gather(waiting[0], waiting[2])
        async with async_engine.connect() as connection:
            assert await connection.scalar(N) == 3
    assert is_free(its_gate)


async def test_a_task_s_second_write_transaction_is_refused_at_once(async_engine: AsyncEngine) -> None:
    async with asyncio.timeout(20), async_engine.begin() as first:
        await first.execute(ADD)
        async with async_engine.connect() as second:
            assert await second.scalar(N) == 0
            with pytest.raises(OperationalError, match="this task has a write transaction open"):
                await second.execute(ADD)
            assert await second.scalar(N) == 0


async def test_reading_and_then_writing_beside_a_busy_queue_never_finds_a_lock(
    engine: Engine, async_engine: AsyncEngine, its_gate: gate.Gate
) -> None:
    store = SQLStore(async_engine, synchronous="NORMAL")
    await store.open(["mail"])
    busy = True

    async def pushes() -> None:
        while busy:
            await store.push([JOB])
            await store.claim([MAIL], 10)

    async def requests() -> None:
        for _ in range(10):
            async with AsyncSession(async_engine) as session:
                assert await session.get(Row, 1)
                await session.execute(ADD)
                await session.commit()
                await session.get(Row, 1)

    def in_thread() -> None:
        for _ in range(10):
            with Session(engine) as session:
                assert session.get(Row, 1)
                session.execute(ADD)
                session.commit()
                session.get(Row, 1)

    queue = [asyncio.create_task(pushes()) for _ in range(4)]
    async with asyncio.timeout(50):
        await asyncio.gather(
            *(requests() for _ in range(3)), *(asyncio.to_thread(in_thread) for _ in range(3))
        )
    busy = False
    await asyncio.gather(*queue)
    with engine.connect() as connection:
        assert connection.scalar(N) == 60
    assert is_free(its_gate)
    await store.close()


# Its options


def test_a_second_configure_with_another_begin_is_refused(engine: Engine) -> None:
    fastjobs.sqlite.configure(engine, begin="write")
    with pytest.raises(StoreError, match=r"configured with begin='write', so 'immediate' comes too late"):
        fastjobs.sqlite.configure(engine.execution_options(something="else"))
    with pytest.raises(StoreError, match="begin is 'immediate' or 'write', not 'deferred'"):
        fastjobs.sqlite.configure(engine, begin=cast("Any", "deferred"))


def test_what_is_read_only_reads_one_moment_s_rows(engine: Engine, other: sqlite3.Connection) -> None:
    with engine.execution_options(fastjobs_readonly=True).connect() as connection:
        assert connection.scalar(N) == 0
        other.execute("UPDATE t SET n = 5")
        assert connection.scalar(N) == 0
        with pytest.raises(OperationalError, match="readonly"):
            connection.execute(ADD)
        with pytest.raises(QueueError, match="fastjobs_readonly"):
            SQLStore(engine).within(connection, lambda: None).push([JOB])


def test_a_push_through_a_connection_of_an_engine_s_view_is_told_of_as_it_commits(engine: Engine) -> None:
    told: list[str] = []
    with engine.execution_options(stream_results=False).connect() as connection:
        SQLStore(engine).within(connection, lambda: told.append("committed")).push([JOB])
        assert told == []
        connection.commit()
        assert told
        told.clear()
        connection.execute(ADD)
        connection.commit()
    assert told == [], "nothing was pushed in that one"
