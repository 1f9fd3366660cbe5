"""Old and new instances on one database, as a deploy has them: kinds, tables and names that only some know.

Real processes: a queue that ran jobs of a kind it had no handler for would fail them, one that made its tables beside
another would find them half made, and one that told instances apart by host and pid would take another's jobs for its
own, as containers often have the same of both.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from fastjobs.core.job import NewJob
from fastjobs.stores.sql.store import SQLStore
from tests.cli.process import PATIENCE, ROOT, Process
from tests.databases.postgres import Database

APP = """
import asyncio, os, socket, sys
import fastjobs
from sqlalchemy.ext.asyncio import create_async_engine

if os.environ.get("ALIKE"):
    os.getpid, socket.gethostname = lambda: 1, lambda: "app"
engine = create_async_engine(os.environ["DATABASE"])
if engine.dialect.name == "sqlite":
    fastjobs.sqlite.configure(engine)
q = fastjobs.Queue(fastjobs.SQLStore(engine), workers=2, poll=0.1, hold=2, grace=0.5)

def add(name):
    @q.kind(name, attempts=5, timeout=30)
    async def handler() -> None:
        job = fastjobs.current_job()
        print(f"ran {name} {job.id} attempt {job.attempt}", flush=True)
        if os.environ.get("STUCK"):
            await asyncio.sleep(60)

for name in os.environ["KINDS"].split(","):
    add(name)
"""

# It forks what opens stores, as a Python for each would take most of the time. Nothing is open in it.
NURSERY = """
import asyncio, logging, os, signal, sys, time
from sqlalchemy import Engine, create_engine, event
from fastjobs.core.job import NewJob
from fastjobs.stores.sql.store import SQLStore
import psycopg, sqlalchemy.dialects.postgresql.psycopg, sqlalchemy.dialects.sqlite.pysqlite

def say(*words):
    # One write for a line: `print` makes several where Python runs unbuffered, and lines of forks would mix.
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

def opens(url, amid):
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format=f"{os.getpid()} %(message)s")
    statements = []

    @event.listens_for(Engine, "after_cursor_execute")
    def executed(connection, cursor, statement, *_):
        statements.append(statement)
        made = sum(each.startswith("CREATE") for each in statements)
        inserted = statement.startswith("INSERT INTO") and "schema" in statement
        if (amid.isdigit() and made == int(amid)) or (amid == "version" and inserted):
            say(os.getpid(), "amid")
            time.sleep(60)

    async def main():
        store = SQLStore(create_engine(url))
        await store.open(["mail", f"kind-{os.getpid()}"])
        await store.push([NewJob(kind="mail", payload="null")])
        await store.close()
    asyncio.run(main())

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
say("0 ready")
for line in sys.stdin:
    url, amid, many = line.split()
    for _ in range(int(many)):
        if not os.fork():
            try:
                opens(url, amid)
                say(os.getpid(), "opened")
            except BaseException as error:
                say(os.getpid(), "raised", repr(error))
            finally:
                os._exit(0)
