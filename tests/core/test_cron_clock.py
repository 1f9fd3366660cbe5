"""What a schedule does where its zone's clock goes forward or back: the tables of the rules, and the oracle."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from itertools import islice, pairwise
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastjobs import Cron
from fastjobs.core import zones
from tests.core.oracle import Oracle, watched

HOUR = timedelta(hours=1)
TICK = timedelta(microseconds=1)

# Each zone with the instants of its changes: forward and back, or the one that is there.
CHANGES = {
    "Europe/Paris": ("2026-03-29T01:00Z", "2026-10-25T01:00Z"),
    "America/New_York": ("2026-03-08T07:00Z", "2026-11-01T06:00Z"),
    "America/Santiago": ("2026-09-06T04:00Z", "2026-04-05T03:00Z"),  # no midnight; back to the day before
    "America/Havana": ("2026-03-08T05:00Z", "2026-11-01T05:00Z"),  # midnight twice
    "America/Nuuk": ("2026-03-29T01:00Z", "2026-10-25T01:00Z"),  # forward to midnight
    "Africa/Cairo": ("2026-04-23T22:00Z", "2026-10-29T21:00Z"),
    "Asia/Beirut": ("2026-03-28T22:00Z", "2026-10-24T21:00Z"),
    "Australia/Lord_Howe": ("2026-10-03T15:30Z", "2026-04-04T15:00Z"),  # half an hour
    "Antarctica/Troll": ("2026-03-29T01:00Z", "2026-10-25T01:00Z"),  # two hours
    "Africa/Casablanca": ("2026-03-22T02:00Z", "2026-02-15T02:00Z"),  # back before forward
    "Europe/Dublin": ("2026-03-29T01:00Z", "2026-10-25T01:00Z"),  # summer is the standard time
    "Pacific/Apia": ("2011-12-30T10:00Z",),  # a date that never was
    "Pacific/Kwajalein": ("1993-08-21T12:00Z", "1969-09-30T13:00Z"),  # the same, and 23 hours shown again
}
EACH = [(zone, change) for zone, changes in CHANGES.items() for change in changes]


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def offset(zone: str, instant: datetime) -> timedelta:
    found = instant.astimezone(ZoneInfo(zone)).utcoffset()
    assert found is not None
    return found


def told(run: datetime | None) -> str:
    assert run is not None
    assert run.tzinfo is UTC
    return f"{run:%Y-%m-%dT%H:%MZ}"


def runs(expr: str, zone: str, after: str, n: int) -> list[str]:
    return [told(run) for run in Cron(expr, zone).upcoming(n, at(after))]


def on(expr: str, zone: str, day: str) -> list[datetime]:
    """The runs of a date that the zone's clock shows."""
    wanted, clock = date.fromisoformat(day), ZoneInfo(zone)
    run = at(f"{day}T00:00Z") - timedelta(days=2)
    found: list[datetime] = []
    while run.astimezone(clock).date() <= wanted:
        if run.astimezone(clock).date() == wanted:
            found.append(run)
        later = Cron(expr, zone).next(run)
        assert later is not None
        run = later
    return found


@pytest.mark.parametrize(("zone", "change"), EACH)
def test_the_table_of_changes_is_the_zone_databases(zone: str, change: str) -> None:
    assert offset(zone, at(change) - TICK) != offset(zone, at(change))


# S1: a time that isn't there stops nothing.


def test_a_fixed_time_that_the_clock_skips_runs_as_it_goes_forward_and_the_day_after_at_its_time() -> None:
    assert runs("30 2 * * *", "Europe/Paris", "2026-03-28T12:00Z", 2) == [
        "2026-03-29T01:00Z",
        "2026-03-30T00:30Z",
    ]


