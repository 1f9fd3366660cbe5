"""Pushes through the app's own transactions, beyond the suite: binds, warnings, wake-ups, and commits that fail."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, event, text
from sqlalchemy.exc import IntegrityError, OperationalError, PendingRollbackError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import fastjobs.sqlite
from fastjobs.core.claiming import Claimable
from fastjobs.core.errors import NotAwaited, QueueError, StoreError
from fastjobs.core.job import NewJob
from fastjobs.stores.sql.dialects.sqlite import begin, files, gate
from fastjobs.stores.sql.store import SQLStore

pytestmark = pytest.mark.anyio

MAIL = Claimable(kind="mail", hold=60_000_000, attempts=5)
JOB = NewJob(kind="mail", payload="1")


class Base(DeclarativeBase):
    pass


class User(Base):
    __tablename__ = "users"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)


@pytest.fixture(autouse=True, params=["immediate", "write"])
def begins(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that's here holds wherever a configured engine's transactions begin."""
    configured = partial(fastjobs.sqlite.configure, begin=request.param)
    monkeypatch.setattr(fastjobs.sqlite, "configure", configured)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "app.db"
    engine = create_engine(f"sqlite:///{path}")
    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(
            text("CREATE TABLE children (parent INT REFERENCES users (id) DEFERRABLE INITIALLY DEFERRED)")
        )
    engine.dispose()
    return path


def no_sync(connection: Any, _: object) -> None:
    # What a power cut does is nothing that's looked at here.
    cursor = connection.cursor()
    cursor.execute("PRAGMA synchronous = OFF")
    cursor.close()


@pytest.fixture
async def engine(path: Path) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    fastjobs.sqlite.configure(engine)
    event.listen(engine.sync_engine, "connect", no_sync)
    yield engine
    await engine.dispose()


@pytest.fixture
async def store(engine: AsyncEngine) -> AsyncIterator[SQLStore]:
    store = SQLStore(engine, synchronous="NORMAL")
    await store.open(["mail"])
    yield store
    await store.close()


def nothing() -> None:
    return


async def waiting(store: SQLStore) -> int:
    return len((await store.claim([MAIL], 1000)).jobs)


async def push(store: SQLStore, tx: object, *jobs: NewJob) -> list[str | None]:
    pusher = store.within(tx, nothing)
    found = pusher.push(jobs or (JOB,))
    return found if isinstance(found, list) else await found


async def test_a_thousand_commits_each_wake_a_claim_that_finds_its_row(
    store: SQLStore, engine: AsyncEngine
) -> None:
    woken: asyncio.Queue[int] = asyncio.Queue()
    n = 0

    async def requests(first: int, is_bare: bool) -> None:
        for number in range(first, first + 250):
            if is_bare:
                async with engine.connect() as connection:
                    pusher = store.within(connection, lambda number=number: woken.put_nowait(number))  # type: ignore[misc]
                    found = pusher.push([NewJob(kind="mail", payload=str(number))])
                    assert not isinstance(found, list)
                    await found
                    await connection.commit()
            else:
                async with AsyncSession(engine) as session, session.begin():
                    pusher = store.within(session, lambda number=number: woken.put_nowait(number))  # type: ignore[misc]
                    found = pusher.push([NewJob(kind="mail", payload=str(number))])
                    assert not isinstance(found, list)
                    await found

    running = [
        asyncio.create_task(requests(first, is_bare))
        for first, is_bare in ((0, False), (250, False), (500, True), (750, True))
    ]
    visible: dict[int, int] = {}
    found: set[str] = set()
    async with asyncio.timeout(50):
        while len(found) < 1000:
            n = await woken.get()
            found.update(job.payload for job in (await store.claim([MAIL], 1000)).jobs)
            visible[n] = visible.get(n, 0) + (str(n) in found)
    await asyncio.gather(*running)
    # Each commit's first wake-up that came after COMMIT found it; a bare connection's may come a little early too.
    assert all(visible[number] for number in visible if number < 500)


async def test_an_exception_in_a_begun_session_keeps_no_job(store: SQLStore, engine: AsyncEngine) -> None:
    with pytest.raises(RuntimeError, match="the request failed"):
        async with AsyncSession(engine) as session, session.begin():
            session.add(User(name="a"))
            await push(store, session)
            raise RuntimeError("the request failed")
    assert await waiting(store) == 0


