"""The sweep and the prune on MySQL and MariaDB: they read first, without locks, and then write in small steps."""

from __future__ import annotations

from collections.abc import Callable

from fastjobs.stores.sql.dialects.mysql import keyed
from fastjobs.stores.sql.dialects.mysql.link import Link
from fastjobs.stores.sql.dialects.mysql.statements import Statements
from fastjobs.stores.sql.dialects.mysql.steps import Step, Steps
from fastjobs.stores.sql.server.on_loop import OnLoop

_PRUNED = 100
"""The most rows that are removed in one transaction."""


async def sweep(here: OnLoop[Link], texts: Statements, now: Callable[[], int]) -> int:
    """Wakes a parked job of each key that no job holds, and answers how many."""
    woken = 0
    for kind in await here.use(lambda link: link.ask(_parked_kinds(texts))):
        asleep = await here.use(lambda link, kind=kind: link.ask(_asleep(texts, kind, now())))  # type: ignore[misc]
        for key in asleep:
            woke: bool = await here.use(
                lambda link, key=key: link.transact(keyed.promote(texts, {key}))  # type: ignore[misc]
            )
            woken += woke
    return woken


def _parked_kinds(texts: Statements) -> Steps[list[str]]:
    return [row[0] for row in (yield Step(texts.parked_kinds)).rows]


def _asleep(texts: Statements, kind: str, now: int) -> Steps[list[keyed.Key]]:
    """The keys of parked jobs that nobody holds. It reads keys, not jobs."""
    asleep: list[keyed.Key] = []
    key = b""
    while rows := (yield Step(texts.next_key, (kind, key))).rows:
        key = bytes(rows[0][0])
        if not (yield Step(texts.is_held, (kind, key, now))).rows:
            asleep.append((kind, key))
    return asleep


async def prune(
    here: OnLoop[Link], texts: Statements, failed_for: int, limit: int, now: Callable[[], int]
) -> int:
    """Removes at most `limit` rows of what is kept no longer, in steps, and answers how many. It waits for nobody."""
    gone = 0
    while gone < limit:
        most = min(limit - gone, _PRUNED)
        removed: int = await here.use(
            lambda link, most=most: link.transact(_prune(texts, now() - failed_for, most, now()))  # type: ignore[misc]
        )
        gone += removed
        if removed < most:
            break
    return gone


def _prune(texts: Statements, failed_before: int, most: int, now: int) -> Steps[int]:
    left = most
    for (kind,) in (yield Step(texts.known_kinds)).rows:
        if left <= 0:
            return most
        rows = (yield Step(texts.old_failed, (kind, kind, failed_before, left))).rows
        if rows:
            yield Step(texts.done, (tuple(row[0] for row in rows),))
            yield from keyed.keep_names(texts, ((row[1], row[2]) for row in rows), now)
            left -= len(rows)
    rows = (yield Step(texts.old_names, (now, left))).rows
    if rows:
        yield Step(texts.delete_names, (tuple(bytes(row[0]) for row in rows),))
        left -= len(rows)
    for find, delete in ((texts.old_slots, texts.delete_slot), (texts.old_places, texts.delete_place)):
        rows = (yield Step(find, (now, left))).rows
        for row in rows:
            yield Step(delete, tuple(row))
        left -= len(rows)
    return most - left
