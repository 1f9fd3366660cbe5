"""The store's own connections to MariaDB and MySQL: how many, how they are opened, and what becomes of them when things
end.

All of it runs on MariaDB by each driver; on MySQL what the server says as it ends a connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import subprocess
import sys
import types
import warnings
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import Any

import asyncmy.errors
import pymysql
import pytest
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from fastjobs.core.claiming import Claimable
from fastjobs.core.errors import StoreError
from fastjobs.core.job import Job, NewJob
from fastjobs.core.marks import Done, Kept
from fastjobs.stores.sql.dialects.mysql.database import MySQL
from fastjobs.stores.sql.dialects.mysql.steps import Step, Steps
from fastjobs.stores.sql.server import on_loop
from fastjobs.stores.sql.store import SQLStore
from fastjobs.testing import Clock
from tests.databases.mysql import Database, Server
from tests.databases.proxy import Proxy

pytestmark = pytest.mark.anyio

DRIVERS = ("asyncmy", "aiomysql", "pymysql")
BROKEN = (DBAPIError, asyncmy.errors.Error, pymysql.Error)
"""What a call raises whose connection has ended; aiomysql has PyMySQL's errors."""


@pytest.fixture(scope="module")
def on_mariadb(mariadb: Server) -> Iterator[Database]:
    database = mariadb.create_database()
    yield database
    database.drop()


@pytest.fixture(scope="module")
def on_mysql(mysql: Server) -> Iterator[Database]:
    database = mysql.create_database()
    yield database
    database.drop()


@pytest.fixture
def database(on_mariadb: Database) -> Iterator[Database]:
    on_mariadb.clear()
    yield on_mariadb
    on_mariadb.terminate_all()


@pytest.fixture(params=("on_mariadb", "on_mysql"))
def each_database(request: pytest.FixtureRequest) -> Iterator[Database]:
    database: Database = request.getfixturevalue(request.param)
    database.clear()
    yield database
    database.terminate_all()


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def engine_of(url: str, **more: Any) -> Engine | AsyncEngine:
    """PyMySQL's is a sync one."""
    make = create_engine if "+pymysql:" in url else create_async_engine
    return make(url, poolclass=NullPool, **more)


def store_of(database: Database, driver: str, **more: Any) -> SQLStore:
    return SQLStore(engine_of(database.url(driver), **more), clock=Clock())


@pytest.fixture
async def store(driver: str, database: Database) -> AsyncIterator[SQLStore]:
    store = store_of(database, driver)
    await store.open(["mail"])
    yield store
    await store.close()


@pytest.fixture
async def each_store(driver: str, each_database: Database) -> AsyncIterator[SQLStore]:
    """On both servers."""
    store = store_of(each_database, driver)
    await store.open(["mail"])
    yield store
    await store.close()


async def _push(store: SQLStore, *payloads: str) -> list[str | None]:
    return await store.push([NewJob(kind="mail", payload=each) for each in payloads])


async def _claim(store: SQLStore) -> list[Job]:
    return (await store.claim([Claimable(kind="mail", hold=60_000_000, attempts=5)], 100)).jobs


def _connections(database: Database) -> int:
    ((count,),) = database.execute(
        "SELECT count(*) FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND USER = 'app'"
    )
    return int(count)


async def _until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not await asyncio.to_thread(what):
            await asyncio.sleep(0.01)


def _asleep(database: Database, like: str = "User sleep") -> list[int]:
    rows = database.execute(
        "SELECT ID FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND USER = 'app' AND STATE LIKE %s",
        [like],
    )
    return [int(id) for (id,) in rows]


async def _until_asleep(database: Database, count: int = 1) -> list[int]:
    await _until(lambda: len(_asleep(database)) >= count)
    return _asleep(database)


def _sleep(connection: Connection) -> None:
    connection.execute(text("SELECT SLEEP(30)"))


@contextlib.contextmanager
def locked(database: Database) -> Generator[None, None, None]:
    """Has whoever uses the jobs wait."""
    with contextlib.closing(database.connect(user="root")) as holder, holder.cursor() as cursor:
        cursor.execute("LOCK TABLES fastjobs_jobs WRITE")
        yield
        cursor.execute("UNLOCK TABLES")


