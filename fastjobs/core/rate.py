"""Rates of a kind: how fast its jobs may start, by a count in the store or by a limiter of the app's own."""

from __future__ import annotations

import hashlib
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

from fastjobs.core.calling import wrong_parameters
from fastjobs.core.duration import DAY, SECOND, Seconds, micros
from fastjobs.core.errors import RegistrationError
from fastjobs.core.text import one_line

MOST = 10_000
LONGEST = 366 * DAY
"""The longest time a rate counts in, in microseconds."""
_SHOWN = 250
"""The most characters of what was given in an error."""
KEY = 200
"""The most characters of a value's key that are kept as they are."""


class Limiter(Protocol):
    """What lets jobs of a kind start, or not yet: `rate=` takes one."""

    async def attempt(self, key: str) -> float:
        """How many seconds to wait; 0 to go. `key` is the kind's name. It's asked before each job's handler."""
        ...


@dataclass(frozen=True, slots=True, init=False)
class Throttle:
    """At most `max` jobs of a kind start in any `per`, on all instances together, as the store counts them.

    `@q.kind("newsletter", rate=Throttle(14, per=1))`. `max` is 1 to 10,000 and `per` is seconds or a timedelta, a year
    at most. `by` is a quick plain function of a job's value that answers a str or an int: each answer has a rate of
    its own, and one that is used up keeps no other from running. Raises RegistrationError for what can't be.
    """

    max: int
    per: Seconds
    by: Callable[[Any], str | int] | None

    def __init__(self, max: int, *, per: Seconds, by: Callable[[Any], str | int] | None = None) -> None:
        if isinstance(max, bool) or not isinstance(max, int) or not 1 <= max <= MOST:
            raise RegistrationError(f"Throttle: max is a whole number from 1 to {MOST:,}, not {max!r}")
        try:
            if micros(per, "per", least=1000) > LONGEST:
                raise ValueError(f"per is at most a year, and this is {per!r}")
        except ValueError as bad:
            raise RegistrationError(f"Throttle: {bad}") from None
        if by is not None and (not callable(by) or inspect.iscoroutinefunction(by)):
            found = "an async one" if callable(by) else repr(by)
            raise RegistrationError(f"Throttle: by is a plain function of a value, not {found}")
        if by is not None and wrong_parameters(by) is not None:
            raise RegistrationError(
                f"Throttle: by is a plain function of one value, and it can't be called with one: {by!r}"
            )
        object.__setattr__(self, "max", max)
        object.__setattr__(self, "per", per)
        object.__setattr__(self, "by", by)

    @property
    def period(self) -> int:
        """`per` in microseconds."""
        return micros(self.per, "per")

    def key(self, value: Any) -> str:
        """What the value's rate is counted under. Raises what `by` raises, and TypeError for what is no key."""
        if self.by is None:
            return ""
        found: object = self.by(value)
        if isinstance(found, bool) or not isinstance(found, (str, int)):
            raise TypeError(
                f"by= of a Throttle answers a str or an int, and this is a {type(found).__name__}"
            )
        # An enum's member is the text or the number that it is: drivers know enums, and write their names.
        text = f"int:{int(found)}" if isinstance(found, int) else str.__str__(found)
        # Two keys may never be one to a database: it may cut a text, or refuse a NUL or half of a pair.
        is_taken = isinstance(found, str) and text.startswith(("sha256:", "int:"))
        if len(text) <= KEY and text.isascii() and text.isprintable() and not is_taken:
            return text
        return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def rate(given: object, what: str) -> Throttle | Limiter | None:
    """What `rate=` of a kind means; a RegistrationError for what it can't be."""
    if given is None or isinstance(given, Throttle):
        return given
    wanted = f"{what}: rate is a Throttle(max, per=…), or a limiter with an async def attempt(self, key: str) -> float"
    if isinstance(given, (list, tuple, set, frozenset)):
        raise RegistrationError(
            f"{wanted}: a kind has one, and this is a {type(cast('object', given)).__name__}"
        )
    attempt: object = getattr(given, "attempt", None)
    if isinstance(given, type) and attempt is not None:
        raise RegistrationError(f"{wanted}, and {given.__name__} is its class: make one of it")
    if callable(attempt) and not inspect.iscoroutinefunction(attempt):
        raise RegistrationError(f"{wanted}, and attempt of {one_line(repr(given), _SHOWN)} is no async def")
    if isinstance(given, type) or not callable(attempt):
        raise RegistrationError(f"{wanted}, and {one_line(repr(given), _SHOWN)} is none")
    if wrong_parameters(attempt) is not None:
        raise RegistrationError(
            f"{wanted}, and attempt of {one_line(repr(given), _SHOWN)} can't be called with a key"
        )
    return cast("Limiter", given)


RESERVED = 10 * SECOND
"""Microseconds that a throttle's places are kept for whoever took them, until they're settled."""
HELD_FOR = 10 * SECOND
"""Microseconds that a kind is held back for where its limiter fails."""
LONGEST_WAIT = DAY
"""The longest that a kind is held back for, in microseconds: after that its limiter is asked again."""


def waited(answer: object) -> int:
    """What a limiter answered, in microseconds; a ValueError that says what is wrong with it.

    Over a year is none: it's a time rather than a wait, or milliseconds.
    """
    if isinstance(answer, bool) or not isinstance(answer, (int, float)):
        raise ValueError(f"its limiter answered a {type(answer).__name__}, not a number of seconds")
    # No call of `math` for a number that may not go into a float.
    if answer > LONGEST / SECOND:
        raise ValueError("its limiter answered over a year, and it's to answer how many seconds to wait")
    if not answer >= 0:
        raise ValueError(f"its limiter answered {one_line(repr(answer), 50)}, which is no wait")
    return math.ceil(answer * SECOND)
