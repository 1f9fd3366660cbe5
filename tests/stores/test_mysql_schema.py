"""The tables on MariaDB and MySQL, where each statement commits: who may make them, what several who make them at once
leave, and what one leaves who is killed as it does."""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any, cast

import pytest
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from fastjobs.core.claiming import Claimable
from fastjobs.core.errors import StoreError
from fastjobs.core.job import NewJob
from fastjobs.core.marks import Done, Fail, Kept, Mark
from fastjobs.stores.sql import migrations
from fastjobs.stores.sql.dialects.mysql.statements import Statements, make_statements
from fastjobs.stores.sql.dialects.mysql.steps import Step, Steps, through
from fastjobs.stores.sql.store import SQLStore
from fastjobs.stores.sql.tables import Tables, make_tables
from tests.databases.mysql import Database, Server

pytestmark = pytest.mark.anyio

TABLES = ["jobs", "kinds", "names", "schedules", "schema", "slots", "throttles"]
_WAITS = (
    "SELECT 1 FROM information_schema.processlist WHERE info LIKE '%GET_LOCK(%' AND id <> CONNECTION_ID()"
)
Hear = Callable[[str], None]


@pytest.fixture
def database(mysql_database: Database) -> Database:
    return mysql_database


@pytest.fixture
def engine(database: Database) -> Iterator[Engine]:
    engine = create_engine(database.url("pymysql"), poolclass=NullPool)
    yield engine
    engine.dispose()


@pytest.fixture
def bare(database: Database) -> Iterator[Engine]:
    """An engine of a user that has no right but to connect."""
    database.execute("DROP USER IF EXISTS bare")
    database.execute("CREATE USER bare")
    # MySQL lets nobody into a database without a right on something in it.
    database.execute("CREATE TABLE door (id INT)")
    database.execute("GRANT SELECT ON door TO bare")
    engine = create_engine(database.url("pymysql", user="bare"), poolclass=NullPool)
    yield engine
    engine.dispose()
    database.execute("DROP USER bare")


def tables_of(engine: Engine, prefix: str = "fastjobs_", schema: str | None = None) -> Tables:
    return make_tables(prefix, schema, dialect=engine.dialect.name)


def everything(database: Database, schema: str | None = None) -> list[str]:
    """All tables as the server would make them again."""
    within = schema or database.name
    with contextlib.closing(database.server.connect(within, user="root")) as connection:
        cursor = connection.cursor()
        cursor.execute("SHOW TABLES")
        made: list[str] = []
        for (name,) in cursor.fetchall():
            cursor.execute(f"SHOW CREATE TABLE `{name}`")
            made += [re.sub(r" AUTO_INCREMENT=\d+", "", str(row[1])) for row in cursor.fetchall()]
    return made


def drop_all(database: Database, schema: str | None = None) -> None:
    within = schema or database.name
    database.execute(f"DROP TABLE IF EXISTS {', '.join(f'{within}.fastjobs_{name}' for name in TABLES)}")


def migrate(engine: Engine, tables: Tables | None = None) -> None:
    with engine.begin() as connection:
        migrations.migrate(connection, tables or tables_of(engine))


def before_each(engine: Engine, hear: Hear) -> None:
    @event.listens_for(engine, "before_cursor_execute")
    def _(connection: object, cursor: object, statement: str, *_: object) -> None:
        hear(statement.strip())


async def runs_a_job(store: SQLStore, kind: str = "mail") -> None:
    """Pushes, claims and marks: by a key, a name and none."""
    await store.open([kind])
    try:
        new = [
            NewJob(kind=kind, payload="1"),
            NewJob(kind=kind, payload="2", key=b"k" * 32, one_at_a_time=True),
            NewJob(kind=kind, payload="3", name="a name", keep_name=1_000_000),
        ]
        ids = [*await store.push(new[:1]), *await store.push(new[1:2]), *await store.push(new[2:])]
        jobs = (await store.claim([Claimable(kind=kind, hold=60_000_000, attempts=5)], 5)).jobs
        assert [job.id for job in jobs] == ids
        marks: list[Mark] = [
            Done(jobs[0].id, jobs[0].claim),
            Fail(jobs[1].id, jobs[1].claim, "no"),
            Done(jobs[2].id, jobs[2].claim),
        ]
        assert await store.mark(marks) == [Kept.YES] * 3
        assert [job.id for job in await store.failed()] == ids[1:2]
        assert await store.delete([jobs[1].id]) == [True]
    finally:
        await store.close()


