"""Jobs in the process's own memory: for tests, and to read as the specification.

It keeps every promise but the one of a push that outlives the process. Whatever it does is done under one
lock, as a transaction may commit from any thread, and nothing is awaited but the end of an open transaction that a
push meets; only `within` knows of SQLAlchemy. Longer than 300 lines, so that all of what a store does to a job is
read in one place.
"""

from __future__ import annotations

import heapq
import logging
import sys
import threading
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum, auto
from itertools import takewhile
from threading import RLock
from typing import TYPE_CHECKING, ClassVar

from fastjobs.clock import Clock, SystemClock
from fastjobs.core.claiming import Claimable, Claimed
from fastjobs.core.exhausted import exhausted_text
from fastjobs.core.job import FailedJob, Job, NewJob
from fastjobs.core.marks import Done, Extend, Fail, GiveBack, HoldBack, Kept, Mark, TryAgain
from fastjobs.store import Ender, Extra, Places, Pusher, Run, SyncEnder, SyncPusher, Throttled
from fastjobs.stores.counters import Counters
from fastjobs.stores.outcomes import InTheWay, Outcomes

if TYPE_CHECKING:
    from fastjobs.stores.staging import Staged

log = logging.getLogger("fastjobs")


class _State(Enum):
    STAGED = auto()
    """In no line: the transaction that pushes it, moves it, or marks it done, has yet to end."""
    WAITING = auto()
    PARKED = auto()
    """Due, and in its key's own line, where it costs claims nothing: another of its key was held as it was met."""
    HELD = auto()
    FAILED = auto()


_Key = tuple[str, bytes]
"""A kind and a key of it."""


@dataclass(slots=True)
class _Row:
    """A job as it's kept. `run_at`, `held_until` and `state` say which line it stands in."""

    number: int
    kind: str
    payload: str
    run_at: int
    created_at: int
    carried: str | None
    state: _State = _State.STAGED
    attempts: int = 0
    claim: int = 0
    claimed: bool = False
    """Whether its latest claim may still mark it: after its hold ran out too, until another claim takes it."""
    held_until: int = 0
    lost: int = 0
    error: str | None = None
    failed_at: int = 0
    key: _Key | None = None
    """As it was pushed, for life."""
    unique: bool = False
    """Whether it has the key, so that no other is pushed: only while it waits."""
    alone: _Key | None = None
    """Its key for life, where no two of it are held at once."""
    counts: bool = False
    """Whether it's one of its kind's held jobs, and its key's: also while a transaction marks it done."""
    first_push_at: int = 0
    name: str | None = None
    keep_name: int = 0
    owner: object = None
    """Whose open transaction has pushed or moved it."""
    thread: int = 0
    """The thread that did."""
    moves: int = 0
    """How many moves of that transaction's are yet to be kept or dropped."""

    @property
    def id(self) -> str:
        return str(self.number)


class _Line(list[tuple[int, int]]):
    """Jobs in order of a time, then of their numbers."""

    def join(self, time: int, row: _Row) -> None:
        insort(self, (time, row.number))

    def leave(self, time: int, row: _Row) -> None:
        del self[bisect_left(self, (time, row.number))]

    def up_to(self, time: int) -> Iterator[tuple[int, int]]:
        return takewhile(lambda each: each[0] <= time, self)


