"""An outage of the store: told once, then once a minute while it lasts, and once more when it's over."""

from __future__ import annotations

import logging

from fastjobs.clock import Clock
from fastjobs.runtime.lines import say, say_error

EVERY = 60.0


class Outage:
    """Counts the failures of one part, and answers how long to wait before the next try."""

    def __init__(self, clock: Clock, part: str, most: float) -> None:
        """`most` is the longest wait, in seconds."""
        self._clock = clock
        self._part = part
        self._most = most
        self._failures = 0
        self._since = 0.0
        self._told = 0.0

    def failed(self, error: BaseException) -> float:
        """Takes note of a failure; answers how many seconds to wait, growing from 50 ms to the most, with jitter."""
        now = self._clock.monotonic()
        if not self._failures:
            self._since = now
            say_error("the store failed, and is asked again", error, logging.WARNING, part=self._part)
            self._told = now
        elif now - self._told >= EVERY:
            self._told = now
            lasted = f"{now - self._since:.0f}s"
            say_error(
                "the store still fails", error, part=self._part, lasted=lasted, failures=self._failures + 1
            )
        self._failures += 1
        wait = min(0.05 * 2.0 ** min(self._failures - 1, 20), self._most)
        return wait * (0.5 + self._clock.random() / 2)

    def over(self) -> None:
        """Takes note that the store answers."""
        if self._failures:
            lasted = f"{self._clock.monotonic() - self._since:.1f}s"
            say(
                logging.INFO,
                "the store answers again",
                part=self._part,
                after=lasted,
                failures=self._failures,
            )
            self._failures = 0
