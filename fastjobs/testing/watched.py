"""The Memory of a `q.testing()` block: it remembers each push, of jobs that are done too, and those never committed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, cast

from fastjobs.clock import Clock, SystemClock
from fastjobs.core.duration import LAST
from fastjobs.core.job import Job, JobState, KeptJob, NewJob
from fastjobs.store import Extend, Extra, Kept, Mark, Pusher, SyncPusher
from fastjobs.stores.memory import Memory
from fastjobs.stores.rows import Row, State

_NEVER = LAST
"""When a hold ends that no test's clock comes to."""


@dataclass(slots=True)
class Push:
    """A job that was pushed."""

    row: Row
    due: int | None = None
    """When its first claim took it to be due; None before that."""

    @property
    def after(self) -> int:
        """How many microseconds after its push it was due, as it was pushed or moved by a latest push."""
        return (self.row.seen[1] if self.due is None else self.due) - self.row.created_at


class WatchedMemory(Memory):
    """A Memory that a test looks into."""

    extras: ClassVar[Extra] = Memory.extras

    def __init__(self, clock: Clock, *, by_machine: bool, savepoints: bool) -> None:
        """With `by_machine`, an `at` of a push is as far away as it is by the machine's clock."""
        super().__init__(clock=clock)
        self._savepoints = savepoints
        self._machine = SystemClock() if by_machine else None
        self._pushes: dict[str, Push] = {}
        self._uncommitted: dict[str, Row] = {}

    @property
    def pushes(self) -> list[Push]:
        """The jobs that were pushed and committed, in that order."""
        with self._lock:
            return list(self._pushes.values())

    @property
    def uncommitted(self) -> list[Row]:
        """The jobs that were pushed in transactions that are open still, or didn't commit."""
        with self._lock:
            return list(self._uncommitted.values())

    @property
    def is_holding(self) -> bool:
        """Whether any job is held."""
        with self._lock:
            return any(row.counts for row in self._rows.values())

    def in_states(self, states: Collection[JobState]) -> list[KeptJob]:
        """The jobs in these states, as they're kept now."""
        with self._lock:
            looks = self._looks()
            kept = [looks.job(row, None) for row in self._rows.values()]
        return [job for job in kept if job.state in states]

    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        return await super().push(self._dated(jobs))

    def within(
        self,
        tx: object,
        committed: Callable[[], None],
        unfinished: Callable[[], str | None] = lambda: None,
    ) -> Pusher | SyncPusher:
        pusher = super().within(tx, committed, unfinished)
        is_sync = pusher.sync
        if is_sync:
            return _SyncDated(cast("SyncPusher", pusher), self._dated)
        return _Dated(cast("Pusher", pusher), self._dated)

    def hold_one(self, job: NewJob, attempt: int) -> tuple[Job, int]:
        """A job that waits for nothing and is held from the start, at this attempt; and the time of it."""
        with self._lock:
            (row,) = self._new([job])
            self._rows[row.id] = row
            row.attempts = attempt - 1
            return self._hold(row, _NEVER), row.created_at

    def forget(self, id: str) -> None:
        """As if the job had never been, unless an open transaction has it."""
        with self._lock:
            row = self._rows.get(id)
            if row is not None and row.state is not State.STAGED:
                self._forget(row)

    def _dated(self, jobs: Sequence[NewJob]) -> Sequence[NewJob]:
        if self._machine is None or all(job.at is None for job in jobs):
            return jobs
        now = self._machine.now()
        return [job if job.at is None else job._replace(at=None, after=max(0, job.at - now)) for job in jobs]

    def _admitted(
        self, jobs: Sequence[NewJob], owner: object
    ) -> tuple[list[str | None], list[Row], list[tuple[Row, int]]]:
        ids, rows, moved = super()._admitted(jobs, owner)
        if owner is not None:
            self._uncommitted.update((row.id, row) for row in rows)
        return ids, rows, moved

    def _keep(self, rows: Sequence[Row]) -> None:
        with self._lock:
            for row in rows:
                self._uncommitted.pop(row.id, None)
                self._pushes[row.id] = Push(row)
        super()._keep(rows)

    def _hold(self, row: Row, until: int) -> Job:
        push = self._pushes.get(row.id)
        if push is not None and push.due is None:
            push.due = row.run_at
        # No worker is ever lost here, and a test that moves the clock on while a job runs must not have it run twice.
        return super()._hold(row, _NEVER)

    async def mark(self, marks: Sequence[Mark]) -> list[Kept]:
        now = self._clock.now()
        return await super().mark(
            [replace(mark, hold=_NEVER - now) if isinstance(mark, Extend) else mark for mark in marks]
        )


class _SyncDated:
    sync: ClassVar[Literal[True]] = True

    def __init__(self, pusher: SyncPusher, dated: Callable[[Sequence[NewJob]], Sequence[NewJob]]) -> None:
        self._pusher = pusher
        self._dated = dated

    def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        return self._pusher.push(self._dated(jobs))


class _Dated:
    sync: ClassVar[Literal[False]] = False

    def __init__(self, pusher: Pusher, dated: Callable[[Sequence[NewJob]], Sequence[NewJob]]) -> None:
        self._pusher = pusher
        self._dated = dated

    def push(self, jobs: Sequence[NewJob]) -> Coroutine[Any, Any, list[str | None]]:
        return self._pusher.push(self._dated(jobs))
