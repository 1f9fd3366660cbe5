"""The claim on Postgres: what is asked of the function, what it answers, and where a claim's walk begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, cast

from fastjobs.core.claiming import Claimed
from fastjobs.core.job import Job
from fastjobs.stores.sql.dialects.postgres.functions import EXHAUSTED, JOB
from fastjobs.stores.sql.dialects.postgres.statements import Statements
from fastjobs.stores.sql.server.floors import LOWEST, Floors
from fastjobs.stores.sql.server.wanted import Wanted, by_priority

if TYPE_CHECKING:
    from fastjobs.stores.sql.dialects.postgres.links import Link

_MOST = (1 << 31) - 1

_new: Callable[[type[Job], tuple[Any, ...]], Job] = cast("Any", tuple).__new__
_ID, _RUN_AT = itemgetter(1), itemgetter(4)
"""Of a row of the answer."""


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


class Asked:
    """A claim that is asked of the function now."""

    def __init__(self, wanted: Wanted, now: int, floors: Floors) -> None:
        self._terms = {kind.kind: kind for kind in wanted.kinds}
        self._others = wanted.others
        self._limit = min(max(wanted.limit, 0), _MOST)
        self._ahead = min(max(wanted.ahead, 0), self._limit)
        self._now = now
        self._floors = floors
        self._full = floors.is_full(now)
        self._forgets = floors.forgets

    def values(self) -> tuple[object, ...]:
        """What the statement takes."""
        named, others = list(self._terms), self._others
        each = [*self._terms.values(), *([] if others is None else [others])]
        return (
            [*named, *([] if others is None else [""])],
            [term.hold for term in each],
            [min(term.attempts, _MOST) for term in each],
            [None if term.limit is None else min(max(term.limit, 0), _MOST) for term in each],
            [term.priority for term in each],
            sorted({term.priority for term in each}, reverse=True),
            [term.ahead_ok for term in each],
            [LOWEST] * len(each)
            if self._full
            else [*map(self._floors.of, named), *([] if others is None else [LOWEST])],
            others is not None,
            self._limit,
            self._limit - self._ahead,
            self._full,
            self._now,
            [None if term.at_once is None else min(max(term.at_once, 0), _MOST) for term in each],
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
            by_priority(jobs, self._terms, self._others)
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
                    floors.emptied(list(self._terms), now)
            if short and not self._full:
                next_in = look_in if next_in is None else min(next_in, look_in)
        return Claimed(jobs=jobs, exhausted=exhausted, again=again, next_in=next_in, now=now)
