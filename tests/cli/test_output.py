"""What is written where: pipes that close, outputs that lack letters or room, databases that are down."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import create_engine

import fastjobs
from fastjobs.cli.command import main
from tests.cli.process import ROOT
from tests.cli.shop import MODULE, Shop, fail
from tests.databases.postgres import Database

FASTJOBS = [sys.executable, "-W", "error", "-m", "fastjobs"]
Ran = subprocess.CompletedProcess[bytes]


def ran(folder: Path, *words: str, **environment: str) -> Ran:
    """What a real process did, in this folder."""
    return subprocess.run(
        [*FASTJOBS, *words], cwd=folder, env=surroundings(**environment), capture_output=True, timeout=50,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


def surroundings(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "FASTJOBS_QUEUE": f"{MODULE}:q", **more}


def test_a_reader_that_has_seen_enough_ends_it_quietly(shop: Shop) -> None:
    # More than a pipe takes, so that it's still writing as the reader goes.
    shop.do(lambda app: fail(app, 20, email="x" * 20_000))
    for unbuffered in ("", "1"):
        writer = subprocess.Popen(
            [*FASTJOBS, "jobs", "--all", "--whole"], env=surroundings(PYTHONUNBUFFERED=unbuffered),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert writer.stdout is not None
        assert writer.stderr is not None
        assert writer.stdout.readline() == b"20 jobs failed for good, and are kept for 30 days:\n"
        writer.stdout.close()
        told = writer.stderr.read()
        writer.stderr.close()
        assert (writer.wait(30), told) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("words", [["jobs"], ["kinds"], ["schema"], ["jobs", "--json"]], ids=" ".join)
def test_an_output_without_room_is_told_of_and_an_exit_of_1(shop: Shop, words: list[str]) -> None:
    shop.do(fail)
    with Path("/dev/full").open("wb") as full:
        told = subprocess.run(
            [*FASTJOBS, *words],
            env=surroundings(PYTHONUNBUFFERED=""),
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=50,
        )
    assert told.returncode == 1
    assert told.stderr == b"fastjobs: the output can't be written: No space left on device\n"


@pytest.mark.skipif(sys.platform == "win32", reason="a POSIX shell closes it")
def test_an_output_that_is_closed_is_no_error(shop: Shop) -> None:
    shop.do(fail)
    for closing in (">&-", ">&- 2>&-"):
        command = f'exec "$@" {closing}'
        told = subprocess.run(
            ["sh", "-c", command, "sh", *FASTJOBS, "jobs"],
            env=surroundings(),
            capture_output=True,
            timeout=50,
        )
        assert (told.returncode, told.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"PYTHONIOENCODING": "ascii"}, rb'"email":"Zo\xeb \u6771\U0001f4ec"'),
        ({"PYTHONIOENCODING": "latin-1"}, b'"email":"Zo\xeb \\u6771\\U0001f4ec"'),
        (
            {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
            rb'"email":"Zo\xeb \u6771\U0001f4ec"',
        ),
        ({"PYTHONIOENCODING": "utf-8"}, '"email":"Zoë 東📬"'.encode()),
    ],
    ids=str,
)
def test_letters_that_the_outputs_encoding_lacks_are_escaped(
    shop: Shop, environment: dict[str, str], told: bytes
) -> None:
    shop.do(lambda app: fail(app, email="Zoë 東📬"))
    done = ran(shop.folder, "jobs", **environment)
    assert (done.returncode, done.stderr) == (0, b"")
    assert told in done.stdout
    done = ran(shop.folder, "jobs", "--kind", "Zoë東", **environment)
    assert done.returncode == 2
    assert done.stderr.startswith(b"fastjobs: a kind's name is 1 to 100 of A-Z a-z 0-9 . _ : -")
    assert done.stderr.count(b"\n") == 1


DOWN = """
import fastjobs
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
asyncpg = fastjobs.Queue(fastjobs.SQLStore(create_async_engine("postgresql+asyncpg://app:s3cret@127.0.0.1:1/app")))
psycopg = fastjobs.Queue(fastjobs.SQLStore(create_engine("postgresql+psycopg://app:s3cret@127.0.0.1:1/app")))
sqlite = fastjobs.Queue(fastjobs.SQLStore(create_engine("sqlite:////nowhere/at/all/app.db")))
"""


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg", "sqlite"])
@pytest.mark.parametrize(
    "words",
    [
        ["jobs"], ["jobs", "--json"], ["jobs", "--waiting", "mail"], ["jobs", "show", "1"], ["jobs", "retry", "all"],
        ["jobs", "cancel", "1"], ["jobs", "delete", "1"], ["kinds"], ["pause", "mail"], ["resume", "mail"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_database_that_is_down_is_a_line_and_an_exit_of_1(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    driver: str,
    words: list[str],
) -> None:
    (tmp_path / "shop_that_is_down.py").write_text(DOWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("FASTJOBS_QUEUE", f"shop_that_is_down:{driver}")
    monkeypatch.delitem(sys.modules, "shop_that_is_down", raising=False)
    assert main(words) == 1
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.startswith(f"fastjobs: the store of shop_that_is_down:{driver} can't be asked: ")
    assert written.err.count("\n") == 1
    assert "s3cret" not in written.err


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg", "sqlite"])
def test_nothing_but_that_line_is_told_by_a_process_of_its_own(tmp_path: Path, driver: str) -> None:
    (tmp_path / "shop_that_is_down.py").write_text(DOWN)
    done = ran(tmp_path, "jobs", f"shop_that_is_down:{driver}")
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (1, b"", 1), done.stderr.decode()


def test_a_bug_is_shown_with_where_it_was(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(self: fastjobs.Queue, **which: object) -> object:
        raise TypeError("a bug")

    monkeypatch.setattr(fastjobs.Queue, "failed", broken)
    with pytest.raises(TypeError, match="a bug"):
        shop.typed("jobs")


@pytest.mark.parametrize(
    "words", [["jobs"], ["kinds"], ["pause", "mail"], ["jobs", "retry", "all"]], ids=" ".join
)
def test_a_memory_is_a_mistake_as_it_ends_with_the_command(shop: Shop, words: list[str]) -> None:
    shop.write("\nq = fastjobs.Queue(fastjobs.Memory())\n")
    code, out, err = shop.typed(*words)
    assert (code, out) == (2, "")
    assert err.startswith(
        "fastjobs: shop_of_jobs:q keeps its jobs in a Memory, which is in the app's own process"
    )
    assert err.count("\n") == 1


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_all_of_it_works_on_postgres(postgres_database: Database, shop: Shop, driver: str) -> None:
    (shop.folder / f"{MODULE}.py").write_text(
        "import fastjobs\n"
        "from sqlalchemy import create_engine\n"
        "from sqlalchemy.ext.asyncio import create_async_engine\n"
        f"make = create_async_engine if {driver == 'asyncpg'} else create_engine\n"
        f"q = fastjobs.Queue(fastjobs.SQLStore(make({postgres_database.url(driver)!r})))\n"
        "@q.kind('report', attempts=1)\n"
        "async def report(n: int) -> None: ...\n"
    )
    app = fastjobs.Queue(fastjobs.SQLStore(create_engine(postgres_database.url("psycopg"))))

    @app.kind("report", attempts=1)
    async def report(n: int) -> None:
        if n < 3:
            raise ValueError(f"no data of {n}")

    async def drained() -> int:
        async with app.running(run=False):
            return await app.drain()

    async def begin() -> None:
        async with app.running(run=False):
            await report.push_many([1, 2])
            await app.drain()
            await report.push(3, after=3600)

    def typed(*words: str) -> str:
        code, out, err = shop.typed(*words)
        assert (code, err) == (0, "")
        return out

    asyncio.run(begin())
    listed = typed("jobs")
    process = ran(shop.folder, "jobs")
    assert (process.returncode, process.stdout.decode(), process.stderr) == (0, listed, b"")
    assert listed.startswith(
        "2 jobs failed for good, and are kept for 30 days:\n\n  2  report, which failed at "
    )
    assert "after 1 attempt\n      1\n      ValueError: no data of 1\n" in listed
    assert typed("jobs", "--all", "--json").count('"state": "failed"') == 2
    assert "it waits for its time" in typed("jobs", "--waiting", "report")
    assert typed("jobs", "show", "3").startswith("job 3  report, waiting: ")
    assert typed("kinds").splitlines()[1].split() == ["report", "1", "0", "-", "0", "0", "2"]
    assert typed("jobs", "delete", "1") == "1 job deleted.\n"
    assert typed("jobs", "retry", "all") == "1 job back to run, as the app's queue finds it.\n"
    assert typed("pause", "report").startswith("report is paused")
    assert asyncio.run(drained()) == 0
    assert typed("kinds").splitlines()[1].endswith("  paused")
    assert typed("resume", "report").startswith("report is paused no more")
    assert asyncio.run(drained()) == 1
    assert typed("jobs", "cancel", "3") == "job 3: it waited, and is removed\n"
    assert typed("jobs", "delete", "all") == "1 job deleted.\n"
    assert typed("jobs") == "no job has failed for good\n"


@pytest.mark.parametrize(
    "words",
    [
        ["jobs"], ["jobs", "retry", "all"], ["kinds"], ["pause", "report"],
        ["schedules"], ["schedules", "run-now", "report"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_command_in_another_folder_than_the_apps_makes_no_database_there(
    shop: Shop, words: list[str]
) -> None:
    file = shop.folder / "app.db"
    file.unlink()
    shop.write("report.schedule(fastjobs.Every(hours=1))\n")
    assert shop.typed(*words) == (
        1,
        "",
        f"fastjobs: the store of shop_of_jobs:q can't be asked: {file} isn't there, and the app makes it as it starts."
        " If it has run, its URL's path is relative, perhaps: then do this in the folder that the app runs in\n",
    )
    assert not file.exists()
