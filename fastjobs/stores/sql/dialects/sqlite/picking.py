"""Which of the due jobs a claim takes, as it walks them in their order, and what it leaves of the others."""

from __future__ import annotations

import heapq
import json
from collections.abc import Generator
from operator import itemgetter
from typing import NamedTuple

from fastjobs.core.claiming import Claimable
from fastjobs.core.exhausted import exhausted_text
from fastjobs.core.job import Job
from fastjobs.stores.sql.dialects.sqlite import keyed
from fastjobs.stores.sql.dialects.sqlite.opened import Opened

PARKED = 500
"""The most jobs of a kind that one claim puts aside, as another of their key is held. Then it leaves the kind, so that
neither the jobs of other kinds nor those who wait for the file wait for it."""

_Row = tuple[int, str, str, int, int, int, int, str | None, str | None, int, bytes | None]
_order = itemgetter(3, 0)
_ANY = (1 << 63) - 1


class Lane(NamedTuple):
    """The due jobs of one kind."""

    kind: Claimable
    room: int
    is_named: bool
    """False where the claim was asked for any kind, and this is one: of these together it has a limit."""


class Pick:
    """The jobs that a claim takes."""

    def __init__(self, opened: Opened, limit: int, ahead: int, now: int, others: int | None) -> None:
        self.jobs: list[Job] = []
        self.exhausted: list[Job] = []
        self.again = False
        """Whether there's more to do than one claim does."""
        self._opened = opened
        self._limit = limit
        self._free = limit - min(max(ahead, 0), limit)
        self._now = now
        self._said: list[str] = []
        """What is kept as the error of each of the exhausted."""
        self._alone: list[tuple[str, bytes]] = []
        """Their keys that others may wait for."""
        self._holds: dict[int, list[int]] = {}
        self._room: dict[str, tuple[list[int], list[int]]] = {}
        """By kind: its own, and what it has together with others."""
        self._named, self._others = [limit], [limit if others is None else others]
        self._busy: dict[tuple[str, bytes], bool] = {}
        self._parked: list[int] = []
        self._parks: dict[str, int] = {}
        self._is_over = False

    def is_full(self) -> bool:
        """Whether nothing more is to be looked at."""
        return len(self.jobs) >= self._limit or self._is_over

    def walk(self, lanes: list[Lane]) -> None:
        """Takes from these kinds' due jobs, all of one priority, until nothing more has room."""
        numbers = {lane.kind.kind: lane.kind for lane in lanes}
        for kind, room, is_named in lanes:
            self._room[kind.kind] = [room], self._named if is_named else self._others
        walks = [self._due(kind) for kind, _, _ in lanes]
        try:
            for row in heapq.merge(*walks, key=_order) if len(walks) > 1 else walks[0]:
                self._meet(row, numbers[row[1]])
                if self.is_full():
                    return
        finally:
            for each in walks:
                each.close()

    def keep(self) -> None:
        """Writes down what was taken, failed and put aside."""
        opened, execute = self._opened, self._opened.raw.execute
        for hold, ids in self._holds.items():
            execute(opened.statements.take, (self._now + hold, json.dumps(ids)))
        if self._parked:
            execute(opened.keyed.park, (json.dumps(self._parked),))
        for job, said in zip(self.exhausted, self._said, strict=True):
            execute(opened.statements.exhaust, (self._now, said, int(job.id)))
        for kind, alone in self._alone:
            if not self._is_busy(kind, alone) and keyed.in_line(
                opened.raw, keyed.wake(opened.keyed, kind, alone)
            ):
                self.again = True

    def _due(self, kind: Claimable) -> Generator[_Row, None, None]:
        # A cursor that is read only as far as the walk gets, and no further than its kind has room.
        # Jobs that are left for a free worker are passed over by SQLite: it reads no payload of theirs.
        lost = _ANY if self._free > 0 else 0
        cursor = self._opened.raw.execute(
            self._opened.statements.heads, (kind.kind, self._now, lost, kind.attempts)
        )
        own, shared = self._room[kind.kind]
        try:
            while own[0] > 0 and shared[0] > 0 and (kind.ahead_ok or self._free > 0):
                row = cursor.fetchone()
                if row is None:
                    return
                yield row
                if self._parks and self._parks.get(kind.kind, 0) >= PARKED:
                    self.again = True
                    return
        finally:
            cursor.close()

    def _meet(self, row: _Row, kind: Claimable) -> None:
        id, name, payload, run_at, attempts, token, lost, error, carried, to_stop, alone = row
        if attempts >= kind.attempts:
            if len(self.exhausted) >= self._limit:
                self.again = self._is_over = True
                return
            self.exhausted.append(
                Job(str(id), name, payload, run_at, attempts, token, lost, error, carried, bool(to_stop))
            )
            self._said.append(exhausted_text(attempts, lost, error, kind.attempts))
            if alone is not None:
                self._alone.append((name, alone))
            return
        if alone is not None and self._is_busy(name, alone):
            self._parked.append(id)
            self._parks[name] = self._parks.get(name, 0) + 1
            return
        own, shared = self._room[name]
        if shared[0] <= 0:
            return  # the merge had its row before the others took the room
        if lost > 0 or not kind.ahead_ok:
            if self._free <= 0:
                return
            self._free -= 1
        if alone is not None:
            self._busy[name, alone] = True
        own[0] -= 1
        shared[0] -= 1
        self._holds.setdefault(kind.hold, []).append(id)
        self.jobs.append(
            Job(str(id), name, payload, run_at, attempts + 1, token + 1, lost, error, carried, bool(to_stop))
        )

    def _is_busy(self, kind: str, alone: bytes) -> bool:
        found = self._busy.get((kind, alone))
        if found is None:
            held = self._opened.raw.execute(self._opened.keyed.holder, (kind, alone, self._now)).fetchone()
            found = self._busy[kind, alone] = held is not None
        return found
