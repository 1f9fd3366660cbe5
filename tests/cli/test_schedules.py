"""`fastjobs schedules`: what it tells of each schedule, and a run that is asked for by hand."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fastjobs.cli.command import main

APP = """
import datetime, sqlite3
import fastjobs
from fastjobs import Cron, Every
from fastjobs.testing import Clock
from sqlalchemy import create_engine

START = 1_774_612_800_000_000  # 2026-03-27T12:00:00Z, two days before Paris's clock goes forward
store = fastjobs.SQLStore(create_engine("sqlite:///app.db"), clock=Clock(START))
q = fastjobs.Queue(store)
none = fastjobs.Queue(store)
late = fastjobs.Queue()
down = fastjobs.Queue(fastjobs.SQLStore(create_engine("sqlite:////nowhere/at/all/app.db")))

@q.kind("report")
async def report(n: int) -> None: ...

@q.kind("index", unique=True)
async def index() -> None: ...

@late.kind("report")
async def late_report() -> None: ...

@down.kind("report")
async def down_report() -> None: ...

late_report.schedule(Every(60))
down_report.schedule(Every(60))

report.schedule(Cron("30 2 * * *", "Europe/Paris"), 5, name="nightly")
report.schedule(Every(hours=1), 6, name="hourly", missed="skip", jitter=90)
index.schedule(Every(minutes=15))
"""
MORE = """
class Mine:
    def __repr__(self): return "at my\\x1b times"
    def next(self, after):
        raise ZeroDivisionError("its own")

class Ends:
    zone = "no zone"
    def next(self, after): return None

report.schedule(Mine(), 7, name="bad")
report.schedule(Ends(), 8, name="ends")
"""

Typed = Callable[..., tuple[int, str, str]]


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "app.db").touch()  # a command makes no database; the app's first start does

    def type_(*words: str, app: str = APP) -> tuple[int, str, str]:
        (tmp_path / "shop_of_schedules.py").write_text(app)
        monkeypatch.delitem(sys.modules, "shop_of_schedules", raising=False)
        code = main(["schedules", *words])
        told = capsys.readouterr()
        return code, told.out, told.err

    return type_


def test_it_tells_when_each_runs_in_its_zone_and_in_utc(typed: Typed) -> None:
    code, out, err = typed("shop_of_schedules:q")
    assert (code, err) == (0, "")
    assert out.split("\n\n")[0].splitlines() == [
        "nightly  kind=report zone=Europe/Paris",
        "  at 02:30 every day, Europe/Paris",
        "  last pushed none",
        "  next  Sat 2026-03-28 02:30:00+0100  2026-03-28T01:30:00Z",
        "  next  Sun 2026-03-29 03:00:00+0200  2026-03-29T01:00:00Z  (the clock has changed by +1:00 h)",
        "  next  Mon 2026-03-30 02:30:00+0200  2026-03-30T00:30:00Z",
        "  next  Tue 2026-03-31 02:30:00+0200  2026-03-31T00:30:00Z",
        "  next  Wed 2026-04-01 02:30:00+0200  2026-04-01T00:30:00Z",
    ]
    assert "hourly  kind=report zone=UTC missed=skip jitter=90s\n  every hour, UTC\n" in out
    assert "index  kind=index zone=UTC\n  every 15 minutes, UTC\n" in out


def test_it_tells_the_same_as_json(typed: Typed) -> None:
    code, out, _ = typed("shop_of_schedules:q", "--json")
    assert code == 0
    nightly, hourly, index = json.loads(out)
    assert {key: value for key, value in nightly.items() if key != "next"} == {
        "name": "nightly",
        "kind": "report",
        "schedule": "Cron('30 2 * * *', 'Europe/Paris')",
        "words": "at 02:30 every day, Europe/Paris",
        "zone": "Europe/Paris",
        "missed": "once",
        "jitter": 0,
        "last": None,
    }
    assert nightly["next"][1] == {
        "at": "2026-03-29T01:00:00Z",
        "local": "2026-03-29T03:00:00+02:00",
        "clock_change": "+1:00",
    }
    assert [each["clock_change"] for each in nightly["next"]] == [None, "+1:00", None, None, None]
    assert (hourly["missed"], hourly["jitter"], index["name"]) == ("skip", 90, "index")
    assert len(hourly["next"]) == 5


def test_the_run_that_was_pushed_last_is_told(typed: Typed) -> None:
    push = """
