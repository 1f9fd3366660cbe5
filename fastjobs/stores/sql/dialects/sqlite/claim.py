"""The claim on SQLite, inside a transaction that has the write lock: no row needs a lock of its own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from fastjobs.core.claiming import Claimable, Claimed
from fastjobs.stores.sql.dialects.sqlite.opened import Opened
from fastjobs.stores.sql.dialects.sqlite.picking import Lane, Pick


class Wanted(NamedTuple):
    """What a claim was asked."""

    kinds: tuple[Claimable, ...]
    limit: int
    ahead: int
    others: Claimable | None


class Sight(NamedTuple):
    """A kind as a look found it."""

    kind: str
    held_until: int | None
    paused: int | None
    first: int | None
    """The run_at of its first job that waits."""
    ends: int | None
    """When the first of its holds ends."""


def look(opened: Opened, wanted: Wanted, now: int) -> Claimed | None:
    """The answer to a claim that finds nothing due, by a read alone; None where a claim is to be made."""
    if not opened.known.issuperset(kind.kind for kind in wanted.kinds):
        return None
    seen = _seen(opened, wanted)
    if wanted.limit > 0:
        due = [sight for sight in seen if _is_due(sight, now)]
        if due:
            numbers = _numbers(wanted)
            for sight in due:
                if _room(opened, wanted, sight.kind, numbers.get(sight.kind, wanted.others), now) > 0:
                    return None
    return Claimed(next_in=_next_in(opened, wanted, seen, now), now=now)


def note_kinds(opened: Opened, kinds: Sequence[str], now: int) -> None:
    """Sees to it that each of the kinds has a row. Those known to have one cost nothing."""
    for kind in kinds:
        if kind not in opened.known and kind not in opened.noted:
            opened.raw.execute(opened.statements.new_kind, (kind, now))
            opened.noted.add(kind)


def claim(opened: Opened, wanted: Wanted, now: int) -> Claimed:
    """Takes what is due: by priority, then due time, then id, over all kinds of one priority."""
    note_kinds(opened, [kind.kind for kind in wanted.kinds], now)
    if wanted.limit <= 0:
        return Claimed(next_in=_next_in(opened, wanted, _seen(opened, wanted), now), now=now)
    numbers, others = _numbers(wanted), wanted.others
    by_priority: dict[int, list[Lane]] = {}
    for sight in _seen(opened, wanted):
        if not _is_due(sight, now):
            continue
        numbered = numbers.get(sight.kind, others)
        room = _room(opened, wanted, sight.kind, numbered, now)
        if numbered is None or room <= 0:
            continue
        if sight.ends is not None and sight.ends <= now:
            opened.raw.execute(opened.keyed.wake_reaped, (sight.kind, now))
            opened.raw.execute(opened.statements.reap, (sight.kind, now))
        is_named = sight.kind in numbers
        if not is_named:
            numbered = replace(numbered, kind=sight.kind)
        by_priority.setdefault(numbered.priority, []).append(Lane(numbered, room, is_named))
    picked = Pick(opened, wanted.limit, wanted.ahead, now, None if others is None else others.limit)
    for priority in sorted(by_priority, reverse=True):
        if picked.is_full():
            break
        picked.walk(by_priority[priority])
    picked.keep()
    short = len(picked.jobs) < wanted.limit
    return Claimed(
        jobs=picked.jobs,
        exhausted=picked.exhausted,
        again=short and picked.again,
        next_in=_next_in(opened, wanted, _seen(opened, wanted), now) if short else None,
        now=now,
    )


def _numbers(wanted: Wanted) -> dict[str, Claimable]:
    return {kind.kind: kind for kind in wanted.kinds}


def _seen(opened: Opened, wanted: Wanted) -> list[Sight]:
    text = opened.statements.look if wanted.others is None else opened.statements.look_all
    names = _names(tuple(kind.kind for kind in wanted.kinds))
    return [Sight(*row) for row in opened.raw.execute(text, (names,)).fetchall()]


def _is_due(sight: Sight, now: int) -> bool:
    if sight.paused or (sight.held_until or 0) > now:
        return False
    return (sight.first is not None and sight.first <= now) or (sight.ends is not None and sight.ends <= now)


def _room(opened: Opened, wanted: Wanted, kind: str, numbers: Claimable | None, now: int) -> int:
    """How many jobs of the kind the claim may take."""
    if numbers is None:
        return 0
    limit = wanted.limit if numbers.ahead_ok else wanted.limit - max(wanted.ahead, 0)
    if numbers.limit is not None:
        limit = min(limit, numbers.limit)
    if numbers.at_once is not None and limit > 0:
        limit = min(limit, numbers.at_once - _held(opened, kind, numbers.at_once, now))
    return limit


def _held(opened: Opened, kind: str, most: int, now: int) -> int:
    count: int = opened.raw.execute(opened.keyed.held, (kind, now, most)).fetchone()[0]
    return count


def _next_in(opened: Opened, wanted: Wanted, seen: list[Sight], now: int) -> int | None:
    numbers, others = _numbers(wanted), wanted.others
    found: int | None = None
    for sight in seen:
        # A job whose hold ran out is due, and waits as soon as a claim may take it.
        is_lost = sight.ends is not None and sight.ends <= now
        first = now if is_lost else sight.first
        if first is None or sight.paused:
            continue
        at = max(first, sight.held_until or 0)
        if at <= now:
            at_once = getattr(numbers.get(sight.kind, others), "at_once", None)
            if at_once is not None and _held(opened, sight.kind, at_once, now) >= at_once:
                continue  # until one of them ends, which wakes the queue
        if found is None or at < found:
            found = at
    return None if found is None else max(found - now, 0)


@lru_cache(maxsize=64)
def _names(kinds: tuple[str, ...]) -> str:
    return json.dumps(kinds)
