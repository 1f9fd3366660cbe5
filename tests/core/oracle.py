"""When a cron expression runs, by the plainest reading of the rules: slow, and shares no code with the engine.

A clock is watched minute by minute, in real time. At each minute it shows a time; mostly that's a minute later than
what it showed before. Where it isn't, the clock was changed, and that is all this needs to know of zones. The offsets
of the zones it's used for are whole minutes, as all zones' are since 1972.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
NAMES = {
    name: str(number)
    for names, start in (
        ("JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC", 1),
        ("SUN MON TUE WED THU FRI SAT", 0),
    )
    for number, name in enumerate(names.split(), start)
}


@dataclass(frozen=True)
class Shown:
    """What a clock shows at an instant."""

    instant: datetime
    wall: datetime
    skipped: tuple[datetime, ...]
    """The times that it went over to show this one."""
    before: bool
    """It has shown this time before."""


@cache
def watched(zone: str, start: datetime, end: datetime) -> tuple[Shown, ...]:
    """A zone's clock from one instant to another. It's watched from two days earlier, to know what it has shown."""
    clock = ZoneInfo(zone)
    seen: list[Shown] = []
    latest = last = None
    instant = start - 2 * DAY
    while instant < end:
        wall = instant.astimezone(clock).replace(tzinfo=None, fold=0)
        skipped: list[datetime] = []
        if last is not None:
            missing = last + MINUTE
            while missing < wall:
                skipped.append(missing)
                missing += MINUTE
        before = latest is not None and wall <= latest
        if instant >= start:
            seen.append(Shown(instant, wall, tuple(skipped), before))
        last, latest = wall, wall if latest is None else max(latest, wall)
        instant += MINUTE
    return tuple(seen)


class Oracle:
    """The rules for one expression, which is valid: no error is told."""

    def __init__(self, expr: str) -> None:
        self.minute, self.hour, self.day, self.month, self.weekday = (part.upper() for part in expr.split())
        self.minutes = self._numbers(self.minute, 0, 59)
        self.hours = self._numbers(self.hour, 0, 23)
        self.days = self._numbers(self.day, 1, 31)
        self.months = self._numbers(self.month, 1, 12)
        self.weekdays = {number % 7 for number in self._numbers(self.weekday, 0, 6)}

    @staticmethod
    def _numbers(part: str, first: int, last: int) -> set[int]:
        found: set[int] = set()
        for item in part.split(","):
            span, _, step = item.partition("/")
            low, _, high = span.partition("-")
            low, high = NAMES.get(low, low), NAMES.get(high, high)
            if span == "*":
                start, end = first, last
            elif high:
                start, end = int(low), int(high)
            else:
                start, end = int(low), last if step else int(low)
            found |= {each for each in range(start, end + 1) if (each - start) % int(step or 1) == 0}
        return found

    def has_day(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        if self.day != "*" and self.weekday != "*":
            return of_month or of_week
        return of_month and of_week

    def has(self, wall: datetime) -> bool:
        return wall.minute in self.minutes and wall.hour in self.hours and self.has_day(wall)

    def runs(self, clock: Iterable[Shown]) -> Iterator[datetime]:
        """The instants at which it runs, of those that the clock was watched at."""
        fixed = "*" not in self.minute and "*" not in self.hour
        for shown in clock:
            due = self.has(shown.wall) and not (fixed and shown.before)
            missed = fixed and shown.skipped and any(map(self.has, shown.skipped))
            if due or missed:
                yield shown.instant

    def runs_in_utc(self, after: datetime, days: int) -> Iterator[datetime]:
        """Day by day, for what runs once a year, on a clock that isn't changed."""
        for day in (after.date() + n * DAY for n in range(days)):
            if self.has_day(day):
                for hour in sorted(self.hours):
                    for minute in sorted(self.minutes):
                        run = datetime(day.year, day.month, day.day, hour, minute, tzinfo=UTC)
                        if run > after:
                            yield run
