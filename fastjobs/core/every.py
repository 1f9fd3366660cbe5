"""`Every`: a schedule of a fixed interval, the same on each instance whenever it started."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from fastjobs.core import schedule
from fastjobs.core.describe import describe_interval
from fastjobs.core.duration import Seconds, micros
from fastjobs.core.errors import ScheduleError

_LEAST = 1_000  # microseconds
_UNITS = {
    "weeks": timedelta(weeks=1),
    "days": timedelta(days=1),
    "hours": timedelta(hours=1),
    "minutes": timedelta(minutes=1),
    "seconds": timedelta(seconds=1),
}


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Every:
    """A schedule for each multiple of an interval, counted from midnight UTC of Monday, 1 January of the year 1.

    So `Every(minutes=15)` runs at :00, :15, :30 and :45, `Every(days=1)` at midnight UTC, and `Every(weeks=1)` at
    midnight UTC of Mondays, whenever the app was started. An interval that doesn't divide an hour or a day starts
    nowhere anew: `Every(hours=5)` is at another hour each day. A time on a zone's clock is `Cron`'s.

    The interval is a timedelta, or seconds, as `Every(90)`; or it's said in `weeks`, `days`, `hours`, `minutes` and
    `seconds`, added up. It's rounded to a whole microsecond, and is a millisecond at least. Raises ScheduleError for
    any other.
    """

    interval: timedelta

    def __init__(
        self,
        interval: Seconds | None = None,
        /,
        *,
        weeks: float = 0,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> None:
        parts = {"weeks": weeks, "days": days, "hours": hours, "minutes": minutes, "seconds": seconds}
        said = {unit: count for unit, count in parts.items() if count != 0 or count is False}
        try:
            if interval is None:
                if not said:
                    raise ScheduleError(
                        "Every needs an interval above 0, as Every(minutes=15) or a timedelta"
                    )
                found = sum(_part(unit, count) for unit, count in said.items())
                found = micros(timedelta(microseconds=found), "the interval", least=_LEAST)
            elif said:
                raise ScheduleError(
                    f"Every takes an interval or {', '.join(said)}, and not both: it was given {interval!r} too"
                )
            else:
                found = micros(interval, "the interval", least=_LEAST)
        except ScheduleError:
            raise
        except (ValueError, OverflowError) as bad:
            raise ScheduleError(f"Every: {bad}") from None
        object.__setattr__(self, "interval", timedelta(microseconds=found))  # as frozen dataclasses do

    def __repr__(self) -> str:
        for unit, each in _UNITS.items():
            count, left = divmod(self.interval, each)
            if not left:
                return f"Every({unit}={count})"
        return f"Every({self.interval!r})"

    def next(self, after: datetime, /) -> datetime | None:
        """The first run later than `after`, an aware datetime: in UTC, or None where the year 9999 ends before it."""
        after = schedule.in_utc(after)
        try:
            return after + (self.interval - (after - schedule.FIRST) % self.interval)
        except OverflowError:
            return None

    def upcoming(self, n: int, after: datetime) -> list[datetime]:
        """The next `n` runs after `after`, in UTC; fewer where the year 9999 ends before."""
        return schedule.upcoming(self, n, after)

    def describe(self) -> str:
        """The schedule in plain words, as "every 15 minutes, UTC"."""
        return f"{describe_interval(self.interval)}, UTC"


def _part(unit: str, count: float) -> int:
    """This many of the unit, in microseconds; 0 or less is told of the sum."""
    if isinstance(count, bool) or not isinstance(count, (int, float)):
        raise ScheduleError(f"Every: {unit} is a number, and not {count!r}")
    sign = -1 if count < 0 else 1
    return sign * micros(abs(count) * (_UNITS[unit] // timedelta(seconds=1)), unit)
