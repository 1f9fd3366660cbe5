"""Cancels and progress on SQLite, in the writer's transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fastjobs.store import Cancelled
from fastjobs.stores.sql.dialects.sqlite import keyed
from fastjobs.stores.sql.dialects.sqlite.opened import Opened
from fastjobs.stores.sql.dialects.sqlite.writer import Call
from fastjobs.stores.sql.values import claimed_row, row_id


def cancel(ids: Sequence[str], now: Callable[[], int]) -> Call[list[Cancelled]]:
    """Removes the jobs that wait and asks the held ones to stop, one after the other."""

    def work(opened: Opened) -> list[Cancelled]:
        at = now()
        return [
            Cancelled.NOT_THERE
            if number is None
            else keyed.in_line(opened.raw, keyed.cancel(opened.keyed, number, at))
            for number in map(row_id, ids)
        ]

    return Call(work)


def progress(reports: Sequence[tuple[str, int, str]]) -> Call[None]:
    """Keeps the text of each (id, claim, text) whose claim has the job."""
    rows = [(text, *row) for id, claim, text in reports if (row := claimed_row(id, claim)) is not None]

    def work(opened: Opened) -> None:
        opened.raw.executemany(opened.keyed.progress, rows)

    return Call(work)