async def until_blocked(database: Database) -> None:
    await _until(lambda: bool(_asleep(database, "Waiting for table%")))


# How many


async def test_two_connections_serve_all_calls(store: SQLStore, database: Database) -> None:
    most = 0

    def look(connection: Connection) -> None:
        nonlocal most
        connection.execute(text("SELECT SLEEP(0.02)"))
        most = max(most, _connections(database))

    await asyncio.gather(
        *(store._database.run(look) for _ in range(10)), *(_push(store, "1") for _ in range(5))
    )
    assert most == 2
    assert _connections(database) == 2


async def test_a_store_connects_to_nothing_until_it_is_used(driver: str, database: Database) -> None:
    store = store_of(database, driver)
    assert _connections(database) == 0
    await store.close()


async def test_a_closed_store_has_no_connection(store: SQLStore, database: Database) -> None:
    async with store.listen(lambda: None):
        await _push(store, "1")
        await store.push([NewJob(kind="mail", payload="2", key=b"k")])
        assert _connections(database) >= 2
    await store.close()
    await _until(lambda: _connections(database) == 0)


def test_a_script_that_opens_nothing_leaves_no_connection(driver: str, database: Database) -> None:
    store = store_of(database, driver)

    async def push() -> int:
        await _push(store, "1")
        return _connections(database)

    for _ in range(3):
        assert asyncio.run(push()) == 1
    asyncio.run(_until(lambda: _connections(database) == 0))
    assert len(asyncio.run(_claim(store))) == 3


def test_a_loop_that_is_closed_without_its_end_leaves_no_connection(driver: str, database: Database) -> None:
    store = store_of(database, driver)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(_push(store, "1"))
    loop.close()
    with warnings.catch_warnings(action="ignore"):
        assert len(asyncio.run(_claim(store))) == 1
        del loop
        asyncio.run(_until(lambda: _connections(database) == 0))
        gc.collect()  # what that loop had says so as it goes, and is not to in another test


def test_a_store_is_used_on_one_loop_after_the_other_and_on_two_at_once(
    driver: str, database: Database
) -> None:
    store = store_of(database, driver)

    async def use() -> None:
        await store.open(["mail"])
        await _push(store, "1")
        await asyncio.to_thread(asyncio.run, _push(store, "2"))
        await _push(store, "3")
        await store.close()

    for _ in range(2):
        asyncio.run(use())
    assert [job.payload for job in asyncio.run(_claim(store))] == ["1", "2", "3"] * 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system lacks fork")
def test_a_fork_never_uses_its_parents_connections(driver: str, database: Database) -> None:
    store = store_of(database, driver)
    of = store._database
    assert isinstance(of, MySQL)

    async def in_child() -> None:
        await _push(store, "child")
        # Also what it merely knew of the parent's it might end, as it tidies up.
        assert list(of._heres) == [asyncio.get_running_loop()]

    with asyncio.Runner() as runner:
        runner.run(_push(store, "parent"))
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            child = os.fork()
        if not child:
            code = 1
            try:
                asyncio.run(in_child())
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        runner.run(_push(store, "parent again"))
        payloads = [job.payload for job in runner.run(_claim(store))]
    assert payloads == ["parent", "child", "parent again"]


# How they are opened


@pytest.mark.parametrize("default", ["REPEATABLE READ", "SERIALIZABLE", "READ UNCOMMITTED"])
async def test_the_queue_works_at_read_committed_whatever_the_server_has_as_default(
    each_database: Database, default: str
) -> None:
    # Each new connection has the server's, and no other test is on the server meanwhile.
    each_database.execute(f"SET GLOBAL TRANSACTION ISOLATION LEVEL {default}")
    try:
        store = store_of(each_database, "asyncmy")
        assert await _levels(store) == {"READ-COMMITTED"}
        await store.close()
    finally:
        each_database.execute("SET GLOBAL TRANSACTION ISOLATION LEVEL REPEATABLE READ")