async def test_a_commit_that_the_database_refuses_keeps_no_job_and_wakes_nobody(
    store: SQLStore, engine: AsyncEngine, path: Path
) -> None:
    woken: list[int] = []
    for make in (lambda: AsyncSession(engine), engine.connect):
        async with make() as tx:
            await tx.execute(text("INSERT INTO children VALUES (99)"))
            pusher = store.within(tx, lambda: woken.append(1))
            found = pusher.push([JOB])
            assert not isinstance(found, list)
            await found
            with pytest.raises(IntegrityError):
                await tx.commit()
            if isinstance(tx, AsyncSession):
                assert woken == []
    assert await waiting(store) == 0
    key = files.file_key(str(path))
    assert key is not None
    assert gate.gate(key)._holder is None


async def test_a_session_with_binds_for_its_models_alone_pushes_through_the_store_s_engine(
    store: SQLStore, engine: AsyncEngine
) -> None:
    async with AsyncSession(binds={User: engine}) as session:
        session.add(User(name="a"))
        await session.flush()
        await push(store, session)
        await session.rollback()
        session.add(User(name="b"))
        await push(store, session)
        await session.commit()
    assert await waiting(store) == 1


async def test_a_session_with_no_bind_at_all_pushes_through_the_store_s_engine(path: Path) -> None:
    engine = create_engine(f"sqlite:///{path}")
    store = SQLStore(engine)
    with Session() as session:
        await push(store, session)
        session.commit()
    assert await waiting(store) == 1
    await store.close()
    engine.dispose()


async def test_a_push_after_a_flush_that_failed_raises_sqlalchemy_s_own_error(
    store: SQLStore, engine: AsyncEngine
) -> None:
    async with AsyncSession(engine) as session:
        session.add_all([User(name="a"), User(name="a")])
        with pytest.raises(IntegrityError):
            await session.flush()
        with pytest.raises(PendingRollbackError):
            await push(store, session)


async def test_a_transaction_of_another_database_is_refused(store: SQLStore, path: Path) -> None:
    engine = create_engine(f"sqlite:///{path}")
    engine.dialect.name = "postgresql"
    with pytest.raises(StoreError, match="one of postgresql, and the queue's store is on sqlite"):
        store.within(Session(engine), nothing)


async def test_a_connection_that_is_not_open_yet_is_refused(store: SQLStore, engine: AsyncEngine) -> None:
    with pytest.raises(StoreError, match="isn't open yet"):
        store.within(AsyncConnection(engine), nothing)


async def test_a_push_through_a_read_only_transaction_is_refused_and_says_why(
    store: SQLStore, engine: AsyncEngine
) -> None:
    async with AsyncSession(engine.execution_options(fastjobs_readonly=True)) as session:
        with pytest.raises(
            QueueError, match=r"only reads, as its engine has the option fastjobs_readonly=True"
        ):
            await push(store, session)
        assert await session.scalar(text("SELECT count(*) FROM users")) == 0  # and it goes on


async def test_a_push_of_nothing_is_nothing(store: SQLStore, engine: AsyncEngine) -> None:
    async with AsyncSession(engine) as session:
        pusher = store.within(session, nothing)
        found = pusher.push([])
        assert not isinstance(found, list)
        assert await found == []
        await session.commit()


async def test_a_kind_s_row_comes_and_goes_with_its_transaction(
    store: SQLStore, engine: AsyncEngine, path: Path
) -> None:
    others = Claimable(kind="", hold=1_000_000, attempts=5)
    for commits in (False, True):
        async with AsyncSession(engine) as session:
            await push(store, session, NewJob(kind="new-kind", payload="1"))
            await (session.commit() if commits else session.rollback())
        assert len((await store.claim([], 5, others=others)).jobs) == commits


# Wake-ups


async def test_many_pushes_in_one_transaction_wake_once(store: SQLStore, engine: AsyncEngine) -> None:
    woken: list[int] = []

    def wake() -> None:
        woken.append(1)

    async with AsyncSession(engine) as session:
        for _ in range(3):
            for _ in range(3):
                pusher = store.within(session, wake)
                found = pusher.push([JOB])
                assert not isinstance(found, list)
                await found
            await session.commit()
    assert woken == [1, 1, 1]


async def test_a_wake_that_raises_is_logged_and_the_commit_is_well(
    store: SQLStore, engine: AsyncEngine, caplog: pytest.LogCaptureFixture
) -> None:
    def wake() -> None:
        raise RuntimeError("no loop")

    for make in (lambda: AsyncSession(engine), engine.connect):
        async with make() as tx:
            pusher = store.within(tx, wake)
            found = pusher.push([JOB])
            assert not isinstance(found, list)
            await found
            await tx.commit()
    assert await waiting(store) == 2
    assert "couldn't be woken" in caplog.text


