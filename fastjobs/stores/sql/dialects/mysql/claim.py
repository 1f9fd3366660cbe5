"""The claim on MySQL and MariaDB: a look, which locks and writes nothing, and a transaction that takes what is due.

An index keeps entries of jobs that are done for as long as any transaction may see them. To lock its way past them
costs the server 50 times what a plain read of them does: so what locks begins at the first job that a look has found.
Where looks have become slow themselves, they begin at floors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from fastjobs.core.claiming import Claimable, Claimed
from fastjobs.stores.sql.dialects.mysql import keyed
from fastjobs.stores.sql.dialects.mysql.picking import Lane, Pick
from fastjobs.stores.sql.dialects.mysql.statements import Statements
from fastjobs.stores.sql.dialects.mysql.steps import Step, Steps
from fastjobs.stores.sql.server.floors import LOWEST, MANY, Floors
from fastjobs.stores.sql.server.wanted import Wanted

_REAPED = 1000
"""The most holds of a kind that one claim finds to have run out."""
_SLOW = 4_000
"""So many microseconds of the server's own make a look slow."""
_LESS = 4
"""A look at the same from where its first jobs are takes a part of that, where it's entries of done ones in its way."""
_MINUTE = 60_000_000
_EXTENDING = 5_000_000
"""Microseconds in which a mark is certainly kept or not."""


class Sight(NamedTuple):
    """A kind as a look found it."""

    kind: str
    held_until: int
    paused: int
    first: int | None
    """The run_at of its first job that waits."""
    ends: int | None
    """When the first of its holds ends."""
    took: int
    """Microseconds that the server looked for it."""
    held: int
    """How many are held of a kind with a limit, up to that."""

    def is_due(self, now: int) -> bool:
        """Whether it has something to take."""
        if self.paused or self.held_until > now:
            return False
        return (self.first is not None and self.first <= now) or self.is_lost(now)

    def is_lost(self, now: int) -> bool:
        """Whether a hold has run out."""
        return self.ends is not None and self.ends <= now


class Asked:
    """A claim that is asked now."""

    def __init__(self, texts: Statements, wanted: Wanted, now: int, floors: Floors) -> None:
        self.texts = texts
        self.wanted = wanted
        self.now = now
        self.floors = floors
        self.forgets = floors.forgets
        self.full = floors.is_full(now)
        """Whether it looks at all there is."""
        self.is_measured = not self.full
        self.numbers = {kind.kind: kind for kind in wanted.kinds}
        self.limit = max(wanted.limit, 0)

    def numbered(self, kind: str) -> Claimable | None:
        """The claimer's numbers for the kind."""
        found = self.numbers.get(kind, self.wanted.others)
        return found if found is None or found.kind == kind else replace(found, kind=kind)


def look(asked: Asked) -> Steps[list[Sight]]:
    """Each kind as it is, by a read alone."""
    kinds = list(asked.numbers)
    if asked.wanted.others is not None:
        kinds = [
            *kinds,
            *(row[0] for row in (yield Step(asked.texts.known_kinds)).rows if row[0] not in asked.numbers),
        ]
    if not kinds:
        return []
    if not asked.full:
        seen = yield from _see(asked, {kind: asked.floors.of(kind) for kind in kinds})
    else:
        seen = yield from _see_all(asked, kinds)
    if not asked.is_measured:
        asked.is_measured = True
        is_slow = yield from _is_slow(asked, kinds, seen)
        asked.floors.met(MANY if is_slow else 0, asked.now, asked.forgets)
        # The rest of the claim need not walk there again.
        asked.full = asked.floors.is_full(asked.now)
    if not asked.full:
        for sight in seen:
            asked.floors.saw(sight.kind, _first(asked, sight))
    return seen


