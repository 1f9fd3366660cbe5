"""What a cron expression says, what is refused, and which times come next where no clock is changed."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime, timedelta, timezone
from importlib.resources import files
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import fastjobs
from fastjobs import Cron, ScheduleError
from fastjobs.core import zones
from tests.core.oracle import Oracle

MONDAY = datetime(2026, 3, 2, tzinfo=UTC)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def runs(expr: str, n: int, after: datetime = MONDAY) -> list[str]:
    return [f"{run:%Y-%m-%d %H:%M}" for run in Cron(expr).upcoming(n, after)]


def days(expr: str, n: int, after: datetime = MONDAY) -> list[str]:
    return [run[:10] for run in runs(f"0 0 {expr}", n, after)]


# S14: what is accepted, and how it's read.


def test_each_field_may_be_a_number_a_range_a_list_or_all_and_any_of_them_with_a_step() -> None:
    assert runs("5 * * * *", 2) == ["2026-03-02 00:05", "2026-03-02 01:05"]
    assert runs("58-59 * * * *", 3) == ["2026-03-02 00:58", "2026-03-02 00:59", "2026-03-02 01:58"]
    assert runs("1,15 3 * * *", 3) == ["2026-03-02 03:01", "2026-03-02 03:15", "2026-03-03 03:01"]
    assert runs("*/15 * * * *", 4) == [f"2026-03-02 {t}" for t in ("00:15", "00:30", "00:45", "01:00")]
    assert runs("10-30/10,50 0 * * *", 4) == [f"2026-03-02 00:{m}" for m in (10, 20, 30, 50)]
    assert runs("9-9 * * * *", 2) == ["2026-03-02 00:09", "2026-03-02 01:09"]
    assert runs("1,* 0 * * *", 2) == ["2026-03-02 00:01", "2026-03-02 00:02"]
    assert runs("00 002 * * *", 1) == ["2026-03-02 02:00"]


def test_a_number_with_a_step_goes_from_it_to_the_fields_end() -> None:
    assert runs("5/15 0 * * *", 4) == [f"2026-03-02 00:{m}" for m in ("05", "20", "35", "50")]
    assert days("20/5 * *", 4) == ["2026-03-20", "2026-03-25", "2026-03-30", "2026-04-20"]
    assert days("1 9/2 *", 3) == ["2026-09-01", "2026-11-01", "2027-09-01"]
    # The week's end is Saturday, and so 1/2 has no Sunday; a Sunday is its beginning, as 0 and as 7.
    assert days("* * MON/2", 4) == ["2026-03-04", "2026-03-06", "2026-03-09", "2026-03-11"]
    assert Cron("0 0 * * 7/2") == Cron("0 0 * * 0/2") == Cron("0 0 * * SUN/2") == Cron("0 0 * * 0,2,4,6")


def test_a_step_as_long_as_the_field_is_its_first_alone_and_a_longer_one_is_refused() -> None:
    for expr, same in (
        ("*/60 * * * *", "0 * * * *"), ("0 */24 * * *", "0 0 * * *"), ("0 0 */31 * *", "0 0 1 * *"),
        ("0 0 1 */12 *", "0 0 1 1 *"), ("0 0 * * */7", "0 0 * * 0"),
    ):  # fmt: skip
        assert Cron(expr).upcoming(5, MONDAY) == Cron(same).upcoming(5, MONDAY)
    for expr in (
        "*/61 * * * *",
        "*/90 * * * *",
        "*/99 * * * *",
        "0 */25 * * *",
        "0 0 */32 * *",
        "0 0 1 */13 *",
    ):
        with pytest.raises(ScheduleError, match="a step is a number from 1 to"):
            Cron(expr)
    with pytest.raises(ScheduleError, match="a step is a number from 1 to 7, and this is 8"):
        Cron("0 0 * * */8")


def test_months_and_days_may_be_names_of_any_case_and_sunday_is_0_or_7() -> None:
    assert Cron("0 0 1 JAN,jul *") == Cron("0 0 1 1,7 *")
    assert Cron("0 9 * * MON-FRI") == Cron("0 9 * * mon-Fri") == Cron("0 9 * * 1-5")
    assert Cron("0 9 * * 7") == Cron("0 9 * * 0") == Cron("0 9 * * sun")
    assert days("* * 7", 2) == ["2026-03-08", "2026-03-15"]
    assert days("* * 5-7", 4) == ["2026-03-06", "2026-03-07", "2026-03-08", "2026-03-13"]
    assert days("* * 0-7", 2) == ["2026-03-03", "2026-03-04"]


def test_the_nicknames_stand_for_their_expressions_in_any_case() -> None:
    same = {
        "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
        "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
    }  # fmt: skip
    for name, expr in same.items():
        assert Cron(name) == Cron(name.upper()) == Cron(f" {name}\n") == Cron(expr)


def test_spaces_and_tabs_part_the_fields_and_those_around_them_are_nothing() -> None:
    assert Cron("\t0  2\t*\t \t* *\r\n") == Cron("0 2 * * *")


def test_with_both_day_fields_restricted_a_day_matches_either() -> None:
    assert days("1,15 * 5", 5) == ["2026-03-06", "2026-03-13", "2026-03-15", "2026-03-20", "2026-03-27"]
    assert days("30 2 1", 3) == ["2027-02-01", "2027-02-08", "2027-02-15"]  # Mondays, as there's no 30th


def test_anything_but_a_plain_star_restricts_a_day_field() -> None:
    assert days("*/2 * 1", 5) == ["2026-03-03", "2026-03-05", "2026-03-07", "2026-03-09", "2026-03-11"]
    for every_day in ("1-31 * 5", "*/1 * 5", "*,1 * 5", "13 * */1", "13 * 0-6"):
        assert days(every_day, 3) == ["2026-03-03", "2026-03-04", "2026-03-05"]
    assert days("29 2 */5", 3) == [
        "2027-02-05",
        "2027-02-07",
        "2027-02-12",
    ]  # each Friday and Sunday of a February


@pytest.mark.parametrize(
    ("expr", "part", "says"),
    [
        ("60 * * * *", "minute", "60 is out of range"),
        ("* 24 * * *", "hour", "24 is out of range"),
        ("0 0 0 * *", "day of the month", "0 is out of range"),
        ("0 0 32 * *", "day of the month", "32 is out of range"),
        ("0 0 1 13 *", "month", "13 is out of range"),
        ("0 0 * * 8", "day of the week", "8 is out of range"),
        ("99999999999999999999 * * * *", "minute", "is no number"),
        ("59-0 * * * *", "minute", "59 is after 0"),
        ("* 22-2 * * *", "hour", "22 is after 2"),
        ("* * * * fri-mon", "day of the week", "fri is after mon"),
        ("* * * * FRI-SUN", "day of the week", "a range that ends with Sunday ends with 7"),
        ("* * * * 6-1", "day of the week", "6 is after 1"),
        ("*/0 * * * *", "minute", "from 1 to 60, and this is 0"),
        ("1-5/0 * * * *", "minute", "from 1 to 60, and this is 0"),
        ("*/x * * * *", "minute", "from 1 to 60, and this is x"),
        ("*/-1 * * * *", "minute", "can't be read"),
        ("*/ * * * *", "minute", "can't be read"),
        ("*/2/3 * * * *", "minute", "can't be read"),
        ("/5 * * * *", "minute", "can't be read"),
        ("*-5 * * * *", "minute", "can't be read"),
        ("*5 * * * *", "minute", "can't be read"),
        ("1-2-3 * * * *", "minute", "can't be read"),
        ("-1 * * * *", "minute", "can't be read"),
        ("+1 * * * *", "minute", "can't be read"),
        ("1.5 * * * *", "minute", "can't be read"),
        ("０ ０ * * *", "minute", "can't be read"),
        ("² * * * *", "minute", "can't be read"),
        ("0\n2 * * * *", "minute", "can't be read"),
        ("0 0 * * ſun", "day of the week", "can't be read"),
        ("1,,2 * * * *", "minute", "items is empty"),
        ("1, * * * *", "minute", "items is empty"),
        ("JAN * * * *", "minute", "'JAN' is no number"),
        ("0 0 1 MON *", "month", "'MON' is no number or name"),
        ("0 0 * * MONDAY", "day of the week", "'MONDAY' is no number or name"),
        ("0 0 L * *", "day of the month", "'L' is no number"),
        ("0 0 LW * *", "day of the month", "'LW' is no number"),
        ("0 0 15W * *", "day of the month", "'15W' is no number"),
        ("0 0 * * 5L", "day of the week", "'5L' is no number"),
        ("0 0 * * 1#2", "day of the week", "can't be read"),
        ("0 0 ? * 1", "day of the month", "can't be read"),
        ("H * * * *", "minute", "'H' is no number"),
        ("H(0-9) * * * *", "minute", "can't be read"),
        ("R * * * *", "minute", "'R' is no number"),
    ],
)
def test_what_is_no_field_is_refused_with_the_field_its_text_and_what_may_stand_there(
    expr: str, part: str, says: str
) -> None:
    with pytest.raises(ScheduleError) as refused:
        Cron(expr)
    told = str(refused.value)
    assert (refused.value.text, refused.value.part) == (expr, part)
    assert told.startswith(f"cron expression {expr!r}: {part} ")
    assert says in told
    assert ". Allowed: " in told


@pytest.mark.parametrize(
    ("expr", "says"),
    [
        ("", "has 0 fields, and five are needed"),
        (" \t", "has 0 fields"),
        ("* * * *", "has 4 fields"),
        ("* * * * * *", "has 6 fields, .* There are none for seconds or years"),
        ("0 0 0 1 1 * 2026", "has 7 fields"),
        ("0\u00a02\u00a0*\u00a0*\u00a0*", "has 1 fields"),
        ("@reboot", "'@reboot' is no name .* the app's lifespan"),
        ("@every 5m", r"is no name .* Every\(minutes=15\)"),
        ("@daily @hourly", "is no name of one; there are @hourly"),
        ("@", "is no name"),
        (None, "a cron expression is a string, and this is a NoneType"),
        (5, "is a string"),
        (b"* * * * *", "is a string"),
    ],
)
def test_what_is_no_expression_is_refused(expr: Any, says: str) -> None:
    with pytest.raises(ScheduleError, match=says):
        Cron(expr)


def test_a_refusal_is_a_registration_error_as_a_mistake_of_the_apps_start_is() -> None:
    assert issubclass(ScheduleError, fastjobs.RegistrationError)


# What never comes round.


@pytest.mark.parametrize("expr", ["0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "* * 30,31 FEB *", "0 0 31 APR/5 *"])
def test_what_never_comes_round_is_refused_as_it_is_made(expr: str) -> None:
    with pytest.raises(ScheduleError, match=r"never comes round: month .* has no day") as refused:
        Cron(expr)
    assert refused.value.part == "day of the month"
    assert Cron(f"{expr[:-1]}2").next(MONDAY) is not None  # or a Tuesday, which comes round


def test_what_seldom_comes_round_is_found() -> None:
    assert runs("0 0 29 2 *", 2) == ["2028-02-29 00:00", "2032-02-29 00:00"]
    assert runs("0 0 29 2 *", 2, at("2096-01-01T00:00Z")) == ["2096-02-29 00:00", "2104-02-29 00:00"]
    assert runs("0 0 29 2 *", 1, at("1999-01-01T00:00Z")) == ["2000-02-29 00:00"]
    assert runs("0 0 31 4,12 *", 2) == ["2026-12-31 00:00", "2027-12-31 00:00"]
    # A 29 February that is a Sunday is one of those that come round.
    assert "2032-02-29 00:00" in runs("0 0 29 2 SUN", 40)


def test_months_have_the_days_that_they_have() -> None:
    assert days("31 * *", 4) == ["2026-03-31", "2026-05-31", "2026-07-31", "2026-08-31"]
    assert days("30 * *", 3, at("2027-01-30T00:00Z")) == ["2027-03-30", "2027-04-30", "2027-05-30"]
    assert days("29 * *", 2, at("2100-01-29T00:00Z")) == ["2100-03-29", "2100-04-29"]


# next(): strictly later, aware, as far as datetimes go.


def test_the_next_run_is_strictly_later_and_in_utc() -> None:
    daily = Cron("0 2 * * *")
    run = at("2026-03-02T02:00Z")
    tick = timedelta(microseconds=1)
    assert daily.next(MONDAY) == daily.next(run - tick) == run
    assert daily.next(run) == daily.next(run + tick) == run + timedelta(days=1)
    found = daily.next(run.astimezone(timezone(timedelta(hours=5))))
    assert found is not None
    assert (found, found.tzinfo) == (run + timedelta(days=1), UTC)
    in_paris = Cron("0 2 * * *", "Europe/Paris").next(run)
    assert in_paris is not None
    assert in_paris.tzinfo is UTC


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ScheduleError, match="after needs a zone: 2026-03-02T00:00:00 could be any"):
        Cron("@daily").next(datetime(2026, 3, 2))
    with pytest.raises(ScheduleError, match="after is a datetime with a zone, and this is a float"):
        Cron("@daily").next(1.5)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "zone", ["UTC", "Europe/Paris", "America/New_York", "Asia/Tokyo", "Pacific/Kiritimati"]
)
@pytest.mark.parametrize("expr", ["0 0 1 1 *", "*/15 * * * *", "30 2 * * *", "59 23 31 12 *", "0 0 29 2 *"])
def test_it_is_right_to_the_year_9999_and_then_never(zone: str, expr: str) -> None:
    cron, last = Cron(expr, zone), datetime.max.replace(tzinfo=UTC)
    assert cron.next(last) is None
    assert cron.next(datetime.max.replace(tzinfo=timezone(timedelta(hours=-14)))) is None
    assert cron.next(datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))) is not None
    run, found = last - timedelta(days=1500), list[datetime]()
    while (later := cron.next(run)) is not None and len(found) < 2000:
        assert later > run
        run = later
        found.append(run)
    if expr == "0 0 29 2 *":
        assert [each.astimezone(ZoneInfo(zone)).date().isoformat() for each in found] == ["9996-02-29"]
    elif expr == "0 0 1 1 *":
        assert [each.astimezone(ZoneInfo(zone)).year for each in found] == [9996, 9997, 9998, 9999]


@pytest.mark.parametrize(
    "expr", ["0 0 1 1 *", "30 12 29 2 *", "0 0 13 * 5", "15 6 1,15 3,9 *", "0 0 31 12 1/3"]
)
def test_what_runs_a_few_times_a_year_is_what_the_oracle_finds_day_by_day(expr: str) -> None:
    after = at("2095-05-05T05:05Z")
    expected = list(Oracle(expr).runs_in_utc(after, 12 * 365))
    assert expected
    assert Cron(expr).upcoming(len(expected), after) == expected


# The object.


def test_one_is_a_value_that_compares_by_what_it_says_and_never_changes() -> None:
    one = Cron("0 2 * * MON", "Europe/Paris")
    assert one == Cron("00  02 * * 1", ZoneInfo("Europe/Paris"))
    assert hash(one) == hash(Cron("00 02 * * 1", "Europe/Paris"))
    assert one != Cron("0 2 * * MON")
    assert one != Cron("0 3 * * MON", "Europe/Paris")
    assert Cron("0 2 */1 * MON") != Cron("0 2 * * MON")
    assert Cron("* * * * *") != Cron("0-59 0-23 * * *")  # one follows real time, and the other a clock
    for name in ("expr", "zone"):
        with pytest.raises(AttributeError):
            setattr(one, name, "x")
    assert (one.expr, one.zone) == ("0 2 * * MON", "Europe/Paris")


@pytest.mark.parametrize(
    "cron", [Cron("@daily"), Cron(" */5 1 * * *\n", "UTC"), Cron("0 2 * * MON", "Europe/Paris")]
)
def test_its_repr_makes_it_again_and_so_do_copies_and_pickles(cron: Cron) -> None:
    for again in (eval(repr(cron)), copy.deepcopy(cron), pickle.loads(pickle.dumps(cron))):
        assert isinstance(again, Cron)
        assert (again, again.expr, again.zone) == (cron, cron.expr, cron.zone)
        assert again.next(MONDAY) == cron.next(MONDAY)
    assert repr(Cron("@daily", "Europe/Paris")) == "Cron('@daily', 'Europe/Paris')"
    assert repr(Cron("@daily")) == "Cron('@daily')"


# Zones.


@pytest.mark.parametrize(
    ("zone", "says"),
    [
        (
            "Europe/Pariss",
            "there is no zone 'Europe/Pariss' in this machine's zone database.*Did you mean Europe/Paris",
        ),
        ("Mars/Olympus_Mons", "there is no zone 'Mars/Olympus_Mons'"),
        ("", "there is no zone ''"),
        ("Europe", "there is no zone 'Europe'"),
        ("../../etc/passwd", "there is no zone"),
        ("/etc/localtime", "there is no zone"),
        ("CET-1CEST,M3.5.0,M10.5.0/3", "there is no zone"),
        ("nul\0", "there is no zone"),
        ("right/Europe/Paris", "there is no zone .* Did you mean Europe/Paris?"),
        ("posix/Europe/Paris", "there is no zone"),
        ("localtime", "there is no zone"),
        ("local", "there is no zone 'local'"),
        (None, 'zone is an IANA name such as "Europe/Paris", a ZoneInfo, or "Local", not a NoneType'),
        (UTC, "not a timezone"),
    ],
)
def test_a_zone_that_does_not_load_is_refused_as_it_is_made(zone: Any, says: str) -> None:
    with pytest.raises(ScheduleError, match=says) as refused:
        Cron("@daily", zone)
    assert refused.value.part == "zone"


def test_a_zone_whose_name_nobody_knows_is_refused() -> None:
    with (files("tzdata.zoneinfo") / "Europe" / "Paris").open("rb") as file:
        nameless = ZoneInfo.from_file(file)
    with pytest.raises(ScheduleError, match="without a key names no zone"):
        Cron("@daily", nameless)


def linked(folder: Path, *names: str) -> Path:
    """A link to the last of the files, in a folder that has the zones' files."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / names[-1]).touch()
    link = folder / "localtime"
    link.symlink_to(folder / names[-1])
    return link


