"""What is done on MySQL and MariaDB in a transaction of the app's, through SQLAlchemy."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from fastjobs.core.job import NewJob
from fastjobs.stores.sql.dialects.mysql import keyed
from fastjobs.stores.sql.dialects.mysql import push as pushing
from fastjobs.stores.sql.dialects.mysql.statements import Statements, make_statements
from fastjobs.stores.sql.dialects.mysql.steps import Step, Steps, through
from fastjobs.stores.sql.dialects.postgres.keyed import Ended
from fastjobs.stores.sql.tables import Tables


def push(connection: Connection, tables: Tables, jobs: Sequence[NewJob], now: int) -> list[str | None]:
    """Inserts the jobs and answers their ids, in the same order; None for one that is there already."""
    return through(connection, push_steps(make_statements(tables), jobs, now))


def push_steps(texts: Statements, jobs: Sequence[NewJob], now: int) -> Steps[list[str | None]]:
    """The push through a connection of which nothing is known: it's asked how far apart its ids are."""
    ((step, packet),) = (yield Step(texts.step)).rows
    return (yield from pushing.push(texts, jobs, now, int(packet), int(step), waits=True))


def done(connection: Connection, tables: Tables, id: int, claim: int, now: int) -> Ended:
    """Removes a job that is done, and says whether the claim had it."""
    return through(connection, done_steps(make_statements(tables), id, claim, now))


def done_steps(texts: Statements, id: int, claim: int, now: int) -> Steps[Ended]:
    """The mark Done, which waits for whoever has the row.

    It leaves the slot of a one-at-a-time job where it is, and wakes nobody: a claim would wait for what is locked until
    the app's transaction ends. The claims and the sweep see by the job itself that the slot is nobody's.
    """
    # By a plain read first: to lock a row that's gone locks where it was, at REPEATABLE READ, and pushes would wait.
    if not (yield Step(texts.mine, (id, claim))).rows:
        return Ended(False)
    rows = (yield Step(texts.mine_locked, (id, claim))).rows
    if not rows:
        return Ended(False)
    kind, key, name, keep = rows[0]
    yield Step(texts.done, ((id,),))
    yield from keyed.keep_names(texts, [(name, keep)], now)
    return Ended(True, None if key is None else (kind, bytes(key)))


def delete(connection: Connection, tables: Tables, ids: Sequence[int], now: int) -> None:
    """Removes failed jobs that this transaction has locked; their names stay taken as long as they were to be."""
    through(connection, _delete(make_statements(tables), ids, now))


def _delete(texts: Statements, ids: Sequence[int], now: int) -> Steps[None]:
    rows = (yield Step(texts.failed, (tuple(ids),))).rows if ids else ()
    if rows:
        yield Step(texts.done, (tuple(ids),))
        yield from keyed.keep_names(texts, ((name, keep) for name, keep in rows), now)