def _is_slow(asked: Asked, kinds: Sequence[str], seen: Sequence[Sight]) -> Steps[bool]:
    """Whether a look at all there is was slow for entries of jobs that are gone.

    No server says how many it met. The same look from the jobs that were found meets none of them. All are timed by the
    server, and the slow one is repeated at first: so neither a busy machine, nor a network, nor pages that had to be
    read from the disk are taken for it, but once in a very long while; which costs an order, for half a second.
    """
    if _took(seen) < _SLOW:
        return False
    low = yield from _see(asked, {sight.kind: _first(asked, sight) for sight in seen})
    if _took(low) * _LESS > _took(seen):
        return False
    return asked.floors.is_used() or _took((yield from _see_all(asked, kinds))) >= _SLOW


def _see_all(asked: Asked, kinds: Sequence[str]) -> Steps[list[Sight]]:
    parts: list[str] = []
    values: list[object] = []
    for kind in kinds:
        held = _held_values(asked, kind)
        parts.append(asked.texts.look_limited if held else asked.texts.look)
        values.extend((kind, kind, LOWEST, kind, *held, kind))
    found = yield Step(" UNION ALL ".join(parts), tuple(values))
    return [_sight(*row) for row in found.rows]


def _see(asked: Asked, floors: Mapping[str, int]) -> Steps[list[Sight]]:
    """As `_see_all` from these floors on, and without the ends of holds."""
    parts: list[str] = []
    values: list[object] = []
    for kind, floor in floors.items():
        held = _held_values(asked, kind)
        parts.append(asked.texts.look_low_limited if held else asked.texts.look_low)
        values.extend((kind, kind, floor, *held, kind))
    found = yield Step(" UNION ALL ".join(parts), tuple(values))
    return [_sight(*row) for row in found.rows]


def _held_values(asked: Asked, kind: str) -> tuple[object, ...]:
    at_once = _at_once(asked, kind)
    return () if at_once is None else (kind, kind, asked.now, max(at_once, 0))


def _sight(
    kind: str,
    held_until: int,
    paused: int,
    began: int,
    first: int | None,
    ends: int | None,
    ended: int,
    held: int | None,
) -> Sight:
    return Sight(kind, held_until, paused, first, ends, (ended - began) % _MINUTE, held or 0)


def _took(seen: Sequence[Sight]) -> int:
    return sum(sight.took for sight in seen)


def _first(asked: Asked, sight: Sight) -> int:
    """Where the kind's jobs begin that wait."""
    return asked.now if sight.first is None else sight.first


def found_nothing(asked: Asked, seen: Sequence[Sight]) -> Claimed | None:
    """The answer to a claim of which a look found that there's nothing to take; None where a claim is to be made."""
    if asked.limit:
        for sight in seen:
            if sight.is_due(asked.now) and _room(asked, sight.kind, sight.held) > 0:
                return None
    return Claimed(next_in=_next_in(asked, seen), now=asked.now)