async def test_the_queue_works_at_read_committed_over_a_serializable_engine(
    driver: str, database: Database
) -> None:
    store = store_of(database, driver, isolation_level="SERIALIZABLE")
    assert await _levels(store) == {"READ-COMMITTED"}
    await store.close()


_LEVEL = "SHOW VARIABLES WHERE Variable_name IN ('tx_isolation', 'transaction_isolation')"


async def _levels(store: SQLStore) -> set[str]:
    await store.open()
    database = store._database
    assert isinstance(database, MySQL)

    def level() -> Steps[str]:
        return str((yield Step(_LEVEL)).rows[0][1])

    here = database._here().on_loop
    return {
        await here.use(lambda link: link.ask(level())),
        await here.use(lambda link: link.transact(level())),
        await database.run(lambda connection: str(connection.execute(text(_LEVEL)).one()[1])),
        await here.use(lambda link: link.transact(level())),
    }


async def test_the_apps_connect_listeners_are_called_and_its_begin_listeners_are_not(
    driver: str, database: Database
) -> None:
    engine = engine_of(database.url(driver))
    sync_engine = engine.sync_engine if isinstance(engine, AsyncEngine) else engine
    heard: list[str] = []
    for each in ("do_connect", "connect", "begin", "before_cursor_execute"):
        event.listen(sync_engine, each, _noting(heard, each))
    store = SQLStore(engine)
    await _push(store, "1")
    await store.cancel(["1"])
    await store.close()
    assert set(heard) == {"do_connect", "connect"}
    assert sync_engine.pool.status() == "NullPool"


def _noting(heard: list[str], what: str) -> Callable[..., None]:
    def note(*_: object) -> None:
        heard.append(what)

    return note


