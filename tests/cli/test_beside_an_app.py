"""Commands beside an app that runs: what they change, its queue finds."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from fastjobs.cli.command import main
from tests.cli.conftest import Run
from tests.cli.process import Process

APP = """
from sqlalchemy.ext.asyncio import create_async_engine
engine = create_async_engine("sqlite+aiosqlite:///jobs.db")
fastjobs.sqlite.configure(engine)
q = fastjobs.Queue(fastjobs.SQLStore(engine), grace=0.5, poll=0.2)
mended = pathlib.Path("mended")

@q.kind("mail", attempts=1)
async def mail(n: int) -> None:
    if not mended.exists():
        say(f"mail {n} fails")
        raise ConnectionRefusedError("refused")
    say(f"mail {n} is sent")

@q.kind("report", timeout=600)
async def report() -> None:
    say("the report runs")
    try:
        await asyncio.sleep(500)
    except asyncio.CancelledError:
        say("the report is stopped")
        raise
"""
PUSH = """
if sys.argv[1:2] == ["run"]:
    asyncio.run(mail.push(1))
"""


def typed(run: Run, *words: str) -> str:
    """What `fastjobs …` wrote in a process of its own, which ended well."""
    done: Process = run(APP + PUSH, *words)
    assert done.ends()[0] == 0, done.log
    return done.log


def test_an_app_that_runs_finds_what_the_commands_have_changed(run: Run, tmp_path: Path) -> None:
    app = run(APP + PUSH)
    app.until("mail 1 fails\n")
    app.until("failed for good")
    (job,) = typed(run, "jobs", "main:q", "--json").splitlines()
    assert json.loads(job)["error"] == "ConnectionRefusedError: refused"
    (tmp_path / "mended").touch()

    assert typed(run, "pause", "main:q", "mail").startswith("mail is paused on all instances")
    assert typed(run, "jobs", "main:q", "retry", "1") == "1 job back to run, as the app's queue finds it.\n"
    assert typed(run, "jobs", "main:q", "show", "1").startswith("job 1  mail, waiting: its kind is paused")
    assert "is sent" not in app.log
    assert typed(run, "resume", "main:q", "mail").startswith("mail is paused no more")
    app.until("mail 1 is sent\n")
    assert typed(run, "jobs", "main:q") == "no job has failed for good\n"

    app.tell(signal.SIGTERM)
    assert app.ends()[0] == 0


def test_a_job_that_runs_in_an_app_is_stopped_by_a_command(run: Run) -> None:
    app = run(APP + 'if sys.argv[1:2] == ["run"]:\n    asyncio.run(report.push())\n')
    app.until("the report runs\n")
    assert "it runs: attempt 1, held until" in typed(run, "jobs", "main:q", "--held", "report")
    assert typed(run, "jobs", "main:q", "cancel", "1").startswith("job 1: it runs, and is asked to stop")
    app.until("the report is stopped\n")
    app.until("cancelled")
    app.tell(signal.SIGTERM)
    assert app.ends()[0] == 0
    assert typed(run, "kinds", "main:q").splitlines()[-1].split() == ["report", "0", "0", "-", "0", "0", "0"]


@pytest.mark.parametrize("word", ["run", "jobs", "kinds", "pause", "resume", "schedules", "schema", "doctor"])
def test_each_command_is_told_of_and_tells_of_itself(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        main(["--help"])
    assert exited.value.code == 0
    assert f"\n    {word}" in capsys.readouterr().out
    with pytest.raises(SystemExit) as exited:
        main([word, "--help"])
    assert exited.value.code == 0
    told = capsys.readouterr().out
    assert told.startswith(f"usage: fastjobs {word} ")
    assert "queue" in told
    assert "--app" in told
    assert "FASTJOBS_QUEUE" in told