def test_of_many_who_make_the_tables_at_once_one_does(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fastjobs")
    start = threading.Barrier(8)
    errors: list[BaseException] = []

    def instance() -> None:
        engine = create_engine(database.url("pymysql"), poolclass=NullPool)

        # All have seen that there are none before one makes them.
        def wait(statement: str) -> None:
            if statement.startswith("SELECT GET_LOCK"):
                start.wait(20)

        before_each(engine, wait)
        try:
            migrate(engine)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=instance) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert errors == []
    assert database.execute("SELECT * FROM fastjobs_schema") == [(1, migrations.latest())]
    assert [record.getMessage() for record in caplog.records] == ["made the tables fastjobs_*, version 1"]


def test_what_one_leaves_who_is_killed_at_any_statement_the_next_makes_whole(
    database: Database, engine: Engine
) -> None:
    said: list[str] = []
    before_each(engine, said.append)
    migrate(engine)
    whole = everything(database)
    changes = [n for n, each in enumerate(said) if each.startswith(("CREATE", "INSERT"))]
    assert len(changes) == len(TABLES) + 6 + 1
    # All of them are tried in a second or two, where nobody else has the machine: here the first, some, and the last.
    for at in (*changes[::4], changes[-1]):
        drop_all(database)
        heard: list[str] = []

        def kill(statement: str, at: int = at, heard: list[str] = heard) -> None:
            heard.append(statement)
            if len(heard) == at + 1:
                database.terminate_all()

        mortal = create_engine(database.url("pymysql"), poolclass=NullPool)
        before_each(mortal, kill)
        with pytest.raises(DBAPIError):
            migrate(mortal)
        assert heard == said[: at + 1]
        with engine.connect() as connection, pytest.raises(StoreError, match="has no tables with the prefix"):
            migrations.check(connection, tables_of(engine))
        migrate(engine)
        assert everything(database) == whole
        assert database.execute("SELECT * FROM fastjobs_schema") == [(1, migrations.latest())]


def test_one_is_killed_while_another_waits_for_it_and_that_one_makes_them(
    database: Database, engine: Engine
) -> None:
    held = threading.Event()
    go_on = threading.Event()
    mortal = create_engine(database.url("pymysql"), poolclass=NullPool)

    def stop(statement: str) -> None:
        if statement.startswith("CREATE TABLE fastjobs_kinds"):
            held.set()
            assert go_on.wait(20)

    def first() -> None:
        with contextlib.suppress(DBAPIError):
            migrate(mortal)

    def second() -> None:
        migrate(engine)

    before_each(mortal, stop)
    one, two = threading.Thread(target=first), threading.Thread(target=second)
    one.start()
    assert held.wait(20)
    two.start()
    until(lambda: bool(database.execute(_WAITS)))
    (asleep,) = database.execute(
        "SELECT id FROM information_schema.processlist WHERE command = 'Sleep' AND db = %s", [database.name]
    )
    database.execute(f"KILL {asleep[0]}")
    two.join(20)
    go_on.set()
    one.join(20)
    assert database.execute("SELECT * FROM fastjobs_schema") == [(1, migrations.latest())]


def test_to_make_them_again_changes_nothing(database: Database, engine: Engine) -> None:
    migrate(engine)
    made = everything(database)
    migrate(engine)
    assert everything(database) == made


