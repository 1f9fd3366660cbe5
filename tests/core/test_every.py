"""Fixed intervals: which instants they name, and what is refused."""

from __future__ import annotations

import copy
import datetime as datetime_module
import pickle
from datetime import UTC, datetime, timedelta, timezone
from random import Random
from typing import Any

import pytest

from fastjobs import Every, ScheduleError

START = datetime(1, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
NOON = datetime(2026, 3, 4, 12, 0, 1, tzinfo=UTC)  # a Wednesday


def told(every: Every, n: int, after: datetime = NOON) -> list[str]:
    return [f"{run:%a %d %H:%M:%S}" for run in every.upcoming(n, after)]


def test_an_interval_runs_at_each_of_its_multiples() -> None:
    assert told(Every(minutes=15), 3) == ["Wed 04 12:15:00", "Wed 04 12:30:00", "Wed 04 12:45:00"]
    assert told(Every(hours=1), 2) == ["Wed 04 13:00:00", "Wed 04 14:00:00"]
    assert told(Every(days=1), 2) == ["Thu 05 00:00:00", "Fri 06 00:00:00"]
    assert told(Every(1), 2) == ["Wed 04 12:00:02", "Wed 04 12:00:03"]


def test_a_week_is_from_monday_to_monday_as_it_counts_from_a_monday_of_the_year_1() -> None:
    assert START.weekday() == 0
    assert told(Every(weeks=1), 2) == ["Mon 09 00:00:00", "Mon 16 00:00:00"]
    assert Every(weeks=1) == Every(days=7) == Every(timedelta(days=7)) == Every(604_800)


def test_an_interval_that_divides_no_day_goes_on_over_midnight() -> None:
    found = Every(hours=5).upcoming(10, NOON)
    assert {(run - START) % timedelta(hours=5) for run in found} == {timedelta(0)}
    assert len({run.hour for run in found}) > 5


def test_the_next_run_is_strictly_later_and_the_first_that_is() -> None:
    dice = Random(9)
    for _ in range(1_000):
        micros = round(10 ** dice.uniform(3, 13.5))  # from a millisecond to a year
        after = START + timedelta(days=dice.randrange(3_000_000), microseconds=dice.randrange(86_400_000_000))
        count = (after - START) // MICROSECOND // micros + 1
        expected = START + timedelta(microseconds=count * micros)
        every = Every(timedelta(microseconds=micros))
        assert every.next(after) == every.next(expected - MICROSECOND) == expected
        assert every.next(expected) == expected + timedelta(microseconds=micros)


def test_it_never_counts_from_when_an_instance_started() -> None:
    # Restarted each six hours for five days, it names five midnights.
    started = [datetime(2026, 3, 2, 3, tzinfo=UTC) + n * timedelta(hours=6) for n in range(20)]
    runs = {Every(hours=24).next(start) for start in started}
    assert sorted(run.isoformat() for run in runs if run) == [
        f"2026-03-0{d}T00:00:00+00:00" for d in range(3, 8)
    ]


def test_intervals_of_more_than_a_year_and_the_end_of_time() -> None:
    every = Every(days=400)
    run = every.next(NOON)
    assert run is not None
    assert (run - START) % timedelta(days=400) == timedelta(0)
    assert every.next(datetime.max.replace(tzinfo=UTC)) is None
    assert Every(hours=1).next(datetime(9999, 12, 31, 23, tzinfo=UTC)) is None
    assert Every(hours=1).next(datetime.max.replace(tzinfo=timezone(timedelta(hours=-5)))) is None
    assert [run.year for run in Every(days=365 * 5000).upcoming(9, START)] == [4997, 9994]


def test_the_run_is_in_utc_whatever_zone_was_asked_in_and_a_time_without_one_is_refused() -> None:
    run = Every(hours=1).next(NOON.astimezone(timezone(timedelta(hours=5, minutes=45))))
    assert run is not None
    assert (run, run.tzinfo) == (datetime(2026, 3, 4, 13, tzinfo=UTC), UTC)
    with pytest.raises(ScheduleError, match="after needs a zone"):
        Every(hours=1).next(datetime(2026, 3, 4))


def test_what_is_said_in_units_is_added_up() -> None:
    assert Every(hours=1, minutes=30) == Every(minutes=90) == Every(timedelta(minutes=90)) == Every(5400)
    assert Every(weeks=1, days=1, hours=1, minutes=1, seconds=1).interval == timedelta(8, 3661)
    assert Every(hours=0.5) == Every(minutes=30)
    assert Every(1 / 3).interval == timedelta(microseconds=333_333)
    assert Every(minutes=1, seconds=-1).interval == timedelta(seconds=59)


@pytest.mark.parametrize(
    ("positional", "named", "says"),
    [
        ((), {}, r"Every needs an interval above 0, as Every\(minutes=15\)"),
        ((), {"minutes": 0}, "Every needs an interval above 0"),
        ((0,), {}, "the interval is at least 0.001 s, and this is 0 s"),
        ((-60,), {}, "the interval is at least 0.001 s, and this is -60 s"),
        ((), {"minutes": -1}, "the interval is at least 0.001 s, and this is -60 s"),
        ((0.000_9,), {}, "the interval is at least 0.001 s"),
        ((timedelta(microseconds=999),), {}, "the interval is at least 0.001 s"),
        ((timedelta(0),), {}, "the interval is at least 0.001 s"),
        ((60,), {"minutes": 1}, "Every takes an interval or minutes, and not both: it was given 60 too"),
        (("60",), {}, "the interval is seconds or a timedelta, and this is a str"),
        ((True,), {}, "the interval is seconds or a timedelta, and this is a bool"),
        ((float("nan"),), {}, "the interval is a number of seconds, and nan is none"),
        ((float("inf"),), {}, "the interval is a number of seconds, and inf is none"),
        ((timedelta.max,), {}, "the interval is at most 9,999 years"),
        ((1e300,), {}, "the interval is at most 9,999 years"),
        ((), {"weeks": 10**400}, "weeks is at most 9,999 years"),
        ((), {"seconds": float("nan")}, "seconds is a number of seconds, and nan is none"),
        ((), {"minutes": "5"}, "minutes is a number, and not '5'"),
        ((), {"minutes": False}, "minutes is a number, and not False"),
        ((), {"minutes": timedelta(1)}, "minutes is a number, and not datetime.timedelta"),
    ],
)
def test_what_is_no_interval_is_refused(positional: Any, named: Any, says: str) -> None:
    with pytest.raises(ScheduleError, match=says):
        Every(*positional, **named)


def test_a_millisecond_is_the_least() -> None:
    assert Every(0.001).upcoming(2, NOON) == [NOON + timedelta(milliseconds=n) for n in (1, 2)]


@pytest.mark.parametrize(
    ("every", "text"),
    [
        (Every(weeks=2), "Every(weeks=2)"), (Every(days=10), "Every(days=10)"), (Every(hours=36), "Every(hours=36)"),
        (Every(900), "Every(minutes=15)"), (Every(90), "Every(seconds=90)"),
        (Every(0.25), "Every(datetime.timedelta(microseconds=250000))"),
    ],
)  # fmt: skip
def test_its_repr_makes_it_again_and_so_do_copies_and_pickles(every: Every, text: str) -> None:
    assert repr(every) == text
    again = eval(text, {"Every": Every, "datetime": datetime_module})
    assert again == every == copy.deepcopy(every) == pickle.loads(pickle.dumps(every))
    assert hash(again) == hash(every)
    assert every != Every(every.interval * 2)
    with pytest.raises(AttributeError):
        every.interval = timedelta(1)  # type: ignore[misc] # pyright: ignore[reportAttributeAccessIssue]
