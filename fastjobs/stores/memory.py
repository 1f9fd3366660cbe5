"""Jobs in the process's own memory: for tests, and to read as the specification.

It keeps every promise but the one of a push that outlives the process. Whatever it does is done under one
lock and never awaits, as a transaction may commit from any thread; only `within` knows of SQLAlchemy.
Longer than 300 lines, so that all of what a store does to a job is read in one place.
"""

from __future__ import annotations

import heapq
import logging
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum, auto
from itertools import takewhile
from threading import RLock
from typing import TYPE_CHECKING, ClassVar

from fastjobs.clock import Clock, SystemClock
from fastjobs.core.claiming import Claimable, Claimed
from fastjobs.core.errors import StoreError
from fastjobs.core.exhausted import exhausted_text
from fastjobs.core.job import FailedJob, Job, NewJob
from fastjobs.core.marks import Done, Extend, Fail, GiveBack, HoldBack, Kept, Mark, TryAgain
from fastjobs.store import Ender, Extra, Pusher, SyncEnder, SyncPusher

if TYPE_CHECKING:
    from fastjobs.stores.staging import Staged

log = logging.getLogger("fastjobs")


class _State(Enum):
    STAGED = auto()
    """In no line: the transaction that pushes it, or marks it done, has yet to end."""
    WAITING = auto()
    HELD = auto()
    FAILED = auto()


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

    extras: ClassVar[Extra] = Extra.FAILED | Extra.CARRY | Extra.TRANSACTIONS | Extra.DONE_IN | Extra.LISTEN

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock: Clock = clock or SystemClock()
        self._lock = RLock()
        self._numbers = 0
        self._rows: dict[str, _Row] = {}
        self._waiting: defaultdict[str, _Line] = defaultdict(_Line)
        self._held = _Line()
        self._failed = _Line()
        self._wakes: list[Callable[[], None]] = []

    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        """See `fastjobs.store.Store.push`."""
        with self._lock:
            rows = self._new(jobs)
            self._keep(rows)
        return [row.id for row in rows]

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
            taken: list[tuple[_Row, Claimable]] = []
            exhausted: list[_Row] = []
            room = {each.kind: each.limit for each in terms.values()}
            free_only = 0
            for row in self._due(terms, now):
                if len(taken) >= limit:
                    break
                term = terms[row.kind]
                left = room[term.kind]
                needs_free = row.lost > 0 or not term.ahead_ok
                if row.attempts >= term.attempts:
                    exhausted.append(row)
                elif (left is None or left > 0) and not (needs_free and free_only >= limit - ahead):
                    taken.append((row, term))
                    free_only += needs_free
                    if left is not None:
                        room[term.kind] = left - 1
            spent = [_job(row) for row in exhausted]
            for row in exhausted:
                most = terms[row.kind].attempts
                self._end_claim(row)
                self._fail(row, now, exhausted_text(row.attempts, row.lost, row.error, most))
            return Claimed(
                jobs=[self._hold(row, now + term.hold) for row, term in taken],
                exhausted=spent,
                next_in=self._next_in(terms, now) if len(taken) < limit else None,
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

        def new(jobs: Sequence[NewJob]) -> Staged:
            rows = self._new(jobs)
            return Staged([row.id for row in rows], lambda: self._keep(rows))

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

        return ender(tx, Hooks(lambda _: self._stage_end(job), committed, unfinished))

    # A done_in takes its row out of its line until its transaction has ended, so that no claim finds it.

    def _stage_end(self, job: Job) -> Staged:
        from fastjobs.stores.staging import Staged

        with self._lock:
            row = self._rows.get(job.id)
            fenced = row is None or not row.claimed or row.claim != job.claim
            if row is None or fenced or row.state is _State.STAGED:
                return Staged([], lambda: None)
            was = row.state
            self._leave(row)
            row.state = _State.STAGED
            return Staged([row.id], lambda: self._end(row), lambda: self._go_on(row, was))

    def _end(self, row: _Row) -> None:
        with self._lock:
            del self._rows[row.id]

    def _go_on(self, row: _Row, was: _State) -> None:
        """Back to its line. Where its hold has run out meanwhile, the next claim sees to that."""
        with self._lock:
            if was is _State.HELD:
                row.state = was
                self._held.join(row.held_until, row)
            else:
                self._wait(row, row.run_at)

    # A push makes its rows, with their ids, and keeps them; in a transaction it keeps them as that commits.

    def _new(self, jobs: Sequence[NewJob]) -> list[_Row]:
        with self._lock:
            now = self._clock.now()
            rows: list[_Row] = []
            for job in jobs:
                self._numbers += 1
                run_at = now + job.after if job.at is None else job.at
                rows.append(_Row(self._numbers, job.kind, job.payload, run_at, now, job.carried))
            return rows

    def _keep(self, rows: Sequence[_Row]) -> None:
        with self._lock:
            for row in rows:
                self._rows[row.id] = row
                self._wait(row, row.run_at)
            wakes = list(self._wakes)
        for wake in wakes:
            try:
                wake()
            except Exception:
                log.warning("what is to be woken by pushes failed", exc_info=True)

    # Which jobs are due.

    def _due(self, terms: dict[str, Claimable], now: int) -> Iterator[_Row]:
        """The jobs of these kinds that are due, in the order that a claim takes them."""
        for priority in sorted({term.priority for term in terms.values()}, reverse=True):
            kinds = [kind for kind, term in terms.items() if term.priority == priority]
            lines = [self._waiting[kind].up_to(now) for kind in kinds if kind in self._waiting]
            for _, number in heapq.merge(*lines):
                yield self._rows[str(number)]

    def _next_in(self, terms: dict[str, Claimable], now: int) -> int | None:
        firsts = [self._waiting[kind][0][0] for kind in terms if self._waiting.get(kind)]
        return max(0, min(firsts) - now) if firsts else None

    def _end_holds(self, now: int) -> None:
        """Has the jobs whose hold ran out wait again; their claims may mark them until another takes them."""
        while self._held and self._held[0][0] <= now:
            row = self._rows[str(self._held[0][1])]
            row.lost += 1
            self._wait(row, row.run_at)

    # The moves from one line to another.

    def _wait(self, row: _Row, run_at: int) -> None:
        self._leave(row)
        row.state, row.run_at = _State.WAITING, run_at
        self._waiting[row.kind].join(run_at, row)

    def _hold(self, row: _Row, until: int) -> Job:
        self._leave(row)
        row.state, row.held_until = _State.HELD, until
        row.attempts += 1
        row.claim += 1
        row.claimed = True
        self._held.join(until, row)
        return _job(row)

    def _fail(self, row: _Row, now: int, error: str) -> None:
        self._leave(row)
        row.state, row.failed_at, row.error = _State.FAILED, now, error
        self._failed.join(now, row)

    def _leave(self, row: _Row) -> None:
        """Takes the row out of the line it stands in; one that is staged stands in none."""
        if row.state is _State.HELD:
            self._held.leave(row.held_until, row)
        elif row.state is _State.FAILED:
            self._failed.leave(row.failed_at, row)
        elif row.state is _State.WAITING:
            self._waiting[row.kind].leave(row.run_at, row)

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
        if isinstance(mark, HoldBack):
            raise StoreError("Memory holds no kind back: it lacks HOLD_BACK")
        self._end_claim(row)
        match mark:
            case Done():
                self._leave(row)
                del self._rows[row.id]
            case TryAgain():
                self._wait(row, now + mark.after)
                row.error = mark.error
            case Fail():
                self._fail(row, now, mark.error)
            case GiveBack():
                self._wait(row, row.run_at if mark.after is None else now + mark.after)
                row.attempts -= 1
                if mark.error is not None:
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
        self._leave(row)
        del self._rows[id]
        return True


def _job(row: _Row) -> Job:
    return Job(
        row.id, row.kind, row.payload, row.run_at, row.attempts, row.claim, row.lost, row.error, row.carried
    )


def _number(id: str) -> int:
    """The number of an id, or -1 for what is none of this store's."""
    return int(id) if id.isascii() and id.isdigit() and len(id) < 20 else -1
