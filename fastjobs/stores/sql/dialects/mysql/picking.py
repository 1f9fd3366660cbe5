"""Which of the due jobs a claim takes, round by round, and what it leaves of the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from fastjobs.core.claiming import Claimable
from fastjobs.core.exhausted import exhausted_text
from fastjobs.core.job import Job
from fastjobs.stores.sql.dialects.mysql import keyed
from fastjobs.stores.sql.dialects.mysql.statements import Statements
from fastjobs.stores.sql.dialects.mysql.steps import Step, Steps

_ROUNDS = 8
"""How often a claim looks for others in place of jobs it passed over, before it's to be asked again."""
_PATIENT_ROUNDS = 4
"""After so many a claim leaves out the kinds whose jobs it parked: those that stand behind have their turn, too."""
_BEHIND = 200
"""How many more jobs are parked at a time, of kinds whose jobs stand behind others of their keys."""
_ANY = (1 << 31) - 1


class Lane(NamedTuple):
    """The due jobs of one kind."""

    kind: Claimable
    room: int
    is_named: bool
    """False where the claim was asked for any kind, and this is one: of these together it has a limit."""
    floor: int
    """Where its walk begins."""


class Pick:
    """The jobs that a claim takes."""

    def __init__(self, texts: Statements, limit: int, ahead: int, now: int, others: int | None) -> None:
        self.jobs: list[Job] = []
        self.exhausted: list[Job] = []
        self.again = False
        """Whether there's more to do than one claim does."""
        self._texts = texts
        self._limit = limit
        self._free = limit - min(max(ahead, 0), limit)
        self._now = now
        self._others = limit if others is None else others
        """How many jobs of kinds that weren't named have room yet."""
        self._rooms: dict[str, int] = {}
        self._floors: dict[str, int] = {}
        """Where each kind's walk begins: past what a round has met, as the jobs it moved leave entries behind."""
        self._mine: set[tuple[str, bytes]] = set()
        """Keys that this claim has met: either it has a job of them, or someone else does."""
        self._last: tuple[str, bytes] | None = None
        """The last slot that was taken: all are taken in one order, or two claims could wait for each other."""
        self._freed: set[tuple[str, bytes]] = set()
        self._rounds = 0
        self._parked: set[str] = set()
        self._left_out: set[str] = set()

    def is_full(self) -> bool:
        """Whether nothing more is to be looked at."""
        return len(self.jobs) >= self._limit

    def walk(self, lanes: Sequence[Lane]) -> Steps[None]:
        """Takes from these kinds' due jobs, all of one priority, until nothing more has room."""
        self._rooms.update((lane.kind.kind, lane.room) for lane in lanes)
        self._floors.update((lane.kind.kind, lane.floor) for lane in lanes)
        more = True
        while more and not self.is_full():
            if self._rounds >= _ROUNDS:
                self.again = True
                return
            self._rounds += 1
            if self._rounds > _PATIENT_ROUNDS:
                self._left_out |= self._parked
                self._parked.clear()
            some = [(lane, room) for lane in lanes if (room := self._room(lane)) > 0]
            more = yield from self._round(some)

    def end(self) -> Steps[None]:
        """Wakes those who stood behind jobs that this claim has failed."""
        if (yield from keyed.promote(self._texts, self._freed)):
            self.again = True

    def _room(self, lane: Lane) -> int:
        kind = lane.kind.kind
        if kind in self._left_out:
            return 0
        room = min(self._limit - len(self.jobs), self._rooms[kind])
        if not lane.is_named:
            room = min(room, self._others)
        return min(room, self._free) if not lane.kind.ahead_ok else room

    def _round(self, some: Sequence[tuple[Lane, int]]) -> Steps[bool]:
        """Takes what is due of these; whether there may be more, as some of it wasn't to be returned."""
        quotas = (
            (yield from self._quotas(some))
            if len(some) > 1
            else {lane.kind.kind: room for lane, room in some}
        )
        lanes = {lane.kind.kind: lane for lane, _ in some}
        rows: list[Sequence[Any]] = []
        for kind, quota in sorted(quotas.items()):
            of_kind = (yield Step(self._texts.pick, self._due(lanes[kind], quota))).rows
            if of_kind:
                self._floors[kind] = of_kind[-1][3]
                rows.extend(of_kind)
        rows.sort(key=lambda row: (row[3], row[0]))
        takes: list[Sequence[Any]] = []
        passed = False
        spent: list[Sequence[Any]] = []
        free = self._free
        for row in rows:
            numbers = lanes[row[1]].kind
            if row[4] >= numbers.attempts:
                spent.append(row)
                passed = True
            elif row[6] > 0 or not numbers.ahead_ok:
                # It's for a free worker alone.
                if free > 0:
                    free -= 1
                    takes.append(row)
                else:
                    passed = True
            else:
                takes.append(row)
        lost = yield from self._met([*takes, *spent])
        yield from self._fail([row for row in spent if row[0] not in lost], lanes)
        takes = [row for row in takes if row[0] not in lost]
        lost |= yield from self._alone(takes, lanes)
        takes = [row for row in takes if row[0] not in lost]
        yield from self._take(takes, lanes)
        return passed or bool(lost)

    def _due(self, lane: Lane, quota: int) -> tuple[object, ...]:
        # With no worker free, only what needs none, and what is failed anyway.
        most_lost = _ANY if self._free > 0 else 0
        kind = lane.kind.kind
        return kind, kind, self._floors[kind], self._now, most_lost, min(lane.kind.attempts, _ANY), quota

    def _quotas(self, some: Sequence[tuple[Lane, int]]) -> Steps[dict[str, int]]:
        """How many jobs of each kind are among the first, by a read without locks: locked are only those."""
        values = tuple(value for lane, room in some for value in self._due(lane, room))
        found = yield Step(" UNION ALL ".join([self._texts.heads] * len(some)), values)
        named = {lane.kind.kind: lane.is_named for lane, _ in some}
        quotas: Counter[str] = Counter()
        left, others = self._limit - len(self.jobs), self._others
        for _, _, kind in sorted(tuple(row) for row in found.rows):
            if left <= 0:
                break
            if not named[kind]:
                if others <= 0:
                    continue
                others -= 1
            quotas[kind] += 1
            left -= 1
        return dict(quotas)

    def _fail(self, spent: Sequence[Sequence[Any]], lanes: dict[str, Lane]) -> Steps[None]:
        for row in spent:
            id, kind, _, _, attempts, _, lost, error, *_, alone, _ = row
            said = exhausted_text(attempts, lost, error, lanes[kind].kind.attempts)
            yield Step(self._texts.exhaust, (self._now, said, id))
            self.exhausted.append(_job(row, claimed=0))
            if alone is not None:
                # One that was woken to run next of its key won't.
                self._freed.add((kind, bytes(alone)))

    def _met(self, takes: Sequence[Sequence[Any]]) -> Steps[set[int]]:
        """The ids of those whose keys a push in an open transaction has met, and InnoDB has locked for it.

        To take them would be to wait for its end; and it may wait for their rows, to move a job or to leave it.
        """
        keys: dict[str, list[bytes]] = {}
        for row in takes:
            if row[11] is not None:
                keys.setdefault(row[1], []).append(bytes(row[11]))
        free: set[int] = set()
        for kind, some in sorted(keys.items()):
            free |= {row[0] for row in (yield Step(self._texts.lock_keys, (kind, tuple(sorted(some))))).rows}
        met = {row[0]: row[1] for row in takes if row[11] is not None and row[0] not in free}
        # They are this claim's to lock, and would come again in each round.
        self._left_out |= set(met.values())
        return set(met)

    def _alone(self, takes: Sequence[Sequence[Any]], lanes: dict[str, Lane]) -> Steps[set[int]]:
        """Takes the slots of these jobs that run one at a time; answers the ids of those that aren't to be taken."""
        wants: dict[tuple[str, bytes], Sequence[Any]] = {}
        losers: list[Sequence[Any]] = []
        left: set[int] = set()
        for row in takes:
            if row[10] is None:
                continue
            key = row[1], bytes(row[10])
            if key in self._mine or key in wants:
                losers.append(row)
            elif self._last is not None and key < self._last:
                # Too late for the one order: it's for the next claim.
                left.add(row[0])
                self._left_out.add(row[1])
                self.again = True
            else:
                wants[key] = row
        if wants:
            slots = [
                keyed.Slot(*key, row[0], row[5] + 1, self._now + lanes[key[0]].kind.hold)
                for key, row in sorted(wants.items())
            ]
            won = yield from keyed.take_slots(self._texts, slots, self._now)
            losers.extend(row for row in wants.values() if row[0] not in won)
            self._mine |= wants.keys()
            self._last = max(wants)
        if losers:
            yield Step(self._texts.park, (tuple(row[0] for row in losers),))
            self._parked |= {row[1] for row in losers}
            self.again = True
            for kind in sorted({row[1] for row in losers}):
                # Those that stand behind with the same keys, or there would be a round for each few of them.
                keys = tuple(alone for of, alone in self._mine if of == kind)
                values = kind, kind, self._floors[kind], self._now, keys, _BEHIND
                behind = [row[0] for row in (yield Step(self._texts.behind, values)).rows]
                mine = {row[0] for row in takes}
                more = tuple(id for id in behind if id not in mine)
                if more:
                    yield Step(self._texts.park, (more,))
        return left | {row[0] for row in losers}

    def _take(self, takes: Sequence[Sequence[Any]], lanes: dict[str, Lane]) -> Steps[None]:
        holds: dict[int, list[int]] = {}
        for row in takes:
            lane = lanes[row[1]]
            holds.setdefault(lane.kind.hold, []).append(row[0])
            self._rooms[row[1]] -= 1
            if not lane.is_named:
                self._others -= 1
            if row[6] > 0 or not lane.kind.ahead_ok:
                self._free -= 1
            self.jobs.append(_job(row, claimed=1))
        for hold, ids in holds.items():
            yield Step(self._texts.take, (self._now + hold, tuple(ids)))


def _job(row: Sequence[Any], *, claimed: int) -> Job:
    id, kind, payload, run_at, attempts, claim, lost, error, carried, to_stop, *_ = row
    return Job(
        str(id),
        kind,
        payload,
        run_at,
        attempts + claimed,
        claim + claimed,
        lost,
        error,
        carried,
        bool(to_stop),
    )