def test_several_fixed_times_in_one_gap_and_one_at_its_end_are_one_run() -> None:
    for expr in ("15,45 2 * * *", "0,15,45 2,3 * * *", "0-59 2-2 * * *"):
        first, second = runs(expr, "Europe/Paris", "2026-03-29T00:59Z", 2)
        assert first == "2026-03-29T01:00Z"
        assert second > first
    assert runs("0,30 2,3 * * *", "Europe/Paris", "2026-03-28T12:00Z", 3) == [
        "2026-03-29T01:00Z", "2026-03-29T01:30Z", "2026-03-30T00:00Z",
    ]  # fmt: skip


def test_a_fixed_time_that_is_shown_twice_runs_the_first_time() -> None:
    assert runs("30 2 * * *", "Europe/Paris", "2026-10-24T12:00Z", 2) == [
        "2026-10-25T00:30Z",
        "2026-10-26T01:30Z",
    ]
    assert runs("45 1 * * *", "America/New_York", "2026-10-31T12:00Z", 2) == [
        "2026-11-01T05:45Z",
        "2026-11-02T06:45Z",
    ]


def test_a_search_from_the_second_showing_finds_neither_what_has_run_nor_what_is_before_it() -> None:
    second = datetime(2026, 10, 25, 2, 20, tzinfo=ZoneInfo("Europe/Paris"), fold=1)
    assert told(Cron("30 2 * * *", "Europe/Paris").next(second)) == "2026-10-26T01:30Z"
    assert told(Cron("0-59 2,3 * * *", "Europe/Paris").next(second)) == "2026-10-25T02:00Z"
    assert told(Cron("*/30 2 * * *", "Europe/Paris").next(second)) == "2026-10-25T01:30Z"
    first = second.replace(fold=0)
    assert told(Cron("10 2 * * *", "Europe/Paris").next(first)) == "2026-10-26T01:10Z"
    assert told(Cron("10 * * * *", "Europe/Paris").next(first)) == "2026-10-25T01:10Z"


# S3: a time with * follows real time. Exact counts.


@pytest.mark.parametrize(
    ("zone", "day", "quarters", "hours"),
    [
        ("Europe/Paris", "2026-10-25", 100, 25), ("Europe/Paris", "2026-03-29", 92, 23),
        ("America/New_York", "2026-11-01", 100, 25), ("America/New_York", "2026-03-08", 92, 23),
        # The clock of the half hour shows 02:00 once as it goes back, and not at all as it goes forward.
        ("Australia/Lord_Howe", "2026-04-05", 98, 24), ("Australia/Lord_Howe", "2026-10-04", 94, 23),
        ("Antarctica/Troll", "2026-10-25", 104, 26), ("Antarctica/Troll", "2026-03-29", 88, 22),
    ],
)  # fmt: skip
def test_the_runs_of_a_day_whose_clock_is_changed_are_counted(
    zone: str, day: str, quarters: int, hours: int
) -> None:
    assert len(on("*/15 * * * *", zone, day)) == quarters
    assert len(on("@hourly", zone, day)) == hours
    for fixed in ("30 2 * * *", "45 1 * * *", "0 2 * * *", "59 2 * * *"):
        assert len(on(fixed, zone, day)) == 1
    quarter_hours = on("*/15 * * * *", zone, day)
    assert {after - before for before, after in pairwise(quarter_hours)} == {HOUR / 4}


def test_a_change_of_half_an_hour_puts_two_hourly_runs_an_hour_and_a_half_apart() -> None:
    back, forward = (on("@hourly", "Australia/Lord_Howe", day) for day in ("2026-04-05", "2026-10-04"))
    gaps = [Counter(b - a for a, b in pairwise(day)) for day in (back, forward)]
    assert gaps == [{HOUR: 22, 1.5 * HOUR: 1}, {HOUR: 21, 1.5 * HOUR: 1}]
    assert len(on("30 * * * *", "Australia/Lord_Howe", "2026-04-05")) == 25


