"""What rates remember of their jobs here: the turns of those that were refused, and what is asked of a limiter."""

from __future__ import annotations

from dataclasses import dataclass

from fastjobs.core.duration import DAY, SECOND
from fastjobs.core.job import Job
from fastjobs.core.rate import Throttle

OWN = 2
"""How many jobs a claim takes of a kind with a limiter of the app's own: those that it refuses go back."""
LINE = 1800 * SECOND
"""How far ahead jobs of one value are given turns, at least, in microseconds. Those behind it come back before that and
ask again: by then the jobs ahead of them may be gone, or the rate another."""


@dataclass(slots=True)
class Refused:
    """A claimed job that doesn't start now."""

    job: Job
    after: int | None = 0
    """Microseconds until its turn may come; None for due as it was."""
    error: BaseException | None = None
    """What `by=` raised for its value."""


class Turns:
    """When the jobs of one value that were refused may come: one after another, as fast as the rate lets them."""

    __slots__ = ("next", "seen", "soon")

    def __init__(self) -> None:
        self.next = 0
        self.soon = 0
        self.seen = 0
        """When a job of it was claimed last."""

    def came(self, now: int, period: int, *, has_place: bool) -> None:
        """Jobs of it were claimed. `has_place` says whether one of them has got a place."""
        if has_place and now > self.seen + 2 * period:
            self.next = self.soon = 0  # nobody came, and there's a place: those who had the turns are gone
        self.seen = now

    def after(self, now: int, wait: int, throttle: Throttle, random: float) -> int:
        """Microseconds until the turn of one more, or until it's to ask again."""
        step = throttle.period // throttle.max
        if wait * 4 <= step and self.soon <= now:
            self.soon = now + wait  # it came a moment too early, so it goes before those that wait behind it
            return wait
        turn = max(self.next, now + wait, self.soon + step)
        most = min(max(LINE, wait + throttle.period), DAY)
        if turn - now > most:
            # It has no turn yet. Those behind the line come back one by one, while half of it is still to run.
            return max(min(wait, DAY), int(most * (1 + random) / 2))
        # Each starts a moment after its turn, and that is what the next one's place counts from.
        self.next = turn + step + step // 100
        return turn - now


class Asking:
    """What the limiter of a kind is being asked: one that doesn't answer takes few workers, and not all of them."""

    __slots__ = ("jobs", "most")

    def __init__(self) -> None:
        self.jobs: set[str] = set()
        """Those that were claimed and have no answer yet."""
        self.most = OWN
        """How many it may be asked at once: one more with each that it lets go, and one after it refused."""

    def room(self) -> int:
        """How many more a claim may take."""
        return max(0, min(OWN, self.most - len(self.jobs)))
