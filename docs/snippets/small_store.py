"""A store with the three verbs alone: enough for a queue without failed jobs to list, carriers or transactions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from fastjobs.clock import Clock, SystemClock
from fastjobs.store import (
    Claimable,
    Claimed,
    Extend,
    Extra,
    GiveBack,
    Job,
    Kept,
    Mark,
    NewJob,
    TryAgain,
)


@dataclass
class Row:
    job: Job
    held_until: int | None = None
    """When its hold ends; None while it waits."""
    claimed: bool = False
    """Whether the claim that the job names may still mark it."""


class SmallStore:
    extras: ClassVar[Extra] = Extra(0)

    def __init__(self, *, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or SystemClock()
        self.rows: dict[str, Row] = {}
        self.pushed = 0

    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        now, ids = self.clock.now(), list[str | None]()
        for new in jobs:
            self.pushed += 1
            ids.append(f"{self.pushed:09}")  # so that ids as text are in the order of their pushes
            run_at = now + new.after if new.at is None else new.at
            job = Job(f"{self.pushed:09}", new.kind, new.payload, run_at, attempts=0, claim=0)
            self.rows[job.id] = Row(job)
        return ids

    async def claim(
        self, kinds: Sequence[Claimable], limit: int, *, ahead: int = 0, others: Claimable | None = None
    ) -> Claimed:
        now, found, places = self.clock.now(), Claimed(now=self.clock.now()), limit - ahead
        terms = {each.kind: each for each in kinds}
        left = {each.kind: each.limit for each in [*kinds, *([others] if others else [])]}
        rows = [(term, row) for row in self.rows.values() if (term := terms.get(row.job.kind, others))]
        rows.sort(key=lambda each: (-each[0].priority, each[1].job.run_at, each[1].job.id))
        for term, row in rows:
            if (row.job.run_at if row.held_until is None else row.held_until) > now:
                continue
            lost = row.job.lost + (row.held_until is not None)
            free, room = lost > 0 or not term.ahead_ok, left[term.kind]
            if row.job.attempts >= term.attempts:
                del self.rows[row.job.id]  # it keeps no failed jobs
                found.exhausted.append(row.job._replace(lost=lost))
            elif len(found.jobs) < limit and room != 0 and (not free or places > 0):
                left[term.kind] = None if room is None else room - 1
                places -= free
                row.job = row.job._replace(attempts=row.job.attempts + 1, claim=row.job.claim + 1, lost=lost)
                row.held_until, row.claimed = now + term.hold, True
                found.jobs.append(row.job)
        waiting = [
            max(0, row.job.run_at - now)
            for _, row in rows
            if row.held_until is None and row.job.id in self.rows
        ]
        return replace(found, next_in=min(waiting, default=None))

    async def mark(self, marks: Sequence[Mark]) -> list[Kept]:
        return [Kept.YES if self.kept(mark, self.clock.now()) else Kept.LOST for mark in marks]

    def kept(self, mark: Mark, now: int) -> bool:
        row = self.rows.get(mark.id)
        if row is None or not row.claimed or row.job.claim != mark.claim:
            return False
        if isinstance(mark, Extend):
            extended = row.held_until is not None and row.held_until > now
            row.held_until = now + mark.hold if extended else row.held_until
            return extended
        row.claimed, row.held_until = False, None
        row.job = row.job._replace(claim=row.job.claim + 1)
        match mark:
            case TryAgain():
                row.job = row.job._replace(run_at=now + mark.after, error=mark.error)
            case GiveBack():
                run_at = row.job.run_at if mark.after is None else now + mark.after
                error = row.job.error if mark.error is None else mark.error
                row.job = row.job._replace(run_at=run_at, error=error, attempts=row.job.attempts - 1)
            case _:  # Done, and Fail, as it keeps no failed jobs
                del self.rows[mark.id]
        return True
