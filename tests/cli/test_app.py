"""`--app`: an app's lifespan is entered around each command, for what it opens, and runs no job there."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastjobs.cli.command import main

SHOP = "shop_with_a_lifespan"
APP = """
import contextlib
import fastjobs
from fastapi import FastAPI
from sqlalchemy import create_engine

told = []
q, mails = fastjobs.Queue(), fastjobs.Queue(fastjobs.Memory())

@q.kind("report")
async def report() -> None:
    told.append("NEVER")

report.schedule(fastjobs.Every(hours=1))

@mails.kind("mail")
async def mail() -> None:
    told.append("NEVER")

@contextlib.asynccontextmanager
async def opened(app):
    told.append("opened")
    q.use(fastjobs.SQLStore(create_engine("sqlite:///app.db")))
    await mail.push()
    yield
    told.append(f"closed, with the queue running: {q.health().running}")

app = FastAPI(lifespan=fastjobs.lifespan(q, mails, within=opened))

@contextlib.asynccontextmanager
async def broken_lifespan(app):
    raise ConnectionRefusedError("no database\\x1b[2J\\nand more")
    yield

broken = FastAPI(lifespan=broken_lifespan)

@contextlib.asynccontextmanager
async def nothing(app):
    yield

opens_nothing = FastAPI(lifespan=nothing)
number = 3
"""


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the app, which is the current one."""
    (tmp_path / f"{SHOP}.py").write_text(APP)
    (tmp_path / "app.db").touch()  # a command makes no database; the app's first start does
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv("FASTJOBS_APP", raising=False)
    monkeypatch.setenv("FASTJOBS_QUEUE", f"{SHOP}:q")
    sys.modules.pop(SHOP, None)
    yield tmp_path
    sys.modules.pop(SHOP, None)


COMMANDS: dict[str, str] = {
    "jobs": "no job has failed for good\n",
    "jobs --waiting report": "no job of report waits\n",
    "jobs retry all": "0 jobs back to run, as the app's queue finds them.\n",
    "jobs delete all --yes": "0 jobs deleted.\n",
    "kinds": "kind    waiting  due  oldest  held  parked  failed\nreport        0    0       -     0       0       0\n",
    "pause report": "report is paused on all instances",
    "resume report": "report is paused no more",
    "schedules": "report  kind=report zone=UTC\n",
    "schedules run-now report": "pushed 1 kind=report\n",
    "schema": "-- The tables fastjobs_* of fastjobs",
    "doctor": "fastjobs ",
}


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize("typed", COMMANDS)
def test_the_apps_lifespan_is_entered_around_each_command_and_no_job_is_run_there(
    typed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if typed == "doctor":  # it wants its tables
        main(["kinds", "--app", f"{SHOP}:app"])
        sys.modules.pop(SHOP)
        capsys.readouterr()
    assert main([*typed.split(), "--app", f"{SHOP}:app"]) == 0
    written = capsys.readouterr()
    assert written.out.startswith(COMMANDS[typed])
    assert written.err == ""
    assert sys.modules[SHOP].told == ["opened", "closed, with the queue running: False"]


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize("typed", ["jobs", "kinds", "pause report", "schedules", "schema", "doctor"])
def test_without_it_a_queue_that_has_no_store_yet_says_what_to_write(
    typed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(typed.split()) == 2
    written = capsys.readouterr()
    assert written.err.startswith(f"fastjobs: {SHOP}:q has no store yet")
    assert "--app module:app\n" in written.err
    assert main([*typed.split(), "--app", f"{SHOP}:opens_nothing"]) == 2
    assert f"{SHOP}:q has no store yet" in capsys.readouterr().err


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize(("typed", "code"), [("jobs", 1), ("kinds", 1), ("schedules", 1), ("doctor", 2)])
def test_an_app_that_doesnt_start_is_a_line_that_says_why_and_where(
    typed: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*typed.split(), "--app", f"{SHOP}:broken"]) == code
    written = capsys.readouterr()
    assert (written.out, written.err.count("\n")) == ("", 1)
    assert "the app's lifespan failed: ConnectionRefusedError: no database\\x1b[2J (" in written.err
    assert f"{SHOP}.py:" in written.err


def test_the_app_is_named_by_the_argument_then_the_environment_then_pyproject(
    told: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def works() -> bool:
        sys.modules.pop(SHOP, None)
        return main(["kinds", "--json"]) == 0

    pyproject = told / "pyproject.toml"
    assert not works()
    pyproject.write_text(f'[tool.fastjobs]\nqueue = "{SHOP}:q"\napp = "{SHOP}:app"')
    assert works()
    monkeypatch.delenv("FASTJOBS_QUEUE")
    assert works()
    # It goes with the queue that is named there, and with no other.
    pyproject.write_text(f'[tool.fastjobs]\nqueue = "{SHOP}:mails"\napp = "{SHOP}:app"')
    monkeypatch.setenv("FASTJOBS_QUEUE", f"{SHOP}:q")
    assert not works()
    monkeypatch.setenv("FASTJOBS_APP", f"{SHOP}:app")
    assert works()
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["kind"] == "report"
    monkeypatch.setenv("FASTJOBS_APP", f"{SHOP}:number")
    assert not works()
    assert main(["kinds", "--app", f"{SHOP}.app"]) == 0


@pytest.mark.usefixtures("told")
def test_what_is_no_app_is_a_mistake(capsys: pytest.CaptureFixture[str], told: Path) -> None:
    assert main(["jobs", "--app", f"{SHOP}:number"]) == 2
    assert capsys.readouterr().err == f"fastjobs: {SHOP}:number is no ASGI app but an int\n"
    (told / "pyproject.toml").write_text(f'[tool.fastjobs]\nqueue = "{SHOP}:q"\napp = 3')
    assert main(["jobs"]) == 2
    assert '[tool.fastjobs] app is text, as in "main:app", not 3' in capsys.readouterr().err
