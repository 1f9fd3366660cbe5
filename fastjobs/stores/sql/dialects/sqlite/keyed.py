"""Jobs with a key or a name: their push, and what their end sets free. One at a time, names, and the keys themselves.

Each is written once, as steps: statements, each with its parameters, whose rows are the answer. So the same is done on
the writer's connection, in the app's transaction through SQLAlchemy, and on a driver's own connection.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Generator, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import StatementError

from fastjobs.core.job import NewJob
from fastjobs.core.marks import Fail, GiveBack, HoldBack, TryAgain
from fastjobs.core.text import kept_text
from fastjobs.store import Cancelled
from fastjobs.stores.sql.dialects.sqlite.keyed_statements import Keyed, make_keyed
from fastjobs.stores.sql.tables import PARKED

__all__ = [
    "Keyed", "Steps", "cancel", "delete", "done", "given_back", "in_line", "make_keyed", "mark", "prune", "push",
    "through", "wake",
]  # fmt: skip

_T = TypeVar("_T")
Steps = Generator[tuple[str, tuple[object, ...]], Sequence[Any], _T]


def in_line(raw: sqlite3.Connection, steps: Steps[_T]) -> _T:
    """Takes the steps on this connection."""
    try:
        step = next(steps)
        while True:
            step = steps.send(raw.execute(*step).fetchall())
    except StopIteration as end:
        answer: _T = end.value
        return answer


def through(connection: Connection, steps: Steps[_T]) -> _T:
    """Takes the steps in SQLAlchemy's transaction."""
    try:
        step = next(steps)
        while True:
            found = connection.exec_driver_sql(*step)
            step = steps.send(found.fetchall() if found.returns_rows else ())
    except StopIteration as end:
        answer: _T = end.value
        return answer
    except StatementError as error:
        error.hide_parameters = True  # its text would have the value, and goes to logs
        raise


def push(texts: Keyed, jobs: Sequence[NewJob], now: int) -> Steps[list[str | None]]:
    """Inserts the jobs in their order, and answers their ids; None for one whose name is taken or whose key waits."""
    ids: list[str | None] = []
    for job in jobs:
        ids.append((yield from _push_one(texts, job, now)))
    return ids


def _push_one(texts: Keyed, job: NewJob, now: int) -> Steps[str | None]:
    run_at = now + job.after if job.at is None else job.at
    if job.name is not None and (yield texts.named, (job.name, job.name, now)):
        return None
    if job.key is not None and job.latest:
        rows = yield texts.waiting, (job.kind, job.key)
        if rows:
            return (yield from _move(texts, job, run_at, *rows[0]))
    key = job.key
    rows = yield (
        texts.insert,
        (
            job.kind,
            job.payload,
            run_at,
            now,
            job.carried,
            key,
            key,
            key if job.one_at_a_time else None,
            None if key is None else now,
            job.name,
            None if job.name is None else job.keep_name,
        ),
    )
    return str(rows[0][0]) if rows else None


def _move(
    texts: Keyed, job: NewJob, run_at: int, id: int, had: int, first: int, alone: bytes | None
) -> Steps[str]:
    if job.at_most is not None:
        run_at = min(run_at, first + job.at_most)
    if run_at != had:
        yield texts.move, (run_at, id)
        if alone is not None:
            # It may be the one that was to run next of its key, and is no more. One too many is parked again.
            yield from wake(texts, job.kind, alone)
    return str(id)


def wake(texts: Keyed, kind: str, alone: bytes | None) -> Steps[bool]:
    """Has the earliest job that waits for this key to be let go wait in the kind's line again."""
    return alone is not None and bool((yield texts.wake, (kind, alone)))


def done(texts: Keyed, id: int, claim: int, now: int) -> Steps[bool]:
    """Removes a job that is done, and says whether the claim had it."""
    rows = yield texts.done, (id, claim)
    if not rows:
        return False
    kind, alone, name, keep_name = rows[0]
    yield from _end_name(texts, _as_text(name), keep_name, now)
    yield from wake(texts, _as_text(kind), alone)
    return True


def _as_text(value: Any) -> Any:
    # The app's connection may answer text as bytes, which are no text to SQLite; and someone may have written any.
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _end_name(texts: Keyed, name: str | None, keep_name: int | None, now: int) -> Steps[None]:
    if name is not None and keep_name:
        told = str(_as_text(name)).encode("utf-8", "replace").decode()  # what stood there was maybe no text
        yield texts.keep_name, (told, now + keep_name)


def mark(texts: Keyed, mark: TryAgain | Fail | GiveBack | HoldBack, id: int, now: int) -> Steps[bool]:
    """Keeps what became of a job, whatever it has, and says whether the claim had it."""
    pair = id, mark.claim
    match mark:
        case TryAgain():
            rows = yield texts.try_again, (now + mark.after, kept_text(mark.error), *pair)
        case Fail():
            rows = yield texts.fail, (now, kept_text(mark.error), *pair)
        case _:
            rows = yield texts.give_back, (*given_back(mark, now), *pair)
    if not rows:
        return False
    kind, alone = rows[0]
    if isinstance(mark, HoldBack):
        yield texts.hold_back, (kind, now + mark.kind_for, now)
    yield from wake(texts, kind, alone)
    return True


def given_back(mark: GiveBack | HoldBack, now: int) -> tuple[int | None, str | None]:
    """The job's new time and error, where it gets one."""
    at = None if mark.after is None else now + mark.after
    error = mark.error if isinstance(mark, GiveBack) else None
    return at, None if error is None else kept_text(error)


def cancel(texts: Keyed, id: int, now: int) -> Steps[Cancelled]:
    """Removes a job that waits, or asks the one that's held to stop."""
    rows = yield texts.cancel, (id, now)
    if rows:
        kind, alone, name, keep_name, state = rows[0]
        yield from _end_name(texts, name, keep_name, now)
        if state != PARKED:
            # It may be the one that was to run next of its key. One too many is parked again.
            yield from wake(texts, kind, alone)
        return Cancelled.REMOVED
    return Cancelled.ASKED if (yield texts.ask_to_stop, (id,)) else Cancelled.NOT_THERE


def delete(texts: Keyed, ids: Sequence[int], now: int) -> Steps[None]:
    """Removes failed jobs."""
    for name, keep_name in (yield texts.delete, (json.dumps(list(ids)),)):
        yield from _end_name(texts, name, keep_name, now)


def prune(texts: Keyed, failed_for: int, limit: int, now: int) -> Steps[int]:
    """Removes at most `limit` failed jobs, names and counters that are kept no longer, and answers how many."""
    failed = yield texts.prune_failed, (now - failed_for, limit)
    for name, keep_name in failed:
        yield from _end_name(texts, name, keep_name, now)
    gone = len(failed)
    for text in (texts.prune_names, texts.prune_throttles):
        if gone < limit:
            gone += len((yield text, (now, limit - gone)))
    return gone