class Memory:
    """Keeps jobs in memory, for tests: they end with the process.

    `clock` is its now: `fastjobs.testing.Clock` is one that tests move. `within` takes SQLAlchemy's sessions
    and connections and stages what is pushed until they commit, so that a route's tests need no table of jobs.
    """

    extras: ClassVar[Extra] = (
        Extra.FAILED | Extra.CARRY | Extra.TRANSACTIONS | Extra.DONE_IN | Extra.LISTEN
        | Extra.UNIQUE | Extra.LATEST | Extra.ONE_AT_A_TIME | Extra.AT_ONCE | Extra.HOLD_BACK
        | Extra.NAMES | Extra.THROTTLE | Extra.PRUNE | Extra.SCHEDULES
    )  # fmt: skip

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock: Clock = clock or SystemClock()
        self._lock = RLock()
        self._numbers = 0
        self._rows: dict[str, _Row] = {}
        self._waiting: defaultdict[str, _Line] = defaultdict(_Line)
        self._held = _Line()
        self._failed = _Line()
        self._keys: dict[_Key, _Row] = {}
        """The job that has each key."""
        self._busy: dict[_Key, _Row] = {}
        """The held job of each key that is one at a time."""
        self._parked: dict[_Key, _Line] = {}
        self._counts: defaultdict[str, int] = defaultdict(int)
        """How many of each kind are held."""
        self._held_back: dict[str, int] = {}
        """Until when a kind is held back."""
        self._names: dict[str, _Row | int] = {}
        """The job that has each name, or until when it's taken after its job has ended."""
        self._runs: dict[str, int] = {}
        """The run of each schedule that was pushed last."""
        self._outcomes = Outcomes()
        self._counters = Counters()
        self._wakes: list[Callable[[], None]] = []

    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        """See `fastjobs.store.Store.push`."""
        while True:
            with self._lock:
                met = self._met(jobs, None)
                if met is None:
                    ids, rows, _ = self._admitted(jobs, None)
                    self._keep(rows)
                    return ids
            await met.over()

    async def claim(
        self,
        kinds: Sequence[Claimable],
        limit: int,
        *,
        ahead: int = 0,
        others: Claimable | None = None,
    ) -> Claimed:
        """See `fastjobs.store.Store.claim`."""
        with self._lock:
            now = self._clock.now()
            self._end_holds(now)
            terms = {each.kind: each for each in kinds}
            if others is not None:
                terms |= {kind: others for kind in self._waiting if kind not in terms}
            open_terms = {kind: term for kind, term in terms.items() if self._room(kind, term, now)}
            taken: list[tuple[_Row, Claimable]] = []
            exhausted: list[_Row] = []
            room = {each.kind: each.limit for each in terms.values()}
            at_once = {kind: self._room(kind, term, now) for kind, term in terms.items()}
            alone: set[_Key] = set()
            free_only = 0
            parked: list[_Row] = []
            for row in self._due(open_terms, now):
                if len(taken) >= limit:
                    break
                term = open_terms.get(row.kind)
                if term is None:
                    continue
                left, here = room[term.kind], at_once[row.kind]
                needs_free = row.lost > 0 or not term.ahead_ok
                if row.attempts >= term.attempts:
                    exhausted.append(row)
                elif needs_free and free_only >= limit - ahead:
                    if not term.ahead_ok:
                        del open_terms[row.kind]
                elif left == 0:
                    del open_terms[row.kind]
                elif row.alone is not None and (row.alone in self._busy or row.alone in alone):
                    parked.append(row)
                else:
                    taken.append((row, term))
                    free_only += needs_free
                    room[term.kind] = None if left is None else left - 1
                    at_once[row.kind] = here - 1
                    if row.alone is not None:
                        alone.add(row.alone)
                    if here <= 1:
                        del open_terms[row.kind]
            for row in parked:
                self._park(row)
            claimed = [self._hold(row, now + term.hold) for row, term in taken]
            spent = [_job(row) for row in exhausted]
            for row in exhausted:
                most = terms[row.kind].attempts
                self._end_claim(row)
                self._fail(row, now, exhausted_text(row.attempts, row.lost, row.error, most))
            short = len(taken) < limit
            return Claimed(
                jobs=claimed,
                exhausted=spent,
                # Where one that was failed stood before others of its key, the next of them may be due now.
                again=short and any(row.alone is not None for row in exhausted),
                next_in=self._next_in(terms, now) if short else None,
                now=now,
            )

    async def mark(self, marks: Sequence[Mark]) -> list[Kept]:
        """See `fastjobs.store.Store.mark`."""
        with self._lock:
            now = self._clock.now()
            return [self._mark(mark, now) for mark in marks]

    async def failed(
        self, *, kind: str | None = None, after: tuple[int, str] | None = None, limit: int = 100
    ) -> list[FailedJob]:
        """See `fastjobs.store.FailedStore.failed`."""
        with self._lock:
            end = len(self._failed)
            if after is not None:
                end = bisect_left(self._failed, (after[0], _number(after[1])))
            page: list[FailedJob] = []
            for at in range(end - 1, -1, -1):
                if len(page) >= limit:
                    break
                row = self._rows[str(self._failed[at][1])]
                if kind is None or row.kind == kind:
                    page.append(
                        FailedJob(
                            id=row.id,
                            kind=row.kind,
                            payload=row.payload,
                            attempts=row.attempts,
                            error=row.error,
                            failed_at=row.failed_at,
                            created_at=row.created_at,
                            carried=row.carried,
                        )
                    )
            return page

    async def run_again(self, ids: Sequence[str]) -> list[bool]:
        """See `fastjobs.store.FailedStore.run_again`."""
        with self._lock:
            now = self._clock.now()
            return [self._run_again(id, now) for id in ids]

    async def delete(self, ids: Sequence[str]) -> list[bool]:
        """See `fastjobs.store.FailedStore.delete`."""
        with self._lock:
            return [self._delete(id) for id in ids]

    def within(
        self,
        tx: object,
        committed: Callable[[], None],
        unfinished: Callable[[], str | None] = lambda: None,
    ) -> Pusher | SyncPusher:
        """See `fastjobs.store.TransactionStore.within`: SQLAlchemy's sessions and connections."""
        from fastjobs.stores.staging import Hooks, Staged, pusher

        def new(jobs: Sequence[NewJob], owner: object) -> Staged:
            with self._lock:
                met = self._met(jobs, owner)
                if met is not None:
                    raise met
                ids, rows, moved = self._admitted(jobs, owner)
            return Staged(ids, lambda: self._keep_staged(rows, moved), lambda: self._drop_staged(rows, moved))

        return pusher(tx, Hooks(new, committed, unfinished))

    @asynccontextmanager
    async def listen(self, wake: Callable[[], None]) -> AsyncGenerator[None]:
        """See `fastjobs.store.ListenStore.listen`: of several queues on one Memory, each hears of all pushes."""
        with self._lock:
            self._wakes.append(wake)
        try:
            yield
        finally:
            with self._lock:
                self._wakes.remove(wake)

    def done_within(
        self,
        tx: object,
        job: Job,
        committed: Callable[[], None] = lambda: None,
        unfinished: Callable[[], str | None] = lambda: None,
    ) -> Ender | SyncEnder:
        """See `fastjobs.store.DoneInStore.done_within`: SQLAlchemy's sessions and connections."""
        from fastjobs.stores.staging import Hooks, ender

        return ender(tx, Hooks(lambda _, owner: self._stage_end(job), committed, unfinished))

    async def take(self, asked: Sequence[Throttled]) -> list[Places]:
        """See `fastjobs.store.ThrottleStore.take`."""
        with self._lock:
            return self._counters.take(asked, self._clock.now())

    async def settle(self, started: Sequence[tuple[Places, int, int]]) -> None:
        """See `fastjobs.store.ThrottleStore.settle`."""
        with self._lock:
            self._counters.settle(started)

    async def sweep(self) -> int:
        """See `fastjobs.store.PruneStore.sweep`. Nothing is ever missed here but by a bug."""
        with self._lock:
            self._end_holds(self._clock.now())
            free = [key for key in self._parked if key not in self._busy]
            for key in free:
                self._unpark(key)
            return len(free)

    async def prune(self, failed_for: int, limit: int) -> int:
        """See `fastjobs.store.PruneStore.prune`."""
        with self._lock:
            now = self._clock.now()
            late = [str(number) for _, number in takewhile(lambda at: at[0] < now - failed_for, self._failed)]
            pruned = sum(self._delete(id) for id in late[:limit])
            ended = [name for name, until in self._names.items() if isinstance(until, int) and until <= now]
            for name in ended[: limit - pruned]:
                del self._names[name]
                pruned += 1
            return pruned + self._counters.prune(now, limit - pruned)

    async def now(self) -> int:
        """See `fastjobs.store.ScheduleStore.now`."""
        return self._clock.now()

    async def runs(self, schedules: Sequence[str]) -> Mapping[str, int]:
        """See `fastjobs.store.ScheduleStore.runs`."""
        with self._lock:
            return {name: self._runs[name] for name in schedules if name in self._runs}

    async def push_run(self, run: Run) -> bool:
        """See `fastjobs.store.ScheduleStore.push_run`."""
        jobs = [run.job._replace(latest=False)]
        while True:
            with self._lock:
                last = self._runs.get(run.schedule)
                if last is not None and last >= run.due:
                    return False
                met = self._met(jobs, None)
                if met is None:
                    _, rows, _ = self._admitted(jobs, None)
                    self._runs[run.schedule] = run.due
                    self._keep(rows)
                    return True
            await met.over()

    # A done_in takes its row out of its line until its transaction has ended, so that no claim finds it.

    def _stage_end(self, job: Job) -> Staged:
        from fastjobs.stores.staging import Staged

        with self._lock:
            row = self._rows.get(job.id)
            fenced = row is None or not row.claimed or row.claim != job.claim
            if row is None or fenced or row.state is _State.STAGED:
                return Staged([], lambda: None)
            was = row.state
            if was is _State.HELD:
                self._held.leave(row.held_until, row)  # it still counts as held
            else:
                self._leave(row)
            row.state = _State.STAGED
            return Staged([row.id], lambda: self._end(row), lambda: self._go_on(row, was))

    def _end(self, row: _Row) -> None:
        with self._lock:
            self._forget(row)

    def _go_on(self, row: _Row, was: _State) -> None:
        """Back to its line. Where its hold has run out meanwhile, the next claim sees to that."""
        with self._lock:
            if was is _State.HELD:
                row.state = was
                self._held.join(row.held_until, row)
            else:
                self._wait(row, row.run_at)

    # A push makes its rows, with their ids, and keeps them; in a transaction it keeps them as that commits. Until then
    # their keys and names are its own, and whoever else pushes one of these waits to see what becomes of them.

    def _new(self, jobs: Sequence[NewJob]) -> list[_Row]:
        with self._lock:
            now = self._clock.now()
            rows: list[_Row] = []
            for job in jobs:
                self._numbers += 1
                run_at = now + job.after if job.at is None else job.at
                row = _Row(self._numbers, job.kind, job.payload, run_at, now, job.carried)
                if job.key is not None:
                    row.key, row.first_push_at = (job.kind, job.key), now
                    row.alone = row.key if job.one_at_a_time else None
                if job.name is not None:
                    row.name, row.keep_name = job.name, job.keep_name
                rows.append(row)
            return rows

    def _met(self, jobs: Sequence[NewJob], owner: object) -> InTheWay | None:
        """What these pushes have to wait for: another transaction's that has one of their names or keys."""
        for job in jobs:
            if job.name is not None:
                named = self._names.get(job.name)
                if isinstance(named, _Row) and named.owner not in (None, owner):
                    return self._outcomes.awaited(named.thread)
            waits = None if job.key is None else self._keys.get((job.kind, job.key))
            # One that it only moves waits whatever becomes of the move.
            if (
                waits is not None
                and waits.owner not in (None, owner)
                and (job.latest or waits.id not in self._rows)
            ):
                return self._outcomes.awaited(waits.thread)
        return None

    def _admitted(
        self, jobs: Sequence[NewJob], owner: object
    ) -> tuple[list[str | None], list[_Row], list[tuple[_Row, int]]]:
        """What the pushes answer, the rows that are new, and the jobs that were moved, with when they were due."""
        ids: list[str | None] = []
        new: list[_Row] = []
        moved: list[tuple[_Row, int]] = []
        for job, row in zip(jobs, self._new(jobs), strict=True):
            waits = None if row.key is None else self._keys.get(row.key)
            if row.name is not None and self._is_taken(row.name, row.created_at):
                ids.append(None)
            elif waits is None:
                self._take_key(row)
                if row.name is not None:
                    self._names[row.name] = row
                row.owner, row.thread = owner, threading.get_ident()
                new.append(row)
                ids.append(row.id)
            elif job.latest:
                moved.append((waits, waits.run_at))
                self._move(waits, row.run_at, job.at_most, owner)
                ids.append(waits.id)
            else:
                ids.append(None)
        return ids, new, moved

    def _is_taken(self, name: str, now: int) -> bool:
        taken = self._names.get(name)
        return taken is not None and (isinstance(taken, _Row) or taken > now)

    def _take_key(self, row: _Row) -> None:
        """It has its key, unless another has it, or it has none."""
        if row.key is not None and row.key not in self._keys:
            self._keys[row.key] = row
            row.unique = True

    def _let_key_go(self, row: _Row) -> None:
        if row.unique and row.key is not None:
            del self._keys[row.key]
            row.unique = False

    def _move(self, row: _Row, run_at: int, at_most: int | None, owner: object) -> None:
        """A latest push: the job that waits is due then. In a transaction it stands in no line until that ends."""
        if at_most is not None:
            run_at = min(run_at, row.first_push_at + at_most)
        if owner is None and row.state is not _State.STAGED:
            self._wait(row, run_at)
            return
        if row.state is not _State.STAGED:
            self._leave(row)
            row.state = _State.STAGED
        row.run_at = run_at
        if owner is not None:
            row.owner, row.thread = owner, threading.get_ident()
            row.moves += 1

    def _keep_staged(self, rows: Sequence[_Row], moved: Sequence[tuple[_Row, int]]) -> None:
        with self._lock:
            if rows or moved:
                self._keep(rows)
            for row, _ in moved:
                self._moved(row)
            self._outcomes.came()

    def _drop_staged(self, rows: Sequence[_Row], moved: Sequence[tuple[_Row, int]]) -> None:
        with self._lock:
            for row, was in reversed(moved):
                row.run_at = was
                self._moved(row)
            for row in rows:
                self._let_key_go(row)
                if row.name is not None:
                    del self._names[row.name]
            self._outcomes.came()

    def _moved(self, row: _Row) -> None:
        """One move of it was kept or dropped; the last of them gives it back to its line."""
        row.moves -= 1
        if row.moves == 0 and row.id in self._rows:
            row.owner = None
            if row.state is _State.STAGED:
                self._wait(row, row.run_at)

    def _keep(self, rows: Sequence[_Row]) -> None:
        with self._lock:
            for row in rows:
                self._rows[row.id] = row
                row.owner = None
                self._wait(row, row.run_at)
            wakes = list(self._wakes)
        for wake in wakes:
            try:
                wake()
            except Exception:
                log.warning("what is to be woken by pushes failed", exc_info=True)

    # Which jobs are due.

    def _due(self, terms: dict[str, Claimable], now: int) -> Iterator[_Row]:
        """The jobs of these kinds that are due, in the order that a claim takes them.

        Of a kind that is taken out of `terms` meanwhile, no more than one is still answered.
        """
        for priority in sorted({term.priority for term in terms.values()}, reverse=True):
            kinds = [kind for kind, term in terms.items() if term.priority == priority]
            lines = [self._due_of(kind, terms, now) for kind in kinds if kind in self._waiting]
            for _, number in heapq.merge(*lines):
                yield self._rows[str(number)]

    def _due_of(self, kind: str, terms: dict[str, Claimable], now: int) -> Iterator[tuple[int, int]]:
        for each in self._waiting[kind].up_to(now):
            if kind not in terms:
                return
            yield each

    def _room(self, kind: str, term: Claimable, now: int) -> int:
        """How many more jobs of the kind may be held, for all that is held of it now."""
        if self._held_back.get(kind, 0) > now:
            return 0
        return sys.maxsize if term.at_once is None else max(0, term.at_once - self._counts[kind])

    def _next_in(self, terms: dict[str, Claimable], now: int) -> int | None:
        firsts: list[int] = []
        for kind, term in terms.items():
            # One at its limit waits for the end of a job, and nobody knows when that is.
            full = term.at_once is not None and self._counts[kind] >= term.at_once
            if not full and self._waiting.get(kind):
                firsts.append(max(self._waiting[kind][0][0], self._held_back.get(kind, 0)))
        return max(0, min(firsts) - now) if firsts else None

    def _end_holds(self, now: int) -> None:
        """Has the jobs whose hold ran out wait again; their claims may mark them until another takes them."""
        while self._held and self._held[0][0] <= now:
            row = self._rows[str(self._held[0][1])]
            row.lost += 1
            self._wait(row, row.run_at)

    # The moves from one line to another. Whatever takes a job from its key's turn has the next of the key wait again.

    def _wait(self, row: _Row, run_at: int) -> None:
        self._leave(row)
        self._join(row, run_at)
        self._next_of(row)

    def _join(self, row: _Row, run_at: int) -> None:
        row.state, row.run_at = _State.WAITING, run_at
        self._waiting[row.kind].join(run_at, row)

    def _hold(self, row: _Row, until: int) -> Job:
        self._leave(row)
        self._let_key_go(row)
        row.state, row.held_until = _State.HELD, until
        row.attempts += 1
        row.claim += 1
        row.claimed = True
        self._held.join(until, row)
        row.counts = True
        self._counts[row.kind] += 1
        if row.alone is not None:
            self._busy[row.alone] = row
        return _job(row)

    def _fail(self, row: _Row, now: int, error: str) -> None:
        self._leave(row)
        self._let_key_go(row)
        row.state, row.failed_at, row.error = _State.FAILED, now, error
        self._failed.join(now, row)
        self._next_of(row)

    def _forget(self, row: _Row) -> None:
        """The job is kept no longer; its name is, for a while."""
        self._leave(row)
        row.state = _State.STAGED
        self._let_key_go(row)
        del self._rows[row.id]
        if row.name is not None:
            self._names[row.name] = self._clock.now() + row.keep_name
        self._next_of(row)

    def _leave(self, row: _Row) -> None:
        """Takes the row out of the line it stands in; one that is staged stands in none."""
        if row.state is _State.HELD:
            self._held.leave(row.held_until, row)
        elif row.state is _State.FAILED:
            self._failed.leave(row.failed_at, row)
        elif row.state is _State.WAITING:
            self._waiting[row.kind].leave(row.run_at, row)
        elif row.state is _State.PARKED and row.alone is not None:
            line = self._parked[row.alone]
            line.leave(row.run_at, row)
            if not line:
                del self._parked[row.alone]
        if row.counts:
            row.counts = False
            self._counts[row.kind] -= 1
            if row.alone is not None:
                del self._busy[row.alone]

    # One at a time: a job whose key is busy as a claim meets it stands in the key's own line, until it's its turn.

    def _park(self, row: _Row) -> None:
        assert row.alone is not None
        self._leave(row)
        row.state = _State.PARKED
        self._parked.setdefault(row.alone, _Line()).join(row.run_at, row)

    def _next_of(self, row: _Row) -> None:
        """The job is not in its key's way any more, or not now."""
        if row.alone in self._parked and row.alone not in self._busy:
            self._unpark(row.alone)

    def _unpark(self, key: _Key) -> None:
        """Has the earliest of the key's line wait for a claim again."""
        row = self._rows[str(self._parked[key][0][1])]
        self._leave(row)
        self._join(row, row.run_at)

    # What a mark, a run again and a delete do to one job.

    def _mark(self, mark: Mark, now: int) -> Kept:
        row = self._rows.get(mark.id)
        if row is None or not row.claimed or row.claim != mark.claim:
            return Kept.LOST
        if row.state is _State.STAGED:
            return Kept.BUSY
        if isinstance(mark, Extend):
            if row.state is not _State.HELD or row.held_until <= now:
                return Kept.LOST
            self._held.leave(row.held_until, row)
            row.held_until = now + mark.hold
            self._held.join(row.held_until, row)
            return Kept.YES
        self._end_claim(row)
        match mark:
            case Done():
                self._forget(row)
            case TryAgain():
                self._wait(row, now + mark.after)
                row.error = mark.error
            case Fail():
                self._fail(row, now, mark.error)
            case GiveBack() | HoldBack():
                self._wait(row, row.run_at if mark.after is None else now + mark.after)
                self._take_key(row)
                row.attempts -= 1
                if isinstance(mark, HoldBack):
                    held = self._held_back.get(row.kind, 0)
                    self._held_back[row.kind] = max(held, now + mark.kind_for)
                elif mark.error is not None:
                    row.error = mark.error
        return Kept.YES

    def _end_claim(self, row: _Row) -> None:
        """Moves the token on, so that no mark of the claim is kept from here on."""
        row.claim += 1
        row.claimed = False

    def _run_again(self, id: str, now: int) -> bool:
        row = self._rows.get(id)
        if row is None or row.state is not _State.FAILED:
            return False
        self._end_claim(row)
        row.attempts = row.lost = 0
        self._wait(row, now)
        return True

    def _delete(self, id: str) -> bool:
        row = self._rows.get(id)
        if row is None or row.state is not _State.FAILED:
            return False
        self._forget(row)
        return True


def _job(row: _Row) -> Job:
    return Job(
        row.id, row.kind, row.payload, row.run_at, row.attempts, row.claim, row.lost, row.error, row.carried
    )


def _number(id: str) -> int:
    """The number of an id, or -1 for what is none of this store's."""
    return int(id) if id.isascii() and id.isdigit() and len(id) < 20 else -1
