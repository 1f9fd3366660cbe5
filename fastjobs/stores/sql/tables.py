"""The queue's tables, by prefix and schema. Every name of a table, an index or a constraint begins with the prefix.

They stand in a MetaData of their own, so that an app's `create_all` and `drop_all` never touch them. Times are
Unix microseconds by the store's clock, in plain integers, the same in every database.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Computed,
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
from sqlalchemy.dialects import mysql

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
# MySQL's collations take "bob " for "bob", but for the bytes of a VARBINARY; a kind's name is ASCII without spaces.
MYSQL = ("mysql", "mariadb")
"""SQLAlchemy's names of the dialects of MySQL and MariaDB."""
_KIND = (
    String(100)
    .with_variant(Text(collation="C"), "postgresql")
    .with_variant(mysql.VARCHAR(100, charset="ascii", collation="ascii_bin"), *MYSQL)
)
_NAME = (
    String(255).with_variant(Text(collation="C"), "postgresql").with_variant(mysql.VARBINARY(1020), *MYSQL)
)
_TEXT = Text().with_variant(mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin"), *MYSQL)
# MySQL has no index on some of the rows. There one on (kind, state, due) serves nearly all, where `due` is the time
# that counts in the row's state, and one on the keys of the parked the rest. The database works both columns out.
_DUE = "CASE state WHEN 1 THEN held_until WHEN 3 THEN failed_at ELSE run_at END"
_PARKED_KEY = "CASE state WHEN 2 THEN alone_key END"
# It has no index on a BLOB whole.
_KEY = LargeBinary(32).with_variant(mysql.VARBINARY(32), *MYSQL)
_STORAGE: dict[str, Any] = {
    f"{dialect}_{name}": value
    for dialect in MYSQL
    for name, value in (
        ("engine", "InnoDB"),
        ("charset", "utf8mb4"),
        ("collate", "utf8mb4_bin"),
        # The index on names is longer than others have room for.
        ("row_format", "DYNAMIC"),
    )
}


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


def make_tables(
    prefix: str = "fastjobs_", schema: str | None = None, *, dialect: str | None = None
) -> Tables:
    """The tables with names that begin with `prefix`, in `schema` where the database has schemas.

    `dialect` is SQLAlchemy's name of it: MySQL and MariaDB have two columns more. All who ask for the same ones
    share them: nothing is ever added to them, and to make them takes milliseconds.
    """
    identifier(prefix, "a prefix")
    if schema is not None:
        identifier(schema, "a schema")
    return _make(prefix, schema, dialect)


@functools.lru_cache(maxsize=16)
def _make(prefix: str, schema: str | None, dialect: str | None) -> Tables:
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
        Column("own_key", _KEY),
        Column("unique_key", _KEY),
        Column("alone_key", _KEY),
        Column("name", _NAME),
        Column("keep_name", BigInteger),
        Column("first_push_at", BigInteger),
        Column("stop_asked", SmallInteger, nullable=False, server_default=_ZERO),
        Column("progress", _TEXT),
        Column("created_at", BigInteger, nullable=False, server_default=_ZERO),
        Column("failed_at", BigInteger),
        Column("payload", _TEXT, nullable=False),
        Column("carried", _TEXT),
        Column("error", _TEXT),
        PrimaryKeyConstraint("id", name=f"{prefix}jobs_pk"),
        # Without it SQLite gives the highest id again once its job is done, and a late mark of the old job
        # would meet the new one.
        sqlite_autoincrement=True,
        **_STORAGE,
    )
    if dialect in MYSQL:
        jobs.append_column(Column("due", BigInteger, Computed(_DUE, persisted=True)))
        jobs.append_column(Column("parked_key", _KEY, Computed(_PARKED_KEY, persisted=True)))
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
        **_STORAGE,
    )
    slots = Table(
        f"{prefix}slots",
        metadata,
        Column("kind", _KIND, nullable=False),
        Column("alone_key", _KEY, nullable=False),
        Column("job_id", BigInteger, nullable=False),
        Column("claim", BigInteger, nullable=False),
        Column("held_until", BigInteger, nullable=False),
        PrimaryKeyConstraint("kind", "alone_key", name=f"{prefix}slots_pk"),
        sqlite_with_rowid=False,
        **_STORAGE,
    )
    schedules = Table(
        f"{prefix}schedules",
        metadata,
        Column("name", _NAME, nullable=False),
        Column("run_at", BigInteger, nullable=False),
        PrimaryKeyConstraint("name", name=f"{prefix}schedules_pk"),
        sqlite_with_rowid=False,
        **_STORAGE,
    )
    names = Table(
        f"{prefix}names",
        metadata,
        Column("name", _NAME, nullable=False),
        Column("until", BigInteger, nullable=False),
        PrimaryKeyConstraint("name", name=f"{prefix}names_pk"),
        Index(f"{prefix}names_until", "until"),
        sqlite_with_rowid=False,
        **_STORAGE,
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
        **_STORAGE,
    )
    version = Table(
        f"{prefix}schema",
        metadata,
        Column("id", SmallInteger, nullable=False),
        Column("version", Integer, nullable=False),
        PrimaryKeyConstraint("id", name=f"{prefix}schema_pk"),
        **_STORAGE,
    )
    if dialect in MYSQL:
        # Its name is PRIMARY whatever it's called, of which MariaDB warns, and asyncmy and aiomysql log that.
        for each in metadata.tables.values():
            each.primary_key.name = None
    return Tables(prefix, schema, metadata, jobs, kinds, slots, schedules, names, throttles, version)


def indexes(table: Table, dialect: str) -> list[Index]:
    """The table's indexes in this dialect, by name."""
    name = "mysql" if dialect == "mariadb" else dialect
    some = [index for index in table.indexes if index.info.get("dialect", name) == name]
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
    if "due" in jobs.c:
        # Without conditions, so each has all rows: what isn't needed costs every push.
        for name, columns in (
            ("due", ("kind", "state", "due", "id")),
            ("parked", ("kind", "parked_key", "run_at", "id")),
        ):
            Index(f"{prefix}jobs_{name}", *(jobs.c[column] for column in columns), info={"dialect": "mysql"})
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
