"""The times of day and dates that a cron expression names, as a clock without a zone shows them, one after another."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime

from fastjobs.core.cron_text import LONGEST, Fields

_ALL_DAYS = range(1, 32)


def _bits(numbers: Iterable[int]) -> int:
    return sum(1 << number for number in set(numbers))


def _from(numbers: tuple[int, ...], size: int) -> tuple[int, ...]:
    """For each number up to `size`, the first of `numbers` that isn't before it, or -1."""
    return tuple(next((each for each in numbers if each >= least), -1) for least in range(size + 1))


class Walls:
    """Finds the first time at or after another, field by field: no minute or day is tried in vain."""

    __slots__ = ("_hours", "_length", "_minutes", "_month_days", "_months")

    def __init__(self, fields: Fields) -> None:
        self._minutes = _from(fields.minutes, 60)
        self._hours = _from(fields.hours, 24)
        self._months = _from(fields.months, 13)
        self._length = [(2 << length) - 1 for length in (0, *LONGEST)]
        self._month_days = [_month(fields, first) for first in range(7)]

    def first(self, start: datetime) -> datetime | None:
        """The first time at or after `start`, a whole minute; None where the year 9999 ends before it."""
        year, month, day, hour = start.year, start.month, start.day, start.hour
        if self._months[month] == month and self._days(year, month) >> day & 1:
            if self._hours[hour] == hour:
                minute = self._minutes[start.minute]
                if minute >= 0:
                    return datetime(year, month, day, hour, minute)
            hour = self._hours[hour + 1]
            if hour >= 0:
                return datetime(year, month, day, hour, self._minutes[0])
        day += 1
        while True:
            wanted = self._months[month]
            if wanted != month:
                if wanted < 0:
                    year, wanted = year + 1, self._months[0]
                    if year > 9999:
                        return None
                month, day = wanted, 1
            left = self._days(year, month) >> day
            if left:
                day += (left & -left).bit_length() - 1
                return datetime(year, month, day, self._hours[0], self._minutes[0])
            month, day = month + 1, 1

    def _days(self, year: int, month: int) -> int:
        """The month's days that match, a bit each."""
        days = self._month_days[date(year, month, 1).weekday()] & self._length[month]
        if month == 2 and (year % 4 or (year % 100 == 0 and year % 400)):
            days &= ~(1 << 29)
        return days


def _month(fields: Fields, first: int) -> int:
    """The days that match, of a month of 31 days whose 1st is weekday `first`, Monday being 0."""
    if fields.days is None and fields.weekdays is None:
        return _bits(_ALL_DAYS)
    weekdays = fields.weekdays or ()
    # Both fields restricted: either matches, as in cron.
    return _bits(fields.days or ()) | _bits(day for day in _ALL_DAYS if (first + day) % 7 in weekdays)
