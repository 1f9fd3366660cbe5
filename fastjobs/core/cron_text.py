"""The text of a cron expression, read to the numbers that each of its five fields names, or refused.

What is read: a number, a range (`1-5`), `*`, any of these with a step (`*/15`, `10-30/5`, `5/15`), and lists of them.
What isn't is refused here, with the field, its text and what may stand there; that a text which other crons read in
other ways (`L`, `W`, `#`, `?`, `H`, `R`, six fields, `6-1`) is an error is meant: every instance must read it alike.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from fastjobs.core.errors import ScheduleError

NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
LONGEST = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
"""How many days each month has at most."""


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    first: int
    last: int
    names: tuple[str, ...] = ()
    """What may stand for its numbers, from the first on."""

    @property
    def allowed(self) -> str:
        numbers = f"{self.first} to {self.last}"
        if self.names:
            numbers += f" or {self.names[0]} to {self.names[-1]}"
        if self.names is DAYS:
            numbers += " (7 is Sunday too)"
        return f"{numbers}, a range such as {self.first + 1}-{self.first + 3}, *, a step such as */2, and lists of them"


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, MONTHS),
    _Field("day of the week", 0, 6, DAYS),
)
_ITEM = re.compile(r"(\*|[0-9A-Za-z]+)(?:-([0-9A-Za-z]+))?(?:/([0-9A-Za-z]+))?")
_NUMBER = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Fields:
    """What an expression says, each field as its numbers in rising order."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...] | None
    """None where the field is a plain `*`, which restricts nothing; `*/1` and `1-31` restrict."""
    months: tuple[int, ...]
    weekdays: tuple[int, ...] | None
    """Sunday is 0. None as for days."""
    fixed: bool
    """No `*` in the minute or the hour, so each time is one that a clock shows, and runs once a day at most."""


def read(text: str) -> Fields:
    """The expression's fields. Raises ScheduleError for what isn't one, and for one that never comes round."""
    if not isinstance(text, str):
        raise ScheduleError(f"a cron expression is a string, and this is a {type(text).__name__}: {text!r}")
    plain = text.strip(" \t\r\n")
    if plain.startswith("@"):
        if plain.lower() not in NICKNAMES:
            _refuse_nickname(text, plain)
        plain = NICKNAMES[plain.lower()]
    parts = re.split(r"[ \t]+", plain) if plain else []
    if len(parts) != len(_FIELDS):
        names = ", ".join(field.name for field in _FIELDS)
        raise ScheduleError(
            f"cron expression {text!r} has {len(parts)} fields, and five are needed: {names}."
            " There are none for seconds or years",
            text=text,
        )
    minutes, hours, days, months, weekdays = (
        _numbers(text, part, field) for part, field in zip(parts, _FIELDS, strict=True)
    )
    # With both day fields restricted either may match, and each month has each day of the week.
    if parts[4] == "*" and not any(day <= LONGEST[month - 1] for month in months for day in days):
        raise ScheduleError(
            f"cron expression {text!r} never comes round: month {parts[3]} has no day {parts[2]}",
            text=text,
            part="day of the month",
        )
    return Fields(
        minutes=minutes,
        hours=hours,
        days=None if parts[2] == "*" else days,
        months=months,
        weekdays=None if parts[4] == "*" else weekdays,
        fixed="*" not in parts[0] + parts[1],
    )


def _refuse_nickname(text: str, plain: str) -> NoReturn:
    message = f"cron expression {text!r}: {plain!r} is no name of one; there are {', '.join(NICKNAMES)}"
    if plain.lower().startswith("@every"):
        message += ". A fixed interval is Every(minutes=15)"
    elif plain.lower() == "@reboot":
        message += ". What runs at each start belongs in the app's lifespan"
    raise ScheduleError(message, text=text)


def _numbers(text: str, part: str, field: _Field) -> tuple[int, ...]:
    found: set[int] = set()
    for item in part.split(","):
        found.update(_item(text, part, item, field))
    return tuple(sorted(found))


def _item(text: str, part: str, item: str, field: _Field) -> list[int]:
    def refuse(why: str) -> NoReturn:
        where = f"{field.name} {part!r}" + (f", in {item!r}" if item != part else "")
        raise ScheduleError(
            f"cron expression {text!r}: {where}: {why}. Allowed: {field.allowed}", text=text, part=field.name
        )

    def number(word: str) -> int:
        if word.upper() in field.names:
            return field.names.index(word.upper()) + field.first
        if not _NUMBER.fullmatch(word):
            refuse(f"{word!r} is no number" + (" or name" if field.names else ""))
        value = int(word)
        if not field.first <= value <= field.last + (field.names is DAYS):
            refuse(f"{value} is out of range")
        return value

    found = _ITEM.fullmatch(item)
    if found is None or (found[1] == "*" and found[2]):
        refuse("it can't be read" if item else "something is missing, as one of a list's items is empty")
    low, high, every = found.groups()
    if low == "*":
        start, end = field.first, field.last
    elif high is not None:
        start, end = number(low), number(high)
        if start > end:
            hint = "; a range that ends with Sunday ends with 7" if high.upper() == "SUN" else ""
            refuse(f"a range goes from the lower to the higher, and {low} is after {high}{hint}")
    else:
        start = number(low) % 7 if field.names is DAYS else number(low)
        end = start if every is None else field.last
    step = 1
    if every is not None:
        step = int(every) if _NUMBER.fullmatch(every) else 0
        size = field.last - field.first + 1
        if not 1 <= step <= size:
            # `*/90` in the minutes would be minute 0 alone, so each hour, which nobody means who writes it.
            refuse(f"a step is a number from 1 to {size}, and this is {every}")
    numbers = range(start, end + 1, step)
    return [each % 7 for each in numbers] if field.names is DAYS else list(numbers)