def test_local_is_the_zone_that_tz_names(monkeypatch: pytest.MonkeyPatch) -> None:
    for said in (
        "Europe/Paris",
        ":Europe/Paris",
        "/usr/share/zoneinfo/Europe/Paris",
        ":/usr/share/zoneinfo/Europe/Paris",
    ):
        monkeypatch.setenv("TZ", said)
        assert Cron("@daily", "Local") == Cron("@daily", "Europe/Paris")
        assert Cron("@daily", "Local").zone == "Europe/Paris"
    monkeypatch.setenv("TZ", "")
    assert Cron("@daily", "Local") == Cron("@daily", "UTC")


def test_local_is_the_zone_that_etc_localtime_leads_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = linked(tmp_path, "share/zoneinfo/America/Argentina/Ushuaia")
    monkeypatch.delenv("TZ", raising=False)
    assert zones.local_name(str(link)) == "America/Argentina/Ushuaia"
    monkeypatch.setenv("TZ", f":{link}")
    assert zones.local_name() == "America/Argentina/Ushuaia"


def test_local_is_refused_where_nothing_names_it_with_what_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TZ", raising=False)
    with pytest.raises(
        ScheduleError, match=r"names none and .* isn't there. Write the zone, .* or set TZ=Europe/Paris"
    ):
        zones.local_name(str(tmp_path / "localtime"))
    (tmp_path / "localtime").touch()
    with pytest.raises(ScheduleError, match="is no link to a zone's file"):
        zones.local_name(str(tmp_path / "localtime"))
    with pytest.raises(ScheduleError, match="is no link to a zone's file"):
        zones.local_name(str(linked(tmp_path / "other", "data/Paris")))
    monkeypatch.setenv("TZ", "CET-1CEST")
    with pytest.raises(ScheduleError, match="zone \"Local\": there is no zone 'CET-1CEST'"):
        Cron("@daily", "Local")
