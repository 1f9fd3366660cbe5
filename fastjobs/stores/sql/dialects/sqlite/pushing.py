"""The push on SQLite's writer: by one short statement each, and jobs with a name or that may move one by steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from fastjobs.core.job import NewJob
from fastjobs.stores.sql import values
from fastjobs.stores.sql.dialects.sqlite import keyed
from fastjobs.stores.sql.dialects.sqlite.claim import note_kinds
from fastjobs.stores.sql.dialects.sqlite.opened import Opened


def push(jobs: Sequence[NewJob], now: int) -> Callable[[Opened], list[str | None]]:
    """What pushes these jobs, due by this now, and answers their ids."""
    if values.has_keys(jobs):
        for job in jobs:
            if job.key is None or job.name is not None or job.latest:
                return partial(_keyed, jobs=list(jobs), now=now)
        return partial(_unique, jobs=jobs, now=now)
    return partial(_plain, rows=values.rows_of(jobs, now))


def _plain(opened: Opened, rows: list[tuple[str, str, int, int, str | None]]) -> list[str | None]:
    note_kinds(opened, [row[0] for row in rows], rows[0][3] if rows else 0)
    text, execute = opened.statements.push, opened.raw.execute
    return [str(execute(text, row).lastrowid) for row in rows]


def _unique(opened: Opened, jobs: Sequence[NewJob], now: int) -> list[str | None]:
    note_kinds(opened, [job.kind for job in jobs], now)
    text, execute = opened.keyed.insert_unique, opened.raw.execute
    ids: list[str | None] = []
    for kind, payload, at, after, key, _, _, one_at_a_time, _, _, carried in jobs:
        due = now + after if at is None else at
        inserted = execute(text, (kind, payload, due, now, carried, key, key if one_at_a_time else None))
        ids.append(str(inserted.lastrowid) if inserted.rowcount else None)
    return ids


def _keyed(opened: Opened, jobs: list[NewJob], now: int) -> list[str | None]:
    note_kinds(opened, [job.kind for job in jobs], now)
    return keyed.in_line(opened.raw, keyed.push(opened.keyed, jobs, now))
