"""`fastjobs doctor`: what it prints, and what it exits with."""

from __future__ import annotations

import asyncio
import importlib
import json
import sqlite3
import sys
from pathlib import Path

import pytest
from sqlalchemy import create_engine

import fastjobs
from fastjobs.cli.command import main
from fastjobs.stores.sql.store import SQLStore
from tests.cli.conftest import Run

APP = """
import fastjobs
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
engine = create_async_engine("sqlite+aiosqlite:///app.db")
fastjobs.sqlite.configure(engine)
q = fastjobs.Queue(fastjobs.SQLStore(engine))
nowhere = fastjobs.Queue(fastjobs.SQLStore(create_engine("postgresql+psycopg://app:s3cret@127.0.0.1:1/app")))
no_mysql = fastjobs.Queue(fastjobs.SQLStore(create_engine("mysql+pymysql://app:s3cret@127.0.0.1:1/app")))
memory = fastjobs.Queue(fastjobs.Memory())
@q.kind("mail")
async def mail() -> None: ...
"""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the app and its database, which is the current one."""
    (tmp_path / "shop_of_doctors.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "shop_of_doctors", raising=False)

    async def make() -> None:
        store = SQLStore(create_engine("sqlite:///app.db"))
        await store.open(["mail"])
        await store.close()

    asyncio.run(make())
    return tmp_path


@pytest.mark.usefixtures("app")
def test_where_nothing_is_wrong_it_says_each_thing_in_a_line_and_exits_with_0(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["doctor", "shop_of_doctors:q"]) == 0
    written = capsys.readouterr()
    lines = written.out.splitlines()
    assert lines[0].startswith(f"fastjobs {fastjobs.__version__} Python 3.")
    assert "SQLAlchemy 2." in lines[0]
    assert "ok       tables: fastjobs_* of version 1, with all their indexes" in lines
    assert lines[-1].startswith("shop_of_doctors:q: 0 wrong, ")
    assert written.err == ""


def test_where_something_is_wrong_it_says_what_to_do_and_exits_with_1(
    app: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    connection = sqlite3.connect(app / "app.db")
    connection.execute("DROP INDEX fastjobs_jobs_held")
    connection.close()
    assert main(["doctor", "shop_of_doctors:q"]) == 1
    lines = capsys.readouterr().out.splitlines()
    (at,) = [
        n for n, line in enumerate(lines) if line.startswith("wrong    tables: fastjobs_jobs has no index")
    ]
    assert lines[at + 1].startswith("         → CREATE INDEX fastjobs_jobs_held ON fastjobs_jobs (")
    assert lines[-1].startswith("shop_of_doctors:q: 1 wrong, ")

    assert main(["doctor", "shop_of_doctors:q", "--json", "--deep"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["queue"], told["wrong"]) == ("shop_of_doctors:q", 1)
    assert told["versions"]["fastjobs"] == fastjobs.__version__
    assert [each["check"] for each in told["findings"] if each["level"] == "wrong"] == ["tables"]
    assert {"level": "ok", "check": "integrity", "said": "quick_check found nothing", "do": ""} in told[
        "findings"
    ]
    assert {tuple(each) for each in told["findings"]} == {("level", "check", "said", "do")}


@pytest.mark.usefixtures("app")
@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("nowhere", "can't look at the database of shop_of_doctors:nowhere: OperationalError: "),
        ("no_mysql", "can't look at the database of shop_of_doctors:no_mysql: OperationalError: "),
        ("memory", "shop_of_doctors:memory keeps its jobs in a Memory"),
    ],
)
def test_where_it_cant_look_it_exits_with_2(
    named: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", f"shop_of_doctors:{named}"]) == 2
    written = capsys.readouterr()
    assert written.err.startswith(f"fastjobs: {told}")
    assert written.err.count("\n") == 1
    assert "s3cret" not in written.err
    assert written.out == ""


def test_an_instance_that_runs_is_neither_disturbed_nor_in_its_way(run: Run, tmp_path: Path) -> None:
    text = """
from sqlalchemy.ext.asyncio import create_async_engine
engine = create_async_engine("sqlite+aiosqlite:///jobs.db")
fastjobs.sqlite.configure(engine)
q = fastjobs.Queue(fastjobs.SQLStore(engine), grace=0.5)
@q.kind("mail")
async def mail() -> None:
    say("ran")
asyncio.run(mail.push())
"""
    running = run(text)
    running.until("ran")
    looking = run(text.replace("asyncio.run(mail.push())", ""), "doctor", "main:q")
    assert looking.ends()[0] == 0, looking.log
    assert "\nok       unknown kinds" in looking.log
    assert running.popen.poll() is None


def test_a_queue_with_a_fallback_is_not_told_of_kinds_without_a_handler(
    app: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def push() -> None:
        queue = fastjobs.Queue(SQLStore(create_engine("sqlite:///app.db")))

        @queue.kind("photo")
        async def photo() -> None: ...

        async with queue.running(run=False):
            await photo.push()

    asyncio.run(push())
    assert main(["doctor", "shop_of_doctors:q"]) == 0
    assert "unknown kinds: 1 job waits of kind 'photo'" in capsys.readouterr().out
    importlib.import_module("shop_of_doctors").q.fallback(lambda: None)
    assert main(["doctor", "shop_of_doctors:q"]) == 0
    assert "unknown kinds" not in capsys.readouterr().out
