"""Makes the tables, and brings older ones up to date in numbered steps.

A fresh database gets the latest tables at once and their version beside them, all in the caller's transaction, so
that one that's killed in the middle leaves nothing. One process does this at a time: the caller sees to it on SQLite,
by a lock of the file's, and `migrate` itself on Postgres and MySQL, by a lock of the name's. On MySQL nothing of it can
be in a transaction: there each statement commits, and the version comes last.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from hashlib import blake2b

from sqlalchemy import Connection, Dialect, bindparam, func, inspect, select
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlalchemy.sql.expression import text

from fastjobs.core.errors import StoreError
from fastjobs.stores.sql.dialects.mysql import making
from fastjobs.stores.sql.dialects.postgres.functions import make_functions
from fastjobs.stores.sql.tables import MYSQL, Tables, indexes

log = logging.getLogger("fastjobs")

Step = Callable[[Connection, Tables], None]

STEPS: Mapping[int, Step] = {}
"""By the version that each leads to, from 2 on: what brings the tables there from the version before."""

FIRST = 1

_DIALECTS: Mapping[str, Callable[[], Dialect]] = {
    "mariadb": mysql.dialect,
    "mysql": mysql.dialect,
    "postgresql": postgresql.dialect,
    "sqlite": sqlite.dialect,
}
_FORBIDDEN = "42501"
_THERE_ALREADY = ("42P07", "42723")


def latest() -> int:
    """The version of the tables that this code makes."""
    return max(STEPS, default=FIRST)


def ddl(tables: Tables, dialect_name: str) -> list[str]:
    """Each statement that makes the tables, with what else belongs to them, in SQLAlchemy's dialect of this name."""
    made = _DIALECTS.get(dialect_name)
    if made is None:
        raise StoreError(
            f"there are tables for {', '.join(sorted(_DIALECTS))}, and none for {dialect_name!r}"
        )
    version = tables.version.insert().values(id=1, version=latest())
    literal = version.compile(dialect=made(), compile_kwargs={"literal_binds": True})
    return [*_ddl(tables, made()), str(literal)]


def found_version(connection: Connection, tables: Tables) -> int:
    """The version of the tables that are there; 0 where there are none."""
    if connection.dialect.name in MYSQL:
        making.check_database(connection, tables)
    try:
        if not inspect(connection).has_table(tables.version.name, schema=tables.schema):
            return 0
        return connection.scalar(select(tables.version.c.version)) or 0
    except DBAPIError as error:
        if connection.dialect.name in MYSQL:
            making.tell(error, tables, does="read")
        if _sqlstate(error) == _FORBIDDEN:
            raise StoreError(
                f"the database's role may not read the queue's tables {tables.prefix}*: GRANT it SELECT, INSERT, UPDATE"
                " and DELETE on them, and USAGE on their schema"
            ) from error
        raise


def check(connection: Connection, tables: Tables) -> None:
    """Raises a StoreError where the tables are missing or older than this code needs. It writes nothing."""
    found = found_version(connection, tables)
    if found >= latest():
        return
    what = (
        f"has no tables with the prefix {tables.prefix!r}"
        if not found
        else f"has tables of version {found}, and this fastjobs needs version {latest()}"
    )
    raise StoreError(
        f"the database {what}. Open it once with SQLStore(engine, migrate=True), which is the default and makes"
        " them, as a user who may; or have someone run what `fastjobs schema` prints, where there are none yet"
    )


def migrate(connection: Connection, tables: Tables) -> None:
    """Makes the tables or brings them up to date, and logs that it did. Newer ones are left: they only ever add.

    Raises StoreError where the schema isn't there, or the database's role may not make them.
    """
    found = found_version(connection, tables)
    if found >= latest():
        return
    if connection.dialect.name == "postgresql":
        _check_schema(connection, tables)
        connection.execute(select(func.pg_advisory_xact_lock(_lock(tables))))
        # Somebody else may have made them while this waited.
        found = found_version(connection, tables)
        if found >= latest():
            return
    if connection.dialect.name in MYSQL:
        return _step_by_step(connection, tables)
    if not found:
        for statement in _ddl(tables, connection.dialect):
            _make(connection, tables, statement)
        connection.execute(tables.version.insert().values(id=1, version=latest()))
        log.info("made the tables %s*, version %d", tables.prefix, latest())
        return
    for version in range(found + 1, latest() + 1):
        STEPS[version](connection, tables)
    connection.execute(tables.version.update().values(version=latest()))
    log.info("upgraded the tables %s* from version %d to %d", tables.prefix, found, latest())


