"""The claim and the marks on SQLite, inside a transaction that has the write lock: no row needs a lock of its own."""

from __future__ import annotations

import heapq
import json
from collections.abc import Generator, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

from fastjobs.core.claiming import Claimable, Claimed
from fastjobs.core.exhausted import exhausted_text
from fastjobs.core.job import Job
from fastjobs.stores.sql.dialects.sqlite.opened import Opened


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


_Row = tuple[int, str, str, int, int, int, int, str | None, str | None]
_order = itemgetter(3, 0)
_ANY = (1 << 63) - 1


def look(opened: Opened, wanted: Wanted, now: int) -> Claimed | None:
    """The answer to a claim that finds nothing due, by a read alone; None where a claim is to be made."""
    if not opened.known.issuperset(kind.kind for kind in wanted.kinds):
        return None
    seen = _seen(opened, wanted)
    if wanted.limit > 0 and any(_is_due(sight, now) for sight in seen):
        return None
    return Claimed(next_in=_next_in(seen, now), now=now)


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
        return Claimed(next_in=_next_in(_seen(opened, wanted), now), now=now)
    numbers = {kind.kind: kind for kind in wanted.kinds}
    by_priority: dict[int, list[Claimable]] = {}
    for sight in _seen(opened, wanted):
        if not _is_due(sight, now):
            continue
        numbered = numbers.get(sight.kind)
        if numbered is None:
            if wanted.others is None:
                continue
            numbered = replace(wanted.others, kind=sight.kind)
        if sight.ends is not None and sight.ends <= now:
            opened.raw.execute(opened.statements.reap, (sight.kind, now))
        by_priority.setdefault(numbered.priority, []).append(numbered)
    picked = _Pick(opened, wanted, now)
    for priority in sorted(by_priority, reverse=True):
        if picked.is_full():
            break
        picked.walk(by_priority[priority])
    picked.keep()
    short = len(picked.jobs) < wanted.limit
    return Claimed(
        jobs=picked.jobs,
        exhausted=picked.exhausted,
        again=picked.again,
        next_in=_next_in(_seen(opened, wanted), now) if short else None,
        now=now,
    )


class _Pick:
    """The jobs that a claim takes, as it walks them in their order."""

    def __init__(self, opened: Opened, wanted: Wanted, now: int) -> None:
        self.jobs: list[Job] = []
        self.exhausted: list[Job] = []
        self.said: list[str] = []
        """What is kept as the error of each of them."""
        self.again = False
        self._opened = opened
        self._limit = wanted.limit
        self._free = wanted.limit - min(max(wanted.ahead, 0), wanted.limit)
        self._now = now
        self._holds: dict[int, list[int]] = {}
        self._room: dict[str, int] = {}

    def is_full(self) -> bool:
        return len(self.jobs) >= self._limit or self.again

    def walk(self, kinds: list[Claimable]) -> None:
        """Takes from these kinds' due jobs, all of one priority, until nothing more has room."""
        numbers = {kind.kind: kind for kind in kinds}
        for kind in kinds:
            self._room[kind.kind] = self._limit if kind.limit is None else kind.limit
        walks = [self._due(kind) for kind in kinds]
        try:
            for row in heapq.merge(*walks, key=_order) if len(walks) > 1 else walks[0]:
                self._meet(row, numbers[row[1]])
                if self.is_full():
                    return
        finally:
            for each in walks:
                each.close()

    def keep(self) -> None:
        """Writes down what was taken."""
        for hold, ids in self._holds.items():
            self._opened.raw.execute(self._opened.statements.take, (self._now + hold, json.dumps(ids)))
        for job, said in zip(self.exhausted, self.said, strict=True):
            self._opened.raw.execute(self._opened.statements.exhaust, (self._now, said, int(job.id)))

    def _due(self, kind: Claimable) -> Generator[_Row, None, None]:
        # A cursor that is read only as far as the walk gets, and no further than its kind has room.
        # Jobs that are left for a free worker are passed over by SQLite: it reads no payload of theirs.
        lost = _ANY if self._free > 0 else 0
        cursor = self._opened.raw.execute(
            self._opened.statements.heads, (kind.kind, self._now, lost, kind.attempts)
        )
        try:
            while self._room[kind.kind] > 0 and (kind.ahead_ok or self._free > 0):
                row = cursor.fetchone()
                if row is None:
                    return
                yield row
        finally:
            cursor.close()

    def _meet(self, row: _Row, kind: Claimable) -> None:
        id, name, payload, run_at, attempts, token, lost, error, carried = row
        if attempts >= kind.attempts:
            if len(self.exhausted) >= self._limit:
                self.again = True
                return
            self.exhausted.append(Job(str(id), name, payload, run_at, attempts, token, lost, error, carried))
            self.said.append(exhausted_text(attempts, lost, error, kind.attempts))
            return
        if lost > 0 or not kind.ahead_ok:
            if self._free <= 0:
                return
            self._free -= 1
        self._room[name] -= 1
        self._holds.setdefault(kind.hold, []).append(id)
        self.jobs.append(Job(str(id), name, payload, run_at, attempts + 1, token + 1, lost, error, carried))


def _seen(opened: Opened, wanted: Wanted) -> list[Sight]:
    text = opened.statements.look if wanted.others is None else opened.statements.look_all
    names = _names(tuple(kind.kind for kind in wanted.kinds))
    return [Sight(*row) for row in opened.raw.execute(text, (names,)).fetchall()]


def _is_due(sight: Sight, now: int) -> bool:
    if sight.paused or (sight.held_until or 0) > now:
        return False
    return (sight.first is not None and sight.first <= now) or (sight.ends is not None and sight.ends <= now)


def _next_in(seen: list[Sight], now: int) -> int | None:
    due = [
        max(sight.first, sight.held_until or 0)
        for sight in seen
        if sight.first is not None and not sight.paused
    ]
    return max(min(due) - now, 0) if due else None


@lru_cache(maxsize=64)
def _names(kinds: tuple[str, ...]) -> str:
    return json.dumps(kinds)
