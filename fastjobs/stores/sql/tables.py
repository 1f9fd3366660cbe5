"""The queue's tables, by prefix and schema. Every name of a table, an index or a constraint begins with the prefix.

They stand in a MetaData of their own, so that an app's `create_all` and `drop_all` never touch them. Times are
Unix microseconds by the store's clock, in plain integers, the same in every database.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from sqlalchemy import (
    BigInteger,
    Column,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    String,
    Table,
    Text,
    text,
)

from fastjobs.core.errors import StoreError

READY = 0
"""It waits, due or not."""
HELD = 1
"""A claim has it, until `held_until`."""
PARKED = 2
"""It waits for another of its key to end (one at a time)."""
FAILED = 3
"""It failed for good and is kept."""

_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]{0,30}\Z", re.ASCII)
_ZERO = text("0")
# Only INTEGER PRIMARY KEY is a rowid in SQLite, and only a rowid can be AUTOINCREMENT.
_ID = BigInteger().with_variant(Integer(), "sqlite")
# Names are compared and sorted by their bytes: a database's own collation may fold them, and is slower.
_KIND = String(100).with_variant(Text(collation="C"), "postgresql")
_NAME = String(255).with_variant(Text(collation="C"), "postgresql")


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of one queue."""

    prefix: str
    schema: str | None
    metadata: MetaData
    jobs: Table
    kinds: Table
    slots: Table
    schedules: Table
    names: Table
    throttles: Table
    version: Table


def identifier(name: str, what: str) -> str:
    """The name, if it can be a part of a table's name in every database; else a StoreError."""
    if not isinstance(name, str) or not _IDENTIFIER.match(name):
        raise StoreError(f"{what} is 1 to 31 of a-z 0-9 _ and doesn't begin with a digit: {name!r} is none")
    return name


def make_tables(prefix: str = "fastjobs_", schema: str | None = None) -> Tables:
    """The tables with names that begin with `prefix`, in `schema` where the database has schemas.

    All who ask for the same ones share them: nothing is ever added to them, and to make them takes milliseconds.
    """
    identifier(prefix, "a prefix")
    if schema is not None:
        identifier(schema, "a schema")
    return _make(prefix, schema)


