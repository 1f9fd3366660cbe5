"""An outage of the store: told once, then once a minute while it lasts, and once more when it's over.

One that comes again within the minute is told of once that is over: a store that fails now and then fills no log.
"""

from __future__ import annotations

import logging

from fastjobs.clock import Clock
from fastjobs.runtime.lines import say, say_error

EVERY = 60.0
_ASKED = 20.0
"""Seconds, beside two of its longest waits, after which a part that failed has not been asked meanwhile: its calls may
take ten each."""


class Outage:
    """Counts the failures of one part, and answers how long to wait before the next try."""

    def __init__(self, clock: Clock, part: str, most: float) -> None:
        """`most` is the longest wait, in seconds."""
        self._clock = clock
        self._part = part
        self._most = most
        self._failures = 0
        """In this outage."""
        self._untold = 0
        """Since the last line."""
        self._since = 0.0
        self._told = -EVERY
        self._latest = 0.0
        """When it failed last."""
        self._owes_the_end = False

    @property
    def since(self) -> float | None:
        """The monotonic time of its first failure; None while the store answers."""
        return self._since if self._failures else None

    def failed(self, error: BaseException) -> float:
        """Takes note of a failure; answers how many seconds to wait, growing from 50 ms to the most, with jitter."""
        now = self._clock.monotonic()
        if self._failures and now - self._latest > 2 * self._most + _ASKED:
            # Nothing was asked for so long, and whether the store answered is not known: it's another outage.
            self._failures = self._untold = 0
        if not self._failures:
            self._since = now
        self._latest = now
        self._failures += 1
        self._untold += 1
        if now - self._told >= EVERY:
            self._say(error, now)
        wait = min(0.05 * 2.0 ** min(self._failures - 1, 20), self._most)
        return wait * (0.5 + self._clock.random() / 2)

    def over(self) -> None:
        """Takes note that the store answers."""
        if self._owes_the_end:
            self._owes_the_end = False
            lasted = f"{self._clock.monotonic() - self._since:.1f}s"
            say(
                logging.INFO,
                "the store answers again",
                part=self._part,
                after=lasted,
                failures=self._failures,
            )
            self._untold = 0
        self._failures = 0

    def _say(self, error: BaseException, now: float) -> None:
        failures = self._untold if self._untold > 1 else None
        if self._failures == 1:
            say_error(
                "the store failed, and is asked again",
                error,
                logging.WARNING,
                part=self._part,
                failures=failures,
            )
        else:
            lasted = f"{now - self._since:.0f}s"
            say_error("the store still fails", error, part=self._part, lasted=lasted, failures=failures)
        self._told, self._untold, self._owes_the_end = now, 0, True
