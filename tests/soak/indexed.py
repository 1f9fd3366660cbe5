"""A history, by job, claim and process, as the checker and the counts look it up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from math import inf

from tests.soak.history import Claim, Fault, History, Left, Marked


class Indexed:
    """A history, by job, claim and process."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.claims: dict[str, list[Claim]] = defaultdict(list)
        """Each job's claims, by their tokens."""
        for claim in sorted(history.claims, key=lambda each: (each.claim, each.at)):
            self.claims[claim.id].append(claim)
        self.marks: dict[tuple[str, int], list[Marked]] = defaultdict(list)
        for mark in history.marks:
            self.marks[mark.id, mark.claim].append(mark)
        self.left: dict[str, Left] = {row.id: row for row in history.left}
        self.ids: dict[str, set[str]] = defaultdict(set)
        """The ids of the jobs that were seen of each ref."""
        for claim in history.claims:
            self.ids[claim.ref].add(claim.id)
        for row in history.left:
            self.ids[row.ref].add(row.id)
        self.started = {(start.id, start.claim) for start in history.starts}
        self.faults: dict[str, list[Fault]] = defaultdict(list)
        for fault in history.faults:
            self.faults[fault.process].append(fault)

    def could_work(self, process: str, since: float, until: float) -> bool:
        """Whether it was up from one moment to the other, and nothing was done to it."""
        return self.history.ups.get(process, inf) <= since and not any(
            fault.since <= until and fault.until >= since for fault in self.faults[process]
        )

    def pairs(self) -> Iterator[tuple[Claim, Claim]]:
        """Each claim with the job's next one."""
        for claims in self.claims.values():
            yield from pairwise(claims)

    def ends(self, claim: Claim, *answers: str | None) -> list[Marked]:
        """The marks that end this claim and were answered so; None is for those that had no answer."""
        return [
            mark
            for mark in self.marks.get((claim.id, claim.claim), ())
            if mark.ends and mark.answer in answers
        ]

    def next_of(self, claim: Claim) -> Claim | None:
        """The job's next claim."""
        later = [each for each in self.claims[claim.id] if each.claim > claim.claim]
        return later[0] if later else None