@functools.lru_cache(maxsize=16)
def _make(prefix: str, schema: str | None) -> Tables:
    metadata = MetaData(schema=schema)
    jobs = Table(
        f"{prefix}jobs",
        metadata,
        Column("id", _ID, Identity(always=True)),
        Column("kind", _KIND, nullable=False),
        Column("state", SmallInteger, nullable=False, server_default=_ZERO),
        Column("priority", Integer, nullable=False, server_default=_ZERO),
        Column("run_at", BigInteger, nullable=False),
        Column("held_until", BigInteger, nullable=False, server_default=_ZERO),
        Column("attempts", Integer, nullable=False, server_default=_ZERO),
        Column("claim", BigInteger, nullable=False, server_default=_ZERO),
        Column("lost", Integer, nullable=False, server_default=_ZERO),
        # The key as it was pushed, for life; `unique_key` only while the job waits, `alone_key` for life where
        # no two of a key may be held at once.
        Column("own_key", LargeBinary(32)),
        Column("unique_key", LargeBinary(32)),
        Column("alone_key", LargeBinary(32)),
        Column("name", _NAME),
        Column("keep_name", BigInteger),
        Column("first_push_at", BigInteger),
        Column("stop_asked", SmallInteger, nullable=False, server_default=_ZERO),
        Column("progress", Text),
        Column("created_at", BigInteger, nullable=False, server_default=_ZERO),
        Column("failed_at", BigInteger),
        Column("payload", Text, nullable=False),
        Column("carried", Text),
        Column("error", Text),
        PrimaryKeyConstraint("id", name=f"{prefix}jobs_pk"),
        # Without it SQLite gives the highest id again once its job is done, and a late mark of the old job
        # would meet the new one.
        sqlite_autoincrement=True,
    )
    _job_indexes(prefix, jobs)
    kinds = Table(
        f"{prefix}kinds",
        metadata,
        Column("kind", _KIND, nullable=False),
        Column("held_until", BigInteger, nullable=False, server_default=_ZERO),
        Column("paused", SmallInteger, nullable=False, server_default=_ZERO),
        Column("first_seen", BigInteger, nullable=False, server_default=_ZERO),
        PrimaryKeyConstraint("kind", name=f"{prefix}kinds_pk"),
        sqlite_with_rowid=False,
    )
    slots = Table(
        f"{prefix}slots",
        metadata,
        Column("kind", _KIND, nullable=False),
        Column("alone_key", LargeBinary(32), nullable=False),
        Column("job_id", BigInteger, nullable=False),
        Column("claim", BigInteger, nullable=False),
        Column("held_until", BigInteger, nullable=False),
        PrimaryKeyConstraint("kind", "alone_key", name=f"{prefix}slots_pk"),
        sqlite_with_rowid=False,
    )
    schedules = Table(
        f"{prefix}schedules",
        metadata,
        Column("name", _NAME, nullable=False),
        Column("run_at", BigInteger, nullable=False),
        PrimaryKeyConstraint("name", name=f"{prefix}schedules_pk"),
        sqlite_with_rowid=False,
    )
    names = Table(
        f"{prefix}names",
        metadata,
        Column("name", _NAME, nullable=False),
        Column("until", BigInteger, nullable=False),
        PrimaryKeyConstraint("name", name=f"{prefix}names_pk"),
        Index(f"{prefix}names_until", "until"),
        sqlite_with_rowid=False,
    )
    throttles = Table(
        f"{prefix}throttles",
        metadata,
        Column("name", _KIND, nullable=False),
        Column("key", _NAME, nullable=False),
        Column("slot", Integer, nullable=False),
        Column("at", BigInteger, nullable=False),
        # `at` and the `per` it was taken with: from then on the row says nothing. A prune knows no `per`.
        Column("free_at", BigInteger, nullable=False),
        PrimaryKeyConstraint("name", "key", "slot", name=f"{prefix}throttles_pk"),
        Index(f"{prefix}throttles_free", "free_at"),
        sqlite_with_rowid=False,
    )
    version = Table(
        f"{prefix}schema",
        metadata,
        Column("id", SmallInteger, nullable=False),
        Column("version", Integer, nullable=False),
        PrimaryKeyConstraint("id", name=f"{prefix}schema_pk"),
    )
    return Tables(prefix, schema, metadata, jobs, kinds, slots, schedules, names, throttles, version)


def indexes(table: Table, dialect: str) -> list[Index]:
    """The table's indexes in this dialect, by name."""
    some = [index for index in table.indexes if index.info.get("dialect", dialect) == dialect]
    return sorted(some, key=lambda index: str(index.name))


def _job_indexes(prefix: str, jobs: Table) -> None:
    # Each is on the rows of one state alone, so that a claim walks past no job that is held, parked or failed.
    # The id is a part of every index in SQLite, behind the columns named here.
    for dialect, name, columns, where in (
        ("sqlite", "ready", ("kind", "run_at"), "state = 0"),
        ("sqlite", "held", ("kind", "held_until"), "state = 1"),
        ("sqlite", "busy", ("kind", "alone_key", "held_until"), "state = 1 AND alone_key IS NOT NULL"),
        ("sqlite", "parked", ("kind", "alone_key", "run_at"), "state = 2"),
        ("sqlite", "failed", ("failed_at",), "state = 3"),
        ("sqlite", "failed_kind", ("kind", "failed_at"), "state = 3"),
        ("postgresql", "ready", ("kind", "run_at", "id"), "state = 0"),
        ("postgresql", "held", ("kind", "held_until"), "state = 1"),
        ("postgresql", "parked", ("kind", "alone_key", "run_at", "id"), "state = 2"),
        ("postgresql", "failed", ("failed_at", "id"), "state = 3"),
        ("postgresql", "failed_kind", ("kind", "failed_at", "id"), "state = 3"),
    ):
        Index(
            f"{prefix}jobs_{name}",
            *(jobs.c[column] for column in columns),
            info={"dialect": dialect},
            sqlite_where=text(where),
            postgresql_where=text(where),
        ).ddl_if(dialect=dialect)
    for name, columns, where in (
        ("unique", ("kind", "unique_key"), "unique_key IS NOT NULL"),
        ("name", ("name",), "name IS NOT NULL"),
    ):
        Index(
            f"{prefix}jobs_{name}",
            *(jobs.c[column] for column in columns),
            unique=True,
            sqlite_where=text(where),
            postgresql_where=text(where),
        )
