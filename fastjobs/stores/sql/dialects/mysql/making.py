"""The tables on MySQL and MariaDB, where each statement that makes something commits: they're made one by one.

What is missing is made, so that after a kill in the middle the next one makes the rest; the version comes last.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from hashlib import blake2b

from sqlalchemy import Connection, Table, inspect, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateIndex, CreateTable

from fastjobs.core.errors import StoreError
from fastjobs.stores.sql.dialects.mysql.errors import FORBIDDEN, code
from fastjobs.stores.sql.tables import Tables, indexes

_PATIENCE = 60
"""Seconds that one waits for another who makes the tables."""


@contextmanager
def alone(connection: Connection, name: str) -> Generator[None, None, None]:
    """Has one process at a time be in the block, whichever of them has tables of this name."""
    database = connection.execute(text("SELECT DATABASE()")).scalar_one()
    lock = f"fastjobs {blake2b(f'{database} {name}'.encode(), digest_size=16).hexdigest()}"
    got = connection.execute(text("SELECT GET_LOCK(:name, :patience)"), {"name": lock, "patience": _PATIENCE})
    if got.scalar_one() != 1:
        raise StoreError(
            f"another process has been making the queue's tables for {_PATIENCE} s, or hangs as it does: start again"
            " once it's done"
        )
    try:
        yield
    finally:
        connection.execute(text("SELECT RELEASE_LOCK(:name)"), {"name": lock})


def make(connection: Connection, tables: Tables) -> None:
    """Makes each table and index that isn't there."""
    dialect = connection.dialect
    for table in tables.metadata.sorted_tables:
        if not inspect(connection).has_table(table.name, schema=table.schema):
            _send(connection, tables, str(CreateTable(table).compile(dialect=dialect)))
        else:
            _check(connection, table)
        there = {each["name"] for each in inspect(connection).get_indexes(table.name, schema=table.schema)}
        for index in indexes(table, dialect.name):
            if index.name not in there:
                _send(connection, tables, str(CreateIndex(index).compile(dialect=dialect)))


def _check(connection: Connection, table: Table) -> None:
    """Raises a StoreError where the table isn't one that a process before this has made."""
    found = {each["name"] for each in inspect(connection).get_columns(table.name, schema=table.schema)}
    if found != {column.name for column in table.columns}:
        raise StoreError(
            f"the database has something by the name of the queue's already, and no version of its tables:"
            f" {table.fullname} with other columns. Take another prefix=, or drop what is left of it"
        )


def _send(connection: Connection, tables: Tables, statement: str) -> None:
    try:
        connection.exec_driver_sql(statement.replace("%", "%%"))
    except DBAPIError as error:
        if code(error) in FORBIDDEN:
            raise StoreError(
                f"the queue's tables {tables.prefix}* are missing or old, and the database's user may not make them:"
                " GRANT it CREATE, ALTER and INDEX on the database, or open the store once as a user who may"
            ) from error
        raise
