"""What a limiter of the app's own answered. Where it fails its kind is held back, and never let past."""

from __future__ import annotations

import logging

from fastjobs.clock import Clock
from fastjobs.core.duration import SECOND
from fastjobs.core.rate import HELD_FOR, LONGEST_WAIT, waited
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
        self._told: dict[tuple[str, str], float] = {}
        """When each line was last told of a kind."""

    def answered(self, kind: str, answer: object, raised: BaseException | None) -> int:
        """For how many microseconds the kind is held back; 0 where the job may start."""
        why = "" if raised is None else error_text(raised)
        if raised is None:
            try:
                wait = waited(answer)
            except Exception as bad:  # a number's own comparisons may raise anything
                why = str(bad) if type(bad) is ValueError else error_text(bad)
            else:
                if wait > LONGEST_WAIT and self._is_to_tell(kind, "cut"):
                    say(
                        logging.WARNING,
                        "a limiter asks for more than a day: its kind is held back for one, and then it's asked again",
                        kind=kind,
                        days=round(wait / LONGEST_WAIT, 1),
                    )
                return min(wait, LONGEST_WAIT)
        if self._is_to_tell(kind, "failed"):
            say(
                logging.ERROR,
                f"a limiter failed, and its kind is held back for {HELD_FOR / SECOND:g} s",
                raised,
                kind=kind,
                err=why,
                where=(error_place(raised) or None) if raised is not None else None,
            )
        return HELD_FOR

    def _is_to_tell(self, kind: str, what: str) -> bool:
        now = self._clock.monotonic()
        if now - self._told.get((kind, what), -TOLD) < TOLD:
            return False
        self._told[kind, what] = now
        return True
