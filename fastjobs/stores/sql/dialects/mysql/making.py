"""The tables on MySQL and MariaDB, where each statement that makes something commits: they're made one by one.

What is missing is made, so that after a kill in the middle the next one makes the rest; the version comes last.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Literal

from sqlalchemy import Connection, Table, inspect, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateIndex, CreateTable

from fastjobs.core.errors import StoreError
from fastjobs.stores.sql.dialects.mysql.errors import FORBIDDEN, code
from fastjobs.stores.sql.tables import Tables, indexes

_PATIENCE = 60
"""Seconds that one waits for another who makes the tables."""
_UNKNOWN_DATABASE = 1049
_IS_THERE, _UNKNOWN_COLUMN, _NO_TABLE_OF_ITS_OWN = 1050, 1054, 1347


@contextmanager
def alone(connection: Connection, tables: Tables) -> Generator[None, None, None]:
    """Has one process at a time be in the block, of those with tables of these names in this database."""
    database = tables.schema or connection.dialect.default_schema_name
    named = blake2b(f"{database} {tables.prefix}".encode(), digest_size=16).hexdigest()
    values = {"name": f"fastjobs {named}", "patience": _PATIENCE}
    # What this transaction has looked at it keeps locked, and whoever makes the tables now would wait for that.
    keep(connection)
    # A server has these locks for all its databases, and lets one go where its connection ends.
    if connection.execute(text("SELECT GET_LOCK(:name, :patience)"), values).scalar_one() != 1:
        raise StoreError(
            f"another process has been making the queue's tables for {_PATIENCE} s, or hangs as it does: start again"
            " once it's done"
        )
    release = text("SELECT RELEASE_LOCK(:name)")
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception):
            connection.execute(release, values)
        raise
    keep(connection)
    connection.execute(release, values)


def keep(connection: Connection) -> None:
    """Commits what isn't yet, as a row that was written behind what commits by itself."""
    connection.exec_driver_sql("COMMIT")


def check_database(connection: Connection) -> None:
    """Raises a StoreError where the connection is in no database: MariaDB takes some statements in none at all."""
    if connection.dialect.default_schema_name is None:
        raise StoreError("the engine's URL names no database: write its name at the end")


def make(connection: Connection, tables: Tables) -> None:
    """Makes each table and index that isn't there."""
    dialect = connection.dialect
    for table in tables.metadata.sorted_tables:
        if not inspect(connection).has_table(table.name, schema=table.schema):
            _send(connection, tables, str(CreateTable(table).compile(dialect=dialect)))
        else:
            _check(connection, tables, table)
        there = {each["name"] for each in inspect(connection).get_indexes(table.name, schema=table.schema)}
        for index in indexes(table, dialect.name):
            if index.name not in there:
                _send(connection, tables, str(CreateIndex(index).compile(dialect=dialect)))


def tell(error: DBAPIError, tables: Tables, *, does: Literal["read", "make"]) -> None:
    """Raises a StoreError where the error says why the tables can't be read or made."""
    number = code(error)
    if number in FORBIDDEN and does == "read":
        text = (
            f"the database's user may not read the queue's tables {tables.prefix}*: GRANT it SELECT, INSERT, UPDATE and"
            " DELETE on them"
        )
        raise StoreError(_or_none(tables, text)) from error
    if number in FORBIDDEN:
        text = (
            f"the queue's tables {tables.prefix}* are missing or old, and the database's user may not make them: GRANT"
            " it CREATE, ALTER and INDEX on the database, open the store once as a user who may, or have someone run"
            " what `fastjobs schema` prints"
        )
        raise StoreError(_or_none(tables, text)) from error
    if number == _UNKNOWN_DATABASE:
        raise StoreError(
            f"the server has no database {tables.schema!r}, and the queue makes none: CREATE DATABASE {tables.schema},"
            " or give another one by schema="
        ) from error
    if number in (_IS_THERE, _UNKNOWN_COLUMN, _NO_TABLE_OF_ITS_OWN):
        raise _foreign(tables, str(error.orig)) from error


def _or_none(tables: Tables, text: str) -> str:
    # To a user without rights on it, a server says of a database that isn't there the same as of one that is.
    return f"{text}. Or there is no database {tables.schema!r}" if tables.schema else text


def _check(connection: Connection, tables: Tables, table: Table) -> None:
    """Raises a StoreError where the table isn't one that a process before this has made."""
    found = {each["name"] for each in inspect(connection).get_columns(table.name, schema=table.schema)}
    if found != {column.name for column in table.columns}:
        raise _foreign(tables, f"{table.fullname} has other columns")


def _foreign(tables: Tables, what: str) -> StoreError:
    return StoreError(
        f"the database has something by the name of the queue's already, and no version of its tables: {what}. Take"
        f" another prefix=, or drop what is left of {tables.prefix}*"
    )


def _send(connection: Connection, tables: Tables, statement: str) -> None:
    try:
        connection.exec_driver_sql(statement)
    except DBAPIError as error:
        tell(error, tables, does="make")
        raise
