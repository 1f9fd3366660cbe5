"""Servers and connections that can't hold a queue are refused as it opens: by what they say, and by one that is so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from sqlalchemy import create_engine, event
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from fastjobs.core.errors import StoreError
from fastjobs.core.job import NewJob
from fastjobs.core.marks import Done, Kept
from fastjobs.store import Ender
from fastjobs.stores.sql.dialects.mysql.greeting import Greeting
from fastjobs.stores.sql.dialects.mysql.link import Wire
from fastjobs.stores.sql.dialects.mysql.marks import batches
from fastjobs.stores.sql.dialects.mysql.marks import mark as mark_steps
from fastjobs.stores.sql.dialects.mysql.statements import make_statements
from fastjobs.stores.sql.dialects.mysql.steps import Steps
from fastjobs.stores.sql.migrations import migrate
from fastjobs.stores.sql.store import SQLStore
from fastjobs.stores.sql.tables import make_tables
from fastjobs.testing.suite.subject import SECOND, mark, take
from tests.databases.mysql import Server

pytestmark = pytest.mark.anyio

GOOD = Greeting(
    pid=1,
    version="10.11.6-MariaDB",
    packet=1 << 24,
    step=1,
    database="app",
    charset="utf8mb4",
    is_galera=False,
)


@pytest.mark.parametrize(
    ("version", "product", "release"),
    [
        ("10.6.0-MariaDB", "MariaDB", (10, 6)),
        ("5.5.5-10.11.6-MariaDB-0+deb12u1", "MariaDB", (10, 11)),
        ("11.8.2-MariaDB-ubu2404-log", "MariaDB", (11, 8)),
        ("8.0.11", "MySQL", (8, 0)),
        ("8.4.3-3", "MySQL", (8, 4)),
        ("9.7.4-2", "MySQL", (9, 7)),
    ],
)
def test_servers_that_are_new_enough_are_taken(version: str, product: str, release: tuple[int, int]) -> None:
    greeting = GOOD._replace(version=version)
    greeting.check()
    assert (greeting.product, greeting.release) == (product, release)


@pytest.mark.parametrize(
    ("version", "told"),
    [
        ("10.5.28-MariaDB", "the server is MariaDB 10.5.28-MariaDB, and the queue needs 10.6 or newer"),
        ("5.5.5-10.3.39-MariaDB-log", r"the server is MariaDB .*, and the queue needs 10.6 or newer"),
        ("5.5.68-MariaDB", "and the queue needs 10.6 or newer"),
        ("5.7.44-log", "the server is MySQL 5.7.44-log, and the queue needs 8.0 or newer"),
        ("unheard of", "and the queue needs 8.0 or newer"),
    ],
)
def test_one_that_is_too_old_is_refused(version: str, told: str) -> None:
    with pytest.raises(StoreError, match=told):
        GOOD._replace(version=version).check()


@pytest.mark.parametrize("charset", ["latin1", "utf8mb3", "utf8", "ascii"])
def test_a_connection_that_lacks_characters_is_refused(charset: str) -> None:
    with pytest.raises(StoreError, match=rf"connections speak {charset}.*\?charset=utf8mb4"):
        GOOD._replace(charset=charset).check()


def test_a_node_of_a_cluster_is_refused() -> None:
    with pytest.raises(StoreError, match="Galera"):
        GOOD._replace(is_galera=True).check()


async def test_a_server_that_says_it_is_in_a_cluster_is_refused_as_the_store_opens_and_told_of(
    make_mariadb: Callable[..., Server],
) -> None:
    server = make_mariadb(
        wsrep_on="ON", wsrep_provider="none", wsrep_cluster_address="gcomm://", binlog_format="ROW"
    )
    database = server.create_database()
    store = SQLStore(create_async_engine(database.url("asyncmy"), poolclass=NullPool))
    with pytest.raises(StoreError, match="Galera"):
        await store.open()
    assert database.execute("SHOW TABLES") == []
    found = [each for each in await store.examine() if each.check == "version"]
    assert [each.level for each in found] == ["wrong"]
    assert "Galera" in found[0].said
    # Built so, and not switched on.
    server.execute("SET GLOBAL wsrep_on = OFF")
    await store.open()
    await store.close()


async def test_an_engine_whose_connections_speak_another_charset_is_refused(mariadb: Server) -> None:
    database = mariadb.create_database()
    url = database.url("pymysql")
    with pytest.raises(StoreError, match="charset=latin1"):
        SQLStore(create_engine(f"{url}&charset=latin1"))
    engine = create_engine(url, poolclass=NullPool)

    @event.listens_for(engine, "connect")
    def _(connection: Any, record: object) -> None:
        cursor = connection.cursor()
        cursor.execute("SET NAMES latin1")
        cursor.close()

    with pytest.raises(StoreError, match="connections speak latin1"):
        await SQLStore(engine).open()
    database.drop()


@pytest.mark.parametrize(
    "setting",
    [
        "completion_type = 1",
        "sql_select_limit = 1",
        "sql_safe_updates = 1",
        "max_join_size = 1, sql_big_selects = 0",
    ],
)
async def test_what_an_app_sets_for_its_connections_changes_nothing_of_what_is_kept(
    mysql_server: Server, setting: str
) -> None:
    database = mysql_server.create_database()
    engine = create_async_engine(database.url("asyncmy"))

    @event.listens_for(engine.sync_engine, "connect")
    def _(connection: Any, record: object) -> None:
        cursor = connection.cursor()
        cursor.execute(f"SET SESSION {setting}")
        cursor.close()

    store = SQLStore(engine)
    await store.open(["mail"])
    await store.push([NewJob("mail", "1", name="a", keep_name=SECOND), NewJob("mail", "2")])
    await store.push([NewJob("mail", "3")])
    # Another connection sees it, so it's committed.
    assert database.execute("SELECT COUNT(*) FROM fastjobs_jobs") == [(3,)]
    one, two, three = await take(store)
    assert await mark(store, Done(one.id, one.claim), Done(two.id, two.claim)) == [Kept.YES] * 2
    async with engine.begin() as tx:
        assert await cast("Ender", store.done_within(tx, three)).done()
    assert database.execute("SELECT COUNT(*) FROM fastjobs_jobs") == [(0,)]
    await store.close()
    await engine.dispose()
    database.drop()


def test_a_thousand_marks_of_a_small_table_lock_no_others_rows(mysql_server: Server) -> None:
    database = mysql_server.create_database()
    engine = create_engine(database.url("pymysql"), poolclass=NullPool)
    tables = make_tables(dialect=engine.dialect.name)
    with engine.connect() as connection:
        migrate(connection, tables)
    wire = Wire(engine)
    rows = ", ".join(f"('mail', '1', {n})" for n in range(1_100))
    database.execute(f"INSERT INTO fastjobs_jobs (kind, payload, run_at) VALUES {rows}")
    database.execute("ANALYZE TABLE fastjobs_jobs")

    def marked() -> Steps[int]:
        (batch,) = batches([Done(f"{n}", 1) for n in range(1, 1_001)])
        yield from mark_steps(make_statements(tables), batch, 0)
        free = "SELECT id FROM fastjobs_jobs FORCE INDEX (PRIMARY) WHERE id > 1000 FOR UPDATE SKIP LOCKED"
        return len(database.execute(free))

    assert wire.transact(marked()) == 100
    wire.close()
    database.drop()