"""


class Nursery:
    """Processes that open a store at once, and what they say: a pid and a few words a line."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", NURSERY],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT,
            start_new_session=True,
        )  # fmt: skip
        assert self.says() == (0, "ready")

    def says(self) -> tuple[int, str]:
        assert self._process.stdout is not None
        pid, _, said = self._process.stdout.readline().strip().partition(" ")
        return int(pid), said

    def open(self, url: str, *, amid: str = "never", many: int = 1) -> None:
        """Has so many open the store now, and stop amid the making of the tables."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{url} {amid} {many}\n")
        self._process.stdin.flush()

    def opened(self, many: int) -> int:
        """Waits until so many have opened the store, and answers how many of them made the tables."""
        made = 0
        while many:
            _, said = self.says()
            assert not said.startswith("raised"), said
            made += said.startswith("made the tables")
            many -= said == "opened"
        return made

    def close(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


class Deployed:
    """One database, and the instances on it."""

    def __init__(self, folder: Path, database: Database | None) -> None:
        self._folder = folder
        self._database = database
        self._begun: list[Process] = []
        (folder / "app.py").write_text(APP)

    def url(self, *, sync: bool = False) -> str:
        if self._database is not None:
            return self._database.url("psycopg" if sync else "asyncpg")
        return f"sqlite{'' if sync else '+aiosqlite'}:///{self._folder / 'app.db'}"

    def instance(self, kinds: str, **environment: str) -> Process:
        """`fastjobs run` of a version of the app that has these kinds, once it runs."""
        words = ("run", "app:q")
        begun = Process(self._folder, *words, DATABASE=self.url(), KINDS=kinds, **environment)
        self._begun.append(begun)
        begun.until("running queue=app:q")
        return begun

    def push(self, kind: str, many: int) -> list[str | None]:
        async def push() -> list[str | None]:
            store = SQLStore(create_engine(self.url(sync=True)))
            await store.open([kind])
            ids = await store.push([NewJob(kind=kind, payload="null") for _ in range(many)])
            await store.close()
            return ids

        return asyncio.run(push())

    def rows(self, statement: str) -> list[tuple[object, ...]]:
        if self._database is not None:
            return self._database.execute(statement)
        connection = sqlite3.connect(self._folder / "app.db", isolation_level=None, timeout=10)
        try:
            return connection.execute(statement).fetchall()
        finally:
            connection.close()

    def tables(self) -> int:
        """How many of the queue's tables and functions there are."""
        if self._database is not None:
            (one,) = self.rows("SELECT count(*) FROM pg_class WHERE relname LIKE 'fastjobs%'")
            (two,) = self.rows("SELECT count(*) FROM pg_proc WHERE proname LIKE 'fastjobs%'")
            return int(str(one[0])) + int(str(two[0]))
        return int(str(self.rows("SELECT count(*) FROM sqlite_master WHERE name LIKE 'fastjobs%'")[0][0]))

    def until_left(self, many: int) -> None:
        """Returns once so many jobs are left."""
        end = time.monotonic() + PATIENCE
        while self.rows("SELECT count(*) FROM fastjobs_jobs") != [(many,)]:
            logs = "\n".join(each.log for each in self._begun)
            assert time.monotonic() < end, f"{self.rows('SELECT * FROM fastjobs_jobs')}\n{logs}"
            time.sleep(0.02)

    def close(self) -> None:
        for each in self._begun:
            each.kill()


@pytest.fixture(params=["sqlite", "postgres"])
def deployed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deployed]:
    database = request.getfixturevalue("postgres_database") if request.param == "postgres" else None
    deployed = Deployed(tmp_path, database)
    yield deployed
    deployed.close()


def ran(log: str) -> list[tuple[str, ...]]:
    return re.findall(r"ran (\S+) (\d+) attempt (\d+)", log)


def test_jobs_of_a_kind_that_only_the_new_instance_has_wait_for_it_untouched(deployed: Deployed) -> None:
    old = deployed.instance("mail")
    deployed.push("thumbnail", 3)
    deployed.push("mail", 5)
    deployed.until_left(3)
    # The old one has asked for jobs ever since, and has left these as they were.
    waiting = "SELECT kind, state, attempts, claim, lost FROM fastjobs_jobs"
    assert deployed.rows(waiting) == [("thumbnail", 0, 0, 0, 0)] * 3
    new = deployed.instance("mail,thumbnail")
    deployed.push("mail", 5)
    deployed.until_left(0)
    assert sorted(attempt for kind, _, attempt in ran(new.log) if kind == "thumbnail") == ["1"] * 3
    assert {kind for kind, _, _ in ran(old.log)} == {"mail"}
    assert len(ran(old.log)) + len(ran(new.log)) == 13
    # The way back: the new instance goes, and the old one runs on with what it has.
    new.tell(signal.SIGTERM)
    assert new.ends()[0] == 0
    deployed.push("thumbnail", 1)
    deployed.push("mail", 2)
    deployed.until_left(1)
    assert "failed" not in old.log


