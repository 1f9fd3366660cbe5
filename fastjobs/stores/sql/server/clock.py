"""The server's clock, told without asking it each time: its offset to a clock of this machine's that never steps."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from fastjobs.clock import Clock, SystemClock

log = logging.getLogger("fastjobs")

SECOND = 1_000_000
EVERY = 60 * SECOND
"""How long a measurement is good for, in microseconds."""
APART = 5 * SECOND
"""How far the server and this machine may be apart before it's worth a line in the log."""

SLOW = 50_000
"""A round trip of so many microseconds may be one that something held up, and says little: it's asked again."""
TRIES = 3

_system = SystemClock()


def steady() -> int:
    """Microseconds from some moment. It counts a suspend of the machine, where the machine has a clock that does."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    if boot is not None:
        return time.clock_gettime_ns(boot) // 1000
    return int(_system.monotonic() * SECOND)


class _Asked(NamedTuple):
    """A question: when it was asked and answered by the steady clock, and the server's time in between."""

    before: int
    server: int
    after: int

    def took(self) -> int:
        return self.after - self.before


class ServerClock:
    """Tells the server's time, in Unix microseconds. With a clock of a test's own it tells that one's.

    Before the first measurement it tells this machine's. It may be asked from any thread.
    """

    def __init__(
        self,
        clock: Clock | None,
        *,
        steady: Callable[[], int] = steady,
        wall: Callable[[], int] = _system.now,
    ) -> None:
        self._given = clock
        self._steady = steady
        self._wall = wall
        self._measured: tuple[int, int] | None = None
        """The offset, and when it was measured, by the steady clock."""
        self._is_apart = False

    def now(self) -> int:
        if self._given is not None:
            return self._given.now()
        measured = self._measured
        return self._wall() if measured is None else self._steady() + measured[0]

    def is_due(self) -> bool:
        """Whether it's time to measure, for the first time or again."""
        if self._given is not None:
            return False
        measured = self._measured
        return measured is None or self._steady() - measured[1] >= EVERY

    async def measure(self, ask: Callable[[], Awaitable[int]]) -> None:
        """Measures by the quickest of a few questions to the server."""
        found: list[_Asked] = []
        while self._wants_more(found):
            before = self._steady()
            found.append(_Asked(before, await ask(), self._steady()))
        self._note(min(found, key=_Asked.took))

    def measure_sync(self, ask: Callable[[], int]) -> None:
        """As `measure`, where SQLAlchemy's sync side may do I/O."""
        found: list[_Asked] = []
        while self._wants_more(found):
            before = self._steady()
            found.append(_Asked(before, ask(), self._steady()))
        self._note(min(found, key=_Asked.took))

    def _wants_more(self, found: list[_Asked]) -> bool:
        if len(found) < 2:
            # A driver may prepare the first one, by a round trip more.
            return not found or self._measured is None or found[0].took() > SLOW
        return len(found) < TRIES and min(each.took() for each in found) > SLOW

    def _note(self, asked: _Asked) -> None:
        before, server, after = asked
        # The server looked at its clock at some time of the round trip: in its middle, give or take a half.
        half = (after - before) // 2
        offset = server - before - half
        measured = self._measured
        # What differs by no more than that is no news, and would only make the time jump to and fro.
        if measured is not None and abs(offset - measured[0]) <= half:
            offset = measured[0]
        self._measured = (offset, after)
        apart = after + offset - self._wall()
        if abs(apart) <= APART + half:
            self._is_apart = False
        elif not self._is_apart:
            self._is_apart = True
            log.warning(
                "the database server's clock is %.1f s %s this machine's; the queue goes by the server's, and what the"
                " app computes as `at=` by its own: set both by NTP",
                abs(apart) / SECOND,
                "ahead of" if apart > 0 else "behind",
            )
