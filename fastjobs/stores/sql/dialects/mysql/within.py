"""What is done on MySQL and MariaDB in a transaction of the app's.

Through SQLAlchemy here; `raw` has a driver's own connection take the same steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection

from fastjobs.core.errors import StoreError
from fastjobs.core.job import NewJob
from fastjobs.stores.sql.dialects.mysql import keyed
from fastjobs.stores.sql.dialects.mysql import push as pushing
from fastjobs.stores.sql.dialects.mysql.beside import Beside
from fastjobs.stores.sql.dialects.mysql.kinds import inserted
from fastjobs.stores.sql.dialects.mysql.statements import Statements, make_statements
from fastjobs.stores.sql.dialects.mysql.steps import Step, Steps, seen_now, through
from fastjobs.stores.sql.dialects.postgres.keyed import Ended
from fastjobs.stores.sql.tables import Tables
from fastjobs.stores.sql.values import has_keys


class _Session(NamedTuple):
    """What the app's connection says of itself."""

    step: int
    packet: int
    client: str
    connection: str
    database: str | None
    isolation: str


def push(
    connection: Connection, tables: Tables, jobs: Sequence[NewJob], now: int, beside: Beside | None
) -> list[str | None]:
    """Inserts the jobs and answers their ids, in the same order; None for one that is there already."""
    steps = push_steps(make_statements(tables), jobs, now, beside)
    return through(connection, steps, None if beside is None else beside.asks(connection))


def push_steps(
    texts: Statements,
    jobs: Sequence[NewJob],
    now: int,
    beside: Beside | None,
    database: str | None = None,
) -> Steps[list[str | None]]:
    """The push through a connection of which nothing is known. `database` is the one that it must be of."""
    session = yield from _session(texts, database)
    if beside is not None:
        yield from _note(texts, {job.kind for job in jobs}, now, beside)
    if session.isolation == "READ-UNCOMMITTED" and has_keys(jobs):
        raise StoreError(
            "in a READ UNCOMMITTED transaction, which sees what others haven't committed, nobody can tell whether a key"
            " or a name is taken: make it READ COMMITTED"
        )
    return (yield from seen_now(pushing.push(texts, jobs, now, session.packet, session.step, waits=True)))


def done(
    connection: Connection, tables: Tables, id: int, claim: int, now: int, beside: Beside | None
) -> Ended:
    """Removes a job that is done, and says whether the claim had it."""
    steps = done_steps(make_statements(tables), id, claim, now)
    return through(connection, steps, None if beside is None else beside.asks(connection))


def done_steps(texts: Statements, id: int, claim: int, now: int, database: str | None = None) -> Steps[Ended]:
    """The mark Done through a connection of which nothing is known; it waits for whoever has the row.

    It leaves the slot of a one-at-a-time job where it is, and wakes nobody: a claim would wait for what is locked until
    the app's transaction ends. The claims and the sweep see by the job itself that the slot is nobody's.
    """
    yield from _session(texts, database)
    return (yield from seen_now(_done(texts, id, claim, now)))


def _done(texts: Statements, id: int, claim: int, now: int) -> Steps[Ended]:
    # By a plain read first: to lock a row that's gone locks where it was, at REPEATABLE READ, and pushes would wait.
    # As of the transaction's start the job may not have been claimed yet.
    if not (yield Step(texts.mine, (id, claim), where="committed")).rows:
        return Ended(False)
    rows = (yield Step(texts.mine_locked, (id, claim))).rows
    if not rows:
        return Ended(False)
    kind, key, name, keep = rows[0]
    # By a condition: an app's session may refuse a DELETE that has none (sql_safe_updates).
    yield Step(texts.unpush, (id,))
    if name is not None and keep:
        yield from keyed.keep_name_within(texts, bytes(name), now + keep)
    return Ended(True, None if key is None else (kind, bytes(key)))


def delete(connection: Connection, tables: Tables, ids: Sequence[int], now: int) -> None:
    """Removes failed jobs that this transaction has locked; their names stay taken as long as they were to be."""
    through(connection, _delete(make_statements(tables), ids, now))


def _delete(texts: Statements, ids: Sequence[int], now: int) -> Steps[None]:
    rows = (yield Step(texts.failed, (tuple(ids),))).rows if ids else ()
    if rows:
        yield Step(texts.done, (tuple(ids),))
        yield from keyed.keep_names(texts, ((name, keep) for name, keep in rows), now)


def _session(texts: Statements, database: str | None) -> Steps[_Session]:
    """Asks the connection what it is, and raises a StoreError for one that text would not get through whole."""
    session = _Session(*(yield Step(texts.session)).rows[0])
    for charset in (session.client, session.connection):
        if charset != "utf8mb4":
            raise StoreError(
                f"the transaction's connection speaks {charset}, which lacks most characters: write ?charset=utf8mb4 at"
                ' the end of its engine\'s URL, or charset="utf8mb4" as it connects'
            )
    theirs = session.database
    if database is not None and (theirs or "").casefold() != database.casefold():
        raise StoreError(
            f"the transaction is one of the database {theirs!r}, and the queue's jobs are in {database!r}: push through"
            " a connection of the queue's own database"
        )
    return session


def _note(texts: Statements, kinds: set[str], now: int, beside: Beside) -> Steps[None]:
    """Sees to it that each kind has a row, by another connection: all who insert the same row wait for a transaction
    that did. Where someone's has, it's left to that and to the claims."""
    wanted = beside.kinds.unknown(kinds)
    if not wanted:
        return
    insert = inserted(texts, wanted, now)._replace(meets_others=True, where="committed")
    if not (yield insert).is_locked:
        beside.kinds.are_there(wanted)
