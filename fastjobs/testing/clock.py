"""A clock that stands still until a test moves it."""

from __future__ import annotations

import asyncio
import heapq
import math
import random
from collections.abc import Callable
from datetime import timedelta

_START = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z


class Clock:
    """A `fastjobs.clock.Clock` that tests move: time passes where they say so, and no test sleeps.

    It starts at 2026-01-01T00:00:00Z, or at `start` in Unix microseconds. Its random numbers come from
    `seed`, or are all `chance` where that is set.
    """

    def __init__(self, start: int = _START, *, seed: int = 0) -> None:
        self.chance: float | None = None
        """What `random` answers while it isn't None."""
        self._wall = start
        self._passed = 0
        self._asked = 0
        self._timers: list[_Timer] = []
        self._random = random.Random(seed)  # noqa: S311 - a test wants the same numbers each time

    def now(self) -> int:
        """The wall clock in Unix microseconds."""
        return self._wall

    def monotonic(self) -> float:
        """The seconds that have passed since the clock was made; `step` doesn't count."""
        return self._passed / 1_000_000

    def call_later(self, delay: float, callback: Callable[[], object]) -> _Timer:
        """Calls back as the clock is moved `delay` seconds on; one of 0 waits for the next move too."""
        self._asked += 1
        timer = _Timer(self._passed + max(0, math.ceil(delay * 1_000_000)), self._asked, callback)
        heapq.heappush(self._timers, timer)
        return timer

    def random(self) -> float:
        """The next number of the seed's, or `chance`."""
        return self._random.random() if self.chance is None else self.chance

    @property
    def waiting(self) -> int:
        """How many timers have neither fired nor been cancelled."""
        return sum(timer.callback is not None for timer in self._timers)

    def advance(self, seconds: float | timedelta) -> None:
        """Moves the clock on, and calls back what comes due on the way, in order, each at its own time.

        What a callback asks for within these seconds is called too. Tasks that a callback wakes run only
        once the loop has its turn: `pass_time` gives it one after each timer. A callback's exception comes
        out here, with the clock at that timer's time.
        """
        end = self._passed + _microseconds(seconds)
        while self._fire_next(end):
            pass
        self._move_to(end)

    async def pass_time(self, seconds: float | timedelta, *, turns: int = 20) -> None:
        """As `advance`, and lets the loop settle, for so many turns, before it starts and after each timer.

        Work that was handed to a thread isn't waited for.
        """
        end = self._passed + _microseconds(seconds)
        await _settle(turns)
        while self._fire_next(end):
            await _settle(turns)
        self._move_to(end)
        await _settle(turns)

    def step(self, seconds: float | timedelta) -> None:
        """Sets the wall clock forward, or back, as an operator would: no time passes, no timer comes due."""
        self._wall += _microseconds(seconds)

    def _fire_next(self, end: int) -> bool:
        """Calls back the first timer due by then, and says whether there was one."""
        while self._timers and self._timers[0].due <= end:
            timer = heapq.heappop(self._timers)
            callback = timer.callback
            if callback is not None:
                self._move_to(timer.due)
                timer.cancel()
                callback()
                return True
        return False

    def _move_to(self, passed: int) -> None:
        # A callback may have moved the clock further itself.
        if passed > self._passed:
            self._wall += passed - self._passed
            self._passed = passed


class _Timer:
    """A timer of this clock's."""

    __slots__ = ("asked", "callback", "due")

    def __init__(self, due: int, asked: int, callback: Callable[[], object]) -> None:
        self.due = due
        self.asked = asked
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        """Makes it never fire; nothing where it has."""
        self.callback = None

    def __lt__(self, other: _Timer) -> bool:
        return (self.due, self.asked) < (other.due, other.asked)


def _microseconds(seconds: float | timedelta) -> int:
    if isinstance(seconds, timedelta):
        return seconds // timedelta(microseconds=1)
    return round(seconds * 1_000_000)


async def _settle(turns: int) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)
