"""Pushes with keys and names, and the end of a job, in a transaction of the app's: through the database's functions.

The texts are SQLAlchemy's, so that they can be sent through its connections and, compiled, through a driver's own.
"""

# ruff: noqa: S608 - the names in the texts are the tables' own, which were checked as they were made

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import Connection, TextClause, func, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import StatementError

from fastjobs.core.job import NewJob
from fastjobs.stores.sql.dialects.postgres.function import VERSION
from fastjobs.stores.sql.tables import Tables


class Ended(NamedTuple):
    """What came of a mark Done in a transaction of the app's."""

    was_held: bool
    alone: tuple[str, bytes] | None = None
    """The kind and the key, where no two of these are held at once."""


def columns(jobs: Sequence[NewJob], now: int) -> tuple[list[Any], ...]:
    """The jobs as the function takes them: an array of each of what it's given."""
    return (
        [job.kind for job in jobs],
        [job.payload for job in jobs],
        [now + job.after if job.at is None else job.at for job in jobs],
        [job.carried for job in jobs],
        # As text, which every driver takes in an array in one and the same way.
        [None if job.key is None else job.key.hex() for job in jobs],
        [job.latest and job.key is not None for job in jobs],
        [job.at_most for job in jobs],
        [job.one_at_a_time for job in jobs],
        [job.name for job in jobs],
        [job.keep_name for job in jobs],
    )


def ids_of(answer: Sequence[int | None]) -> list[str | None]:
    """The function's answer as a push's."""
    return [None if id is None else str(id) for id in answer]


_COLUMNS = (
    "kinds",
    "payloads",
    "run_ats",
    "carried",
    "keys",
    "latest",
    "at_mosts",
    "alone",
    "names",
    "keeps",
)


def values(jobs: Sequence[NewJob], now: int) -> dict[str, Any]:
    """The parameters of `push_text`."""
    return {**dict(zip(_COLUMNS, columns(jobs, now), strict=True)), "now": now}


@lru_cache(maxsize=32)
def push_text(tables: Tables) -> TextClause:
    """The push, which waits for another's as long as that takes, and notifies nobody."""
    schema = f'"{tables.schema}".' if tables.schema else ""
    push = f'{schema}"{tables.prefix}push_{int(VERSION)}"'
    return text(
        f"SELECT {push}(CAST(:kinds AS text[]), CAST(:payloads AS text[]), CAST(:run_ats AS bigint[]),"
        " CAST(:carried AS text[]), CAST(:keys AS text[]), CAST(:latest AS boolean[]), CAST(:at_mosts AS bigint[]),"
        " CAST(:alone AS boolean[]), CAST(:names AS text[]), CAST(:keeps AS bigint[]), CAST(:now AS bigint),"
        " NULL, NULL)"
    )


@lru_cache(maxsize=32)
def done_text(tables: Tables) -> TextClause:
    """The mark Done: id, claim, now -> whether the claim had it, and the kind and the key of one at a time."""
    schema = f'"{tables.schema}".' if tables.schema else ""
    done_in = f'{schema}"{tables.prefix}done_in_{int(VERSION)}"'
    return text(f"SELECT * FROM {done_in}(CAST(:id AS bigint), CAST(:claim AS bigint), CAST(:now AS bigint))")


def push(connection: Connection, tables: Tables, jobs: Sequence[NewJob], now: int) -> list[str | None]:
    """Inserts the jobs and answers their ids, in the same order; None for one that is there already."""
    try:
        (answer,) = connection.execute(push_text(tables), values(jobs, now)).one()
    except StatementError as error:
        error.hide_parameters = True  # its text would have the value, and goes to logs
        raise
    return ids_of(answer)


def done(connection: Connection, tables: Tables, id: int, claim: int, now: int) -> Ended:
    """Removes a job that is done, and says whether the claim had it."""
    found = connection.execute(done_text(tables), {"id": id, "claim": claim, "now": now}).one()
    return ended(found)


def ended(row: Sequence[Any]) -> Ended:
    """The function's answer."""
    was_held, kind, key = row
    return Ended(bool(was_held), None if key is None else (kind, bytes(key)))


def delete(connection: Connection, tables: Tables, ids: Sequence[int], now: int) -> None:
    """Removes failed jobs that this transaction has locked; their names stay taken as long as they were to be."""
    jobs, names = tables.jobs, tables.names
    gone = connection.execute(
        jobs.delete().where(jobs.c.id.in_(ids)).returning(jobs.c.name, jobs.c.keep_name)
    )
    kept = sorted((name, now + keep) for name, keep in gone if name is not None and keep)
    if kept:
        row = insert(names)
        connection.execute(
            row.on_conflict_do_update(
                index_elements=[names.c.name],
                set_={"until": func.greatest(names.c.until, row.excluded.until)},
            ),
            [{"name": name, "until": until} for name, until in kept],
        )
