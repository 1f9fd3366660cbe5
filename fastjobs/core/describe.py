"""A schedule in plain words. Exact rather than short: expressions of other times or days have other words.

What they do as a clock changes isn't told: `*/15 2` and `0,15,30,45 2` have the same words. It's our own, as the
library there is, cron-descriptor, calls `*/7` "every 7 minutes" and `0 0 */2 * *` "every 2 days", which they aren't.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise

from fastjobs.core.cron_text import Fields

_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MOST_TIMES = 4
"""As many times of a day are told one by one."""


def describe_cron(fields: Fields) -> str:
    """The fields' times and days in words, without the zone."""
    times = _times(fields.minutes, fields.hours)
    days = _days(fields)
    if days == "every day" and len(fields.hours) == 24:
        return times
    return f"{times} {days}"


def describe_interval(interval: timedelta) -> str:
    """The interval in words: "every hour", "every 1 hour and 30 minutes"."""
    seconds, micros = divmod(interval, timedelta(seconds=1))
    parts: list[tuple[int, str]] = []
    for unit, size in (("week", 604_800), ("day", 86_400), ("hour", 3_600), ("minute", 60)):
        count, seconds = divmod(seconds, size)
        parts.append((count, unit))
    fraction = micros // timedelta(microseconds=1)
    words = [f"{count} {unit}{'' if count == 1 else 's'}" for count, unit in parts if count]
    if seconds or fraction:
        exact = str(seconds) + (f".{fraction:06d}".rstrip("0") if fraction else "")
        words.append(f"{exact} second{'' if exact == '1' else 's'}")
    whole = _listed(words)
    return f"every {whole[2:] if len(words) == 1 and whole.startswith('1 ') else whole}"


def _times(minutes: Sequence[int], hours: Sequence[int]) -> str:
    step = _step(minutes)
    all_hours = len(hours) == 24
    through = _in_a_row(hours)
    if not all_hours and len(minutes) * len(hours) <= _MOST_TIMES:
        return "at " + _listed([f"{hour:02}:{minute:02}" for hour in hours for minute in minutes])
    if step and all_hours:
        return "every hour" if step == 60 else "every minute" if step == 1 else f"every {step} minutes"
    apart = _apart(hours)
    if len(minutes) == 1 and apart and not all_hours:
        often = "hour" if apart == 1 else f"{apart} hours"
        return f"every {often} from {hours[0]:02}:{minutes[0]:02} to {hours[-1]:02}:{minutes[0]:02}"
    if step and through:
        often = "minute" if step == 1 else f"{step} minutes"
        return f"every {often} from {hours[0]:02}:00 to {hours[-1]:02}:{minutes[-1]:02}"
    which = "every minute" if step == 1 else f"at {_listed([f':{minute:02}' for minute in minutes])}"
    if step != 1 and len(minutes) > 2 and _in_a_row(minutes):
        which = f"every minute from :{minutes[0]:02} to :{minutes[-1]:02}"
    if all_hours:
        return f"{which} of every hour"
    if through and len(hours) > 2:
        return f"{which} of the hours from {hours[0]} to {hours[-1]}"
    return f"{which} of the hour{'s' if len(hours) > 1 else ''} {_listed([str(hour) for hour in hours])}"


def _days(fields: Fields) -> str:
    all_year = len(fields.months) == 12
    months = _listed([_MONTHS[month - 1] for month in fields.months])
    days, weekdays = fields.days, fields.weekdays
    if len(days or ()) == 31 or len(weekdays or ()) == 7:
        days = weekdays = None  # where both are restricted either matches, and one of them always does
    if days is None and weekdays is None:
        return "every day" if all_year else f"every day in {months}"
    if weekdays is None:
        assert days is not None
        return f"on the {_listed(_ordinals(days))} of {'the month' if all_year else months}"
    if days is None:
        return f"on {_plural(weekdays)}" + ("" if all_year else f" in {months}")
    either = _listed([*_ordinals(days), *(f"every {_WEEKDAYS[day]}" for day in weekdays)])
    return f"on the {either}" + ("" if all_year else f" in {months}")


def _plural(weekdays: Sequence[int]) -> str:
    if tuple(weekdays) == (1, 2, 3, 4, 5):
        return "weekdays"
    from_monday = sorted(weekdays, key=lambda day: day or 7)
    return _listed([f"{_WEEKDAYS[day]}s" for day in from_monday])


def _ordinals(days: Sequence[int]) -> list[str]:
    return [_ordinal(day) for day in days]


def _ordinal(day: int) -> str:
    ending = "th" if 11 <= day <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    return f"{day}{ending}"


def _step(minutes: Sequence[int]) -> int:
    """How many minutes apart they are where that's the same all round the hour, from :00 on; 0 where it isn't."""
    step = 60 // len(minutes)
    return step if list(minutes) == list(range(0, 60, step)) and 60 % step == 0 else 0


def _apart(numbers: Sequence[int]) -> int:
    """How far each is from the one before, where that's the same for all; 0 where it isn't."""
    gaps = {after - before for before, after in pairwise(numbers)}
    return gaps.pop() if len(gaps) == 1 else 0


def _in_a_row(numbers: Sequence[int]) -> bool:
    return numbers[-1] - numbers[0] == len(numbers) - 1


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