async def test_a_bare_connection_on_a_configured_engine_wakes_after_its_commit_for_certain(
    store: SQLStore, engine: AsyncEngine, path: Path
) -> None:
    seen: list[int] = []

    def look() -> None:
        other = sqlite3.connect(path)
        seen.append(other.execute("SELECT count(*) FROM fastjobs_jobs").fetchone()[0])
        other.close()

    async with engine.connect() as connection:
        pusher = store.within(connection, look)
        found = pusher.push([JOB])
        assert not isinstance(found, list)
        await found
        await connection.commit()
        assert seen[-1] == 1, "before the connection went back to its pool"


async def test_a_bare_connection_on_another_engine_wakes_as_it_goes_back_to_its_pool(path: Path) -> None:
    engine = create_engine(f"sqlite:///{path}")
    store = SQLStore(engine)
    seen: list[int] = []

    def look() -> None:
        other = sqlite3.connect(path)
        seen.append(
            other.execute("SELECT count(*) FROM sqlite_master WHERE name = 'fastjobs_jobs'").fetchone()[0]
        )
        other.close()

    for _ in range(2):
        seen.clear()
        with engine.begin() as connection:
            pusher = store.within(connection, look)
            pusher.push([JOB])
        assert seen[-1] == 1
        engine.dispose()
    assert await waiting(store) == 2
    await store.close()


async def test_a_bare_connection_that_goes_on_after_a_refused_commit_is_in_a_new_transaction(
    store: SQLStore, engine: AsyncEngine
) -> None:
    text_said: list[str | None] = ["a push of 'mail' was never awaited"]
    async with engine.connect() as connection:
        store.within(connection, nothing, lambda: text_said[0])
        await connection.execute(text("INSERT INTO users VALUES (1, 'gone')"))
        with pytest.raises(NotAwaited):
            await connection.commit()
        await connection.rollback()
        text_said[0] = None
        await connection.execute(text("INSERT INTO users VALUES (2, 'kept')"))
        await connection.commit()
        assert (await connection.execute(text("SELECT id FROM users"))).fetchall() == [(2,)]


# Engines as they come


