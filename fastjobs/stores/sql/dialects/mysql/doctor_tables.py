"""What may be wrong with a queue's own tables on MySQL and MariaDB, and what keeps purge from them."""

# ruff: noqa: S608 - the names in the texts are the tables' own, which were checked as they were made

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Dialect, delete, insert, select, text, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateColumn
from sqlalchemy.sql.expression import ClauseElement

from fastjobs.core.duration import SECOND
from fastjobs.core.text import one_line
from fastjobs.stores.sql.dialects.mysql.errors import FORBIDDEN, code
from fastjobs.stores.sql.dialects.mysql.link import CLOCK
from fastjobs.stores.sql.inspecting import Asked, Check, Finding, Level, lasted, paused_kinds, unknown_kinds

_OPEN_FOR = 600
"""Seconds after which a transaction is told of."""
_HISTORY = 1_000_000
"""How many transactions' rows purge may be behind with."""
_NO_SUCH_INDEX = 1176
_ALTER = "ALTER TABLE"
"""Of what is said to a person: it isn't sent."""
_CAN_READ = "can't see the transactions of others: the app's user lacks PROCESS"


def _rows(connection: Connection, sql: str, **values: object) -> Sequence[Any]:
    return connection.execute(text(sql), values).fetchall()


def purge(connection: Connection, asked: Asked) -> Iterable[Finding]:
    check, good = "purge", True
    keeps = "keeps purge from the jobs that were done since, and claims get slower"
    try:
        for pid, seconds, user in _rows(
            connection,
            "SELECT t.trx_mysql_thread_id, TIMESTAMPDIFF(SECOND, t.trx_started, NOW()), p.user"
            " FROM information_schema.innodb_trx AS t"
            " LEFT JOIN information_schema.processlist AS p ON p.id = t.trx_mysql_thread_id"
            " WHERE t.trx_started < NOW() - INTERVAL :since SECOND AND t.trx_mysql_thread_id <> CONNECTION_ID()"
            " ORDER BY t.trx_started LIMIT 5",
            since=_OPEN_FOR,
        ):
            good = False
            who = f"user {one_line(str(user), 60)!r}, id {pid}" if pid else "prepared, of XA"
            said = f"a transaction is open for {lasted(seconds * SECOND)} ({who}): it {keeps}"
            do = "find what forgot it; KILL its id ends it, and XA ROLLBACK a prepared one"
            yield Finding(Level.WARNING, check, said, do)
    except DBAPIError as error:
        if code(error) not in FORBIDDEN:
            raise
        good = False
        yield Finding(Level.REMARK, check, _CAN_READ, "GRANT PROCESS ON *.* to it, to look")
    rows = _rows(connection, "SHOW GLOBAL STATUS LIKE 'Innodb_history_list_length'")
    behind = int(rows[0][1]) if rows else 0  # MySQL has no such number for all
    if behind > _HISTORY:
        good = False
        said = f"purge is {behind:,} transactions behind: claims walk over the jobs that were done since"
        yield Finding(Level.WARNING, check, said, "see what is open for long; or raise innodb_purge_threads")
    if good:
        yield Finding(Level.OK, check, f"no transaction is open for {_OPEN_FOR // 60} minutes")


def rights(connection: Connection, asked: Asked) -> Iterable[Finding]:
    good = True
    for table in asked.tables.metadata.sorted_tables:
        if table is asked.tables.version:
            continue
        first = next(iter(table.columns))
        lacks = [
            right
            for right, statement in (
                ("SELECT", select(table)),
                ("INSERT", insert(table).from_select([first], select(first))),
                ("UPDATE", update(table).values({first: first})),
                ("DELETE", delete(table)),
            )
            if _is_forbidden(connection, statement)
        ]
        if lacks:
            good = False
            said = f"the app's user lacks {', '.join(lacks)} on {table.fullname}"
            yield Finding(Level.WRONG, "rights", said, f"GRANT {', '.join(lacks)} ON {table.fullname} to it")
    if good:
        yield Finding(Level.OK, "rights", "the app's user may read and write the tables")