def test_each_step_is_kept_by_itself_and_one_that_was_killed_goes_on_where_it_was(
    database: Database, engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    migrate(engine)
    was_killed = False

    def add_a(connection: Connection, tables: Tables) -> None:
        connection.execute(text("ALTER TABLE fastjobs_kinds ADD COLUMN a INT"))

    def add_b(connection: Connection, tables: Tables) -> None:
        nonlocal was_killed
        if not was_killed:
            was_killed = True
            database.terminate_all()
        connection.execute(text("ALTER TABLE fastjobs_kinds ADD COLUMN b INT"))

    monkeypatch.setattr(migrations, "STEPS", {2: add_a, 3: add_b})
    with pytest.raises(DBAPIError):
        migrate(engine)
    assert database.execute("SELECT version FROM fastjobs_schema") == [(2,)]
    with (
        engine.connect() as connection,
        pytest.raises(StoreError, match="of version 2, and this fastjobs needs version 3"),
    ):
        migrations.check(connection, tables_of(engine))
    caplog.set_level(logging.INFO, "fastjobs")
    migrate(engine)
    assert caplog.messages == ["upgraded the tables fastjobs_* from version 2 to 3"]
    assert database.execute("SELECT version FROM fastjobs_schema") == [(3,)]
    assert {"a", "b"} <= {row[0] for row in database.execute("SHOW COLUMNS FROM fastjobs_kinds")}


@pytest.mark.parametrize("schema", [None, "test_own"])
def test_the_ddl_that_is_printed_makes_what_is_made(
    database: Database, engine: Engine, schema: str | None
) -> None:
    tables = tables_of(engine, schema=schema)
    with own_database(database, schema):
        migrate(engine, tables)
        made = everything(database, schema)
        assert len(made) == len(TABLES)
        drop_all(database, schema)
        with engine.begin() as connection:
            for statement in migrations.ddl(tables, engine.dialect.name):
                connection.exec_driver_sql(statement)
        assert everything(database, schema) == made
        with engine.begin() as connection:
            migrations.check(connection, tables)


@contextlib.contextmanager
def own_database(database: Database, name: str | None) -> Generator[None]:
    if name is not None:
        database.server.create_database(name)
    try:
        yield
    finally:
        if name is not None:
            database.server.drop_database(name)


async def test_tables_in_another_database_of_the_server_and_with_another_prefix_are_a_queues_of_their_own(
    database: Database,
) -> None:
    with own_database(database, "test_own"):
        engine = create_async_engine(database.url("asyncmy"), poolclass=NullPool)
        for prefix, schema in (
            ("fastjobs_", "test_own"),
            ("other_", "test_own"),
            ("other_", None),
            ("fastjobs_", None),
        ):
            store = SQLStore(engine, prefix=prefix, schema=schema)
            await runs_a_job(store)
            found = [each for each in await store.examine(["mail"]) if each.check in ("tables", "plan")]
            assert [each.level for each in found] == ["ok"] * len(found)
            async with engine.begin() as tx:
                (id,) = await pushed(store.within(tx, lambda: None).push([NewJob(kind="mail", payload="1")]))
            assert id == "4", "each has tables of its own"
            await store.close()
        await engine.dispose()


def test_a_database_that_is_not_there_is_named(engine: Engine) -> None:
    with pytest.raises(StoreError, match=r"no database 'test_none'.*CREATE DATABASE"):
        migrate(engine, tables_of(engine, schema="test_none"))


async def test_an_engine_without_a_database_is_told(database: Database) -> None:
    url = database.url("pymysql").rpartition("/")[0]
    with pytest.raises(StoreError, match="names no database"):
        await SQLStore(create_engine(f"{url}/", poolclass=NullPool)).open()
    store = SQLStore(create_engine(f"{url}/", poolclass=NullPool), schema=database.name)
    await runs_a_job(store)


async def test_a_user_with_rights_on_the_rows_alone_has_all_it_needs(
    database: Database, engine: Engine, bare: Engine
) -> None:
    migrate(engine)
    for name in TABLES:
        database.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON fastjobs_{name} TO bare")
    store = SQLStore(bare)
    await runs_a_job(store)
    await store.open()
    found = await store.examine(["mail"])
    assert [each.check for each in found if each.level == "wrong"] == ["durability"], (
        "as of all the tests' servers"
    )
    with Session(bare) as session:
        store.within(session, lambda: None).push([NewJob(kind="new", payload="1")])
        session.commit()
    assert await store.sweep() == 0
    await store.prune(0, 100)
    await store.close()


async def test_a_user_who_may_not_make_the_tables_is_told_what_to_grant(
    database: Database, bare: Engine
) -> None:
    database.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {database.name}.* TO bare")
    with pytest.raises(StoreError, match="GRANT it CREATE, ALTER and INDEX on the database"):
        await SQLStore(bare).open()
    with pytest.raises(StoreError, match="has no tables with the prefix"):
        await SQLStore(bare, migrate=False).open()
    database.execute(f"GRANT CREATE ON {database.name}.* TO bare")
    with pytest.raises(StoreError, match="GRANT it CREATE, ALTER and INDEX on the database"):
        await SQLStore(bare).open()
    database.execute(f"GRANT INDEX ON {database.name}.* TO bare")
    await runs_a_job(SQLStore(bare))


def test_a_user_who_may_not_read_the_tables_is_told_what_to_grant(engine: Engine, bare: Engine) -> None:
    migrate(engine)
    with pytest.raises(StoreError, match="GRANT it SELECT, INSERT, UPDATE and DELETE"):
        migrate(bare)


@pytest.mark.parametrize(
    "foreign",
    [
        "CREATE TABLE fastjobs_jobs (id INT)",
        "CREATE TABLE fastjobs_throttles (id INT)",
        "CREATE TABLE fastjobs_schema (id INT)",
        "CREATE VIEW fastjobs_kinds AS SELECT 1 AS kind",
    ],
)
def test_what_has_the_name_of_a_table_of_the_queues_and_is_none_is_refused(
    database: Database, engine: Engine, foreign: str
) -> None:
    database.execute(foreign)
    with pytest.raises(StoreError, match="something by the name of the queue's already"):
        migrate(engine)
    with pytest.raises(StoreError, match="something by the name of the queue's already"):
        migrate(engine)
    migrate(engine, tables_of(engine, "mine_"))


def test_newer_tables_are_left_as_they_are(database: Database, engine: Engine) -> None:
    migrate(engine)
    database.execute("UPDATE fastjobs_schema SET version = 99")
    migrate(engine)
    assert database.execute("SELECT version FROM fastjobs_schema") == [(99,)]


async def test_no_collation_or_row_format_of_the_server_or_the_database_gets_into_the_tables(
    make_mysql_server: Callable[..., Server],
) -> None:
    server = make_mysql_server(
        character_set_server="latin1",
        default_storage_engine="MyISAM",
        innodb_default_row_format="COMPACT",
        sql_mode="ANSI,TRADITIONAL,NO_BACKSLASH_ESCAPES,ONLY_FULL_GROUP_BY",
    )
    database = server.create_database()
    store = SQLStore(create_async_engine(database.url("asyncmy"), poolclass=NullPool))
    await runs_a_job(store)
    rows = database.execute(
        "SELECT DISTINCT engine, row_format, table_collation FROM information_schema.tables"
        " WHERE table_schema = DATABASE()"
    )
    assert rows == [("InnoDB", "Dynamic", "utf8mb4_bin")]


# The first push of all, in the app's transaction.


@pytest.mark.parametrize("level", ["REPEATABLE READ", "READ COMMITTED", "SERIALIZABLE"])
async def test_the_first_push_in_a_transaction_commits_nothing_of_the_apps_and_its_job_shares_its_fate(
    database: Database, level: Any
) -> None:
    new = [
        NewJob(kind="mail", payload="1"),
        NewJob(kind="mail", payload="2", key=b"k" * 32),
        NewJob(kind="mail", payload="3", key=b"l" * 32, latest=True),
        NewJob(kind="mail", payload="4", name="a name", keep_name=1_000_000),
    ]
    for ends in ("rollback", "commit"):
        drop_all(database)
        database.execute("DROP TABLE IF EXISTS orders")
        database.execute("CREATE TABLE orders (id INT PRIMARY KEY)")
        engine = create_engine(database.url("pymysql"), isolation_level=level)
        store = SQLStore(engine)
        with Session(engine) as session:
            # It reads as of now where it's REPEATABLE READ: the tables are made later.
            session.execute(text("SELECT * FROM orders")).all()
            session.execute(text("INSERT INTO orders VALUES (1)"))
            for each in new:
                (id,) = cast("list[str]", store.within(session, lambda: None).push([each]))
                assert id is not None
            assert rows(database) == (0, 0), "nothing is committed"
            session.commit() if ends == "commit" else session.rollback()
        assert rows(database) == ((1, len(new)) if ends == "commit" else (0, 0))
        assert database.execute("SELECT version FROM fastjobs_schema") == [(migrations.latest(),)]
        engine.dispose()


async def test_a_transaction_that_reads_as_of_before_the_tables_is_told_so_and_goes_on(
    database: Database, engine: Engine
) -> None:
    database.execute("CREATE TABLE orders (id INT PRIMARY KEY)")
    with engine.connect() as tx:
        tx.execute(text("SELECT * FROM orders")).all()
        tx.execute(text("INSERT INTO orders VALUES (1)"))
        store = SQLStore(engine)
        await store.open(["mail"])
        await store.close()
        texts = make_statements(tables_of(engine))
        with pytest.raises(StoreError, match="roll it back and do it once more"):
            through(tx, _known_kinds(texts))
        tx.commit()
    assert rows(database) == (1, 0)


def _known_kinds(texts: Statements) -> Steps[object]:
    return (yield Step(texts.known_kinds)).rows


async def test_a_first_push_that_can_have_no_connection_of_the_queues_own_is_told_to_open_the_store(
    database: Database,
) -> None:
    database.execute("CREATE TABLE orders (id INT PRIMARY KEY)")
    sync = create_engine(database.url("pymysql"))
    store = SQLStore(create_async_engine(database.url("asyncmy")))
    with sync.begin() as tx:
        tx.execute(text("INSERT INTO orders VALUES (1)"))
        with pytest.raises(StoreError, match="open the store before the first push"):
            store.within(tx, lambda: None).push([NewJob(kind="mail", payload="1")])
        assert database.execute("SELECT COUNT(*) FROM orders") == [(0,)]
    assert database.execute("SELECT COUNT(*) FROM orders") == [(1,)]
    await store.open()
    await store.close()
    with sync.begin() as tx:
        store.within(tx, lambda: None).push([NewJob(kind="mail", payload="1")])
    assert rows(database) == (1, 1)
    sync.dispose()


async def pushed(asked: Any) -> list[str | None]:
    """What is answered by a push through an async connection."""
    return cast("list[str | None]", await asked)


def rows(database: Database) -> tuple[int, ...]:
    return tuple(
        database.execute(f"SELECT COUNT(*) FROM {name}")[0][0] for name in ("orders", "fastjobs_jobs")
    )


def until(is_so: Callable[[], bool], tries: int = 2000) -> None:
    for _ in range(tries):
        if is_so():
            return
        threading.Event().wait(0.005)
    raise AssertionError("it never came to be so")
