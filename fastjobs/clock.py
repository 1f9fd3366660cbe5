"""The one clock: every time, timer and random number that the queue and its stores use comes from a Clock.

`fastjobs.testing.Clock` is one that tests move.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A timer that was asked for."""

    def cancel(self) -> None:
        """Makes it never fire; nothing where it has."""
        ...


class Clock(Protocol):
    """What tells the time."""

    def now(self) -> int:
        """The wall clock in Unix microseconds. It may step."""
        ...

    def monotonic(self) -> float:
        """Seconds from some moment. It never steps back."""
        ...

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        """Calls back after so many seconds, on the running loop."""
        ...

    def random(self) -> float:
        """A number from 0 to 1."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> int:
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        return time.monotonic()

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(delay, callback)

    def random(self) -> float:
        return random.random()  # noqa: S311 - it spreads retries, nothing secret
