"""The tables and functions on Postgres: who may make them, and what several who make them at once leave."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.pool import NullPool

from fastjobs.core.errors import StoreError
from fastjobs.core.marks import Done, Kept
from fastjobs.stores.sql import migrations
from fastjobs.stores.sql.dialects.postgres import functions
from fastjobs.stores.sql.dialects.postgres.function import VERSION
from fastjobs.stores.sql.tables import Tables, make_tables
from tests.databases.postgres import Database
from tests.stores.postgres_link import Hot, connect, make

pytestmark = pytest.mark.anyio

_ALL = """
SELECT 'relation', c.relname::text, c.relkind::text,
  coalesce(pg_get_indexdef(c.oid), '') || coalesce(c.reloptions::text, '')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relkind IN ('r', 'i', 'S')
UNION ALL
SELECT 'column', attrelid::regclass::text, attname,
  format_type(atttypid, atttypmod) || attnotnull::text || attidentity::text
  || attcollation::regcollation::text
FROM pg_attribute JOIN pg_class c ON c.oid = attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relkind = 'r' AND attnum > 0
UNION ALL
SELECT 'function', p.proname::text, '', pg_get_functiondef(p.oid)
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = %s ORDER BY 1, 2, 3
"""


@pytest.fixture
def database(postgres_database: Database) -> Database:
    return postgres_database


@pytest.fixture
def engine(database: Database) -> Iterator[Engine]:
    engine = create_engine(database.url("psycopg"), poolclass=NullPool)
    yield engine
    engine.dispose()


@pytest.fixture
def bare(database: Database) -> Iterator[Engine]:
    """An engine of a role that has no right but to connect, and the right to use the schema public."""
    database.execute("DROP ROLE IF EXISTS bare")
    database.execute("CREATE ROLE bare LOGIN")
    database.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    database.execute("ALTER SCHEMA public OWNER TO app")
    engine = create_engine(database.url("psycopg", user="bare"), poolclass=NullPool)
    yield engine
    engine.dispose()
    database.execute("DROP OWNED BY bare")
    database.execute("DROP ROLE bare")


def everything(database: Database, schema: str = "public") -> list[tuple[object, ...]]:
    return database.execute(_ALL, [schema] * 3)


def migrate(engine: Engine, tables: Tables | None = None) -> None:
    with engine.begin() as connection:
        migrations.migrate(connection, tables or make_tables())


def test_of_many_who_make_the_tables_at_once_one_does(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fastjobs")
    start = threading.Barrier(8)
    errors: list[BaseException] = []

    def instance() -> None:
        engine = create_engine(database.url("psycopg"), poolclass=NullPool)

        # All have seen that there are none before one makes them.
        @event.listens_for(engine, "before_cursor_execute")
        def _(connection: object, cursor: object, statement: str, *_: object) -> None:
            if "pg_advisory_xact_lock" in statement:
                start.wait(20)

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


@pytest.mark.parametrize(
    "where", ["advisory", "fastjobs_kinds", "fastjobs_mark_1", "INSERT INTO fastjobs_schema"]
)
def test_one_that_is_killed_while_it_makes_them_leaves_nothing(
    database: Database, engine: Engine, where: str
) -> None:
    before = everything(database)

    @event.listens_for(engine, "before_cursor_execute")
    def _(connection: object, cursor: object, statement: str, *_: object) -> None:
        if where in statement:
            database.terminate_all()

    with pytest.raises(Exception, match=r"terminat|closed"):
        migrate(engine)
    assert everything(database) == before
    make(database, make_tables())


def test_to_make_them_again_changes_nothing(database: Database, engine: Engine) -> None:
    migrate(engine)
    made = everything(database)
    migrate(engine)
    assert everything(database) == made


@pytest.mark.parametrize("schema", [None, "own"])
def test_the_ddl_that_is_printed_makes_what_is_made(
    database: Database, engine: Engine, schema: str | None
) -> None:
    tables = make_tables(schema=schema)
    if schema:
        database.execute("CREATE SCHEMA own AUTHORIZATION app")
    migrate(engine, tables)
    made = everything(database, schema or "public")
    assert len(made) > 20
    database.execute(f"DROP SCHEMA {schema or 'public'} CASCADE")
    database.execute(f"CREATE SCHEMA {schema or 'public'} AUTHORIZATION app")
    with engine.begin() as connection:
        for statement in migrations.ddl(tables, "postgresql"):
            connection.exec_driver_sql(statement)
    assert everything(database, schema or "public") == made
    with engine.begin() as connection:
        migrations.check(connection, tables)


async def test_tables_in_a_schema_need_no_search_path(database: Database, engine: Engine) -> None:
    database.execute("CREATE SCHEMA own AUTHORIZATION app")
    migrate(engine, make_tables(schema="own"))
    migrate(engine, make_tables("other_", "own"))
    migrate(engine)
    for tables in (make_tables(schema="own"), make_tables("other_", "own"), make_tables()):
        hot = Hot(await connect(database), tables)
        try:
            await hot.push("1", "2")
            one, two = (await hot.claim()).jobs
            assert await hot.mark(Done(one.id, one.claim), Done(two.id, two.claim)) == [Kept.YES] * 2
            assert (one.id, two.id) == ("1", "2"), "each has tables of its own"
        finally:
            await hot.connection.close()


def test_a_schema_that_is_not_there_is_named(engine: Engine) -> None:
    with pytest.raises(StoreError, match=r'no schema "own".*CREATE SCHEMA'):
        migrate(engine, make_tables(schema="own"))


def test_a_search_path_of_nothing_is_told(database: Database, engine: Engine) -> None:
    database.execute(f"ALTER DATABASE {database.name} SET search_path = ''")
    with pytest.raises(StoreError, match="search_path"):
        migrate(engine)


async def test_a_role_with_rights_on_the_rows_alone_has_all_it_needs(
    database: Database, engine: Engine, bare: Engine
) -> None:
    migrate(engine)
    database.execute("REVOKE ALL ON ALL FUNCTIONS IN SCHEMA public FROM PUBLIC")
    database.execute("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO bare")
    database.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO bare")
    migrate(bare)
    hot = Hot(await connect(database, user="bare"))
    try:
        assert await hot.connection.fetchval("SELECT current_user") == "bare"
        await hot.push("1", "2")
        await hot.push("3")
        await hot.connection.execute("UPDATE fastjobs_jobs SET attempts = 9 WHERE payload = '2'")
        found = await hot.claim()
        assert (len(found.jobs), len(found.exhausted)) == (2, 1)
        assert await hot.mark(*(Done(job.id, job.claim) for job in found.jobs)) == [Kept.YES] * 2
    finally:
        await hot.connection.close()


def test_a_role_that_may_not_make_the_tables_is_told_what_to_grant(bare: Engine) -> None:
    with pytest.raises(StoreError, match="GRANT it USAGE and CREATE ON the SCHEMA"):
        migrate(bare)


def test_a_role_that_may_not_read_the_tables_is_told_what_to_grant(engine: Engine, bare: Engine) -> None:
    migrate(engine)
    with pytest.raises(StoreError, match="GRANT it SELECT, INSERT, UPDATE and DELETE"):
        migrate(bare)


def test_what_is_left_of_tables_without_their_version_is_told(database: Database, engine: Engine) -> None:
    migrate(engine)
    database.execute("DROP TABLE fastjobs_schema")
    with pytest.raises(StoreError, match="already"):
        migrate(engine)


def test_newer_tables_are_left_as_they_are(database: Database, engine: Engine) -> None:
    migrate(engine)
    database.execute("UPDATE fastjobs_schema SET version = 99")
    migrate(engine)
    assert database.execute("SELECT version FROM fastjobs_schema") == [(99,)]


def test_a_function_has_the_version_of_its_tables_in_its_name() -> None:
    for function in functions.make_functions(make_tables()):
        assert function.name.endswith(f'_{VERSION}"')
        assert function.create.startswith(f"CREATE FUNCTION {function.name}(")


async def test_those_who_note_the_same_kinds_never_wait_for_each_other_for_ever(
    database: Database, engine: Engine
) -> None:
    migrate(engine)
    links = [Hot(await connect(database)) for _ in range(2)]
    try:
        names = [f"k{n}" for n in range(300)]
        for round in range(10):
            some = [f"{name}.{round}" for name in names]
            await asyncio.gather(
                links[0].fetch(links[0].statements.new_kinds, some, 1),
                links[1].fetch(links[1].statements.new_kinds, some[::-1], 1),
            )
    finally:
        for hot in links:
            await hot.connection.close()
    assert database.execute("SELECT count(*) FROM fastjobs_kinds") == [(3000,)]
