"""What `Memory` says of the jobs it keeps, as they are committed: nothing here changes one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from fastjobs.core.errors import StoreError
from fastjobs.core.job import JobState, KeptJob
from fastjobs.store import KindCount
from fastjobs.stores.rows import Row, State

_SHOWN = {
    State.WAITING: JobState.WAITING,
    State.PARKED: JobState.PARKED,
    State.HELD: JobState.HELD,
    State.FAILED: JobState.FAILED,
}


@dataclass(frozen=True, slots=True)
class Looks:
    """Jobs and kinds at one moment."""

    rows: Collection[Row]
    held_back: Mapping[str, int]
    paused: Collection[str]
    now: int

    def counts(self, kinds: Collection[str], cap: int) -> list[KindCount]:
        """See `fastjobs.store.CountsStore.counts`."""
        of_kind: defaultdict[str, list[Row]] = defaultdict(list)
        for row in self.rows:
            of_kind[row.kind].append(row)
        return [self._count(kind, of_kind[kind], cap) for kind in sorted(kinds)]

    def _count(self, kind: str, rows: Collection[Row], cap: int) -> KindCount:
        times: defaultdict[State, list[int]] = defaultdict(list)
        for row in rows:
            state, run_at = row.seen
            times[state].append(run_at)
        due = [time for time in times[State.WAITING] if time <= self.now]

        def capped(jobs: Collection[int]) -> int:
            return min(len(jobs), cap + 1)

        return KindCount(
            kind=kind,
            waiting=capped(times[State.WAITING]),
            due=capped(due),
            held=capped(times[State.HELD]),
            parked=capped(times[State.PARKED]),
            failed=capped(times[State.FAILED]),
            oldest=self.now - min(due) if due else None,
            held_back=max(0, self.held_back.get(kind, 0) - self.now),
            paused=kind in self.paused,
        )

    def jobs(
        self, kind: str, state: JobState, after: tuple[int, str] | None, limit: int, cut: int | None
    ) -> list[KeptJob]:
        """See `fastjobs.store.CountsStore.jobs`."""
        if state not in (JobState.WAITING, JobState.HELD):
            raise StoreError(f"the jobs that are waiting or held are listed here, not those that are {state}")
        last = (after[0], id_number(after[1])) if after is not None else None
        found: list[tuple[int, int, Row]] = []
        for row in self.rows:
            seen, run_at = row.seen
            place = row.held_until if seen is State.HELD else run_at, row.number
            if row.kind == kind and _SHOWN[seen] is state and (last is None or place > last):
                found.append((*place, row))
        held = self._held(kind)
        page = sorted(found, key=lambda each: each[:2])[: max(0, limit)]
        return [self._job(row, cut, held) for _, _, row in page]

    def job(self, row: Row, cut: int | None) -> KeptJob:
        """See `fastjobs.store.CountsStore.job`."""
        return self._job(row, cut, self._held(row.kind))

    def _job(self, row: Row, cut: int | None, held: Collection[Row]) -> KeptJob:
        seen, run_at = row.seen
        behind = [each.id for each in held if each.alone == row.alone] if seen is State.PARKED else []
        return KeptJob(
            id=row.id,
            kind=row.kind,
            state=_SHOWN[seen],
            payload=cut_to(row.payload, cut),
            size=size_of(row.payload),
            run_at=run_at,
            created_at=row.created_at,
            attempts=row.attempts,
            lost=row.lost,
            error=row.error,
            held_until=row.held_until if seen is State.HELD else None,
            failed_at=row.failed_at if seen is State.FAILED else None,
            carried=row.carried,
            name=row.name,
            has_key=row.key is not None,
            stop_asked=seen is not State.FAILED and row.stop_asked,
            progress=row.progress,
            behind=behind[0] if behind else None,
            kind_held_until=self.held_back.get(row.kind, 0),
            kind_paused=row.kind in self.paused,
            kind_held=min(len(held), 1001),
            now=self.now,
        )

    def _held(self, kind: str) -> list[Row]:
        """The jobs of the kind whose holds have not run out."""
        return [
            row
            for row in self.rows
            if row.kind == kind and row.seen[0] is State.HELD and row.held_until > self.now
        ]


def cut_to(payload: str, cut: int | None) -> str:
    """As much of the payload as was asked for, in characters."""
    return payload if cut is None else payload[: max(0, cut)]


def size_of(payload: str) -> int:
    """How many bytes the payload has."""
    return len(payload.encode())


def id_number(id: str) -> int:
    """The number of an id, or -1 for what is none of this store's."""
    return int(id) if id.isascii() and id.isdigit() and len(id) < 20 else -1