async def test_a_push_in_a_savepoint_is_in_a_real_transaction_where_it_comes_first(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    store = SQLStore(engine)
    async with AsyncSession(engine) as session:
        await push(store, session)
        async with session.begin_nested():
            await push(store, session)
        await session.rollback()
    assert await waiting(store) == 0
    assert not caplog.records
    await store.close()
    await engine.dispose()


async def test_a_push_after_a_write_on_an_engine_that_is_not_configured_warns_once_with_what_mends_it(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "fastjobs")
    engine = create_engine(f"sqlite:///{path}")
    store = SQLStore(engine)
    for name in ("a", "b"):
        with Session(engine) as session:
            session.add(User(name=name))
            session.flush()
            await push(store, session)
            await push(store, session)
            session.commit()
    (record,) = caplog.records
    assert "fastjobs.sqlite.configure(engine)" in record.getMessage()
    assert "\n" not in record.getMessage()
    assert await waiting(store) == 4
    await store.close()
    engine.dispose()


async def test_an_engine_that_begins_its_transactions_itself_is_not_warned_of(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = create_engine(f"sqlite:///{path}")

    def connect(connection: sqlite3.Connection, _: object) -> None:
        connection.isolation_level = None

    def begins(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    event.listen(engine, "connect", connect)
    event.listen(engine, "begin", begins)
    store = SQLStore(engine)
    with Session(engine) as session:
        session.add(User(name="a"))
        await push(store, session)
        session.commit()
    assert not caplog.records
    assert not begin.is_configured(engine)
    await store.close()
    engine.dispose()


async def test_tables_made_by_a_transaction_that_is_rolled_back_are_made_again(path: Path) -> None:
    engine = create_engine(f"sqlite:///{path}")
    fastjobs.sqlite.configure(engine)
    store = SQLStore(engine)
    for commits in (False, False, True, True):
        with Session(engine) as session:
            await push(store, session)
            await push(store, session)
            if commits:
                session.commit()
            else:
                session.rollback()
    assert await waiting(store) == 4
    await store.close()
    engine.dispose()


@pytest.mark.parametrize("is_configured", [True, False])
def test_a_push_is_refused_in_a_transaction_that_sqlite_has_ended(path: Path, is_configured: bool) -> None:
    engine = create_engine(f"sqlite:///{path}")
    if is_configured:
        fastjobs.sqlite.configure(engine)
    store = SQLStore(engine)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE files (content BLOB)"))
        pusher = store.within(connection, nothing)
        assert pusher.sync
        pusher.push([JOB])
    with engine.connect() as connection:
        pages = connection.scalar(text("PRAGMA page_count"))
        connection.rollback()
        pusher = store.within(connection, nothing)
        assert pusher.sync
        pusher.push([JOB])
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 1}")
        with pytest.raises(OperationalError, match="full"):
            connection.execute(text("INSERT INTO files VALUES (zeroblob(1000000))"))
        with pytest.raises(QueueError, match="SQLite has ended this transaction"):
            pusher.push([JOB])
        connection.rollback()
        assert connection.scalar(text("SELECT count(*) FROM fastjobs_jobs")) == 1
        pusher.push([JOB])
        connection.commit()
        assert connection.scalar(text("SELECT count(*) FROM fastjobs_jobs")) == 2
    engine.dispose()


@pytest.mark.parametrize("is_configured", [True, False])
@pytest.mark.parametrize("is_open", [True, False])
async def test_a_push_in_a_transaction_of_another_file_is_refused(
    engine: AsyncEngine, path: Path, is_configured: bool, is_open: bool
) -> None:
    store = SQLStore(engine)
    if is_open:
        await store.open(["mail"])
    other = create_async_engine(f"sqlite+aiosqlite:///{path}.other")
    if is_configured:
        fastjobs.sqlite.configure(other)
    async with AsyncSession(other) as session:
        with pytest.raises(StoreError, match="another database than the queue's"):
            await push(store, session)
        await session.commit()
        assert await session.scalar(text("SELECT count(*) FROM sqlite_master")) == 0
    await other.dispose()
    if is_open:
        await store.close()


async def test_the_error_of_a_push_that_failed_does_not_tell_the_value(
    store: SQLStore, engine: AsyncEngine
) -> None:
    async with engine.connect() as connection:
        pages = await connection.scalar(text("PRAGMA page_count"))
        await connection.execute(text(f"PRAGMA max_page_count = {pages}"))
        with pytest.raises(OperationalError, match="full") as raised:
            await push(store, connection, NewJob(kind="mail", payload='"hunter2' + "x" * 20_000 + '"'))
    assert "hunter2" not in str(raised.value)
    assert "INSERT INTO fastjobs_jobs" in str(raised.value)


async def test_a_commit_of_a_push_whose_transaction_sqlite_has_ended_raises(
    store: SQLStore, engine: AsyncEngine
) -> None:
    async with engine.connect() as connection:
        await push(store, connection)
        pages = await connection.scalar(text("PRAGMA page_count"))
        await connection.execute(text(f"PRAGMA max_page_count = {pages}"))
        with pytest.raises(OperationalError, match="full"):
            await connection.execute(text("INSERT INTO users VALUES (1, zeroblob(1000000))"))
        with pytest.raises(OperationalError, match="what was pushed in it is lost"):
            await connection.commit()
        await connection.rollback()
        assert await connection.scalar(text("SELECT count(*) FROM fastjobs_jobs")) == 0
        await connection.execute(text("PRAGMA max_page_count = 1000000"))
        await push(store, connection)
        await connection.commit()
    assert await waiting(store) == 1


@pytest.mark.parametrize("how", ["closed", "an error", "rolled back", "committed"])
def test_jobs_of_a_session_that_was_closed_without_a_commit_are_told_of(
    path: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    caplog.set_level(logging.INFO, "fastjobs")
    engine = create_engine(f"sqlite:///{path}")
    fastjobs.sqlite.configure(engine)
    queue = fastjobs.Queue(SQLStore(engine))

    @queue.kind("mail")
    async def mail(value: int) -> None: ...

    with contextlib.suppress(ZeroDivisionError), Session(engine) as session:
        mail.in_(session).push(1)
        if how == "rolled back":
            session.rollback()
        if how == "committed":
            session.commit()
        if how == "an error":
            raise ZeroDivisionError
    told = [record.levelname for record in caplog.records if "closed without a commit" in record.message]
    assert told == (["WARNING"] if how == "closed" else [])
    engine.dispose()


@pytest.mark.anyio
async def test_a_push_that_was_never_awaited_is_told_in_a_later_transaction_of_one_session_too_and_once(
    path: Path,
) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    fastjobs.sqlite.configure(engine)
    queue = fastjobs.Queue(SQLStore(engine))

    @queue.kind("mail")
    async def mail(value: int) -> None: ...

    async with AsyncSession(engine) as session:
        push = mail.in_(session)
        await push.push(1)
        await session.commit()
        push.push(2)  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
        await session.execute(text("SELECT 1"))
        with pytest.raises(NotAwaited, match="await kind"):
            await session.commit()
        await session.rollback()
        await push.push(3)
        await session.commit()
    assert await queue.drain() == 2
    await engine.dispose()