def test_a_time_with_a_star_does_not_run_in_the_hour_that_is_skipped_and_runs_again_in_the_one_shown_again() -> (
    None
):
    for expr in ("*/30 2 * * *", "* 2 * * *"):
        assert on(expr, "Europe/Paris", "2026-03-29") == []
        assert len(on(expr, "Europe/Paris", "2026-10-25")) == 2 * len(on(expr, "Europe/Paris", "2026-10-26"))
    assert len(on("0 */2 * * *", "Europe/Paris", "2026-03-29")) == 11
    assert len(on("0 */2 * * *", "Europe/Paris", "2026-10-25")) == 13


# S4: a midnight that isn't there, or is there twice.

MIDNIGHTS = {
    "America/Santiago": (["09-05T04", "09-06T04", "09-07T03"], ["04-04T03", "04-05T04", "04-06T04"]),
    "America/Havana": (["03-07T05", "03-08T05", "03-09T04"], ["10-31T04", "11-01T04", "11-02T05"]),
    "America/Nuuk": (["03-28T02", "03-29T01", "03-30T01"], ["10-24T01", "10-25T02", "10-26T02"]),
    "Africa/Cairo": (["04-22T22", "04-23T22", "04-24T21"], ["10-28T21", "10-29T22", "10-30T22"]),
    "Asia/Beirut": (["03-27T22", "03-28T22", "03-29T21"], ["10-23T21", "10-24T22", "10-25T22"]),
}


@pytest.mark.parametrize("zone", MIDNIGHTS)
@pytest.mark.parametrize("daily", ["@daily", "0 0 * * *"])
def test_each_day_has_one_midnight_run(zone: str, daily: str) -> None:
    for change, expected in zip(CHANGES[zone], MIDNIGHTS[zone], strict=True):
        before = at(f"2026-{expected[0]}:00Z") - TICK
        assert [told(run) for run in Cron(daily, zone).upcoming(3, before)] == [
            f"2026-{t}:00Z" for t in expected
        ]
        assert at(f"2026-{expected[0]}:00Z") < at(change) < at(f"2026-{expected[2]}:00Z")
    for day in (at("2026-01-01T12:00Z").date() + timedelta(days=n) for n in range(0, 365, 5)):
        assert len(on(daily, zone, day.isoformat())) == 1


@pytest.mark.parametrize("zone", MIDNIGHTS)
def test_a_date_and_a_sunday_whose_midnight_is_missing_run_all_the_same(zone: str) -> None:
    for change, expected in zip(CHANGES[zone], MIDNIGHTS[zone], strict=True):
        run = at(f"2026-{expected[1]}:00Z")
        day = (at(change) + offset(zone, at(change)) + 2 * HOUR).date()
        for expr in (f"0 0 {day.day} {day.month} *", f"0 0 * * {day.isoweekday()}", f"0 0 {day.day} * *"):
            assert Cron(expr, zone).next(run - 24 * HOUR) == run
            later = Cron(expr, zone).next(run)
            assert later is not None
            assert later > run + 6 * 24 * HOUR
    assert runs("0 0 6 9 *", "America/Santiago", "2026-01-01T00:00Z", 2) == [
        "2026-09-06T04:00Z",
        "2027-09-06T03:00Z",
    ]
    assert runs("0 0 * * SUN", "America/Santiago", "2026-09-01T00:00Z", 1) == ["2026-09-06T04:00Z"]


def test_a_month_whose_first_has_no_midnight_has_its_run() -> None:
    # Asunción's clock went forward at midnight of Sunday, 1 October 2017.
    assert runs("@monthly", "America/Asuncion", "2017-09-15T00:00Z", 2) == [
        "2017-10-01T04:00Z",
        "2017-11-01T03:00Z",
    ]


def test_a_time_shown_on_two_days_as_the_clock_goes_back_over_midnight_runs_once() -> None:
    assert runs("30 23 * * *", "America/Santiago", "2026-04-04T12:00Z", 2) == [
        "2026-04-05T02:30Z",
        "2026-04-06T03:30Z",
    ]
    assert len(on("30 * * * *", "America/Santiago", "2026-04-04")) == 25


