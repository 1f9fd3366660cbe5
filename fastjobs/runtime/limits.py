"""What a limiter of the app's own answered. Where it fails its kind is held back, and never let past."""

from __future__ import annotations

import logging

from fastjobs.clock import Clock
from fastjobs.core.duration import SECOND
from fastjobs.core.rate import HELD_FOR, waited
from fastjobs.core.text import error_place, error_text
from fastjobs.runtime.lines import say

ATTEMPT = 10.0
"""Seconds that a limiter may take to answer."""
TOLD = 60.0
"""Seconds between two lines of a kind whose limiter fails."""


class Limits:
    """The limiters of one running queue."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told: dict[str, float] = {}

    def answered(self, kind: str, answer: object, raised: BaseException | None) -> int:
        """For how many microseconds the kind is held back; 0 where the job may start."""
        if raised is None:
            try:
                return waited(answer)
            except ValueError as bad:
                self._tell(kind, str(bad), None)
                return HELD_FOR
        self._tell(kind, error_text(raised), raised)
        return HELD_FOR

    def _tell(self, kind: str, why: str, raised: BaseException | None) -> None:
        now = self._clock.monotonic()
        if now - self._told.get(kind, -TOLD) < TOLD:
            return
        self._told[kind] = now
        say(
            logging.ERROR,
            f"a limiter failed, and its kind is held back for {HELD_FOR / SECOND:g} s",
            raised,
            kind=kind,
            err=why,
            where=(error_place(raised) or None) if raised is not None else None,
        )
