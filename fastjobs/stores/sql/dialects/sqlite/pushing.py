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
        if all(job.key is not None and job.name is None and not job.latest for job in jobs):
            return partial(_unique, jobs=jobs, now=now)
        return partial(_keyed, jobs=list(jobs), now=now)
    return partial(_plain, rows=values.rows_of(jobs, now))


def _plain(opened: Opened, rows: list[tuple[str, str, int, int, str | None]]) -> list[str | None]:
    note_kinds(opened, [row[0] for row in rows], rows[0][3] if rows else 0)
    text, execute = opened.statements.push, opened.raw.execute
    return [str(execute(text, row).lastrowid) for row in rows]


def _unique(opened: Opened, jobs: Sequence[NewJob], now: int) -> list[str | None]:
    note_kinds(opened, [job.kind for job in jobs], now)
    text, execute = opened.keyed.insert_unique, opened.raw.execute
    ids: list[str | None] = []
    for job in jobs:
        key = job.key
        due = now + job.after if job.at is None else job.at
        alone = key if job.one_at_a_time else None
        inserted = execute(text, (job.kind, job.payload, due, now, job.carried, key, alone))
        ids.append(str(inserted.lastrowid) if inserted.rowcount else None)
    return ids


def _keyed(opened: Opened, jobs: list[NewJob], now: int) -> list[str | None]:
    note_kinds(opened, [job.kind for job in jobs], now)
    return keyed.in_line(opened.raw, keyed.push(opened.keyed, jobs, now))
