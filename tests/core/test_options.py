"""What can be said of a kind, checked once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from fastjobs.core.duration import SECOND
from fastjobs.core.errors import RegistrationError
from fastjobs.core.options import KindOptions, KindSettings, checked, predicate


def options(**settings: Any) -> KindOptions:
    return checked("k", KindSettings(**settings))  # type: ignore[typeddict-item]


async def in_time(*_: object) -> Any: ...


def test_the_defaults_are_ten_attempts_and_a_minute() -> None:
    found = options()
    assert (found.attempts, found.timeout, found.priority) == (10, 60 * SECOND, 0)
    assert found.backoff is None
    assert found.permanent is None


def test_the_hold_is_the_timeout_and_fifteen_seconds_and_never_more_than_the_queues() -> None:
    assert options(timeout=30).hold(120 * SECOND) == 45 * SECOND
    assert options(timeout=timedelta(hours=2)).hold(120 * SECOND) == 120 * SECOND


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"attempts": 0}, "attempts is a whole number from 1 to 1,000,000, not 0"),
        ({"attempts": -1}, "not -1"),
        ({"attempts": 1_000_001}, "not 1000001"),
        ({"attempts": True}, "not True"),
        ({"attempts": 2.0}, r"not 2\.0"),
        ({"attempts": "3"}, "not '3'"),
        ({"attempts": None}, "not None"),
        ({"timeout": 0}, r"timeout is at least 0\.001 s, and this is 0 s"),
        ({"timeout": -1}, "timeout is at least"),
        ({"timeout": float("inf")}, "timeout is a number of seconds"),
        ({"timeout": 1e305}, "timeout is at most 9,999 years"),
        ({"timeout": "30"}, "timeout is seconds or a timedelta, and this is a str"),
        ({"timeout": None}, "timeout is seconds or a timedelta"),
        ({"backoff": -1}, "the backoff is at least 0 s"),
        ({"backoff": float("nan")}, "the backoff is a number of seconds"),
        ({"backoff": "5"}, "the backoff is seconds or a timedelta"),
        ({"backoff": True}, "the backoff is seconds or a timedelta"),
        ({"backoff": [1, 2]}, "the backoff is seconds or a timedelta"),
        ({"backoff": in_time}, "backoff is a plain function of the attempt, not an async one"),
        ({"priority": 1.5}, r"priority is a whole number, not 1\.5"),
        ({"priority": 10**7}, "priority is a whole number"),
        ({"priority": True}, "priority is a whole number"),
        ({"permanent": int}, "permanent takes exception types, and <class 'int'> is none"),
        ({"permanent": (ValueError, 5)}, "permanent takes exception types, and 5 is none"),
        ({"permanent": (ValueError("x"),)}, "is none"),
        ({"permanent": "ValueError"}, "permanent takes exception types"),
        ({"permanent": 5}, "permanent takes exception types or a predicate, not 5"),
        ({"permanent": None}, "permanent takes exception types or a predicate, not None"),
        ({"permanent": in_time}, "so it's a plain function, not async"),
        (
            {"retries": 3},
            "there is no option retries; there are at_once, attempts, backoff, keep_name, permanent, priority, process,"
            " rate, timeout, unique",
        ),
        ({"latest": True}, r"no option latest; .* Unique has it: unique=Unique\(latest=…\)$"),
        ({"retries": 3, "delay": 1}, "there is no option delay, retries;"),
    ],
)
def test_an_option_that_cannot_be_is_a_registration_error_that_says_so(
    settings: dict[str, Any], told: str
) -> None:
    with pytest.raises(RegistrationError, match=rf"^kind 'k': .*{told}"):
        options(**settings)


def test_no_exception_types_are_no_predicate() -> None:
    assert predicate((), "permanent=") is None
    assert predicate([], "permanent=") is None


def test_a_generator_of_exception_types_is_read_once() -> None:
    asked = predicate((each for each in (ValueError, KeyError)), "permanent=")
    assert asked is not None
    assert [asked(KeyError()), asked(KeyError()), asked(OSError())] == [True, True, False]


def test_subclasses_of_a_permanent_error_are_permanent() -> None:
    asked = predicate(OSError, "permanent=")
    assert asked is not None
    assert asked(FileNotFoundError())
    assert not asked(ValueError())
