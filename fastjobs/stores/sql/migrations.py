"""Makes the tables, and brings older ones up to date in numbered steps.

A fresh database gets the latest tables at once and their version beside them. The caller sees to it that one
process does this at a time, inside a transaction, so that one that's killed in the middle leaves nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from sqlalchemy import Connection, inspect, select

from fastjobs.core.errors import StoreError
from fastjobs.stores.sql.tables import Tables

log = logging.getLogger("fastjobs")

Step = Callable[[Connection, Tables], None]

STEPS: Mapping[int, Step] = {}
"""By the version that each leads to, from 2 on: what brings the tables there from the version before."""

FIRST = 1


def latest() -> int:
    """The version of the tables that this code makes."""
    return max(STEPS, default=FIRST)


def found_version(connection: Connection, tables: Tables) -> int:
    """The version of the tables that are there; 0 where there are none."""
    if not inspect(connection).has_table(tables.version.name, schema=tables.schema):
        return 0
    return connection.scalar(select(tables.version.c.version)) or 0


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
        " them, as a user who may"
    )


def migrate(connection: Connection, tables: Tables) -> None:
    """Makes the tables or brings them up to date, and logs that it did. Newer ones are left: they only ever add."""
    found = found_version(connection, tables)
    if found >= latest():
        return
    if not found:
        tables.metadata.create_all(connection, checkfirst=False)
        connection.execute(tables.version.insert().values(id=1, version=latest()))
        log.info("made the tables %s*, version %d", tables.prefix, latest())
        return
    for version in range(found + 1, latest() + 1):
        STEPS[version](connection, tables)
    connection.execute(tables.version.update().values(version=latest()))
    log.info("upgraded the tables %s* from version %d to %d", tables.prefix, found, latest())
