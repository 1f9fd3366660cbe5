"""What a schedule is, and the rules that hold for each of them, an app's own too."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Literal, Protocol, runtime_checkable

from fastjobs.core.duration import instant
from fastjobs.core.errors import ScheduleError

Missed = Literal["once", "skip", "all"]
"""What becomes of runs that came due while nobody pushed them: the latest one runs, none does, or each does."""

MICROSECOND = timedelta(microseconds=1)
FIRST = datetime.min.replace(tzinfo=UTC)
LAST = datetime.max.replace(tzinfo=UTC)


@runtime_checkable
class Schedule(Protocol):
    """Names the times at which something runs. `Cron` and `Every` are two; one of an app's own needs `next` alone."""

    def next(self, after: datetime, /) -> datetime | None:
        """The first run that is later than `after`, an aware datetime; None where there is none ever again.

        The answer is aware (those of fastjobs' own are in UTC), and it depends on `after` alone: every instance of
        the app asks, and all must be told the same. So nothing random in it, no clock, and no state.
        """
        ...


def in_utc(after: datetime, what: str = "after") -> datetime:
    """The instant in UTC, the nearest there is for one out of the years 1 to 9999. ScheduleError without a zone."""
    if not isinstance(after, datetime):
        raise ScheduleError(
            f"{what} is a datetime with a zone, and this is a {type(after).__name__}: {after!r}"
        )
    if after.utcoffset() is None:
        raise ScheduleError(
            f"{what} needs a zone: {after.isoformat()} could be any of a day's hours. Give it one, as in"
            " datetime.now(timezone.utc)"
        )
    try:
        return after.astimezone(UTC)
    except OverflowError:
        return FIRST if after.year == 1 else LAST


def following(schedule: Schedule, after: datetime) -> datetime | None:
    """The schedule's next run, in UTC, its answer checked: `schedule` may be an app's own.

    Raises ScheduleError where the answer is no aware datetime, or not later than `after`; and what `next` raises.
    """
    after = in_utc(after)
    found = schedule.next(after)
    if found is None:
        return None
    run = in_utc(found, f"what {schedule!r} answers")
    if run <= after:
        raise ScheduleError(
            f"{schedule!r} was asked for a run after {after.isoformat()} and answered {found.isoformat()},"
            " which isn't later: next() answers the first one that is, or None"
        )
    return run


def upcoming(schedule: Schedule, n: int, after: datetime) -> list[datetime]:
    """The next `n` runs after `after`, in UTC; fewer where the schedule ends before. Raises as `following` does."""
    if isinstance(n, bool) or not isinstance(n, int) or n < 0:
        raise ScheduleError(f"n is how many runs, a whole number from 0 on, and not {n!r}")
    return _walk(schedule, after, LAST, n)


def runs_between(
    schedule: Schedule, last: datetime | None, now: datetime, missed: Missed = "once", most: int = 100
) -> list[datetime]:
    """Which runs later than `last`, the last one that was pushed, up to and with `now`, are still to be pushed.

    "once": the latest of them. "skip": none. "all": the latest `most` of them, in rising order; those before are
    dropped. With no `last`, as for a new schedule, there are none: a time that has passed before it was there doesn't
    run. However many were missed, at most about 45 times `most` are looked at. Raises as `following` does.
    """
    if missed not in ("once", "skip", "all"):
        raise ScheduleError(f'missed is "once", "skip" or "all", and not {missed!r}')
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise ScheduleError(f"most is how many runs, a whole number from 1 on, and not {most!r}")
    now = in_utc(now, "now")
    if last is None or missed == "skip":
        return []
    most = 1 if missed == "once" else most
    # More than `most` runs are later than `low`, and not more than `most`, these, are later than `high`.
    low, high = in_utc(last, "last"), now
    runs = _walk(schedule, low, now, most + 1)
    if len(runs) <= most:
        return runs
    runs = []
    while len(runs) < most and high - low > MICROSECOND:
        middle = low + (high - low) // 2
        found = _walk(schedule, middle, now, most + 1)
        if len(found) > most:
            low = middle
        else:
            high, runs = middle, found
    return runs


def _walk(schedule: Schedule, after: datetime, until: datetime, most: int) -> list[datetime]:
    runs: list[datetime] = []
    run = following(schedule, after) if most else None
    while run is not None and run <= until:
        runs.append(run)
        run = following(schedule, run) if len(runs) < most else None
    return runs


def jitter(name: str, run: datetime, most: int) -> int:
    """How many microseconds, from 0 to `most`, the run of the schedule of this name is put off.

    It comes from a hash of the name and the run, so each instance of the app finds the same, whatever its machine,
    and two schedules of one time are spread.
    """
    if isinstance(most, bool) or not isinstance(most, int) or most < 0:
        raise ScheduleError(f"most is microseconds, a whole number from 0 on, and not {most!r}")
    said = f"{instant(run, 'run')} {name}".encode("utf-8", "surrogatepass")
    found = int.from_bytes(hashlib.blake2b(said, digest_size=16).digest())
    return found * (most + 1) >> 128