def _step_by_step(connection: Connection, tables: Tables) -> None:
    # Each statement commits there. What one that was killed has made is gone on with, under a lock of the name's.
    with making.alone(connection, tables):
        found = found_version(connection, tables)
        if found >= latest():
            return
        if not found:
            making.make(connection, tables)
            connection.execute(tables.version.insert().values(id=1, version=latest()))
            log.info("made the tables %s*, version %d", tables.prefix, latest())
            return
        for version in range(found + 1, latest() + 1):
            STEPS[version](connection, tables)
            connection.execute(tables.version.update().values(version=version))
            making.keep(connection)
        log.info("upgraded the tables %s* from version %d to %d", tables.prefix, found, latest())


def _ddl(tables: Tables, dialect: Dialect) -> list[str]:
    made: list[str] = []
    for table in tables.metadata.sorted_tables:
        made.append(str(CreateTable(table).compile(dialect=dialect)).strip())
        made.extend(str(CreateIndex(each).compile(dialect=dialect)) for each in indexes(table, dialect.name))
    if dialect.name == "postgresql":
        made.append(_storage(tables))
        made.extend(function.create for function in make_functions(tables))
    return made


def _storage(tables: Tables) -> str:
    # Every job is a dead row soon. Vacuum is to come when there are a few, and not to rest on the way; it leaves the
    # file as long as it is, as to cut it takes a lock that every claim would wait for.
    schema = f'"{tables.schema}".' if tables.schema else ""
    return (
        f'ALTER TABLE {schema}"{tables.jobs.name}" SET (autovacuum_vacuum_scale_factor = 0.01,'
        " autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false)"
    )


def _make(connection: Connection, tables: Tables, statement: str) -> None:
    try:
        connection.exec_driver_sql(statement)
    except DBAPIError as error:
        state = _sqlstate(error)
        if state == _FORBIDDEN:
            raise _may_not_create(tables) from error
        if state in _THERE_ALREADY:
            raise StoreError(
                f"the database has something by the name of the queue's already, and no version of its tables:"
                f" {error.orig}. Take another prefix=, or drop what is left of {_full(tables)}*"
            ) from error
        raise


def _check_schema(connection: Connection, tables: Tables) -> None:
    row = connection.execute(
        text(
            "SELECT n.nspname, has_schema_privilege(n.oid, 'CREATE') FROM pg_catalog.pg_namespace n"
            " WHERE n.nspname = coalesce(:schema, current_schema()::text)"
        ).bindparams(bindparam("schema", tables.schema, type_=tables.jobs.c.payload.type))
    ).first()
    if row is None and tables.schema is None:
        raise StoreError(
            "the database has no schema to make the queue's tables in: set the search_path, or schema="
        )
    if row is None:
        raise StoreError(
            f'the database has no schema "{tables.schema}", and the queue makes none: CREATE SCHEMA "{tables.schema}",'
            " or give another one by schema="
        )
    if not row[1]:
        raise _may_not_create(tables)


def _may_not_create(tables: Tables) -> StoreError:
    schema = f'"{tables.schema}"' if tables.schema else "that it works in"
    return StoreError(
        f"the queue's tables {tables.prefix}* are missing or old, and the database's role may not make them: GRANT it"
        f" USAGE and CREATE ON the SCHEMA {schema}, or open the store once as a role that may"
    )


def _full(tables: Tables) -> str:
    return f"{tables.schema}.{tables.prefix}" if tables.schema else tables.prefix


def _lock(tables: Tables) -> int:
    named = blake2b(f"fastjobs {_full(tables)}".encode(), digest_size=8).digest()
    return int.from_bytes(named, "big", signed=True)


def _sqlstate(error: DBAPIError) -> str | None:
    # psycopg's and asyncpg's are both found so; SQLite's errors have none.
    state: str | None = getattr(error.orig, "sqlstate", None)
    return state