@pytest.mark.parametrize("name", ["mysqldb", "mysqlconnector"])
def test_another_driver_is_refused_with_the_url_to_write(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dbapi: Any = types.ModuleType(name)
    dbapi.__version__, dbapi.paramstyle, dbapi.version_info = "2.2.4", "format", (2, 2, 4)
    engine = create_engine(f"mysql+{name}://app@localhost/app", module=dbapi)
    with pytest.raises(StoreError, match=rf"{name}.*mysql\+asyncmy://"):
        SQLStore(engine)


def test_the_store_is_imported_without_a_driver() -> None:
    code = (
        "import fastjobs.stores.sql.store, fastjobs.stores.sql.dialects.mysql.database, sys;"
        " print(*(n for n in ('asyncmy', 'aiomysql', 'pymysql') if n in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == []


def test_an_engine_is_left_as_it_was(database: Database) -> None:
    engine: Engine = create_engine(database.url("pymysql"))
    store = SQLStore(engine)
    asyncio.run(_push(store, "1"))
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM fastjobs_jobs")).scalar_one() == 1
        assert connection.get_isolation_level() == "REPEATABLE READ"
        driver: Any = connection.connection.driver_connection
        assert not driver.get_autocommit()
    engine.dispose()


# What becomes of them


@pytest.mark.parametrize("how", ["killed", "timed out"])
async def test_a_connection_that_was_closed_while_idle_is_noticed_before_its_use(
    each_database: Database, how: str
) -> None:
    stores: list[SQLStore] = []
    for driver in DRIVERS:
        engine = engine_of(each_database.url(driver))
        if how == "timed out":
            event.listen(_sync(engine), "connect", _soon_timed_out)
        stores.append(store := SQLStore(engine, clock=Clock()))
        await store.open(["mail"])
        await asyncio.gather(*(_push(store, "1") for _ in range(4)), _claim(store), _claim(store))
    if how == "killed":
        assert each_database.terminate_all()
    await _until(lambda: _connections(each_database) == 0)
    for store in stores:
        await _push(store, "2")
        await _claim(store)
        await store.close()


def _sync(engine: Engine | AsyncEngine) -> Engine:
    return engine.sync_engine if isinstance(engine, AsyncEngine) else engine


def _soon_timed_out(connection: Any, _: object) -> None:
    cursor = connection.cursor()
    cursor.execute("SET SESSION wait_timeout = 1")
    cursor.close()


async def test_a_call_whose_connection_is_killed_raises_and_the_next_works(
    each_store: SQLStore, each_database: Database
) -> None:
    call = asyncio.create_task(each_store._database.run(_sleep))
    (pid,) = await _until_asleep(each_database)
    each_database.execute("KILL %s", [pid])
    with pytest.raises(BROKEN):
        await call
    assert await _push(each_store, "1")
    assert [job.payload for job in await _claim(each_store)] == ["1"]


async def test_a_statement_that_is_killed_is_the_callers_to_know_and_its_connection_goes_on(
    each_store: SQLStore, each_database: Database
) -> None:
    tries = 0

    def work(connection: Connection) -> None:
        nonlocal tries
        tries += 1
        connection.execute(text("INSERT INTO fastjobs_kinds (kind) VALUES ('x')"))
        # Not by itself: that answers 1 as it is killed.
        connection.execute(text("SELECT 1 FROM fastjobs_kinds WHERE SLEEP(30)"))

    call = asyncio.create_task(each_store._database.run(work))
    (pid,) = await _until_asleep(each_database)
    each_database.execute("KILL QUERY %s", [pid])
    with pytest.raises(DBAPIError, match=r"(?i)interrupted"):
        await call
    assert tries == 1
    assert each_database.execute("SELECT count(*) FROM fastjobs_kinds WHERE kind = 'x'") == [(0,)]
    assert [
        id
        for (id,) in each_database.execute(
            "SELECT ID FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND USER = 'app'"
        )
    ] == [pid], "a connection that the server has answered on was dropped"


async def test_a_claim_whose_caller_is_cancelled_gives_its_jobs_back(
    store: SQLStore, database: Database
) -> None:
    await _push(store, "1", "2")
    with locked(database):
        claim = asyncio.create_task(_claim(store))
        await until_blocked(database)
        claim.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claim
    async with asyncio.timeout(10):
        while not (jobs := await _claim(store)):
            await asyncio.sleep(0.01)
        while len(jobs) < 2:
            jobs += await _claim(store)
    assert [(job.payload, job.attempts) for job in jobs] == [("1", 1), ("2", 1)]


async def test_a_call_that_is_cancelled_leaves_no_connection_in_the_middle_of_it(
    store: SQLStore, database: Database
) -> None:
    def sleep(connection: Connection) -> None:
        connection.execute(text("SELECT SLEEP(0.3)"))

    calls = [asyncio.create_task(store._database.run(sleep)) for _ in range(4)]
    await _until_asleep(database, 2)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert all(call.cancelled() for call in calls)
    async with asyncio.timeout(10):
        await asyncio.gather(*(_push(store, str(n)) for n in range(4)), store.sweep())
    assert len(await _claim(store)) == 4


async def test_a_call_that_nobody_waits_for_and_that_never_ends_is_cut(
    store: SQLStore, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_loop, "LEFT", 0.05)
    calls = [asyncio.create_task(store._database.run(_sleep)) for _ in range(2)]
    await _until_asleep(database, 2)
    for call in calls:
        call.cancel()
    async with asyncio.timeout(10):
        assert await _push(store, "1")


async def test_a_close_waits_for_what_is_under_way(store: SQLStore, database: Database) -> None:
    def sleep(connection: Connection) -> str:
        connection.execute(text("SELECT SLEEP(0.2)"))
        return "done"

    call = asyncio.create_task(store._database.run(sleep))
    await _until_asleep(database)
    await store.close()
    assert await call == "done"


async def test_a_close_does_not_wait_for_ever(
    store: SQLStore, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_loop, "LEFT", 0.05)
    call = asyncio.create_task(store._database.run(_sleep))
    await _until_asleep(database)
    async with asyncio.timeout(10):
        await store.close()
    with pytest.raises((*BROKEN, asyncio.CancelledError)):
        await call


# What the server gives up


async def test_what_the_server_gave_up_for_anothers_sake_is_tried_again_five_times_at_most(
    store: SQLStore,
) -> None:
    tries = 0

    def fails(times: int) -> Callable[[Connection], int]:
        def work(connection: Connection) -> int:
            nonlocal tries
            tries += 1
            if tries <= times:
                connection.execute(
                    text("SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'again'")
                )
            return tries

        return work

    assert await store._database.run(fails(2)) == 3
    tries = 0
    with pytest.raises(DBAPIError):
        await store._database.run(fails(1000))
    assert tries == 5


# A network that loses answers

_PUSHED, _CLAIMED, _MARKED = "pushed", "claimed", "marked"


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "not kept"])
@pytest.mark.parametrize("what", [_PUSHED, _CLAIMED, _MARKED])
async def test_a_connection_that_is_cut_at_a_commit_loses_nothing_and_nothing_is_held_twice(
    driver: str, database: Database, what: str, kept: bool
) -> None:
    with Proxy(database.server.port) as proxy:
        clock = Clock()
        store = SQLStore(engine_of(proxy.url(database.url(driver))), clock=clock)
        await store.open(["mail"])
        if what != _PUSHED:
            await _push(store, "1")
        (job,) = await _claim(store) if what == _MARKED else [None]
        # A plain push is one statement, which commits itself.
        commit = b"INSERT INTO `fastjobs_jobs`" if what == _PUSHED else b"COMMIT"
        cut = proxy.cut_at(commit, when="answered" if kept else "before")
        with pytest.raises(BROKEN):
            if job is not None:
                await store.mark([Done(job.id, job.claim)])
            else:
                await (_push(store, "1") if what == _PUSHED else _claim(store))
        assert cut.done.is_set()
        rows = database.execute("SELECT state, claim, attempts FROM fastjobs_jobs")
        if what == _PUSHED:
            # The caller was told that it may not be there.
            assert rows == ([(0, 0, 0)] if kept else [])
        elif what == _CLAIMED:
            assert rows == [(1, 1, 1) if kept else (0, 0, 0)]
            # What nobody has had the answer of is held, and comes again once its hold is over.
            assert len(await _claim(store)) == (0 if kept else 1)
            clock.advance(61)
            assert [each.attempts for each in await _claim(store)] == [2]
        else:
            assert rows == ([] if kept else [(1, 1, 1)])
            assert job is not None
            assert await store.mark([Done(job.id, job.claim)]) == [Kept.LOST if kept else Kept.YES]
        await store.close()


