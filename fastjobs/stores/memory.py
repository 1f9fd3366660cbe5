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
from bisect import bisect_left
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import takewhile
from threading import RLock
from typing import TYPE_CHECKING, ClassVar

from fastjobs.clock import Clock, SystemClock
from fastjobs.core.claiming import Claimable, Claimed
from fastjobs.core.exhausted import exhausted_text
from fastjobs.core.job import FailedJob, Job, JobState, KeptJob, NewJob
from fastjobs.core.marks import Done, Extend, Fail, GiveBack, HoldBack, Kept, Mark, TryAgain
from fastjobs.store import (
    Cancelled,
    Ender,
    Extra,
    KindCount,
    Places,
    Pusher,
    Run,
    SyncEnder,
    SyncPusher,
    Throttled,
)
from fastjobs.stores.counters import Counters
from fastjobs.stores.looking import Looks, cut_to, id_number, size_of
from fastjobs.stores.outcomes import InTheWay, Outcomes
from fastjobs.stores.rows import Key, Line, Row, State

if TYPE_CHECKING:
    from fastjobs.stores.staging import Staged

log = logging.getLogger("fastjobs")


class Memory:
    """Keeps jobs in memory, for tests: they end with the process.

    `clock` is its now: `fastjobs.testing.Clock` is one that tests move. `within` takes SQLAlchemy's sessions
    and connections and stages what is pushed until they commit, so that a route's tests need no table of jobs.
    """

    extras: ClassVar[Extra] = (
        Extra.FAILED | Extra.CARRY | Extra.TRANSACTIONS | Extra.DONE_IN | Extra.LISTEN
        | Extra.UNIQUE | Extra.LATEST | Extra.ONE_AT_A_TIME | Extra.AT_ONCE | Extra.HOLD_BACK
        | Extra.NAMES | Extra.THROTTLE | Extra.PRUNE | Extra.SCHEDULES
        | Extra.COUNTS | Extra.CANCEL | Extra.PAUSE | Extra.PROGRESS
    )  # fmt: skip

    _savepoints = False
    """Whether a transaction's outermost savepoint commits as it's released, for tests whose transaction never does."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock: Clock = clock or SystemClock()
        self._lock = RLock()
        self._numbers = 0
        self._rows: dict[str, Row] = {}
        self._waiting: defaultdict[str, Line] = defaultdict(Line)
        self._held = Line()
        self._failed = Line()
        self._keys: dict[Key, Row] = {}
        """The job that has each key."""
        self._busy: dict[Key, Row] = {}
        """The held job of each key that is one at a time."""
        self._parked: dict[Key, Line] = {}
        self._counts: defaultdict[str, int] = defaultdict(int)
        """How many of each kind are held."""
        self._held_back: dict[str, int] = {}
        """Until when a kind is held back."""
        self._kinds: set[str] = set()
        """The kinds there are: pushed, or named by a claim, which is how it hears of those that are registered."""
        self._paused: set[str] = set()
        self._names: dict[str, Row | int] = {}
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
            self._kinds.update(terms)
            if others is not None:
                terms |= {kind: others for kind in self._waiting if kind not in terms}
            open_terms = {kind: term for kind, term in terms.items() if self._room(kind, term, now)}
            taken: list[tuple[Row, Claimable]] = []
            exhausted: list[Row] = []
            room = {each.kind: each.limit for each in terms.values()}
            at_once = {kind: self._room(kind, term, now) for kind, term in terms.items()}
            alone: set[Key] = set()
            free_only = 0
            parked: list[Row] = []
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
        self,
        *,
        kind: str | None = None,
        after: tuple[int, str] | None = None,
        limit: int = 100,
        cut: int | None = None,
    ) -> list[FailedJob]:
        """See `fastjobs.store.FailedStore.failed`."""
        with self._lock:
            end = len(self._failed)
            if after is not None:
                end = bisect_left(self._failed, (after[0], id_number(after[1])))
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
                            payload=cut_to(row.payload, cut),
                            attempts=row.attempts,
                            error=row.error,
                            failed_at=row.failed_at,
                            created_at=row.created_at,
                            carried=row.carried,
                            size=size_of(row.payload),
                            lost=row.lost,
                            name=row.name,
                            has_key=row.key is not None,
                            progress=row.progress,
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

    async def counts(self, *, cap: int = 10_000) -> list[KindCount]:
        """See `fastjobs.store.CountsStore.counts`. It walks through all jobs, as it has them at hand."""
        with self._lock:
            return self._looks().counts(self._kinds, cap)

    async def job(self, id: str, *, cut: int | None = None) -> KeptJob | None:
        """See `fastjobs.store.CountsStore.job`."""
        with self._lock:
            row = self._rows.get(id)
            return None if row is None else self._looks().job(row, cut)

    async def jobs(
        self,
        kind: str,
        state: JobState,
        *,
        after: tuple[int, str] | None = None,
        limit: int = 100,
        cut: int | None = None,
    ) -> list[KeptJob]:
        """See `fastjobs.store.CountsStore.jobs`."""
        with self._lock:
            return self._looks().jobs(kind, state, after, limit, cut)

    async def cancel(self, ids: Sequence[str]) -> list[Cancelled]:
        """See `fastjobs.store.CancelStore.cancel`."""
        with self._lock:
            now = self._clock.now()
            answers = [self._cancel(id, now) for id in ids]
        if Cancelled.REMOVED in answers:
            self._wake_all()
        return answers

    async def asked(self, held: Sequence[tuple[str, int]]) -> set[str]:
        """See `fastjobs.store.CancelStore.asked`."""
        with self._lock:
            found = ((self._rows.get(id), claim) for id, claim in held)
            return {
                row.id for row, claim in found if row is not None and row.has_claim(claim) and row.stop_asked
            }

    async def progress(self, reports: Sequence[tuple[str, int, str]]) -> None:
        """See `fastjobs.store.ProgressStore.progress`."""
        with self._lock:
            for id, claim, text in reports:
                row = self._rows.get(id)
                if row is not None and row.has_claim(claim) and row.state is not State.STAGED:
                    row.progress = text

    async def pause(self, kind: str, paused: bool) -> bool:
        """See `fastjobs.store.PauseStore.pause`."""
        with self._lock:
            there = kind in self._kinds
            was = kind in self._paused
            if there and paused:
                self._paused.add(kind)
            else:
                self._paused.discard(kind)
        if was and not paused:
            self._wake_all()
        return there

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

        return pusher(tx, Hooks(new, committed, unfinished, self._savepoints))

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

        hooks = Hooks(lambda _, owner: self._stage_end(job), committed, unfinished, self._savepoints)
        return ender(tx, hooks)

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
            if row is None or not row.has_claim(job.claim) or row.state is State.STAGED:
                return Staged([], lambda: None)
            was = row.state
            row.was = was, row.run_at
            if was is State.HELD:
                self._held.leave(row.held_until, row)  # it still counts as held
            else:
                self._leave(row)
            row.state = State.STAGED
            return Staged([row.id], lambda: self._end(row), lambda: self._go_on(row, was))

    def _end(self, row: Row) -> None:
        with self._lock:
            self._forget(row)

    def _go_on(self, row: Row, was: State) -> None:
        """Back to its line. Where its hold has run out meanwhile, the next claim sees to that."""
        with self._lock:
            if was is State.HELD:
                row.state = was
                self._held.join(row.held_until, row)
            else:
                self._wait(row, row.run_at)

    # A push makes its rows, with their ids, and keeps them; in a transaction it keeps them as that commits. Until then
    # their keys and names are its own, and whoever else pushes one of these waits to see what becomes of them.

    def _new(self, jobs: Sequence[NewJob]) -> list[Row]:
        with self._lock:
            now = self._clock.now()
            rows: list[Row] = []
            for job in jobs:
                self._numbers += 1
                run_at = now + job.after if job.at is None else job.at
                row = Row(self._numbers, job.kind, job.payload, run_at, now, job.carried)
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
                if isinstance(named, Row) and named.owner not in (None, owner):
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
    ) -> tuple[list[str | None], list[Row], list[tuple[Row, int]]]:
        """What the pushes answer, the rows that are new, and the jobs that were moved, with when they were due."""
        ids: list[str | None] = []
        new: list[Row] = []
        moved: list[tuple[Row, int]] = []
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
        return taken is not None and (isinstance(taken, Row) or taken > now)

    def _take_key(self, row: Row) -> None:
        """It has its key, unless another has it, or it has none."""
        if row.key is not None and row.key not in self._keys:
            self._keys[row.key] = row
            row.unique = True

    def _let_key_go(self, row: Row) -> None:
        if row.unique and row.key is not None:
            del self._keys[row.key]
            row.unique = False

    def _move(self, row: Row, run_at: int, at_most: int | None, owner: object) -> None:
        """A latest push: the job that waits is due then. In a transaction it stands in no line until that ends."""
        if at_most is not None:
            run_at = min(run_at, row.first_push_at + at_most)
        if owner is None and row.state is not State.STAGED:
            self._wait(row, run_at)
            return
        if row.state is not State.STAGED:
            row.was = row.state, row.run_at
            self._leave(row)
            row.state = State.STAGED
        row.run_at = run_at
        if owner is not None:
            row.owner, row.thread = owner, threading.get_ident()
            row.moves += 1

    def _keep_staged(self, rows: Sequence[Row], moved: Sequence[tuple[Row, int]]) -> None:
        with self._lock:
            if rows or moved:
                self._keep(rows)
            for row, _ in moved:
                self._moved(row)
            self._outcomes.came()

    def _drop_staged(self, rows: Sequence[Row], moved: Sequence[tuple[Row, int]]) -> None:
        with self._lock:
            for row, was in reversed(moved):
                row.run_at = was
                self._moved(row)
            for row in rows:
                self._let_key_go(row)
                if row.name is not None:
                    del self._names[row.name]
            self._outcomes.came()

    def _moved(self, row: Row) -> None:
        """One move of it was kept or dropped; the last of them gives it back to its line."""
        row.moves -= 1
        if row.moves == 0 and row.id in self._rows:
            row.owner = None
            if row.state is State.STAGED:
                self._wait(row, row.run_at)

    def _keep(self, rows: Sequence[Row]) -> None:
        with self._lock:
            for row in rows:
                self._rows[row.id] = row
                self._kinds.add(row.kind)
                row.owner = None
                self._wait(row, row.run_at)
        self._wake_all()

    def _wake_all(self) -> None:
        with self._lock:
            wakes = list(self._wakes)
        for wake in wakes:
            try:
                wake()
            except Exception:
                log.warning("what is to be woken by pushes failed", exc_info=True)

    # Which jobs are due.

    def _due(self, terms: dict[str, Claimable], now: int) -> Iterator[Row]:
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
        if kind in self._paused or self._held_back.get(kind, 0) > now:
            return 0
        return sys.maxsize if term.at_once is None else max(0, term.at_once - self._counts[kind])

    def _next_in(self, terms: dict[str, Claimable], now: int) -> int | None:
        firsts: list[int] = []
        for kind, term in terms.items():
            # One that is paused waits for whoever resumes it.
            if kind in self._paused or not self._waiting.get(kind):
                continue
            first = max(self._waiting[kind][0][0], self._held_back.get(kind, 0))
            # One at its limit waits for the end of a job, and nobody knows when that is.
            full = term.at_once is not None and self._counts[kind] >= term.at_once
            if first > now or not full:
                firsts.append(first)
        return max(0, min(firsts) - now) if firsts else None

    def _end_holds(self, now: int) -> None:
        """Has the jobs whose hold ran out wait again; their claims may mark them until another takes them."""
        while self._held and self._held[0][0] <= now:
            row = self._rows[str(self._held[0][1])]
            row.lost += 1
            self._wait(row, row.run_at)

    # The moves from one line to another. Whatever takes a job from its key's turn has the next of the key wait again.

    def _wait(self, row: Row, run_at: int) -> None:
        self._leave(row)
        self._join(row, run_at)
        self._next_of(row)

    def _join(self, row: Row, run_at: int) -> None:
        row.state, row.run_at = State.WAITING, run_at
        self._waiting[row.kind].join(run_at, row)

    def _hold(self, row: Row, until: int) -> Job:
        self._leave(row)
        self._let_key_go(row)
        row.state, row.held_until = State.HELD, until
        row.attempts += 1
        row.claim += 1
        row.claimed = True
        self._held.join(until, row)
        row.counts = True
        self._counts[row.kind] += 1
        if row.alone is not None:
            self._busy[row.alone] = row
        return _job(row)

    def _fail(self, row: Row, now: int, error: str) -> None:
        self._leave(row)
        self._let_key_go(row)
        row.state, row.failed_at, row.error = State.FAILED, now, error
        self._failed.join(now, row)
        self._next_of(row)

    def _forget(self, row: Row) -> None:
        """The job is kept no longer; its name is, for a while."""
        self._leave(row)
        row.state = State.STAGED
        self._let_key_go(row)
        del self._rows[row.id]
        if row.name is not None:
            self._names[row.name] = self._clock.now() + row.keep_name
        self._next_of(row)

    def _leave(self, row: Row) -> None:
        """Takes the row out of the line it stands in; one that is staged stands in none."""
        if row.state is State.HELD:
            self._held.leave(row.held_until, row)
        elif row.state is State.FAILED:
            self._failed.leave(row.failed_at, row)
        elif row.state is State.WAITING:
            self._waiting[row.kind].leave(row.run_at, row)
        elif row.state is State.PARKED and row.alone is not None:
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

    def _park(self, row: Row) -> None:
        assert row.alone is not None
        self._leave(row)
        row.state = State.PARKED
        self._parked.setdefault(row.alone, Line()).join(row.run_at, row)

    def _next_of(self, row: Row) -> None:
        """The job is not in its key's way any more, or not now."""
        if row.alone in self._parked and row.alone not in self._busy:
            self._unpark(row.alone)

    def _unpark(self, key: Key) -> None:
        """Has the earliest of the key's line wait for a claim again."""
        row = self._rows[str(self._parked[key][0][1])]
        self._leave(row)
        self._join(row, row.run_at)

    # What a mark, a cancel, a run again and a delete do to one job.

    def _mark(self, mark: Mark, now: int) -> Kept:
        row = self._rows.get(mark.id)
        if row is None or not row.has_claim(mark.claim):
            return Kept.LOST
        if row.state is State.STAGED:
            return Kept.BUSY
        if isinstance(mark, Extend):
            if row.state is not State.HELD or row.held_until <= now:
                return Kept.LOST
            self._held.leave(row.held_until, row)
            row.held_until = now + mark.hold
            self._held.join(row.held_until, row)
            return Kept.STOP if row.stop_asked else Kept.YES
        self._end_claim(row)
        match mark:
            case Done():
                self._forget(row)
            case TryAgain():
                self._wait(row, row.run_at if row.stop_asked else now + mark.after)
                row.error = mark.error
            case Fail():
                self._fail(row, now, mark.error)
            case GiveBack() | HoldBack():
                self._wait(row, row.run_at if mark.after is None or row.stop_asked else now + mark.after)
                if not row.stop_asked:
                    self._take_key(row)
                row.attempts -= 1
                if isinstance(mark, HoldBack):
                    held = self._held_back.get(row.kind, 0)
                    self._held_back[row.kind] = max(held, now + mark.kind_for)
                elif mark.error is not None:
                    row.error = mark.error
        return Kept.YES

    def _end_claim(self, row: Row) -> None:
        """Moves the token on, so that no mark of the claim is kept from here on."""
        row.claim += 1
        row.claimed = False

    def _cancel(self, id: str, now: int) -> Cancelled:
        row = self._rows.get(id)
        if row is None or row.state is State.FAILED:
            return Cancelled.NOT_THERE
        if row.state is State.STAGED:
            return Cancelled.BUSY
        if row.state is State.HELD and row.held_until > now:
            row.stop_asked = True
            return Cancelled.ASKED
        self._forget(row)
        return Cancelled.REMOVED

    def _run_again(self, id: str, now: int) -> bool:
        row = self._rows.get(id)
        if row is None or row.state is not State.FAILED:
            return False
        self._end_claim(row)
        row.attempts = row.lost = 0
        row.stop_asked = False
        self._wait(row, now)
        return True

    def _delete(self, id: str) -> bool:
        row = self._rows.get(id)
        if row is None or row.state is not State.FAILED:
            return False
        self._forget(row)
        return True

    def _looks(self) -> Looks:
        return Looks(self._rows.values(), self._held_back, self._paused, self._clock.now())


def _job(row: Row) -> Job:
    return Job(
        row.id,
        row.kind,
        row.payload,
        row.run_at,
        row.attempts,
        row.claim,
        row.lost,
        row.error,
        row.carried,
        row.stop_asked,
    )