def claim(asked: Asked, seen: Sequence[Sight]) -> Steps[Claimed]:
    """Takes what is due: by priority, then due time, then id, over all kinds of one priority.

    Locks are taken in the order kinds, jobs, slots by kind and key, parked jobs. Of a kind with a limit the row is
    locked, by SKIP LOCKED, in a statement before the one that counts: at READ COMMITTED that sees every claim which had
    it before. Due jobs that someone else has locked are passed over.
    """
    texts, now, others = asked.texts, asked.now, asked.wanted.others
    due = [sight for sight in seen if sight.is_due(now) and asked.numbered(sight.kind) is not None]
    reaped, again = yield from _reap(asked, [sight.kind for sight in due if sight.is_lost(now)])
    limits = {sight.kind: at_once for sight in due if (at_once := _at_once(asked, sight.kind)) is not None}
    # Of those that were at their limit as it looked nothing is taken: an end has the queue claim again.
    due = [sight for sight in due if sight.kind not in limits or sight.held < limits[sight.kind]]
    limited = [sight.kind for sight in due if sight.kind in limits]
    locked: set[str] = set()
    if limited:
        locked = {row[0] for row in (yield Step(texts.lock_kinds, (tuple(limited), now))).rows}
        # Another claim has a kind's row: there may be places left once it has taken its own.
        again = again or len(locked) < len(limited)
    by_priority: dict[int, list[Lane]] = {}
    for sight in due:
        if sight.kind in limited and sight.kind not in locked:
            continue
        held = (yield from _held(asked, sight.kind, limits[sight.kind])) if sight.kind in limits else 0
        room = _room(asked, sight.kind, held)
        numbered = asked.numbered(sight.kind)
        if numbered is None or room <= 0:
            continue
        floor = LOWEST if sight.kind in reaped else _first(asked, sight)
        lane = Lane(numbered, room, sight.kind in asked.numbers, floor)
        by_priority.setdefault(numbered.priority, []).append(lane)
    picked = Pick(texts, asked.limit, asked.wanted.ahead, now, None if others is None else others.limit)
    for priority in sorted(by_priority, reverse=True):
        if picked.is_full():
            break
        yield from picked.walk(by_priority[priority])
    yield from picked.end()
    short = len(picked.jobs) < asked.limit or not asked.limit
    next_in = None
    if short:
        next_in = _next_in(asked, (yield from look(asked)))
    return Claimed(
        jobs=picked.jobs,
        exhausted=picked.exhausted,
        again=short and (again or picked.again),
        next_in=next_in,
        now=now,
    )


def _reap(asked: Asked, kinds: Sequence[str]) -> Steps[tuple[set[str], bool]]:
    """Has the jobs whose holds ran out wait again; their claims may mark them until another claim takes them. The kinds
    that have some, and whether there may be more of them."""
    reaped: set[str] = set()
    more = False
    for kind in kinds:
        found = yield Step(asked.texts.reap, (kind, kind, asked.now, _REAPED))
        if found.rows:
            yield Step(asked.texts.reaped, (tuple(row[0] for row in found.rows),))
            yield from keyed.promote(asked.texts, {(kind, key) for _, key in found.rows if key is not None})
            more = more or len(found.rows) >= _REAPED
            reaped.add(kind)
    if reaped:
        # They were due long ago.
        asked.floors.forget()
    return reaped, more


def _at_once(asked: Asked, kind: str) -> int | None:
    numbered = asked.numbered(kind)
    return None if numbered is None else numbered.at_once


def _room(asked: Asked, kind: str, held: int) -> int:
    """How many jobs of the kind the claim may take, with so many of it held."""
    numbered = asked.numbered(kind)
    if numbered is None:
        return 0
    room = asked.limit if numbered.ahead_ok else asked.limit - max(asked.wanted.ahead, 0)
    if numbered.limit is not None:
        room = min(room, numbered.limit)
    if numbered.at_once is not None:
        room = min(room, numbered.at_once - held)
    return room


def _held(asked: Asked, kind: str, most: int) -> Steps[int]:
    # Those whose holds have just run out and that nobody could have wait again are someone's who may be extending them.
    found = yield Step(asked.texts.held, (kind, kind, asked.now - _EXTENDING, max(most, 0)))
    return int(found.rows[0][0])


def _next_in(asked: Asked, seen: Sequence[Sight]) -> int | None:
    now, next_at = asked.now, None
    for sight in seen:
        # A job whose hold ran out is due, and waits as soon as a claim may take it.
        first = now if sight.is_lost(now) else sight.first
        if first is None or sight.paused:
            continue
        at = max(first, sight.held_until)
        at_once = _at_once(asked, sight.kind)
        if at <= now and at_once is not None and sight.held >= at_once:
            continue  # until one of them ends, which wakes the queue
        if next_at is None or at < next_at:
            next_at = at
    next_in = None if next_at is None else max(next_at - now, 0)
    look_in = None if asked.full else asked.floors.until(now)
    return look_in if next_in is None or (look_in is not None and look_in < next_in) else next_in
