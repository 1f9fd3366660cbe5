"""The claim on Postgres: what is asked of the function, what it answers, and where a claim's walk begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, cast

from fastjobs.core.claiming import Claimable, Claimed
from fastjobs.core.job import Job
from fastjobs.stores.sql.dialects.postgres.functions import EXHAUSTED, JOB
from fastjobs.stores.sql.dialects.postgres.statements import Statements
from fastjobs.stores.sql.server.wanted import Wanted, by_priority

if TYPE_CHECKING:
    from fastjobs.stores.sql.dialects.postgres.links import Link

_MANY = 1500
"""So many entries of rows that are gone cost a claim about as much as the claim itself."""
_FULL_EACH = 500_000
"""Microseconds between two claims that look at all there is, where most of that is gone."""
_LOWEST = -(1 << 63)
_MOST = (1 << 31) - 1

_new: Callable[[type[Job], tuple[Any, ...]], Job] = cast("Any", tuple).__new__
_ID, _RUN_AT = itemgetter(1), itemgetter(4)
"""Of a row of the answer."""


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
        return self._until is None or not now < self._until <= now + _FULL_EACH

    def of(self, kind: str) -> int:
        """Where the walk of the kind begins, in a claim that doesn't look at all."""
        return self._at.get(kind, _LOWEST)

    def met(self, gone: int, now: int, forgets: int) -> None:
        """Notes how many entries of rows that are gone a claim that looked at all met; `forgets` is its start's."""
        if gone >= _MANY and self._met_many and forgets == self.forgets:
            self._until = now + _FULL_EACH
        elif gone < _MANY:
            self._until = None
            self._at.clear()
        self._met_many = gone >= _MANY

    def took(self, jobs: list[Job]) -> None:
        """Has the walks begin where these, the first ones due of their kinds, were."""
        for job in jobs:
            if job.run_at > self._at.get(job.kind, _LOWEST):
                self._at[job.kind] = job.run_at

    def emptied(self, kinds: list[str], now: int) -> None:
        """Has the walks begin now: of these kinds nothing is left that's due."""
        for kind in kinds:
            self._at[kind] = max(now, self._at.get(kind, _LOWEST))

    def until(self, now: int) -> int | None:
        """Microseconds until the next claim that looks at all; None where each does."""
        return None if self._until is None else max(self._until - now, 0)


async def claim(
    link: Link, statements: Statements, wanted: Wanted, now: int, floors: Floors | None = None
) -> Claimed:
    """Takes what is due: by priority, then due time, then id, over all kinds of one priority.

    A due job that someone else's transaction has locked is passed over, and told of by a `next_in` of 0.
    """
    if not wanted.terms:
        return Claimed(now=now)
    asked = Asked(wanted, now, Floors() if floors is None else floors)
    return asked.answered(await link.fetch(statements.claim, *asked.values()))


class _Terms:
    """What is the same in each claim of the same kinds."""

    def __init__(self, kinds: tuple[Claimable, ...], others: Claimable | None) -> None:
        self.kinds = kinds
        self.others = others
        self.by_kind = {kind.kind: kind for kind in kinds}
        each = [*self.by_kind.values(), *([] if others is None else [others])]
        self.named = list(self.by_kind)
        self.values = (
            [*self.named, *([] if others is None else [""])],
            [term.hold for term in each],
            [min(term.attempts, _MOST) for term in each],
            [None if term.limit is None else min(max(term.limit, 0), _MOST) for term in each],
            [term.priority for term in each],
            sorted({term.priority for term in each}, reverse=True),
            [term.ahead_ok for term in each],
        )
        """What the function takes first."""
        self.lowest = [_LOWEST] * len(each)
        self.at_once = [None if term.at_once is None else min(max(term.at_once, 0), _MOST) for term in each]


_latest = _Terms((), None)
"""Those asked for last, nearly always the same: a queue passes its terms as they are."""


def _terms(wanted: Wanted) -> _Terms:
    global _latest
    latest = _latest
    if latest.kinds != wanted.kinds or latest.others != wanted.others:
        latest = _latest = _Terms(wanted.kinds, wanted.others)
    return latest


class Asked:
    """A claim that is asked of the function now."""

    def __init__(self, wanted: Wanted, now: int, floors: Floors) -> None:
        self._terms = _terms(wanted)
        self._limit = min(max(wanted.limit, 0), _MOST)
        self._ahead = min(max(wanted.ahead, 0), self._limit)
        self._now = now
        self._floors = floors
        self._full = floors.is_full(now)
        self._forgets = floors.forgets

    def values(self) -> tuple[object, ...]:
        """What the statement takes."""
        terms = self._terms
        others = terms.others
        return (
            *terms.values,
            terms.lowest
            if self._full
            else [*map(self._floors.of, terms.named), *([] if others is None else [_LOWEST])],
            others is not None,
            self._limit,
            self._limit - self._ahead,
            self._full,
            self._now,
            terms.at_once,
        )

    def answered(self, rows: Sequence[Sequence[Any]]) -> Claimed:
        """What the rows of the answer mean."""
        floors, limit, now = self._floors, self._limit, self._now
        jobs: list[Job] = []
        exhausted: list[Job] = []
        *found, summary = rows
        del rows
        if len(found) > 1:
            # Postgres answers them as it meets them.
            found.sort(key=_ID, reverse=True)
            found.sort(key=_RUN_AT, reverse=True)
        while found:
            # Each row is let go as its job is made, or there would be twice as many things to collect.
            what, id, *rest = found.pop()
            # A busy queue makes tens of thousands of them a second, and a named tuple's own way takes twice as long.
            job = _new(Job, (str(id), *rest))
            if what == JOB:
                jobs.append(job)
            elif what == EXHAUSTED:
                exhausted.append(job)
        if len(jobs) > 1:
            by_priority(jobs, self._terms.by_kind, self._terms.others)
        next_at, gone, again = summary[1], summary[5], bool(summary[7])
        if limit and self._full:
            floors.met(gone, now, self._forgets)
        short = len(jobs) < limit or not limit
        next_in = max(next_at - now, 0) if short and next_at is not None else None
        look_in = floors.until(now)
        if look_in is not None:
            # Where due jobs were left, the walk is to find them again.
            if next_in != 0 and not again:
                floors.took(jobs)
                if short:
                    floors.emptied(self._terms.named, now)
            if short and not self._full:
                next_in = look_in if next_in is None else min(next_in, look_in)
        return Claimed(jobs=jobs, exhausted=exhausted, again=again, next_in=next_in, now=now)
