"""`Cron`, and its rules for a clock that goes forward or back.

A schedule is a set of instants, and `next` finds the first of them after another: where a search starts never changes
what it finds. Which instants these are is all there is to the rules:

- fixed times (no `*` in the minute or the hour): for each matching time of each date that the calendar has, the instant
  at which the clock first shows it; for one that the clock skips, the instant of the change.
- others: each instant at which the clock shows a matching time, be it the first time or the second.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from fastjobs.core import schedule, zones
from fastjobs.core.cron_text import Fields, read
from fastjobs.core.cron_walls import Walls
from fastjobs.core.describe import describe_cron

_MINUTE = timedelta(minutes=1)
_UTC_NAMES = ("UTC", "Etc/UTC")


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Cron:
    """A schedule written as a cron expression, read on a zone's clock.

    `expr` has five fields: the minute, the hour, the day of the month, the month and the day of the week. Each is a
    number, a range such as `1-5`, a list such as `1,15`, or `*` for all; any of those with a step, as `*/15`. Months
    and days may be names (`JAN`, `mon`), and Sunday is 0 or 7. With both day fields restricted, a day matches either:
    `0 0 1,15 * 5` is the 1st, the 15th and every Friday; anything but a plain `*` restricts, `*/2` too. `@hourly`,
    `@daily`, `@midnight`, `@weekly`, `@monthly`, `@yearly` and `@annually` stand for their expressions.

    `zone` is an IANA name as "Europe/Paris", a ZoneInfo, or "Local" for the server's own; default UTC. Where its clock
    goes forward or back, a fixed time (no `*` in its minute or hour) runs once whatever the clock does: at the change
    that skips it, and the first of the two times that it's shown. A time with `*` follows real time: nothing runs in
    the hour that is skipped, and the hour that is shown again runs again.

    Raises ScheduleError for an expression that isn't one, that never comes round (the 30th of February), or a zone
    that isn't there. Equal to another whose fields have the same numbers, in the same zone.
    """

    expr: str = field(compare=False)
    """As it was written."""
    zone: str
    """The zone's IANA name; for "Local" the one that was found."""
    _fields: Fields
    _walls: Walls = field(compare=False)
    _clock: ZoneInfo | None = field(compare=False)
    """None for UTC, whose clock never changes."""

    def __init__(self, expr: str, zone: str | ZoneInfo = "UTC") -> None:
        fields = read(expr)
        clock = None if zone == "UTC" else zones.load(zone)
        put = object.__setattr__  # as frozen dataclasses do
        put(self, "expr", expr)
        put(self, "zone", "UTC" if clock is None else clock.key)
        put(self, "_fields", fields)
        put(self, "_walls", Walls(fields))
        put(self, "_clock", None if clock is None or clock.key in _UTC_NAMES else clock)

    def __repr__(self) -> str:
        return f"Cron({self.expr!r})" if self.zone == "UTC" else f"Cron({self.expr!r}, {self.zone!r})"

    def next(self, after: datetime, /) -> datetime | None:
        """The first run later than `after`, an aware datetime: in UTC, or None where the year 9999 ends before it."""
        after = schedule.in_utc(after)
        try:
            if self._clock is None:
                found = self._walls.first(_minute_after(after.replace(tzinfo=None)))
                return None if found is None else found.replace(tzinfo=UTC)
            if self._fields.fixed:
                return self._next_fixed(after, self._clock)
            return self._next_shown(after, self._clock)
        except OverflowError:  # the run, or the clock's time, is past the year 9999
            return None

    def upcoming(self, n: int, after: datetime) -> list[datetime]:
        """The next `n` runs after `after`, in UTC; fewer where the year 9999 ends before."""
        return schedule.upcoming(self, n, after)

    def describe(self) -> str:
        """The schedule in plain words, as "at 02:00 on weekdays, Europe/Paris"."""
        return f"{describe_cron(self._fields)}, {self.zone}"

    def _next_fixed(self, after: datetime, clock: ZoneInfo) -> datetime | None:
        start, again = _shown(after, clock)
        if again:
            # All that is shown twice has run the first time: on to what comes after.
            before, _ = zones.offsets(clock, start)
            start = _last_before(zones.change_at(clock, start), before)
        wall = self._walls.first(_minute_after(start))
        while wall is not None:
            first, second = zones.offsets(clock, wall)
            run = zones.change_at(clock, wall) if second > first else (wall - first).replace(tzinfo=UTC)
            if run > after:
                return run
            wall = self._walls.first(wall + _MINUTE)
        return None

    def _next_shown(self, after: datetime, clock: ZoneInfo) -> datetime | None:
        start, again = _shown(after, clock)
        wall = self._walls.first(_minute_after(start))
        first, second = zones.offsets(clock, start)
        if first > second and not again:
            # In the first of two showings. What is left of it comes first, and then all of the second.
            change = zones.change_at(clock, start)
            if wall is not None and wall <= _last_before(change, first):
                return (wall - first).replace(tzinfo=UTC)
            after = change - schedule.MICROSECOND
            wall = self._walls.first(_minute_after(_last_before(change, second)))
        while wall is not None:
            first, second = zones.offsets(clock, wall)
            if second > first:  # skipped, and with it all up to the change
                wall = self._walls.first(_minute_after(_last_before(zones.change_at(clock, wall), second)))
                continue
            run = (wall - first).replace(tzinfo=UTC)
            return run if run > after else (wall - second).replace(tzinfo=UTC)
        return None


def _shown(after: datetime, clock: ZoneInfo) -> tuple[datetime, bool]:
    """What the clock shows then, and whether that is the second time it does."""
    try:
        shown = after.astimezone(clock)
    except OverflowError:
        if after.year > 1:
            raise
        return datetime.min, False  # passes over the first minute of the year 1, in zones west of UTC
    return shown.replace(tzinfo=None, fold=0), bool(shown.fold)


def _minute_after(wall: datetime) -> datetime:
    """The first whole minute later than this."""
    return wall.replace(second=0, microsecond=0) + _MINUTE


def _last_before(change: datetime, offset: timedelta) -> datetime:
    """The last moment that a clock of this offset shows before the change."""
    return change.replace(tzinfo=None) + offset - schedule.MICROSECOND