async def test_a_server_that_falls_silent_keeps_no_stop(
    driver: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_loop, "LEFT", 0.1)
    with Proxy(database.server.port) as proxy:
        store = SQLStore(engine_of(proxy.url(database.url(driver))))
        await store.open(["mail"])
        proxy.hang()
        calls: list[asyncio.Task[Any]] = [
            asyncio.create_task(_push(store, "1")),
            asyncio.create_task(_claim(store)),
        ]
        await asyncio.sleep(0)
        async with asyncio.timeout(2):
            await store.close()
        ended: list[Any] = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(each, (*BROKEN, asyncio.CancelledError)) for each in ended)
        # Nor does one that never got a connection.
        other = SQLStore(engine_of(proxy.url(database.url(driver))))
        opening = asyncio.create_task(other.open(["mail"]))
        await _until(lambda: proxy.connections > 0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        async with asyncio.timeout(2):
            await other.close()
        proxy.heal()
        assert await _push(other, "2")
        await other.close()


async def test_a_server_that_was_started_again_is_connected_to_again(
    make_mariadb: Callable[..., Server], caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    server = make_mariadb()
    database = server.create_database()
    stores = [store_of(database, driver) for driver in DRIVERS]
    for mode in ("fast", "immediate"):
        for store in stores:
            await store.open(["mail"])
            await _push(store, "1")
        await asyncio.to_thread(server.stop, mode)
        for store in stores:
            with pytest.raises(BROKEN):
                await _push(store, "2")
        await asyncio.to_thread(server.start)
        for store in stores:
            await _push(store, "3")
    for store in stores:
        await store.close()
    payloads = database.execute("SELECT payload FROM fastjobs_jobs ORDER BY id")
    assert [payload for (payload,) in payloads] == ["1"] * 3 + ["3"] * 3 + ["1"] * 3 + ["3"] * 3
    gc.collect()
    # The drivers print, warn and log of themselves.
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []
