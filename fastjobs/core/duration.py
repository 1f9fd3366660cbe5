"""Durations and instants: seconds or timedeltas from a user, integer microseconds everywhere inside."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

from fastjobs.core.errors import PushError

Seconds = float | timedelta
"""A duration: seconds (int or float) or a timedelta."""

SECOND = 1_000_000
DAY = 86_400 * SECOND
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST = 253_402_300_799_999_999
"""The last microsecond of the year 9999, which is as far as a datetime goes."""
FIRST = -62_135_596_800_000_000
"""The first microsecond of the year 1, where datetimes begin."""

_MICRO = timedelta(microseconds=1)


def micros(duration: Seconds, what: str, *, least: int = 0) -> int:
    """The duration in microseconds, rounded to the nearest. `what` names it in the ValueError of a bad one.

    Refused: what is no number or timedelta (a bool is none), NaN, an infinity, less than `least`
    microseconds, or more than 9,999 years.
    """
    found: float
    if isinstance(duration, timedelta):
        found = duration // _MICRO
    elif isinstance(duration, bool) or not isinstance(duration, (int, float)):
        raise ValueError(
            f"{what} is seconds or a timedelta, and this is a {type(duration).__name__}: {duration!r}"
        )
    elif isinstance(duration, float) and not math.isfinite(duration):
        raise ValueError(f"{what} is a number of seconds, and {duration!r} is none")
    elif abs(duration) > LAST:  # also an int that no float can be, so it isn't multiplied or told
        found = math.copysign(math.inf, duration > 0 or -1)
    else:
        found = round(duration * SECOND)
    if found < least:
        raise ValueError(f"{what} is at least {least / SECOND:g} s, and this is {found / SECOND:g} s")
    if found > LAST:
        raise ValueError(f"{what} is at most 9,999 years, and this is {found / SECOND:g} s")
    return int(found)


def instant(at: datetime, what: str = "at") -> int:
    """The instant in Unix microseconds, exactly. A datetime without a zone is a PushError."""
    if not isinstance(at, datetime):
        raise PushError(f"{what} is a datetime with a zone, and this is a {type(at).__name__}: {at!r}")
    if at.utcoffset() is None:
        raise PushError(
            f"{what} needs a zone: {at.isoformat()} could be any of a day's hours. Give it one, as in"
            " datetime.now(timezone.utc), or say after= in seconds"
        )
    found = (at - EPOCH) // _MICRO
    if not FIRST <= found <= LAST:
        raise PushError(f"{what} is past what a datetime in UTC can be: {at.isoformat()}")
    return found


def moment(unix_micros: int) -> datetime:
    """The instant as an aware datetime, in UTC; the nearest there is, for one out of the years 1 to 9999."""
    return EPOCH + timedelta(microseconds=min(max(unix_micros, FIRST), LAST))
