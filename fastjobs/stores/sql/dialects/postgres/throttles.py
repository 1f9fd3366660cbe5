"""The counts of rates on Postgres: what is asked of the functions, and their answers as places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastjobs.store import Places, Throttled
from fastjobs.stores.sql.dialects.postgres.statements import Statements
from fastjobs.stores.sql.dialects.postgres.throttle_functions import RESERVED

if TYPE_CHECKING:
    from fastjobs.stores.sql.dialects.postgres.links import Link


async def take(link: Link, statements: Statements, asked: Sequence[Throttled], now: int) -> list[Places]:
    """Takes up to so many places of each."""
    names, keys, most, per, wanted = (list(each) for each in zip(*asked, strict=True))
    found = await link.fetch(statements.take, names, keys, most, per, wanted, now)
    return [
        Places(each.name, each.key, tuple(slots), now + RESERVED, wait)
        for each, (slots, wait) in zip(asked, found, strict=True)
    ]


async def settle(link: Link, statements: Statements, started: Sequence[tuple[Places, int, int]]) -> None:
    """Says of each of these places how many started, and when; the rest are free again."""
    rows = [
        (places.name, places.key, slot, places.until, at if nth < count else None)
        for places, count, at in started
        for nth, slot in enumerate(places.slots)
    ]
    if rows:
        await link.fetch(statements.settle, *(list(column) for column in zip(*rows, strict=True)))
