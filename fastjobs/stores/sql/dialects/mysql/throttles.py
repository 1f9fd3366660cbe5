"""The counts of rates on MySQL and MariaDB: a row for each start, until `per` after it, counted under a named lock.

The lock is the server's by a name and no row's, so one that finds no place free writes nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from typing import TypeVar

from fastjobs.core.duration import SECOND
from fastjobs.core.errors import StoreError
from fastjobs.store import Places, Throttled
from fastjobs.stores.sql.dialects.mysql.link import Link
from fastjobs.stores.sql.dialects.mysql.statements import Statements
from fastjobs.stores.sql.dialects.mysql.steps import Step, Steps

KEPT_FREE = 10 * SECOND
"""How long places are kept for whoever took them."""
_PATIENCE = 10
"""Seconds that one waits for another who counts."""

_T = TypeVar("_T")


async def take(
    link: Link, texts: Statements, schema: str | None, asked: Sequence[Throttled], now: int
) -> list[Places]:
    """Takes up to so many places of each, or finds by a read alone that none is free.

    `schema` is the database of the tables, None for the connection's.
    """
    nothing = await link.ask(_look(texts, asked, now))
    if nothing is not None:
        return nothing
    return await _counted(
        link,
        texts,
        schema,
        {(each.name, each.key) for each in asked},
        lambda: link.transact(_take(texts, asked, now)),
    )


async def settle(
    link: Link, texts: Statements, schema: str | None, started: Sequence[tuple[Places, int, int]]
) -> None:
    """Says of each of these places how many started, and when; the rest are free again."""
    await _counted(
        link,
        texts,
        schema,
        {(each.name, each.key) for each, _, _ in started},
        lambda: link.transact(_settle(texts, started)),
    )


async def _counted(
    link: Link,
    texts: Statements,
    schema: str | None,
    keys: set[tuple[str, str]],
    work: Callable[[], Awaitable[_T]],
) -> _T:
    """Does the work while nobody else counts these. In one order, so that no two wait for each other."""
    # A server has one set of such locks for all its databases. To fold a name has no two locks for one database.
    home = (schema or link.greeting.database).casefold()
    texts_of = ("\0".join((home, *key)).encode() for key in keys)
    names = sorted(f"fastjobs {blake2b(each, digest_size=20).hexdigest()}" for each in texts_of)
    try:
        await link.ask(_lock(texts, names))
        return await work()
    finally:
        await link.ask(_unlock(texts, names))


def _lock(texts: Statements, names: Sequence[str]) -> Steps[None]:
    for name in names:
        if (yield Step(texts.get_lock, (name, _PATIENCE))).rows[0][0] != 1:
            raise StoreError(
                f"another has been counting a rate's starts for {_PATIENCE} s, or hangs as it does"
            )


def _unlock(texts: Statements, names: Sequence[str]) -> Steps[None]:
    for name in names:
        yield Step(texts.release_lock, (name,))


def _look(texts: Statements, asked: Sequence[Throttled], now: int) -> Steps[list[Places] | None]:
    """The answer where no place is free; None where some can be taken."""
    answers: list[Places] = []
    for each in asked:
        busy = yield from _busy(texts, each, now)
        if each.wanted > 0 and len(busy) < each.most:
            return None
        answers.append(_places(each, (), busy, now))
    return answers


def _take(texts: Statements, asked: Sequence[Throttled], now: int) -> Steps[list[Places]]:
    before, after = texts.take_places
    answers: list[Places] = []
    for each in asked:
        busy = yield from _busy(texts, each, now)
        # A slot past `most` is one of a limit that was higher, and its start counts as any other.
        room = min(max(each.wanted, 0), each.most - len(busy))
        free = (slot for slot in range(each.most) if slot not in busy)
        slots = tuple(slot for slot, _ in zip(free, range(room), strict=False))
        if slots:
            until = now + KEPT_FREE
            rows = [(each.name, each.key.encode(), slot, until, until + each.per) for slot in slots]
            values = tuple(value for row in rows for value in row)
            yield Step(before + " UNION ALL ".join([texts.place] * len(rows)) + after, values)
        answers.append(_places(each, slots, busy, now))
    return answers


def _settle(texts: Statements, started: Sequence[tuple[Places, int, int]]) -> Steps[None]:
    for places, used, at in started:
        mine = places.name, places.key.encode(), places.until
        used = max(used, 0)
        if places.slots[:used]:
            yield Step(texts.settle_places, (at, at, *mine, places.slots[:used]))
        if places.slots[used:]:
            yield Step(texts.free_places, (*mine, places.slots[used:]))


def _busy(texts: Statements, each: Throttled, now: int) -> Steps[dict[int, int]]:
    """The slots that are not free, and the time of each."""
    found = yield Step(texts.places, (each.name, each.key.encode(), each.per, now))
    return {slot: at for slot, at in found.rows}


def _places(each: Throttled, slots: tuple[int, ...], busy: dict[int, int], now: int) -> Places:
    wait = 0
    if len(slots) < each.wanted:
        # A place that isn't settled yet may turn out to be of a start that is now.
        ends = sorted(min(at, now) + each.per for at in busy.values())
        ends.extend([now + each.per] * len(slots))
        wait = max(ends[len(ends) - each.most] - now, 1)
    return Places(each.name, each.key, slots, now + KEPT_FREE, wait)
