"""The counts of rates on SQLite: a row for each start, until `per` after it. The one writer counts as it takes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial

from fastjobs.core.duration import SECOND
from fastjobs.store import Places, Throttled
from fastjobs.stores.sql.dialects.sqlite.opened import Opened
from fastjobs.stores.sql.dialects.sqlite.writer import Call

KEPT_FREE = 10 * SECOND
"""How long places are kept for whoever took them."""


def take(asked: Sequence[Throttled], now: Callable[[], int]) -> Call[list[Places]]:
    """Takes places, or finds by a read alone that none is free."""
    return Call(
        lambda opened: _take(opened, asked, now()),
        look=lambda opened: _look(opened, asked, now()),
    )


def settle(started: Sequence[tuple[Places, int, int]]) -> Call[None]:
    """Says what became of places."""
    return Call(partial(_settle, started=started))


def _look(opened: Opened, asked: Sequence[Throttled], now: int) -> list[Places] | None:
    """The answer where no place is free, by reads alone; None where some can be taken."""
    answers: list[Places] = []
    for each in asked:
        busy = _busy(opened, each, now)
        if each.wanted > 0 and len(busy) < each.most:
            return None
        answers.append(_places(each, (), busy, now))
    return answers


def _take(opened: Opened, asked: Sequence[Throttled], now: int) -> list[Places]:
    """Takes what is free of each, as far as it's wanted."""
    answers: list[Places] = []
    for each in asked:
        busy = _busy(opened, each, now)
        # A slot past `most` is one of a limit that was higher, and its start counts as any other.
        room = min(max(each.wanted, 0), each.most - len(busy))
        free = (slot for slot in range(each.most) if slot not in busy)
        slots = tuple(slot for slot, _ in zip(free, range(room), strict=False))
        if slots:
            until = now + KEPT_FREE
            values = each.name, each.key, until, until + each.per, json.dumps(slots)
            opened.raw.execute(opened.keyed.take_places, values)
        answers.append(_places(each, slots, busy, now))
    return answers


def _settle(opened: Opened, started: Sequence[tuple[Places, int, int]]) -> None:
    """Writes down which of the places were used and when, and lets the others go."""
    for places, used, at in started:
        mine = places.name, places.key, places.until
        used = max(used, 0)
        if places.slots[:used]:
            values = at, at, *mine, json.dumps(places.slots[:used])
            opened.raw.execute(opened.keyed.settle_places, values)
        if places.slots[used:]:
            opened.raw.execute(opened.keyed.free_places, (*mine, json.dumps(places.slots[used:])))


def _busy(opened: Opened, each: Throttled, now: int) -> dict[int, int]:
    """The slots that are not free, and the time of each."""
    values = each.name, each.key, each.per, now
    return dict(opened.raw.execute(opened.keyed.places, values).fetchall())


def _places(each: Throttled, slots: tuple[int, ...], busy: dict[int, int], now: int) -> Places:
    wait = 0
    if len(slots) < each.wanted:
        # A place that isn't settled yet may turn out to be of a start that is now.
        ends = sorted(min(at, now) + each.per for at in busy.values())
        ends.extend([now + each.per] * len(slots))
        wait = max(ends[len(ends) - each.most] - now, 1)
    return Places(each.name, each.key, slots, now + KEPT_FREE, wait)
