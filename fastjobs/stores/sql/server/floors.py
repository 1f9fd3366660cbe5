"""Where a claim's walk of each kind's jobs begins, while an open transaction leaves what is done in its way."""

from __future__ import annotations

from fastjobs.core.job import Job

MANY = 1500
"""So many entries of rows that are gone cost a claim about as much as the claim itself."""
FULL_EACH = 500_000
"""Microseconds between two claims that look at all there is, where most of that is gone."""
LOWEST = -(1 << 63)


class Floors:
    """Where a claim's walk of each kind's jobs begins, in the memory of one process, for one store.

    An index keeps entries of jobs that are done until vacuum takes them out, and a transaction that stays open
    anywhere in the database holds vacuum back: a claim would walk past all that was done meanwhile. Where two in a row
    have met many, the next begin at the job that was taken last, and only one each half second looks at all: what is
    due earlier and was pushed, given back or run again meanwhile, or lost its worker, is found by that one, or at once
    after `forget`. Otherwise each claim looks at all: without such a transaction, it's the first to meet an entry that
    takes it out of the way of the next.
    """

    def __init__(self) -> None:
        self._at: dict[str, int] = {}
        self._until: int | None = None
        """When a claim is to look at all again; None while each does."""
        self._met_many = False
        self.forgets = 0
        """How often `forget` was called: a claim under way at the time may not have seen what it was called for."""

    def forget(self) -> None:
        """Has the next claim look at all: jobs that were due long ago may be there again."""
        self._until = None
        self.forgets += 1

    def is_full(self, now: int) -> bool:
        """Whether a claim made now is to look at all."""
        # A clock that was set back must not put it off.
        return self._until is None or not now < self._until <= now + FULL_EACH

    def is_used(self) -> bool:
        """Whether the last claim that looked at all, and had no `forget` since, has met many."""
        return self._until is not None

    def of(self, kind: str) -> int:
        """Where the walk of the kind begins, in a claim that doesn't look at all."""
        return self._at.get(kind, LOWEST)

    def met(self, gone: int, now: int, forgets: int) -> None:
        """Notes how many entries of rows that are gone a claim that looked at all met; `forgets` is its start's."""
        if gone >= MANY and self._met_many and forgets == self.forgets:
            self._until = now + FULL_EACH
        elif gone < MANY:
            self._until = None
            self._at.clear()
        self._met_many = gone >= MANY

    def took(self, jobs: list[Job]) -> None:
        """Has the walks begin where these, the first ones due of their kinds, were."""
        for job in jobs:
            if job.run_at > self._at.get(job.kind, LOWEST):
                self._at[job.kind] = job.run_at

    def saw(self, kind: str, first: int) -> None:
        """Has the kind's walk begin at its first job, as a look has just found it."""
        self._at[kind] = first

    def emptied(self, kinds: list[str], now: int) -> None:
        """Has the walks begin now: of these kinds nothing is left that's due."""
        for kind in kinds:
            self._at[kind] = max(now, self._at.get(kind, LOWEST))

    def until(self, now: int) -> int | None:
        """Microseconds until the next claim that looks at all; None where each does."""
        return None if self._until is None else max(self._until - now, 0)
