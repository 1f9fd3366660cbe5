"""The sweep on SQLite: wakes what waits for a key that nobody holds, as after a hold that ran out unclaimed."""

from __future__ import annotations

from collections.abc import Sequence

from fastjobs.stores.sql.dialects.sqlite import keyed
from fastjobs.stores.sql.dialects.sqlite.opened import Opened

AT_A_TIME = 500
"""The most keys in one read, and in one transaction."""

Key = tuple[str, bytes]
"""A kind and a key of its jobs."""


def keys(opened: Opened, after: Key, now: int) -> list[tuple[Key, bool]]:
    """The keys behind this one that jobs wait for, in their order, and whether each is held. It only reads."""
    rows = opened.raw.execute(opened.keyed.keys, (*after, AT_A_TIME + 1, now)).fetchall()
    return [((kind, alone), bool(is_held)) for kind, alone, is_held in rows]


def wake(opened: Opened, keys: Sequence[Key], now: int) -> int:
    """Wakes the earliest job of each of these keys, unless it's held by now, and answers how many."""
    woken = 0
    for kind, alone in keys:
        if opened.raw.execute(opened.keyed.holder, (kind, alone, now)).fetchone() is None:
            woken += keyed.in_line(opened.raw, keyed.wake(opened.keyed, kind, alone))
    return woken
