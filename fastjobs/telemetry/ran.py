"""What the metrics of all kinds make of a run."""

from __future__ import annotations

from fastjobs.core.errors import OutOfAttempts
from fastjobs.core.outcome import Outcome, Ran

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
"""Seconds. A job may take a millisecond or an hour."""


def began(ran: Ran) -> bool:
    """Whether a handler ran: not where its rate held the job back, it was cancelled before, or is out of attempts."""
    if ran.outcome in (Outcome.HELD_BACK, Outcome.CANCELLED):
        return ran.took > 0
    return not isinstance(ran.error, OutOfAttempts)
