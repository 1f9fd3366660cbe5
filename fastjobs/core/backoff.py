"""How long a job waits to run again after an attempt that failed."""

from __future__ import annotations

from collections.abc import Callable

from fastjobs.core.duration import DAY, SECOND, Seconds, micros

Backoff = Seconds | Callable[[int], Seconds]
"""A wait that is the same each time, or a callable of the attempt that failed, the first being 1."""


def fourth_power(attempt: int) -> float:
    """The default: attempt⁴ seconds, so 1 s, 16 s, 81 s, 4 minutes, 10, 22, 40, 68 minutes, 1.8 hours."""
    return float(min(attempt, 100) ** 4)  # beyond a day from 18 on


def wait(backoff: Backoff | None, attempt: int, random: float) -> int:
    """The wait after this attempt, in microseconds. `random`, from 0 to 1, spreads jobs that failed together.

    The default and a fixed wait have up to a tenth more added, and the default is a day at most. A callable's
    answer is taken as it is. Raises what the callable raises, and ValueError for an answer that is no duration.
    """
    if callable(backoff):
        return micros(backoff(attempt), f"the backoff after attempt {attempt}")
    if backoff is None:
        base = micros(fourth_power(attempt), "the backoff")
        return min(base + round(base * random / 10), DAY)
    base = micros(backoff, "the backoff")
    return base + round(base * random / 10)


def fallback(attempt: int, random: float) -> int:
    """The wait where a kind's own backoff raised: the default one, but a second at the least."""
    return max(SECOND, wait(None, attempt, random))
