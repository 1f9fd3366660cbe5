"""The claim on MySQL and MariaDB: a look, which locks and writes nothing, and a transaction that takes what is due."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from fastjobs.core.claiming import Claimable, Claimed
from fastjobs.stores.sql.dialects.mysql import keyed
from fastjobs.stores.sql.dialects.mysql.picking import Lane, Pick
from fastjobs.stores.sql.dialects.mysql.statements import Statements
from fastjobs.stores.sql.dialects.mysql.steps import Step, Steps
from fastjobs.stores.sql.server.floors import LOWEST, Floors
from fastjobs.stores.sql.server.wanted import Wanted

_REAPED = 1000
"""The most holds of a kind that one claim finds to have run out."""


class Sight(NamedTuple):
    """A kind as a look found it."""

    kind: str
    held_until: int
    paused: int
    first: int | None
    """The run_at of its first job that waits."""
    ends: int | None
    """When the first of its holds ends."""

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
        self.full = floors.is_full(now)
        self.numbers = {kind.kind: kind for kind in wanted.kinds}
        self.limit = max(wanted.limit, 0)

    def numbered(self, kind: str) -> Claimable | None:
        """The claimer's numbers for the kind."""
        found = self.numbers.get(kind, self.wanted.others)
        return found if found is None or found.kind == kind else replace(found, kind=kind)

    def floor(self, kind: str) -> int:
        """Where the walk of the kind's jobs begins."""
        return LOWEST if self.full else self.floors.of(kind)


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
    part = asked.texts.look if asked.full else asked.texts.look_low
    values: list[object] = []
    for kind in kinds:
        values.extend((kind, asked.floor(kind), kind, *([kind] if asked.full else [])))
    found = yield Step(" UNION ALL ".join([part] * len(kinds)), tuple(values))
    return [Sight(*row) for row in found.rows]


def found_nothing(asked: Asked, seen: Sequence[Sight]) -> Steps[Claimed | None]:
    """The answer to a claim of which a look found that there's nothing to take; None where a claim is to be made."""
    if asked.limit:
        for sight in seen:
            if sight.is_due(asked.now) and (yield from _room(asked, sight.kind)) > 0:
                return None
    return Claimed(next_in=(yield from _next_in(asked, seen)), now=asked.now)


def claim(asked: Asked, seen: Sequence[Sight]) -> Steps[Claimed]:
    """Takes what is due: by priority, then due time, then id, over all kinds of one priority.

    Locks are taken in the order kinds, jobs, slots by kind and key, parked jobs. Of a kind with a limit the row is
    locked, by SKIP LOCKED, in a statement before the one that counts: at READ COMMITTED that sees every claim which had
    it before. Due jobs that someone else has locked are passed over.
    """
    texts, now, others = asked.texts, asked.now, asked.wanted.others
    due = [sight for sight in seen if sight.is_due(now) and asked.numbered(sight.kind) is not None]
    again = yield from _reap(asked, [sight.kind for sight in due if sight.is_lost(now)])
    limited = [sight.kind for sight in due if _at_once(asked, sight.kind) is not None]
    locked: set[str] = set()
    if limited:
        locked = {row[0] for row in (yield Step(texts.lock_kinds, (tuple(limited), now))).rows}
        # Another claim has a kind's row: there may be places left once it has taken its own.
        again = again or len(locked) < len(limited)
    by_priority: dict[int, list[Lane]] = {}
    for sight in due:
        if sight.kind in limited and sight.kind not in locked:
            continue
        room = yield from _room(asked, sight.kind)
        numbered = asked.numbered(sight.kind)
        if numbered is None or room <= 0:
            continue
        lane = Lane(numbered, room, sight.kind in asked.numbers, asked.floor(sight.kind))
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
        next_in = yield from _next_in(asked, (yield from look(asked)))
    return Claimed(
        jobs=picked.jobs,
        exhausted=picked.exhausted,
        again=short and (again or picked.again),
        next_in=next_in,
        now=now,
    )


def _reap(asked: Asked, kinds: Sequence[str]) -> Steps[bool]:
    """Has the jobs whose holds ran out wait again; their claims may mark them until another claim takes them. Whether
    there may be more of them."""
    more = False
    for kind in kinds:
        found = yield Step(asked.texts.reap, (kind, asked.now, _REAPED))
        if found.rows:
            yield Step(asked.texts.reaped, (tuple(row[0] for row in found.rows),))
            yield from keyed.promote(asked.texts, {(kind, key) for _, key in found.rows if key is not None})
            more = more or len(found.rows) >= _REAPED
    return more


def _at_once(asked: Asked, kind: str) -> int | None:
    numbered = asked.numbered(kind)
    return None if numbered is None else numbered.at_once


def _room(asked: Asked, kind: str) -> Steps[int]:
    """How many jobs of the kind the claim may take."""
    numbered = asked.numbered(kind)
    if numbered is None:
        return 0
    room = asked.limit if numbered.ahead_ok else asked.limit - max(asked.wanted.ahead, 0)
    if numbered.limit is not None:
        room = min(room, numbered.limit)
    if numbered.at_once is not None and room > 0:
        room = min(room, numbered.at_once - (yield from _held(asked, kind, numbered.at_once)))
    return room


def _held(asked: Asked, kind: str, most: int) -> Steps[int]:
    found = yield Step(asked.texts.held, (kind, asked.now, max(most, 0)))
    return int(found.rows[0][0])


def _next_in(asked: Asked, seen: Sequence[Sight]) -> Steps[int | None]:
    now, next_at = asked.now, None
    for sight in seen:
        # A job whose hold ran out is due, and waits as soon as a claim may take it.
        first = now if sight.is_lost(now) else sight.first
        if first is None or sight.paused:
            continue
        at = max(first, sight.held_until)
        at_once = _at_once(asked, sight.kind)
        if at <= now and at_once is not None and (yield from _held(asked, sight.kind, at_once)) >= at_once:
            continue  # until one of them ends, which wakes the queue
        if next_at is None or at < next_at:
            next_at = at
    return None if next_at is None else max(next_at - now, 0)
