"""What holds for each schedule, an app's own too: checked answers, missed runs, jitter."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from fastjobs import Cron, Every, Schedule, ScheduleError
from fastjobs.core.schedule import following, jitter, runs_between, upcoming

ROOT = Path(__file__).parent.parent.parent
DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)
NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)


class Own:
    """A schedule of an app's own, that counts how often it's asked."""

    def __init__(self, answer: Callable[[datetime], Any]) -> None:
        self.answer = answer
        self.asked = 0

    def __repr__(self) -> str:
        return "Own()"

    def next(self, after: datetime, /) -> datetime | None:
        self.asked += 1
        found: datetime | None = self.answer(after)
        return found


def listed(*runs: datetime) -> Own:
    """It runs at these instants alone."""
    return Own(lambda after: min((run for run in runs if run > after), default=None))


def test_cron_every_and_an_apps_own_are_schedules() -> None:
    for each in (Cron("@daily"), Every(hours=1), listed()):
        schedule: Schedule = each
        assert isinstance(schedule, Schedule)
    assert not isinstance("@daily", Schedule)


# An answer is checked.


def test_the_next_run_of_an_apps_own_schedule_is_told_in_utc() -> None:
    east = timezone(timedelta(hours=9))
    run = following(Own(lambda after: (after + DAY).astimezone(east)), NOON.astimezone(east))
    assert run is not None
    assert (run, run.tzinfo) == (NOON + DAY, UTC)
    assert following(listed(NOON), NOON) is None


@pytest.mark.parametrize("later", [timedelta(0), -SECOND, -DAY])
def test_an_answer_that_is_not_later_is_an_error_rather_than_an_endless_search(later: timedelta) -> None:
    def answer(after: datetime) -> datetime:
        return after + later

    with pytest.raises(
        ScheduleError, match=r"Own\(\) was asked for a run after 2026-03-04T12:00:00\+00:00 and answered"
    ):
        following(Own(answer), NOON)
    with pytest.raises(ScheduleError, match="which isn't later"):
        upcoming(Own(answer), 3, NOON)
    with pytest.raises(ScheduleError, match="which isn't later"):
        runs_between(Own(answer), NOON, NOON + DAY)


def test_an_answer_that_is_no_aware_datetime_is_an_error() -> None:
    with pytest.raises(ScheduleError, match=r"what Own\(\) answers needs a zone: 2026-03-05T12:00:00"):
        following(Own(lambda _: datetime(2026, 3, 5, 12)), NOON)
    with pytest.raises(
        ScheduleError, match=r"what Own\(\) answers is a datetime with a zone, and this is a int"
    ):
        following(Own(lambda _: 5), NOON)


def test_what_an_apps_own_schedule_raises_is_raised() -> None:
    def fails(after: datetime) -> datetime:
        raise LookupError("no such holiday")

    with pytest.raises(LookupError, match="no such holiday"):
        following(Own(fails), NOON)


def test_a_time_without_a_zone_is_refused_before_the_schedule_is_asked() -> None:
    own = listed(NOON)
    with pytest.raises(ScheduleError, match="after needs a zone"):
        following(own, datetime(2026, 3, 4))
    assert own.asked == 0


# upcoming


def test_upcoming_are_the_next_runs_and_fewer_where_the_schedule_ends() -> None:
    own = listed(NOON, NOON + DAY, NOON + 3 * DAY)
    assert upcoming(own, 2, NOON - SECOND) == [NOON, NOON + DAY]
    assert upcoming(own, 5, NOON) == [NOON + DAY, NOON + 3 * DAY]
    assert upcoming(own, 0, NOON) == []
    assert Cron("@daily").upcoming(2, NOON) == upcoming(Cron("@daily"), 2, NOON)


@pytest.mark.parametrize("n", [-1, True, 1.5, "3", None])
def test_how_many_is_a_whole_number(n: Any) -> None:
    with pytest.raises(ScheduleError, match="n is how many runs, a whole number from 0 on"):
        upcoming(Cron("@daily"), n, NOON)


# Missed runs.


def test_of_missed_runs_the_latest_runs_once() -> None:
    daily = Cron("0 2 * * *")
    last = datetime(2026, 3, 1, 2, tzinfo=UTC)
    assert runs_between(daily, last, NOON) == [datetime(2026, 3, 4, 2, tzinfo=UTC)]
    assert runs_between(daily, last, last + DAY - SECOND) == []
    assert runs_between(daily, last, last + DAY) == [last + DAY]


def test_missed_runs_may_be_skipped_or_all_run() -> None:
    daily, last = Cron("0 2 * * *"), datetime(2026, 3, 1, 2, tzinfo=UTC)
    assert runs_between(daily, last, NOON, "skip") == []
    assert runs_between(daily, last, NOON, "all") == [last + n * DAY for n in (1, 2, 3)]
    assert runs_between(daily, last, NOON, "all", 3) == [last + n * DAY for n in (1, 2, 3)]
    assert runs_between(daily, last, NOON, "all", 2) == [last + n * DAY for n in (2, 3)]


@pytest.mark.parametrize("missed", ["once", "skip", "all"])
def test_a_new_schedule_and_one_whose_last_run_is_still_to_come_have_missed_nothing(missed: Any) -> None:
    assert runs_between(Cron("0 2 * * *"), None, NOON, missed) == []
    assert runs_between(Cron("0 2 * * *"), NOON + DAY, NOON, missed) == []
    assert runs_between(Cron("0 2 * * *"), NOON, NOON, missed) == []


@pytest.mark.parametrize("most", [1, 2, 7, 100])
def test_however_many_were_missed_the_latest_are_found_in_few_steps(most: int) -> None:
    every = Every(seconds=1)
    own = Own(every.next)
    found = runs_between(own, NOON - 365 * DAY, NOON, "all", most)
    assert found == [NOON - n * SECOND for n in reversed(range(most))]
    assert own.asked <= 46 * (most + 1)


def test_the_latest_of_runs_that_lie_together_long_ago_are_found() -> None:
    crowd = [NOON - 300 * DAY + n * timedelta(microseconds=1) for n in range(50)]
    own = listed(*crowd)
    assert runs_between(own, NOON - 400 * DAY, NOON) == crowd[-1:]
    assert runs_between(own, NOON - 400 * DAY, NOON, "all", 10) == crowd[-10:]
    assert runs_between(own, crowd[0], NOON, "all", 49) == crowd[1:]


def test_missed_runs_of_a_schedule_that_has_ended_are_found() -> None:
    assert runs_between(listed(NOON - 3 * DAY, NOON - 2 * DAY), NOON - 9 * DAY, NOON) == [NOON - 2 * DAY]


@pytest.mark.parametrize(
    ("missed", "most", "says"),
    [
        ("often", 5, 'missed is "once", "skip" or "all", and not \'often\''),
        (None, 5, "missed is"),
        ("all", 0, "most is how many runs, a whole number from 1 on, and not 0"),
        ("all", True, "most is how many runs"),
        ("skip", 1.5, "most is how many runs"),
    ],
)
def test_what_is_no_choice_of_missed_runs_is_refused(missed: Any, most: Any, says: str) -> None:
    with pytest.raises(ScheduleError, match=says):
        runs_between(Cron("@daily"), NOON, NOON, missed, most)


def test_a_changed_schedule_goes_on_from_the_run_that_was_pushed() -> None:
    # S11: 02:00 was pushed last; now it's 05:00. That day's has passed: its run is the one that was missed.
    last = datetime(2026, 3, 4, 2, tzinfo=UTC)
    assert runs_between(Cron("0 5 * * *"), last, NOON) == [datetime(2026, 3, 4, 5, tzinfo=UTC)]
    assert following(Cron("0 5 * * *"), last) == datetime(2026, 3, 4, 5, tzinfo=UTC)
    assert runs_between(Cron("0 5 * * *"), last, last + timedelta(hours=1)) == []


def test_a_timer_that_fires_early_finds_no_run_twice_and_none_is_left_out() -> None:
    # S6: the next is after the later of now and the last run, so an early wake gives the same run once.
    every, last = Every(seconds=1), NOON
    for tick in range(1, 1001):
        due = NOON + tick * SECOND
        for early in (timedelta(milliseconds=15.6), timedelta(milliseconds=1), timedelta(microseconds=1)):
            assert runs_between(every, last, due - early) == []
            assert following(every, max(last, due - early)) == due
        last = due
        assert following(every, max(last, due - timedelta(microseconds=1))) == due + SECOND


# Jitter.


def test_jitter_is_the_same_on_each_instance() -> None:
    program = (
        "from datetime import datetime, timezone as z; from fastjobs.core.schedule import jitter;"
        "print(jitter('nightly', datetime(2026, 3, 4, 12, tzinfo=z.utc), 60_000_000))"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": seed},
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert told == {"45598156\n"}
    assert jitter("nightly", NOON, 60_000_000) == 45_598_156
    assert jitter("nightly", NOON.astimezone(timezone(timedelta(hours=3))), 60_000_000) == 45_598_156


def test_jitter_spreads_runs_and_names_evenly_from_0_to_the_most() -> None:
    found = [jitter("nightly", NOON + n * DAY, 9) for n in range(1000)]
    assert {found.count(each) // 60 for each in range(10)} == {1}
    assert set(found) == set(range(10))
    assert len({jitter(f"report {n}", NOON, 60_000_000) for n in range(1000)}) > 990
    assert jitter("nightly", NOON, 0) == 0
    assert {jitter("nightly", NOON + n * DAY, 1) for n in range(20)} == {0, 1}


@pytest.mark.parametrize("most", [-1, 1.5, True, None])
def test_the_most_jitter_is_a_whole_number_of_microseconds(most: Any) -> None:
    with pytest.raises(ScheduleError, match="most is microseconds, a whole number from 0 on"):
        jitter("nightly", NOON, most)


# The guide's own schedule.


class LastDayOfMonth:
    def next(self, after: datetime, /) -> datetime | None:
        day = after.astimezone(UTC).date().replace(day=1)
        while True:
            day = (day + timedelta(days=32)).replace(day=1)
            run = datetime(day.year, day.month, 1, tzinfo=UTC) - timedelta(days=1)
            if run > after:
                return run


def test_the_guides_own_schedule_is_the_last_day_of_each_month() -> None:
    assert inspect.getsource(LastDayOfMonth) in (ROOT / "docs" / "guide" / "schedules.md").read_text()
    runs = upcoming(LastDayOfMonth(), 4, datetime(2026, 11, 30, tzinfo=UTC) - SECOND)
    assert [f"{run:%m-%d %H:%M}" for run in runs] == [
        "11-30 00:00",
        "12-31 00:00",
        "01-31 00:00",
        "02-28 00:00",
    ]