def test_an_instance_goes_on_under_tables_that_a_newer_one_has_brought_further(deployed: Deployed) -> None:
    old = deployed.instance("mail")
    deployed.push("mail", 2)
    deployed.until_left(0)
    for statement in (
        "ALTER TABLE fastjobs_jobs ADD COLUMN newer INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE fastjobs_kinds ADD COLUMN newer TEXT",
        "CREATE TABLE fastjobs_newer (x INTEGER)",
        "UPDATE fastjobs_schema SET version = 2",
    ):
        if deployed.url().startswith("postgres") and statement.startswith("CREATE"):
            statement += "; ALTER TABLE fastjobs_newer OWNER TO app"
        deployed.rows(statement)
    deployed.push("mail", 4)
    deployed.until_left(0)
    again = deployed.instance("mail")  # the old version once more, as after a crash
    deployed.push("mail", 4)
    deployed.until_left(0)
    assert len(ran(old.log)) + len(ran(again.log)) == 10
    for each in (old, again):
        assert "ERROR" not in each.log
        assert "failed" not in each.log


def test_two_instances_with_one_host_name_and_one_pid_never_take_each_others_jobs(deployed: Deployed) -> None:
    one = deployed.instance("mail", ALIKE="yes")
    two = deployed.instance("mail", ALIKE="yes")
    ids = deployed.push("mail", 60)
    deployed.until_left(0)
    assert sorted(id for _, id, _ in [*ran(one.log), *ran(two.log)]) == sorted(str(id) for id in ids)
    one.tell(signal.SIGTERM)
    two.tell(signal.SIGTERM)
    assert (one.ends()[0], two.ends()[0]) == (0, 0)
    # One that dies with jobs, and one of its name that comes up: the jobs are its heir's once their holds are over.
    killed = deployed.instance("mail", ALIKE="yes", STUCK="yes")
    deployed.push("mail", 2)
    while len(ran(killed.log)) < 2:
        time.sleep(0.01)
    killed.kill()
    heir = deployed.instance("mail", ALIKE="yes")
    held = deployed.rows("SELECT count(*) FROM fastjobs_jobs WHERE state = 1")
    assert held == [(2,)], "it doesn't take them for its own as it starts"
    deployed.until_left(0)
    assert sorted(attempt for _, _, attempt in ran(heir.log)) == ["2", "2"]


def test_of_eight_instances_that_open_an_empty_database_at_once_one_makes_the_tables(
    deployed: Deployed, nursery: Nursery
) -> None:
    nursery.open(deployed.url(sync=True), many=8)
    assert nursery.opened(8) == 1
    assert deployed.rows("SELECT count(*) FROM fastjobs_jobs") == [(8,)]
    assert deployed.rows("SELECT version FROM fastjobs_schema") == [(1,)]
    assert len(deployed.rows("SELECT kind FROM fastjobs_kinds")) == 9


@pytest.mark.parametrize("amid", ["1", "9", "version"])
def test_one_that_is_killed_as_it_makes_the_tables_leaves_nothing_half_made(
    deployed: Deployed, nursery: Nursery, amid: str
) -> None:
    url = deployed.url(sync=True)
    nursery.open(url, amid=amid)
    pid, said = nursery.says()
    assert said == "amid"
    nursery.open(url)  # it waits for the first one
    assert deployed.tables() == 0, "what isn't committed is nobody else's to see"
    os.kill(pid, signal.SIGKILL)
    assert nursery.opened(1) == 1
    assert deployed.rows("SELECT count(*) FROM fastjobs_jobs") == [(1,)]
    made = deployed.tables()
    nursery.open(url)
    assert nursery.opened(1) == 0
    assert deployed.tables() == made
