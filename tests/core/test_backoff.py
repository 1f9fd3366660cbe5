"""How long a job waits after an attempt that failed."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from fastjobs.core.backoff import fallback, wait
from fastjobs.core.duration import DAY, SECOND


@pytest.mark.parametrize(
    ("attempt", "seconds"),
    [
        (1, 1), (2, 16), (3, 81), (4, 256), (5, 625), (6, 1296), (7, 2401), (8, 4096), (9, 6561), (10, 10_000),
        (17, 83_521), (18, 86_400), (19, 86_400), (100, 86_400), (709, 86_400), (710, 86_400), (1_000_000, 86_400),
    ],
)  # fmt: skip
def test_the_default_is_the_attempts_fourth_power_and_a_day_at_most(attempt: int, seconds: int) -> None:
    assert wait(None, attempt, 0.0) == seconds * SECOND


@pytest.mark.parametrize("attempt", range(1, 30))
@pytest.mark.parametrize("chance", [0.0, 0.5, 0.999_999_999])
def test_the_default_has_up_to_a_tenth_more_and_never_more_than_a_day(attempt: int, chance: float) -> None:
    least = min(attempt**4 * SECOND, DAY)
    assert least <= wait(None, attempt, chance) <= min(least + least // 10, DAY)


def test_a_fixed_wait_has_up_to_a_tenth_more() -> None:
    assert wait(30, 1, 0.0) == wait(30, 9, 0.0) == 30 * SECOND
    assert wait(30, 1, 1.0) == 33 * SECOND
    assert wait(timedelta(minutes=1), 1, 0.5) == 63 * SECOND
    assert wait(0, 1, 1.0) == 0


def test_a_fixed_wait_may_be_longer_than_a_day() -> None:
    assert wait(timedelta(days=7), 1, 0.0) == 7 * DAY


def test_the_answer_of_a_callable_is_taken_as_it_is() -> None:
    assert wait(lambda attempt: attempt * 10, 3, 1.0) == 30 * SECOND
    assert wait(lambda attempt: timedelta(seconds=attempt), 3, 1.0) == 3 * SECOND
    assert wait(lambda attempt: 0.000_001, 1, 1.0) == 1


@pytest.mark.parametrize("answer", [-1, float("nan"), float("inf"), 1e305, 10**400, None, "5", True])
def test_an_answer_that_is_no_duration_is_a_value_error(answer: Any) -> None:
    with pytest.raises(ValueError, match="the backoff after attempt 2"):
        wait(lambda attempt: answer, 2, 0.0)


def test_what_a_callable_raises_comes_out() -> None:
    def broken(attempt: int) -> float:
        raise LookupError("no wait")

    with pytest.raises(LookupError, match="no wait"):
        wait(broken, 1, 0.0)


@pytest.mark.parametrize("attempt", [1, 5, 1_000_000])
def test_the_fallback_is_the_default_one(attempt: int) -> None:
    assert fallback(attempt, 0.0) == wait(None, attempt, 0.0) >= SECOND


def test_jobs_that_failed_together_are_spread_over_a_tenth_of_their_wait() -> None:
    # 10,000 fail in one moment, as their provider went down: they don't come back in one.
    dice = random.Random(7)
    waits = [wait(None, 4, dice.random()) for _ in range(10_000)]
    second = Counter(each // SECOND for each in waits)
    assert max(waits) - min(waits) > 0.099 * 256 * SECOND
    assert len(second) == 26
    assert max(second.values()) < 10_000 / 26 * 1.3
