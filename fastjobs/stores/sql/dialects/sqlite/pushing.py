"""The push on SQLite's writer: jobs that have no key and no name by one short statement each, all others by steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from fastjobs.core.job import NewJob
from fastjobs.stores.sql import operations
from fastjobs.stores.sql.dialects.sqlite import keyed
from fastjobs.stores.sql.dialects.sqlite.claim import note_kinds
from fastjobs.stores.sql.dialects.sqlite.opened import Opened


def push(jobs: Sequence[NewJob], now: int) -> Callable[[Opened], list[str | None]]:
    """What pushes these jobs, due by this now, and answers their ids."""
    if any(job.key is not None or job.name is not None for job in jobs):
        return partial(_keyed, jobs=list(jobs), now=now)
    return partial(_plain, rows=[operations.job_values(job, now) for job in jobs])


def _plain(opened: Opened, rows: list[tuple[str, str, int, int, str | None]]) -> list[str | None]:
    note_kinds(opened, [row[0] for row in rows], rows[0][3] if rows else 0)
    text, execute = opened.statements.push, opened.raw.execute
    return [str(execute(text, row).lastrowid) for row in rows]


def _keyed(opened: Opened, jobs: list[NewJob], now: int) -> list[str | None]:
    note_kinds(opened, [job.kind for job in jobs], now)
    return keyed.in_line(opened.raw, keyed.push(opened.keyed, jobs, now))
