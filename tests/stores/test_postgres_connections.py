"""The store's own connections to Postgres: how many, how they are opened, and what becomes of them when things end."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import types
import warnings
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from fastjobs.core.claiming import Claimable
from fastjobs.core.errors import StoreError
from fastjobs.core.job import Job, NewJob
from fastjobs.core.marks import Done, Kept
from fastjobs.stores.sql.dialects.postgres.database import Postgres
from fastjobs.stores.sql.dialects.postgres.links import Greeting
from fastjobs.stores.sql.server import on_loop
from fastjobs.stores.sql.store import SQLStore
from fastjobs.testing import Clock
from tests.databases.pgbouncer import PgBouncer
from tests.databases.postgres import Database
from tests.stores.test_postgres_gathering import DRIVERS, engine_of, locked, until_blocked

pytestmark = pytest.mark.anyio


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def store(driver: str, postgres_database: Database) -> AsyncIterator[SQLStore]:
    store = SQLStore(engine_of(postgres_database, driver), clock=Clock())
    await store.open(["mail"])
    yield store
    await store.close()


async def _push(store: SQLStore, *payloads: str) -> list[str | None]:
    return await store.push([NewJob(kind="mail", payload=each) for each in payloads])


async def _claim(store: SQLStore) -> list[Job]:
    return (await store.claim([Claimable(kind="mail", hold=60_000_000, attempts=5)], 100)).jobs


def _connections(database: Database) -> int:
    ((count,),) = database.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND usename = 'app'"
    )
    return int(count)


async def _until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not await asyncio.to_thread(what):
            await asyncio.sleep(0.01)


def _sleep(connection: Connection) -> None:
    connection.execute(text("SELECT pg_sleep(30)"))


async def _until_asleep(database: Database, count: int = 1) -> list[int]:
    async with asyncio.timeout(10):
        while True:
            found = await asyncio.to_thread(
                database.execute,
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'",
            )
            if len(found) >= count:
                return [int(pid) for (pid,) in found]
            await asyncio.sleep(0.01)


# How many


async def test_two_connections_serve_all_calls(store: SQLStore, postgres_database: Database) -> None:
    most = 0

    def look(connection: Connection) -> None:
        nonlocal most
        connection.execute(text("SELECT pg_sleep(0.02)"))
        most = max(most, _connections(postgres_database))

    await asyncio.gather(
        *(store._database.run(look) for _ in range(10)), *(_push(store, "1") for _ in range(5))
    )
    assert most == 2
    assert _connections(postgres_database) == 2


async def test_a_store_connects_to_nothing_until_it_is_used(driver: str, postgres_database: Database) -> None:
    store = SQLStore(engine_of(postgres_database, driver))
    assert _connections(postgres_database) == 0
    await store.close()


async def test_a_closed_store_has_no_connection(store: SQLStore, postgres_database: Database) -> None:
    async with store.listen(lambda: None):
        await _push(store, "1")
        assert _connections(postgres_database) >= 2
    await store.close()
    await _until(lambda: _connections(postgres_database) == 0)


def test_a_script_that_opens_nothing_leaves_no_connection(driver: str, postgres_database: Database) -> None:
    store = SQLStore(engine_of(postgres_database, driver))

    async def push() -> int:
        await _push(store, "1")
        return _connections(postgres_database)

    for _ in range(3):
        assert asyncio.run(push()) == 1
    asyncio.run(_until(lambda: _connections(postgres_database) == 0))
    assert len(asyncio.run(_claim(store))) == 3


def test_a_loop_that_is_closed_without_its_end_leaves_no_connection(
    driver: str, postgres_database: Database
) -> None:
    store = SQLStore(engine_of(postgres_database, driver))
    loop = asyncio.new_event_loop()
    loop.run_until_complete(_push(store, "1"))
    loop.close()
    with warnings.catch_warnings(record=True, action="always") as left_open:
        assert len(asyncio.run(_claim(store))) == 1
        del loop
        asyncio.run(_until(lambda: _connections(postgres_database) == 0))
        gc.collect()  # what that loop had says so as it goes, and is not to in another test
    if driver != "asyncpg":  # whose transport nobody can close without its loop
        assert not [str(each.message) for each in left_open]


# Of its tasks, which nobody can end any more.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_loop_that_is_closed_while_its_store_listens_leaves_no_connection(
    driver: str, postgres_database: Database
) -> None:
    store = SQLStore(engine_of(postgres_database, driver))
    loop = asyncio.new_event_loop()
    listening = store.listen(lambda: None)
    loop.run_until_complete(listening.__aenter__())
    assert _connections(postgres_database) >= 1
    loop.close()
    with warnings.catch_warnings(action="ignore"):
        asyncio.run(_push(store, "1"))
        del loop, listening
        gc.collect()
        asyncio.run(_until(lambda: _connections(postgres_database) == 0))


def test_a_store_is_used_on_one_loop_after_the_other_and_on_two_at_once(
    driver: str, postgres_database: Database
) -> None:
    store = SQLStore(engine_of(postgres_database, driver))

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
def test_a_fork_never_uses_its_parents_connections(driver: str, postgres_database: Database) -> None:
    store = SQLStore(engine_of(postgres_database, driver))
    database = store._database
    assert isinstance(database, Postgres)

    async def in_child() -> None:
        await _push(store, "child")
        # Also what it merely knew of the parent's it might end, as it tidies up.
        assert list(database._heres) == [asyncio.get_running_loop()]

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


@pytest.mark.parametrize("default", ["read committed", "repeatable read", "serializable"])
async def test_the_queue_works_at_read_committed_whatever_the_server_has_as_default(
    driver: str, postgres_database: Database, default: str
) -> None:
    name = postgres_database.name
    postgres_database.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = '{default}'")
    store = SQLStore(engine_of(postgres_database, driver))
    assert await _levels(store) == {"read committed"}
    await store.close()


async def test_the_queue_works_at_read_committed_over_a_serializable_engine(
    driver: str, postgres_database: Database
) -> None:
    store = SQLStore(engine_of(postgres_database, driver, isolation_level="SERIALIZABLE"))
    assert await _levels(store) == {"read committed"}
    await store.close()


async def _levels(store: SQLStore) -> set[str]:
    await store.open()
    database = store._database
    assert isinstance(database, Postgres)

    async def level(link: Any) -> str:
        ((found,),) = await link.fetch("SELECT current_setting('transaction_isolation')")
        return str(found)

    def core(connection: Connection) -> str:
        return str(connection.execute(text("SHOW transaction_isolation")).scalar_one())

    here = database._here().on_loop
    return {
        await here.use(level),
        await store._database.run(core),
        await here.use(level),
    }


async def test_the_apps_connect_listeners_are_called_and_its_begin_listeners_are_not(
    driver: str, postgres_database: Database
) -> None:
    engine = engine_of(postgres_database, driver)
    sync_engine = engine.sync_engine if isinstance(engine, AsyncEngine) else engine
    heard: list[str] = []
    for each in ("do_connect", "connect", "begin", "before_cursor_execute"):
        event.listen(sync_engine, each, _noting(heard, each))
    store = SQLStore(engine)
    await _push(store, "1")
    await store.failed()
    await store.close()
    assert set(heard) == {"do_connect", "connect"}
    assert sync_engine.pool.status() == "NullPool"


def _noting(heard: list[str], what: str) -> Callable[..., None]:
    def note(*_: object) -> None:
        heard.append(what)

    return note


async def test_a_queue_in_a_schema_relies_on_no_search_path(driver: str, postgres_database: Database) -> None:
    postgres_database.execute("CREATE SCHEMA away AUTHORIZATION app")
    store = SQLStore(engine_of(postgres_database, driver), schema="away", prefix="mine_", clock=Clock())
    await _push(store, "1")
    await _push(store, "2", "3")
    one, *_ = await _claim(store)
    assert await store.mark([Done(one.id, one.claim)]) == [Kept.YES]
    assert await store.failed() == []
    ((count,),) = postgres_database.execute("SELECT count(*) FROM away.mine_jobs")
    assert count == 2
    await store.close()


@pytest.mark.parametrize("driver_name", ["psycopg2", "pg8000"])
def test_another_driver_is_refused_with_the_url_to_write(
    driver_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dbapi: Any = types.ModuleType(driver_name)
    dbapi.__version__, dbapi.paramstyle = "2.9.9", "pyformat"
    dbapi.extras = types.ModuleType(f"{driver_name}.extras")
    for module in (dbapi, dbapi.extras):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    engine = create_engine(f"postgresql+{driver_name}://app@localhost/app", module=dbapi)
    with pytest.raises(StoreError, match=rf"{driver_name}.*postgresql\+asyncpg://"):
        SQLStore(engine)


def test_synchronous_is_refused() -> None:
    with pytest.raises(StoreError, match="synchronous"):
        SQLStore(create_engine("postgresql+psycopg://app@localhost/app"), synchronous="NORMAL")


def test_a_server_that_is_too_old_is_refused() -> None:
    with pytest.raises(StoreError, match="the server is Postgres 12, and the queue needs 13"):
        Greeting(1, 120_017, "read committed").check()
    Greeting(1, 130_000, "read committed").check()


def test_the_store_is_imported_without_a_driver() -> None:
    code = "import fastjobs.stores.sql.store, sys; print(*(n for n in ('asyncpg', 'psycopg') if n in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == []


# What becomes of them


async def test_a_connection_that_was_closed_while_idle_is_noticed_before_its_use(
    store: SQLStore, postgres_database: Database
) -> None:
    await asyncio.gather(*(_push(store, "1") for _ in range(4)), _claim(store), _claim(store))
    assert postgres_database.terminate_all()
    await _until(lambda: _connections(postgres_database) == 0)
    await _push(store, "2")
    await store.failed()


async def test_a_call_whose_connection_is_killed_raises_and_the_next_works(
    store: SQLStore, postgres_database: Database
) -> None:
    call = asyncio.create_task(store._database.run(_sleep))
    (pid,) = await _until_asleep(postgres_database)
    postgres_database.execute("SELECT pg_terminate_backend(%s)", [pid])
    with pytest.raises(DBAPIError):
        await call
    assert await _push(store, "1")
    await store.failed()
    assert [job.payload for job in await _claim(store)] == ["1"]


async def test_a_claim_whose_caller_is_cancelled_gives_its_jobs_back(
    store: SQLStore, postgres_database: Database
) -> None:
    await _push(store, "1", "2")
    with locked(postgres_database):
        claim = asyncio.create_task(_claim(store))
        await until_blocked(postgres_database)
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
    store: SQLStore, postgres_database: Database
) -> None:
    def sleep(connection: Connection) -> None:
        connection.execute(text("SELECT pg_sleep(0.4)"))

    calls = [asyncio.create_task(store._database.run(sleep)) for _ in range(4)]
    await _until_asleep(postgres_database, 2)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert all(call.cancelled() for call in calls)
    async with asyncio.timeout(10):
        await asyncio.gather(*(_push(store, str(n)) for n in range(4)), store.failed())
    assert len(await _claim(store)) == 4


async def test_a_call_that_nobody_waits_for_and_that_never_ends_is_cut(
    store: SQLStore, postgres_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_loop, "LEFT", 0.05)
    calls = [asyncio.create_task(store._database.run(_sleep)) for _ in range(2)]
    await _until_asleep(postgres_database, 2)
    for call in calls:
        call.cancel()
    async with asyncio.timeout(10):
        assert await _push(store, "1")


async def test_a_close_waits_for_what_is_under_way(store: SQLStore, postgres_database: Database) -> None:
    def sleep(connection: Connection) -> str:
        connection.execute(text("SELECT pg_sleep(0.3)"))
        return "done"

    call = asyncio.create_task(store._database.run(sleep))
    await _until_asleep(postgres_database)
    await store.close()
    assert await call == "done"


async def test_a_close_does_not_wait_for_ever(
    store: SQLStore, postgres_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_loop, "LEFT", 0.05)
    call = asyncio.create_task(store._database.run(_sleep))
    await _until_asleep(postgres_database)
    async with asyncio.timeout(10):
        await store.close()
    with pytest.raises((DBAPIError, asyncio.CancelledError)):
        await call


# What the server gives up


@pytest.mark.parametrize("code", ["40001", "40P01"])
async def test_what_the_server_gave_up_for_anothers_sake_is_tried_again(store: SQLStore, code: str) -> None:
    tries = 0

    def work(connection: Connection) -> int:
        nonlocal tries
        tries += 1
        if tries < 3:
            connection.execute(text(f"DO $$ BEGIN RAISE EXCEPTION 'again' USING ERRCODE = '{code}'; END $$"))
        return tries

    assert await store._database.run(work) == 3


async def test_it_is_tried_five_times_at_most(store: SQLStore) -> None:
    tries = 0

    def work(connection: Connection) -> None:
        nonlocal tries
        tries += 1
        connection.execute(text("DO $$ BEGIN RAISE EXCEPTION 'again' USING ERRCODE = '40001'; END $$"))

    with pytest.raises(DBAPIError):
        await store._database.run(work)
    assert tries == 5


async def test_a_statement_that_took_too_long_is_the_callers_to_know(
    store: SQLStore, postgres_database: Database
) -> None:
    tries = 0

    def work(connection: Connection) -> None:
        nonlocal tries
        tries += 1
        connection.execute(text("SET LOCAL statement_timeout = 20"))
        connection.execute(text("SELECT pg_sleep(30)"))

    with pytest.raises(DBAPIError, match="statement timeout"):
        await store._database.run(work)
    assert tries == 1
    assert _connections(postgres_database) == 1, "a connection that the server has answered on was dropped"


# Behind PgBouncer

_BEHIND: dict[str, dict[str, Any]] = {
    "asyncpg": {"connect_args": {"statement_cache_size": 0, "prepared_statement_cache_size": 0}},
    "asyncpg with names": {
        "connect_args": {
            "prepared_statement_name_func": lambda: f"__asyncpg_{os.urandom(8).hex()}__",
            "prepared_statement_cache_size": 0,
            "statement_cache_size": 0,
        }
    },
    "psycopg": {"connect_args": {"prepare_threshold": None}},
}


@pytest.mark.parametrize("driver", _BEHIND)
async def test_the_queue_works_behind_pgbouncer_and_says_that_it_hears_nothing(
    pgbouncer: PgBouncer, postgres_database: Database, driver: str, caplog: pytest.LogCaptureFixture
) -> None:
    url = pgbouncer.url(driver.split()[0], postgres_database.name)
    engine: AsyncEngine = create_async_engine(url, poolclass=NullPool, **_BEHIND[driver])
    store = SQLStore(engine, clock=Clock())
    await store.open(["mail"])
    async with store.listen(lambda: None):
        await asyncio.gather(*(_push(store, str(n)) for n in range(20)), _claim(store), _claim(store))
        for _ in range(10):
            await _push(store, "more")
            for job in await _claim(store):
                assert await store.mark([Done(job.id, job.claim)]) == [Kept.YES]
        async with asyncio.timeout(10):
            while not caplog.messages:
                await asyncio.sleep(0.01)
    assert len(caplog.messages) == 1
    assert "pooler" in caplog.messages[0]
    await store.close()


def test_an_engine_is_left_as_it_was(postgres_database: Database) -> None:
    engine: Engine = create_engine(postgres_database.url("psycopg"))
    store = SQLStore(engine)
    asyncio.run(_push(store, "1"))
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM fastjobs_jobs")).scalar_one() == 1
        assert connection.get_isolation_level() == "READ COMMITTED"
        driver: Any = connection.connection.driver_connection
        assert not driver.autocommit
    engine.dispose()
