"""Durations and instants from a user, as microseconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from fastjobs.core.duration import FIRST, LAST, instant, micros, moment
from fastjobs.core.errors import PushError


@pytest.mark.parametrize(
    ("duration", "expected"),
    [
        (0, 0), (1, 1_000_000), (0.5, 500_000), (1e-6, 1), (4e-7, 0), (6e-7, 1), (0.1 + 0.2, 300_000),
        (timedelta(days=1, microseconds=1), 86_400_000_001), (-0.0, 0),
        (LAST // 1_000_000, LAST // 1_000_000 * 1_000_000),
    ],
)  # fmt: skip
def test_a_duration_is_rounded_to_the_nearest_microsecond(duration: Any, expected: int) -> None:
    found = micros(duration, "poll")
    assert found == expected
    assert type(found) is int


@pytest.mark.parametrize(
    "duration",
    [
        None, "5", True, False, Decimal(1), 1j, [1], datetime(2026, 1, 1), float("nan"), float("inf"), -float("inf"),
        -1, -1e-6, timedelta(seconds=-1), timedelta.min, timedelta.max, -(10**400), 10**400, 1e300, -1e308,
        1e305, 2**64, LAST // 1_000_000 + 1,
    ],
    ids=lambda value: f"{value!r:.20}" if not isinstance(value, int) or abs(value) < 2**65 else "huge",
)  # fmt: skip
def test_what_is_no_duration_is_a_value_error_that_names_it(duration: Any) -> None:
    with pytest.raises(ValueError, match=r"^poll is "):
        micros(duration, "poll")


def test_the_least_is_said() -> None:
    assert micros(0.001, "poll", least=1000) == 1000
    with pytest.raises(ValueError, match=r"poll is at least 0\.001 s, and this is 0\.0009 s"):
        micros(0.0009, "poll", least=1000)


def test_an_instant_is_exact() -> None:
    assert instant(datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)) == 1
    assert instant(datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)) == LAST
    assert instant(datetime(1, 1, 1, tzinfo=UTC)) == FIRST
    berlin = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    assert instant(berlin.replace(fold=1)) - instant(berlin) == 3_600_000_000


def test_an_instant_without_a_zone_is_refused_and_told_how_to_have_one() -> None:
    with pytest.raises(
        PushError, match=r"at needs a zone: 2026-01-02T03:04:05 .* datetime\.now\(timezone\.utc\)"
    ):
        instant(datetime(2026, 1, 2, 3, 4, 5))


@pytest.mark.parametrize("at", [5, "2026-01-01", None, datetime(2026, 1, 1).date()])
def test_what_is_no_datetime_is_refused(at: Any) -> None:
    with pytest.raises(PushError, match="at is a datetime with a zone, and this is a"):
        instant(at)


@pytest.mark.parametrize(
    "at",
    [
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-12))),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
    ],
)
def test_an_instant_that_utc_has_no_datetime_for_is_refused(at: datetime) -> None:
    with pytest.raises(PushError, match="past what a datetime in UTC can be"):
        instant(at)


def test_a_moment_is_an_instant_again() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
    assert moment(instant(at)) == at
    assert moment(instant(at)).tzinfo is UTC


@pytest.mark.parametrize(("far", "year"), [(LAST + 1, 9999), (10**30, 9999), (FIRST - 1, 1), (-(10**30), 1)])
def test_a_moment_out_of_all_years_is_the_nearest_there_is(far: int, year: int) -> None:
    assert moment(far).year == year
