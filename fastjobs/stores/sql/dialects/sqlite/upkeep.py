"""The sweep and the prune on SQLite. Both read first, without the file's lock, and then write in small steps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from fastjobs.stores.sql.dialects.sqlite import keyed
from fastjobs.stores.sql.dialects.sqlite.opened import Opened
from fastjobs.stores.sql.dialects.sqlite.writer import Call

_T = TypeVar("_T")
_AT_A_TIME = 500
"""The most keys in one read, and in one transaction."""

_PRUNED = 100
"""The most rows that are removed in one transaction: a claim waits for no more than these."""

_Key = tuple[str, bytes]
"""A kind and a key of its jobs."""


class Calls(Protocol):
    """Has the writer do it."""

    def __call__(self, call: Call[_T], /) -> Awaitable[_T]: ...


async def sweep(calls: Calls, now: Callable[[], int]) -> int:
    """Wakes a parked job of each key that nobody holds, and answers how many."""
    woken = 0
    after: _Key = "", b""
    while True:
        look = partial(_keys, after=after, now=now)
        found = await calls(Call(look, look=look))
        asleep = [key for key, is_held in found if not is_held]
        if asleep:
            woken += await calls(Call(partial(_wake, keys=asleep, now=now)))
        if len(found) < _AT_A_TIME:
            return woken
        after = found[-1][0]


async def prune(calls: Calls, failed_for: int, limit: int, now: Callable[[], int]) -> int:
    """Removes at most `limit` rows that are kept no longer, and answers how many.

    It does so in several transactions, and rests after each as long as that took: others have the file meanwhile.
    """
    loop = asyncio.get_running_loop()
    gone = 0
    while gone < limit:
        began, most = loop.time(), min(limit - gone, _PRUNED)
        removed = await calls(_prune(failed_for, most, now))
        gone += removed
        if removed < most:
            break
        await asyncio.sleep(loop.time() - began)
    return gone


def _prune(failed_for: int, most: int, now: Callable[[], int]) -> Call[int]:
    def work(opened: Opened) -> int:
        return keyed.in_line(opened.raw, keyed.prune(opened.keyed, failed_for, most, now()))

    def look(opened: Opened) -> int | None:
        values = now() - failed_for, now(), now()
        return None if opened.raw.execute(opened.keyed.old, values).fetchone() else 0

    return Call(work, look=look)


def _keys(opened: Opened, after: _Key, now: Callable[[], int]) -> list[tuple[_Key, bool]]:
    """The keys behind this one that jobs wait for, in their order, and whether each is held. It only reads."""
    rows = opened.raw.execute(opened.keyed.keys, (*after, _AT_A_TIME + 1, now())).fetchall()
    return [((kind, alone), bool(is_held)) for kind, alone, is_held in rows]


def _wake(opened: Opened, keys: Sequence[_Key], now: Callable[[], int]) -> int:
    """Wakes the earliest job of each of these keys, unless it's held by now, and answers how many."""
    woken, at = 0, now()
    for kind, alone in keys:
        if opened.raw.execute(opened.keyed.holder, (kind, alone, at)).fetchone() is None:
            woken += keyed.in_line(opened.raw, keyed.wake(opened.keyed, kind, alone))
    return woken
