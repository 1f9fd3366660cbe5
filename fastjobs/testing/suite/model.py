"""What the suite expects of a store through a random history: the rules on keys and limits, and nothing else.

It knows each job that was pushed, and says of an answer whether the rules allow it, and whether it's all that
they allow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fastjobs.core.claiming import Claimable
from fastjobs.core.job import Job, NewJob
from fastjobs.core.marks import Kept


@dataclass
class Known:
    """A job as the model knows it."""

    id: str
    new: NewJob
    run_at: int
    first_push_at: int
    has_key: bool
    """Whether a push of its key is refused, or moves it."""
    held_until: int | None = None
    """When its hold ends; None while it waits."""
    claim: Job | None = None
    """Its latest claim, while that may mark it."""
    stop_asked: bool = False
    """Whether a claim of it was."""

    def is_held(self, now: int) -> bool:
        return self.held_until is not None and self.held_until > now

    def extended(self, now: int) -> Kept:
        """What an Extend of its claim is answered."""
        if not self.is_held(now):
            return Kept.LOST
        return Kept.STOP if self.stop_asked else Kept.YES


class Model:
    """The jobs that were pushed and aren't done."""

    def __init__(self) -> None:
        self.jobs: dict[str, Known] = {}
        self.held_back: dict[str, int] = {}
        self.paused: set[str] = set()

    def push(self, news: Sequence[NewJob], ids: Sequence[str | None], now: int) -> None:
        """Sees that a push is answered as it must be."""
        assert len(ids) == len(news)
        for new, id in zip(news, ids, strict=True):
            run_at = now + new.after if new.at is None else new.at
            waiting = self.waiting_with(new)
            if waiting is None:
                assert id is not None, f"{new} wasn't pushed, and no job of its key waits"
                assert id not in self.jobs, f"{new} was pushed with the id of {self.jobs.get(id)}"
                self.jobs[id] = Known(id, new, run_at, now, has_key=new.key is not None)
            elif not new.latest:
                assert id is None, f"{new} was pushed as {id}, and {waiting} waits"
            else:
                assert id == waiting.id, f"{new} was answered by {id}, and {waiting} waits"
                cap = run_at if new.at_most is None else waiting.first_push_at + new.at_most
                waiting.run_at = min(run_at, cap)

    def waiting_with(self, new: NewJob) -> Known | None:
        """The job of its key that waits."""
        same = [
            each
            for each in self.jobs.values()
            if new.key is not None and each.has_key and (each.new.kind, each.new.key) == (new.kind, new.key)
        ]
        assert len(same) <= 1
        return same[0] if same else None

    def claim(self, terms: Sequence[Claimable], limit: int, jobs: Sequence[Job], now: int) -> None:
        """Sees that a claim returns what it may, and no less than it could."""
        room = {each.kind: self._room(each, now) for each in terms}
        most = min(limit, sum(room.values()))
        holds = {each.kind: each.hold for each in terms}
        assert len(jobs) <= limit
        for job in jobs:
            known = self.jobs.get(job.id)
            assert known is not None, f"{job} was claimed, which isn't there"
            assert known.run_at <= now, f"{known} was claimed, which isn't due"
            assert not known.is_held(now), f"{known} was claimed, which is held"
            assert not self._is_busy(known, now), f"{known} was claimed, and another of its key is held"
            room[job.kind] -= 1
            assert room[job.kind] >= 0, f"{known} was claimed, and its kind has no room"
            assert (job.payload, job.run_at) == (known.new.payload, known.run_at)
            known.held_until, known.claim, known.has_key = now + holds[job.kind], job, False
            assert job.stop_asked is known.stop_asked, f"{job} was claimed, and is {known}"
        assert len(jobs) == most, f"{len(jobs)} jobs were claimed, where {most} could be: {self._look(now)}"

    def goes_back(self, known: Known, run_at: int, *, with_key: bool) -> None:
        """Its claim has ended, and it waits."""
        known.held_until, known.claim = None, None
        if known.stop_asked:
            return  # it's only to be removed: due as it was, and without its key
        known.run_at = run_at
        known.has_key = with_key and known.new.key is not None and self.waiting_with(known.new) is None

    def hold_back(self, kind: str, until: int) -> None:
        self.held_back[kind] = max(until, self.held_back.get(kind, 0))

    def pause(self, kind: str, *, paused: bool) -> None:
        (self.paused.add if paused else self.paused.discard)(kind)

    def _room(self, term: Claimable, now: int) -> int:
        """How many jobs of the kind a claim with no other limit returns."""
        if term.kind in self.paused or self.held_back.get(term.kind, 0) > now:
            return 0
        of_kind = [each for each in self.jobs.values() if each.new.kind == term.kind]
        due = [each for each in of_kind if each.run_at <= now and not each.is_held(now)]
        due = [each for each in due if not self._is_busy(each, now)]
        keys = {each.new.key for each in due if each.new.one_at_a_time}
        room = len(keys) + sum(not each.new.one_at_a_time for each in due)
        if term.limit is not None:
            room = min(room, term.limit)
        if term.at_once is not None:
            room = min(room, max(0, term.at_once - sum(each.is_held(now) for each in of_kind)))
        return room

    def _is_busy(self, known: Known, now: int) -> bool:
        """Whether another of its kind and key is held that may not be held beside it."""
        return known.new.one_at_a_time and any(
            each is not known
            and each.new.one_at_a_time
            and (each.new.kind, each.new.key) == (known.new.kind, known.new.key)
            and each.is_held(now)
            for each in self.jobs.values()
        )

    def _look(self, now: int) -> str:
        return "\n".join(
            f"{each.id} {each.new.kind} {each.new.key!r:.8} due in {each.run_at - now}"
            f" {f'held for {each.held_until - now}' if each.held_until is not None else 'waits'}"
            for each in self.jobs.values()
        )
