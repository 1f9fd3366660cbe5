"""What a claim was asked, and the order of what it answers."""

from __future__ import annotations

from typing import NamedTuple

from fastjobs.core.claiming import Claimable
from fastjobs.core.job import Job


class Wanted(NamedTuple):
    """What a claim was asked."""

    kinds: tuple[Claimable, ...]
    limit: int
    ahead: int
    others: Claimable | None

    @property
    def terms(self) -> tuple[Claimable, ...]:
        """Of each kind, and of the others."""
        return self.kinds if self.others is None else (*self.kinds, self.others)


def by_priority(jobs: list[Job], terms: dict[str, Claimable], others: Claimable | None) -> None:
    """Sorts jobs that are in the order of their times by their kinds' priorities."""
    priorities = {term.priority for term in terms.values()}
    if others is not None:
        priorities.add(others.priority)
    if len(priorities) > 1:
        by_kind = {kind: term.priority for kind, term in terms.items()}
        rest = 0 if others is None else others.priority
        jobs.sort(key=lambda job: -by_kind.get(job.kind, rest))