def test_a_date_that_never_was_has_one_run_for_its_fixed_times_as_the_clock_goes_over_it() -> None:
    over = "2011-12-30T10:00Z"
    assert runs("0 12 * * *", "Pacific/Apia", "2011-12-29T12:00Z", 3) == [
        "2011-12-29T22:00Z",
        over,
        "2011-12-30T22:00Z",
    ]
    for expr in ("0 12 30 12 *", "0,30 1-23 30 12 *", "0 0 30 12 *"):
        assert runs(expr, "Pacific/Apia", "2011-12-01T00:00Z", 1) == [over]
        assert runs(expr, "Pacific/Apia", over, 1)[0].startswith("2012-12-29T")
    assert runs("0 12 * * FRI", "Pacific/Apia", "2011-12-28T00:00Z", 2) == [over, "2012-01-05T22:00Z"]
    hourly = on("@hourly", "Pacific/Apia", "2011-12-31")
    assert (len(hourly), told(hourly[0])) == (24, over)
    assert on("@hourly", "Pacific/Apia", "2011-12-30") == []


def test_a_day_shown_again_has_its_fixed_times_once() -> None:
    # Kwajalein went over the date line: 23 hours of 30 September 1969 came twice.
    assert runs("0 12 * * *", "Pacific/Kwajalein", "1969-09-29T12:00Z", 2) == [
        "1969-09-30T01:00Z",
        "1969-10-02T00:00Z",
    ]
    assert len(on("0 * * * *", "Pacific/Kwajalein", "1969-09-30")) == 24 + 23


def test_a_change_within_a_minute_is_told_to_the_second() -> None:
    # Monrovia's clock went from 00:00:00 to 00:44:30 on 7 January 1972.
    over = datetime(1972, 1, 7, 0, 44, 30, tzinfo=UTC)
    assert Cron("0 0 * * *", "Africa/Monrovia").next(over - HOUR) == over
    assert Cron("0 0 * * *", "Africa/Monrovia").next(over) == at("1972-01-08T00:00Z")
    assert Cron("*/15 * * * *", "Africa/Monrovia").next(over - TICK) == at("1972-01-07T00:45Z")


def test_a_search_that_starts_between_seconds_finds_the_change_itself() -> None:
    between = at("2026-10-25T00:30Z") + TICK
    assert told(Cron("0 * * * *", "Europe/Paris").next(between)) == "2026-10-25T01:00Z"
    assert told(Cron("0-59 2,3 * * *", "Europe/Paris").next(between + HOUR)) == "2026-10-25T02:00Z"