import asyncio
from fastjobs.core.job import NewJob
from fastjobs.store import Run
asyncio.run(store.push_run(Run("nightly", START + 1, NewJob("report", "5"))))
asyncio.run(store.close())
"""
    _, out, _ = typed("shop_of_schedules:q", app=APP + push)
    assert "  last pushed the run of 2026-03-27T12:00:00.000001Z\n" in out


def test_a_run_by_hand_is_pushed_at_once_and_leaves_the_next_as_it_is(typed: Typed, tmp_path: Path) -> None:
    code, out, _ = typed("shop_of_schedules:q", "run-now", "nightly")
    assert (code, out) == (0, "pushed 1 kind=report\n")
    code, out, _ = typed("shop_of_schedules:q", "run-now", "index")
    assert (code, out) == (0, "pushed 2 kind=index\n")
    code, out, _ = typed("shop_of_schedules:q", "run-now", "index")
    assert (code, out) == (0, "a job of index with this value waits already, and nothing was pushed\n")
    with sqlite3.connect(tmp_path / "app.db") as database:
        rows = database.execute("SELECT kind, payload, run_at FROM fastjobs_jobs ORDER BY id").fetchall()
        runs = database.execute("SELECT * FROM fastjobs_schedules").fetchall()
    database.close()
    assert rows == [("report", "5", 1_774_612_800_000_000), ("index", "null", 1_774_612_800_000_000)]
    assert runs == []


def test_a_schedule_that_fails_is_told_and_hides_no_other(typed: Typed) -> None:
    code, out, _ = typed("shop_of_schedules:q", app=APP + MORE)
    assert code == 1
    assert "\x1b" not in out
    assert "bad  kind=report zone=UTC\n" in out
    assert "  failed: ZeroDivisionError: its own\n" in out
    assert "  no run is left\n" in out
    assert "every 15 minutes" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("shop_of_schedules:q", "run-now"), "the name of one schedule"),
        (("shop_of_schedules:q", "run-now", "a", "b"), "the name of one schedule"),
        (("shop_of_schedules:q", "run-now", "weekly"), "no schedule 'weekly'; it has nightly, hourly, index"),
        (("shop_of_schedules:none", "run-now", "weekly"), "no schedule 'weekly'; it has none"),
        (("shop_of_schedules:q", "nightly"), "not nightly"),
        (("shop_of_schedules:late",), "no store yet"),
        (("shop_of_schedules:late", "run-now", "report"), "no store yet"),
        (("shop_of_schedules:report",), "is no queue"),
    ],
    ids=str,
)
def test_what_cannot_be_carried_out_says_why(typed: Typed, words: tuple[str, ...], said: str) -> None:
    code, _, err = typed(*words)
    assert code == 2
    assert said in err


def test_a_queue_without_schedules_says_so(typed: Typed) -> None:
    assert typed("shop_of_schedules:none")[:2] == (0, "shop_of_schedules:none has no schedules\n")
    assert typed("shop_of_schedules:none", "--json")[:2] == (0, "[]\n")


def test_a_database_that_is_not_there_is_an_exit_of_1(typed: Typed) -> None:
    code, out, err = typed("shop_of_schedules:down")
    assert (code, out) == (1, "")
    assert "can't be asked" in err


def test_run_now_is_refused_where_the_job_would_end_with_the_command(typed: Typed) -> None:
    memory = """
short = fastjobs.Queue(fastjobs.Memory())

@short.kind("report")
async def short_report() -> None: ...

short_report.schedule(Every(60))
"""
    code, out, err = typed("shop_of_schedules:short", "run-now", "report", app=APP + memory)
    assert (code, out) == (2, "")
    assert "a job pushed here would never run" in err
    code, out, _ = typed("shop_of_schedules:short", app=APP + memory)
    assert (code, out.splitlines()[1]) == (0, "  every minute, UTC")