def _is_forbidden(connection: Connection, statement: ClauseElement) -> bool:
    """Whether the user may not do it. It isn't done, but explained; and where the user may, the server says that the
    transaction may not write."""
    explained = f"EXPLAIN {statement.compile(dialect=connection.dialect)}"
    try:
        connection.exec_driver_sql(explained)
    except DBAPIError as error:
        return code(error) in FORBIDDEN
    return False


def columns(connection: Connection, asked: Asked) -> Iterable[Finding]:
    tables, good = asked.tables, True
    for table in tables.metadata.sorted_tables:
        name = table.fullname
        values = {"schema": tables.schema, "name": table.name}
        engines = _rows(
            connection,
            "SELECT engine FROM information_schema.tables"
            " WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :name",
            **values,
        )
        if engines and engines[0][0] != "InnoDB":
            good = False
            said = (
                f"{name} is kept by {engines[0][0]}, which has no transactions: jobs are lost and run twice"
            )
            yield Finding(Level.WRONG, "columns", said, f"{_ALTER} {name} ENGINE=InnoDB")
        found = {
            column: (kind, collation, extra)
            for column, kind, collation, extra in _rows(
                connection,
                "SELECT column_name, LOWER(column_type), collation_name, extra FROM information_schema.columns"
                " WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :name",
                **values,
            )
        }
        for column in table.columns:
            if column.name not in found:
                continue  # said already
            kind, collation, extra = found[column.name]
            wanted = _kind(column.type, connection.dialect)
            has = f"{kind} {collation}" if collation else str(kind)
            if wanted is not None and has != wanted:
                what = (
                    f"is {has}, and was made as {wanted}: what differs may be taken for the same, or not fit"
                )
            elif column.computed is not None and "STORED" not in extra:
                what = "isn't worked out by the server any more: claims miss jobs"
            else:
                continue
            good = False
            made = " ".join(str(CreateColumn(column).compile(dialect=connection.dialect)).split())
            said = f"{name}.{column.name} {what}"
            yield Finding(Level.WRONG, "columns", said, f"{_ALTER} {name} MODIFY {made}")
    if good:
        yield Finding(Level.OK, "columns", "all are as they were made, in InnoDB")


def _kind(type: Any, dialect: Dialect) -> str | None:
    """What the server says of a column of this type, with its collation; None for numbers, which have none."""
    made = type.dialect_impl(dialect).compile(dialect).lower()
    name, _, collation = made.partition(" character set ")
    if not collation:
        return made if "binary" in made else None
    return f"{name} {collation.rpartition(' ')[2]}"


def plans(connection: Connection, asked: Asked) -> Iterable[Finding]:
    tables = asked.tables
    due, schema = f"{tables.prefix}jobs_due", f"`{tables.schema}`." if tables.schema else ""
    try:
        rows = connection.exec_driver_sql(
            f"EXPLAIN FORMAT=TRADITIONAL SELECT id FROM {schema}`{tables.jobs.name}` FORCE INDEX (`{due}`)"
            " WHERE kind = 'mail' AND state = 0 AND due >= 0 AND due <= 0 ORDER BY due, id LIMIT 1"
        ).fetchall()
    except DBAPIError as error:
        if code(error) != _NO_SUCH_INDEX:
            raise
        said = f"the index {due} is gone, or isn't to be used: claims fail"
        yield Finding(
            Level.WRONG, "plan", said, "make it as it was, and visible: `fastjobs schema` prints it"
        )
        return
    (row,) = rows
    if row.key == due and "filesort" not in (row.Extra or ""):
        yield Finding(Level.OK, "plan", f"claims go by {due}")
    else:
        said = f"claims don't go by the index {due} alone: {row.key}, {one_line(str(row.Extra), 200)}"
        yield Finding(Level.WRONG, "plan", said, "make the index as it was: `fastjobs schema` prints it")


def kinds(connection: Connection, asked: Asked) -> Iterable[Finding]:
    return unknown_kinds(connection, asked, connection.scalar(text(CLOCK)))


CHECKS: tuple[tuple[str, Check], ...] = (
    ("rights", rights),
    ("columns", columns),
    ("plan", plans),
    ("unknown kinds", kinds),
    ("paused kinds", paused_kinds),
)