@pytest.mark.parametrize(
    "after", ["1969-09-30T13:00Z", "1969-09-30T01:00Z", "1993-08-21T11:59Z", "1993-08-21T12:00Z"]
)
@pytest.mark.parametrize("expr", ["0-59 0-23 * * *", "* * * * *", "* 5 21 8 *", "0-59 5 30 9 *"])
def test_a_change_of_a_whole_day_is_passed_in_a_few_steps(
    expr: str, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[datetime] = []
    offsets = zones.offsets

    def counting(zone: ZoneInfo, wall: datetime) -> tuple[timedelta, timedelta]:
        asked.append(wall)
        return offsets(zone, wall)

    monkeypatch.setattr(zones, "offsets", counting)
    assert Cron(expr, "Pacific/Kwajalein").next(at(after)) is not None
    assert 0 < len(asked) <= 6


# The oracle.

BEFORE, AFTER = 30 * HOUR, 30 * HOUR


def _texts(numbers: list[int], first: int, last: int, *more: str, stars: int = 0) -> st.SearchStrategy[str]:
    """A field's texts, the plain ones first, mostly of numbers at which something happens. A draw is one choice."""
    dice = Random(first * 100 + last)

    def plain() -> str:
        low, high = sorted(dice.choice([dice.choice(numbers), dice.randint(first, last)]) for _ in range(2))
        return dice.choice([f"{low}", f"{high}", f"{low}-{high}", f"{low}-{low}", "*"])

    def item() -> str:
        return f"{plain()}/{dice.randint(1, last - first + 1)}" if dice.random() < 0.4 else plain()

    made = [",".join(item() for _ in range(dice.choice([1, 1, 2, 3]))) for _ in range(300)]
    texts = sorted({*more, *map(str, numbers), "*", *made}, key=lambda text: (len(text), text))
    return st.sampled_from(["*"] * stars + texts)


MINUTES = _texts([0, 15, 30, 45, 59], 0, 59, "*/15")
HOURS = _texts([0, 1, 2, 3, 22, 23], 0, 23, "*/2")
DAYS = _texts([4, 5, 6, 8, 24, 25], 1, 28, "29", "*/2", stars=300)
MONTHS = _texts([2, 3, 4, 9, 10, 12], 1, 12, "MAR-NOV", "oct", stars=300)
WEEKDAYS = _texts([0, 6], 0, 6, "SUN", "5-7", "7", "mon-sat", stars=300)
STARTS = st.sampled_from([*(n * 1800 for n in range(-6, 7)), *Random(1).sample(range(-50_000, 15_000), 500)])


@pytest.mark.parametrize("_half", [1, 2])  # of 5,000 draws, so that neither takes long on a busy machine
@settings(max_examples=2_500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    where=st.sampled_from(EACH),
    expr=st.tuples(MINUTES, HOURS, DAYS, MONTHS, WEEKDAYS).map(" ".join),
    start=STARTS,
    micro=st.sampled_from([0, -1, 1]),
)
def test_the_runs_around_a_change_are_the_oracles(
    _half: int, where: Any, expr: str, start: int, micro: int
) -> None:
    zone, change = where[0], at(where[1])
    after = change + timedelta(seconds=start, microseconds=micro)
    clock = watched(zone, change - BEFORE, change + AFTER)
    here = bisect_right(clock, after, key=lambda shown: shown.instant)
    expected = list(islice(Oracle(expr).runs(clock[here:]), 4))
    cron, run = Cron(expr, zone), after
    for each in expected:
        assert cron.next(run) == cron.next(run + (each - run) / 2) == each
        assert run < each
        run = each
    if len(expected) < 4:
        later = cron.next(run)
        assert later is None or later >= change + AFTER


@pytest.mark.parametrize(("zone", "change"), EACH)
@pytest.mark.parametrize(
    "expr",
    [
        "30 2 * * *",
        "0 0 * * *",
        "*/15 * * * *",
        "0 * * * *",
        "15,45 0-3 * * *",
        "30 23 * * SUN",
        "* 0,1 * * *",
    ],
)
def test_all_runs_around_a_change_are_the_oracles(zone: str, change: str, expr: str) -> None:
    start, end = at(change) - BEFORE, at(change) + AFTER
    expected = list(Oracle(expr).runs(watched(zone, start, end)))
    assert Cron(expr, zone).upcoming(len(expected), start - TICK) == expected


# The guide's table of Paris, row by row: the hours and minutes that the clock shows.


@pytest.mark.parametrize(
    ("expr", "forward", "back"),
    [
        ("30 2 * * *", "03:00+2", "02:30+2"),
        ("15,45 2 * * *", "03:00+2", "02:15+2 02:45+2"),
        ("0 2,3 * * *", "03:00+2", "02:00+2 03:00+1"),
        ("@daily", "00:00+1", "00:00+2"),
        ("*/30 2 * * *", "", "02:00+2 02:30+2 02:00+1 02:30+1"),
    ],
)
def test_the_guides_table_is_so(expr: str, forward: str, back: str) -> None:
    paris = ZoneInfo("Europe/Paris")
    for day, shown in (("2026-03-29", forward), ("2026-10-25", back)):
        found = [run.astimezone(paris) for run in on(expr, "Europe/Paris", day)]
        assert [f"{run:%H:%M}+{(run.utcoffset() or HOUR) // HOUR}" for run in found] == shown.split()
