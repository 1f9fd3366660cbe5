"""Which jobs a queue that runs has handlers for, and by which of them each is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fastjobs.core.claiming import Claimable
from fastjobs.core.job import Job
from fastjobs.runtime.fallback import others
from fastjobs.runtime.kind import Kind
from fastjobs.runtime.run import Run
from fastjobs.runtime.settings import Settings
from fastjobs.runtime.telling import waited


class Handled:
    """The kinds that run, and the fallback for all others where there is one."""

    def __init__(
        self, kinds: Mapping[str, Kind[Any]], settings: Settings, fallback: Kind[Any] | None = None
    ) -> None:
        self.kinds = kinds
        self.fallback = fallback
        self.terms = [
            Claimable(
                kind=name,
                hold=kind.options.hold(settings.hold),
                attempts=kind.options.attempts,
                at_once=kind.options.at_once,
                priority=kind.options.priority,
                ahead_ok=not kind.options.in_turn and kind.options.rate is None,
            )
            for name, kind in kinds.items()
        ]
        """What the queue asks claims for."""
        self.others = others(fallback, settings.hold)
        """And for all kinds that aren't named."""
        self._holds = {each.kind: each.hold for each in self.terms}

    def __bool__(self) -> bool:
        return bool(self.kinds) or self.fallback is not None

    @property
    def any_one_at_a_time(self) -> bool:
        """Whether some of its jobs may wait for another of their value. Of the fallback's nobody knows."""
        return self.fallback is not None or any(kind.options.one_at_a_time for kind in self.kinds.values())

    def lets_next(self, kind: Kind[Any]) -> bool:
        """Whether the end of one of its jobs may let another run."""
        return kind.options.in_turn or kind is self.fallback

    def run(self, job: Job, asked: float, now: int) -> Run:
        """A job that a claim returned: asked for at the monotonic `asked`, and answered at the store's `now`."""
        kind, hold = self._of(job)
        return Run(job, kind, hold, asked, waited(job, now))

    def exhausted(self, job: Job, asked: float, now: int) -> Run:
        """A job that a claim failed: nobody holds it."""
        return Run(job, self._of(job)[0], 0, asked, waited(job, now))

    def _of(self, job: Job) -> tuple[Kind[Any], int]:
        kind = self.kinds.get(job.kind)
        if kind is not None:
            return kind, self._holds[job.kind]
        # Only a claim with others returns such a one.
        assert self.fallback is not None
        assert self.others is not None
        return self.fallback, self.others.hold


def all_named(asked: Sequence[Claimable], terms: Sequence[Claimable]) -> list[Claimable]:
    """What a claim with others is asked for: the kinds of `terms` that it isn't to take are named, without room."""
    names = {each.kind for each in asked}
    return [*asked, *(replace(each, limit=0) for each in terms if each.kind not in names)]
