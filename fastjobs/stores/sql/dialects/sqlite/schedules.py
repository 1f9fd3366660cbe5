"""The runs of schedules on SQLite: which was pushed last of each, moved on in the transaction that pushes its job."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from fastjobs.store import Run
from fastjobs.stores.sql.dialects.sqlite import pushing
from fastjobs.stores.sql.dialects.sqlite.opened import Opened
from fastjobs.stores.sql.dialects.sqlite.writer import Call


def runs(names: Sequence[str]) -> Call[Mapping[str, int]]:
    """Tells the last run of each of these that had one, by a read alone."""
    look = partial(_runs, names=names)
    return Call(look, look=look)


def push_run(run: Run, now: Callable[[], int]) -> Call[bool]:
    """Pushes the run, or finds by a read alone that one due then or later was pushed already."""
    return Call(
        lambda opened: _push_run(opened, run, now()),
        look=lambda opened: False if _is_past(opened, run) else None,
    )


def _runs(opened: Opened, names: Sequence[str]) -> Mapping[str, int]:
    return dict(opened.raw.execute(opened.statements.runs, (json.dumps(names),)).fetchall())


def _is_past(opened: Opened, run: Run) -> bool:
    last = _runs(opened, [run.schedule]).get(run.schedule)
    return last is not None and last >= run.due


def _push_run(opened: Opened, run: Run, now: int) -> bool:
    # No other can write between the look and this: the transaction has the file's one lock from its start.
    if _is_past(opened, run):
        return False
    opened.raw.execute(opened.statements.note_run, (run.schedule, run.due))
    pushing.push([run.job._replace(latest=False)], now)(opened)
    return True
