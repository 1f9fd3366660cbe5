"""What the store does with plain SQLAlchemy Core, the same in every database: functions on a sync Connection.

Async code gets here by `run_sync`. Each runs inside a transaction of the caller's and never ends it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sqlalchemy import Connection, Integer, literal_column, select
from sqlalchemy.exc import StatementError

from fastjobs.core.job import NewJob
from fastjobs.stores.sql.dialects.mysql import within as mysql
from fastjobs.stores.sql.dialects.mysql.beside import Beside
from fastjobs.stores.sql.dialects.postgres import keyed as postgres
from fastjobs.stores.sql.dialects.postgres.keyed import Ended
from fastjobs.stores.sql.dialects.sqlite import keyed as sqlite
from fastjobs.stores.sql.looks import by_id, may_be_kind
from fastjobs.stores.sql.tables import FAILED, MYSQL, READY, Tables
from fastjobs.stores.sql.values import chunks, claimed_row, has_keys, row_id, rows_of

_ZERO = literal_column("0", Integer)


def push(
    connection: Connection, tables: Tables, jobs: Sequence[NewJob], now: int, beside: Beside | None = None
) -> list[str | None]:
    """Inserts the jobs and answers their ids, in the same order; None for one that is there already."""
    if has_keys(jobs):
        if connection.dialect.name == "sqlite":
            return sqlite.through(connection, sqlite.push(sqlite.make_keyed(tables), jobs, now))
        if connection.dialect.name == "postgresql":
            return postgres.push(connection, tables, jobs, now)
    if connection.dialect.name in MYSQL:
        return mysql.push(connection, tables, jobs, now, beside)
    table = tables.jobs
    rows = [
        {"kind": kind, "payload": payload, "run_at": run_at, "created_at": created_at, "carried": carried}
        for kind, payload, run_at, created_at, carried in rows_of(jobs, now)
    ]
    try:
        if len(rows) > 1 and connection.dialect.name == "postgresql":
            # As many as go into one statement, and a round trip for these together.
            many = table.insert().returning(table.c.id, sort_by_parameter_order=True)
            return [str(id) for id in connection.scalars(many, rows)]
        ids: list[str | None] = []
        for row in rows:
            key = connection.execute(table.insert().values(row)).inserted_primary_key
            assert key is not None
            ids.append(str(key[0]))
        return ids
    except StatementError as error:
        error.hide_parameters = True  # its text would have the value, and goes to logs
        raise


def new_kinds(connection: Connection, tables: Tables, kinds: Iterable[str]) -> list[str]:
    """Those of the kinds that have no row yet."""
    table = tables.kinds
    wanted = sorted(set(kinds))
    there: set[str] = set()
    for some in chunks(wanted):
        there.update(connection.scalars(select(table.c.kind).where(table.c.kind.in_(some))))
    return [kind for kind in wanted if kind not in there]


def done(
    connection: Connection, tables: Tables, id: str, claim: int, now: int, beside: Beside | None = None
) -> Ended:
    """Removes a job that is done, and says whether the claim had it: the mark `Done`, in anyone's transaction."""
    row = claimed_row(id, claim)
    if row is None:
        return Ended(False)
    if connection.dialect.name == "sqlite":
        return Ended(sqlite.through(connection, sqlite.done(sqlite.make_keyed(tables), *row, now)))
    if connection.dialect.name in MYSQL:
        return mysql.done(connection, tables, *row, now, beside)
    return postgres.done(connection, tables, *row, now)


def run_again(connection: Connection, tables: Tables, ids: Sequence[str], now: int) -> list[bool]:
    """Puts failed jobs back, due now, and says of each id whether it was there and failed."""
    table = tables.jobs
    were: set[int] = set()
    for some in _failed_ids(connection, tables, ids):
        again = (
            table.update()
            .where(table.c.id.in_(some), table.c.state + _ZERO == FAILED)
            .values(
                state=READY,
                attempts=0,
                lost=0,
                held_until=0,
                stop_asked=0,
                claim=table.c.claim + 1,
                run_at=now,
                failed_at=None,
            )
        )
        connection.execute(by_id(again, table))
        were.update(some)
    return _each_once(ids, were)


def delete(connection: Connection, tables: Tables, ids: Sequence[str], now: int) -> list[bool]:
    """Removes failed jobs, and says of each id whether it was there and failed."""
    were: set[int] = set()
    for some in _failed_ids(connection, tables, ids):
        if connection.dialect.name == "sqlite":
            sqlite.through(connection, sqlite.delete(sqlite.make_keyed(tables), some, now))
        elif connection.dialect.name in MYSQL:
            mysql.delete(connection, tables, some, now)
        else:
            postgres.delete(connection, tables, some, now)
        were.update(some)
    return _each_once(ids, were)


def pause(connection: Connection, tables: Tables, kind: str, paused: bool) -> bool:
    """Pauses the kind, or resumes it, and says whether there is such a one."""
    if not may_be_kind(connection.dialect.name, kind):
        return False
    table = tables.kinds
    return (
        connection.execute(table.update().where(table.c.kind == kind).values(paused=int(paused))).rowcount > 0
    )


def _failed_ids(connection: Connection, tables: Tables, ids: Sequence[str]) -> Iterator[list[int]]:
    table = tables.jobs
    numbers = sorted({number for number in map(row_id, ids) if number is not None})
    for some in chunks(numbers):
        # Not the state itself, or an index of all that failed would do, too.
        failed = select(table.c.id).where(table.c.id.in_(some), table.c.state + _ZERO == FAILED)
        yield list(connection.scalars(by_id(failed.with_for_update(), table)))


def _each_once(ids: Sequence[str], were: set[int]) -> list[bool]:
    answers: list[bool] = []
    for id in ids:
        number = row_id(id)
        answers.append(number in were)
        if number is not None:
            were.discard(number)
    return answers
