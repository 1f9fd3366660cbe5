"""`fastjobs.raw`: pushes, and ends of jobs, in a transaction that was begun by hand on a driver's own connection."""

from __future__ import annotations

import asyncio
import inspect
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import aiosqlite
import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

import fastjobs
from fastjobs import Queue, SQLStore, StoreError
from fastjobs.core.claiming import Claimable
from fastjobs.core.job import NewJob
from fastjobs.core.marks import Done
from fastjobs.store import Kept
from tests.databases import mysql
from tests.databases.postgres import Database

pytestmark = pytest.mark.anyio

MAIL = [Claimable(kind="mail", hold=60_000_000, attempts=5)]


class Raw:
    """A driver's connection, whatever it is: what one would await is awaited."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.tx: Any = fastjobs.raw(connection)

    async def run(self, sql: str) -> None:
        if hasattr(self.connection, "get_autocommit"):
            cursor = await done(self.connection.cursor())
            await done(cursor.execute(sql))
            await done(cursor.close())
        else:
            await done(self.connection.execute(sql))

    async def push(
        self, store: SQLStore, *payloads: str, told: Callable[[], None] = lambda: None
    ) -> list[str]:
        jobs = [NewJob(kind="mail", payload=each) for each in payloads]
        ids: list[str] = await done(store.within(self.tx, told).push(jobs))
        return ids

    async def end(self, store: SQLStore, job: Any) -> bool:
        return bool(await done(store.done_within(self.tx, job).done()))


async def done(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer


async def payloads(store: SQLStore) -> list[str]:
    return [job.payload for job in (await store.claim(MAIL, 100)).jobs]


def _of_its_own(cursor: object, row: object) -> dict[str, object]:
    return {"row": row}


Connect = Callable[[], Awaitable[Raw]]


class _Promises:
    """What holds for each driver."""

    async def test_a_push_is_kept_as_the_transaction_commits(self, store: SQLStore, connect: Connect) -> None:
        raw = await connect()
        await raw.run("BEGIN")
        ids = await raw.push(store, "1", "2")
        await raw.run("COMMIT")
        claimed = await store.claim(MAIL, 10)
        assert [(job.id, job.payload) for job in claimed.jobs] == list(zip(ids, "12", strict=True))

    async def test_a_push_goes_with_a_rollback_and_with_its_savepoint(
        self, store: SQLStore, connect: Connect
    ) -> None:
        raw = await connect()
        await raw.run("BEGIN")
        await raw.push(store, '"gone"')
        await raw.run("ROLLBACK")
        await raw.run("BEGIN")
        await raw.run("SAVEPOINT one")
        await raw.push(store, '"gone too"')
        await raw.run("ROLLBACK TO SAVEPOINT one")
        await raw.push(store, "1")
        await raw.run("COMMIT")
        assert await payloads(store) == ["1"]

    async def test_what_is_pushed_is_kept_as_the_store_keeps_it(
        self, store: SQLStore, connect: Connect
    ) -> None:
        raw = await connect()
        hard = NewJob(kind="mail", payload='{"a": "\\u00e9 %s ? $1 :x"}', carried='{"x": "y"}')
        await raw.run("BEGIN")
        await done(store.within(raw.tx, lambda: None).push([hard]))
        await raw.run("COMMIT")
        await store.push([hard])
        one, two = (await store.claim(MAIL, 10)).jobs
        assert one[1:3] + one[4:] == two[1:3] + two[4:]
        assert (one.payload, one.carried) == (hard.payload, hard.carried)
        assert abs(one.run_at - two.run_at) < 5_000_000

    async def test_a_push_for_later_is_due_then(self, store: SQLStore, connect: Connect) -> None:
        raw = await connect()
        await raw.run("BEGIN")
        await done(
            store.within(raw.tx, lambda: None).push([NewJob(kind="mail", payload="1", after=3600_000_000)])
        )
        await raw.run("COMMIT")
        claimed = await store.claim(MAIL, 10)
        assert claimed.jobs == []
        assert claimed.next_in is not None
        assert 3500_000_000 < claimed.next_in <= 3600_000_000

    async def test_a_job_is_done_as_the_transaction_commits(self, store: SQLStore, connect: Connect) -> None:
        raw = await connect()
        await store.push([NewJob(kind="mail", payload="1"), NewJob(kind="mail", payload="2")])
        one, two = (await store.claim(MAIL, 10)).jobs
        await raw.run("BEGIN")
        assert await raw.end(store, one) is True
        assert await raw.end(store, one._replace(id="999999")) is False
        assert await raw.end(store, two._replace(claim=two.claim + 1)) is False
        await raw.run("COMMIT")
        await raw.run("BEGIN")
        assert await raw.end(store, two) is True
        await raw.run("ROLLBACK")
        assert await store.mark([Done(one.id, one.claim), Done(two.id, two.claim)]) == [Kept.LOST, Kept.YES]

    async def test_a_connection_in_no_transaction_is_refused_and_nothing_is_kept(
        self, store: SQLStore, connect: Connect
    ) -> None:
        raw = await connect()
        with pytest.raises(StoreError, match=r"in no transaction.*first, and commit it afterwards"):
            await raw.push(store, "1")
        await store.push([NewJob(kind="mail", payload="2")])
        (job,) = (await store.claim(MAIL, 10)).jobs
        assert job.payload == "2"
        with pytest.raises(StoreError, match="in no transaction"):
            await raw.end(store, job)
        assert await store.mark([Done(job.id, job.claim)]) == [Kept.YES]

    async def test_keys_and_names_are_kept_with_the_transaction(
        self, store: SQLStore, connect: Connect
    ) -> None:
        raw = await connect()
        jobs = [NewJob(kind="mail", payload="1", key=b"k" * 32), NewJob(kind="mail", payload="2", name="n")]
        for end in ("ROLLBACK", "COMMIT"):
            await raw.run("BEGIN")
            ids = await done(store.within(raw.tx, lambda: None).push([*jobs, *jobs]))
            assert [id is None for id in ids] == [False, False, True, True]
            await raw.run(end)
        assert await store.push(jobs) == [None, None]
        assert await payloads(store) == ["1", "2"]

    async def test_a_queue_is_woken_around_the_push(self, store: SQLStore, connect: Connect) -> None:
        raw = await connect()
        calls: list[int] = []
        await raw.run("BEGIN")
        await raw.push(store, "1", told=lambda: calls.append(1))
        assert calls == [1]
        await raw.run("COMMIT")
        for _ in range(200):
            if len(calls) == 3:
                break
            await asyncio.sleep(0.005)
        assert calls == [1, 1, 1]

    async def test_a_chain_through_a_raw_connection_runs_to_its_end(
        self, store: SQLStore, connect: Connect
    ) -> None:
        queue = Queue(store, poll=0.2, grace=1)
        ran: list[int] = []
        end = asyncio.Event()

        @queue.kind("mail")
        async def mail(n: int) -> None:
            ran.append(n)
            raw = await connect()
            await raw.run(
                "BEGIN IMMEDIATE"
                if isinstance(raw.connection, (sqlite3.Connection, aiosqlite.Connection))
                else "BEGIN"
            )
            if n < 3:
                kind: Any = mail
                await done(kind.in_(raw.tx).push(n + 1))
            await done(fastjobs.current_job().done_in(raw.tx))
            await raw.run("COMMIT")
            if n == 3:
                end.set()

        async with queue.running():
            await mail.push(1)
            await end.wait()
        assert ran == [1, 2, 3]
        assert (await store.claim(MAIL, 10)).jobs == []


class TestSQLiteDrivers(_Promises):
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "app.db"

    @pytest.fixture
    async def engine(self, path: Path) -> AsyncIterator[AsyncEngine]:
        engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
        fastjobs.sqlite.configure(engine)
        yield engine
        await engine.dispose()

    @pytest.fixture
    async def store(self, engine: AsyncEngine) -> AsyncIterator[SQLStore]:
        store = SQLStore(engine, synchronous="NORMAL")
        await store.open()
        yield store
        await store.close()

    @pytest.fixture(params=["aiosqlite", "sqlite3", "sqlite3 with rows of its own", "a subclass"])
    async def connect(self, request: pytest.FixtureRequest, path: Path) -> AsyncIterator[Connect]:
        opened: list[Any] = []

        class Mine(sqlite3.Connection):
            pass

        async def connect() -> Raw:
            made: Any
            if request.param == "aiosqlite":
                made = await aiosqlite.connect(path, isolation_level=None)
                made.row_factory = _of_its_own
            else:
                factory = Mine if request.param == "a subclass" else sqlite3.Connection
                made = sqlite3.connect(path, isolation_level=None, factory=factory)
                if request.param == "sqlite3 with rows of its own":
                    made.row_factory = _of_its_own
            opened.append(made)
            return Raw(made)

        yield connect
        for each in opened:
            await done(each.close())

    async def test_a_connection_of_another_file_is_refused(
        self, store: SQLStore, path: Path, tmp_path: Path
    ) -> None:
        for elsewhere in (str(tmp_path / "other.db"), ":memory:"):
            connection = sqlite3.connect(elsewhere, isolation_level=None)
            raw = Raw(connection)
            await raw.run("BEGIN")
            with pytest.raises(StoreError, match="and the queue's database is"):
                await raw.push(store, "1")
            connection.close()

    async def test_the_same_file_by_another_path_is_the_same(
        self, store: SQLStore, path: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "linked").symlink_to(path)
        connection = sqlite3.connect(tmp_path / "linked", isolation_level=None)
        raw = Raw(connection)
        await raw.run("BEGIN")
        await raw.push(store, "1")
        await raw.run("COMMIT")
        connection.close()
        assert await payloads(store) == ["1"]


class TestPostgresDrivers(_Promises):
    @pytest.fixture
    async def store(self, postgres_database: Database) -> AsyncIterator[SQLStore]:
        engine = create_async_engine(postgres_database.url("asyncpg"))
        store = SQLStore(engine)
        await store.open()
        yield store
        await store.close()
        await engine.dispose()

    @pytest.fixture(params=["asyncpg", "asyncpg's pool", "psycopg", "psycopg async", "psycopg of dicts"])
    async def connect(
        self, request: pytest.FixtureRequest, postgres_database: Database
    ) -> AsyncIterator[Connect]:
        import asyncpg
        import psycopg
        from psycopg.rows import dict_row

        dsn = postgres_database.url()
        closes: list[Any] = []
        pools: list[Any] = []

        async def connect() -> Raw:
            made: Any
            match request.param:
                case "asyncpg":
                    made = await asyncpg.connect(dsn)
                case "asyncpg's pool":
                    pool = await asyncpg.create_pool(dsn, min_size=1, max_size=1)
                    pools.append(pool)
                    return Raw(await pool.acquire())
                case "psycopg async":
                    made = await psycopg.AsyncConnection.connect(dsn, autocommit=True)
                case "psycopg of dicts":
                    made = psycopg.Connection[Any].connect(dsn, autocommit=True, row_factory=dict_row)
                case _:
                    made = psycopg.connect(dsn, autocommit=True)
            closes.append(made)
            return Raw(made)

        yield connect
        for each in closes:
            await done(each.close())
        for pool in pools:
            pool.terminate()

    async def test_another_instance_hears_of_a_push_at_the_commit(
        self, store: SQLStore, connect: Connect
    ) -> None:
        heard = asyncio.Event()
        loop = asyncio.get_running_loop()

        def hear() -> None:
            loop.call_soon_threadsafe(heard.set)

        async with store.listen(hear):
            raw = await connect()
            await raw.run("BEGIN")
            await raw.push(store, "1")
            await asyncio.sleep(0.05)
            heard.clear()
            await raw.run("COMMIT")
            await asyncio.wait_for(heard.wait(), 5)
        assert await payloads(store) == ["1"]

    async def test_psycopg_begins_by_itself_where_it_commits_by_hand(
        self, store: SQLStore, postgres_database: Database
    ) -> None:
        import psycopg

        connection = psycopg.connect(postgres_database.url())
        await Raw(connection).push(store, "1")
        assert await payloads(store) == []
        connection.commit()
        assert await payloads(store) == ["1"]
        connection.close()


@pytest.fixture(scope="module", name="on_mariadb")
def _on_mariadb(mariadb: mysql.Server) -> Iterator[mysql.Database]:
    database = mariadb.create_database()
    yield database
    database.drop()


@pytest.fixture(scope="module", name="on_mysql")
def _on_mysql(request: pytest.FixtureRequest) -> Iterator[mysql.Database]:
    server: mysql.Server = request.getfixturevalue("mysql")
    database = server.create_database()
    yield database
    database.drop()


class _OnMySQL(_Promises):
    @pytest.fixture
    async def store(self, database: mysql.Database) -> AsyncIterator[SQLStore]:
        engine = create_async_engine(database.url("asyncmy"))
        store = SQLStore(engine)
        await store.open()
        database.clear()
        yield store
        await store.close()
        await engine.dispose()

    @pytest.fixture
    async def connect(self, driver: str, database: mysql.Database) -> AsyncIterator[Connect]:
        import pymysql

        # Neither has types.
        aiomysql, asyncmy = (import_module(name) for name in ("aiomysql", "asyncmy"))
        at: dict[str, Any] = {
            "host": "127.0.0.1",
            "port": database.server.port,
            "user": "app",
            "autocommit": True,
        }
        named: dict[str, Any] = {"db": database.name}
        opened: list[Any] = []
        pools: list[Any] = []

        async def connect() -> Raw:
            made: Any
            match driver:
                case "asyncmy":
                    made = await asyncmy.connect(**at, **named)
                case "aiomysql":
                    made = await aiomysql.connect(**at, **named)
                case "aiomysql's pool":
                    pools.append(pool := await aiomysql.create_pool(**at, **named, minsize=1, maxsize=1))
                    made = await pool.acquire()
                case "pymysql of dicts":
                    made = pymysql.connect(
                        **at, database=database.name, cursorclass=pymysql.cursors.DictCursor
                    )
                case _:
                    made = pymysql.connect(**at, database=database.name)
            opened.append(made)
            return Raw(made)

        yield connect
        for each in opened:
            await done((each.ensure_closed if hasattr(each, "ensure_closed") else each.close)())
        for pool in pools:
            pool.close()

    async def test_one_that_commits_by_hand_has_begun(self, store: SQLStore, connect: Connect) -> None:
        raw = await connect()
        await done(raw.connection.autocommit(False))
        (id,) = await raw.push(store, "1")
        assert await payloads(store) == []
        await done(raw.connection.commit())
        assert [job.id for job in (await store.claim(MAIL, 1)).jobs] == [id]

    async def test_a_connection_of_another_database_is_refused(
        self, store: SQLStore, connect: Connect, database: mysql.Database
    ) -> None:
        raw = await connect()
        await raw.run("USE information_schema")
        await raw.run("BEGIN")
        with pytest.raises(
            StoreError, match="of the database 'information_schema', and the queue's jobs are in"
        ):
            await raw.push(store, "1")


class TestMariaDBDrivers(_OnMySQL):
    @pytest.fixture
    def database(self, on_mariadb: mysql.Database) -> mysql.Database:
        return on_mariadb

    @pytest.fixture(params=["asyncmy", "aiomysql", "aiomysql's pool", "pymysql", "pymysql of dicts"])
    def driver(self, request: pytest.FixtureRequest) -> str:
        driver: str = request.param
        return driver


class TestMySQLDrivers(_OnMySQL):
    @pytest.fixture
    def database(self, on_mysql: mysql.Database) -> mysql.Database:
        return on_mysql

    @pytest.fixture(params=["asyncmy", "pymysql"])
    def driver(self, request: pytest.FixtureRequest) -> str:
        driver: str = request.param
        return driver


@pytest.mark.parametrize(
    "nothing", [None, 1, "postgresql://", object(), sqlite3], ids=lambda it: type(it).__name__
)
def test_what_is_no_drivers_connection_is_refused(nothing: Any) -> None:
    with pytest.raises(
        StoreError, match="raw takes a connection of asyncpg, psycopg, aiosqlite, sqlite3, asyncmy"
    ):
        fastjobs.raw(nothing)


async def test_a_session_is_given_as_it_is(tmp_path: Path) -> None:
    session: Any = AsyncSession()
    with pytest.raises(StoreError, match=r"give this .*AsyncSession to in_ or done_in as it is"):
        fastjobs.raw(session)


async def test_a_connection_of_another_kind_of_database_is_refused(tmp_path: Path) -> None:
    class Connection:
        def close(self) -> None: ...

    Connection.__module__ = "psycopg"
    Connection.__qualname__ = "Connection"
    store = SQLStore(create_engine(f"sqlite:///{tmp_path}/app.db"))
    with pytest.raises(StoreError, match="one of postgresql, and the queue's store is on sqlite"):
        store.within(fastjobs.raw(Connection()), lambda: None)
