"""A schedule of each second while processes that push its runs are killed: no second twice, and none forgotten.

`python -m tests.soak.schedules --seconds 120`: eight processes on one database, any of them killed at any time and
started again. A trigger writes down each job that is inserted, in the transaction that does, so that what is counted is
what was kept. It exits 1 where a second was pushed twice, more than two in 120 were missed, or a job never ran.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from random import Random
from typing import Any

import psycopg
from sqlalchemy.ext.asyncio import create_async_engine

from fastjobs import Every, Queue, SQLStore, current_job
from tests.databases.binaries import ABSENT, find_postgres
from tests.databases.postgres import Server

_ROOT = Path(__file__).parent.parent.parent
MAY_MISS = 2 / 120
_MADE = {
    "sqlite": (
        "CREATE TABLE pushed (id INTEGER, run_at INTEGER)",
        "CREATE TRIGGER note AFTER INSERT ON fastjobs_jobs BEGIN"
        " INSERT INTO pushed VALUES (NEW.id, NEW.run_at); END",
    ),
    "postgres": (
        "CREATE TABLE pushed (id bigint, run_at bigint)",
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN INSERT INTO pushed VALUES (NEW.id, NEW.run_at); RETURN NEW; END $$",
        "CREATE TRIGGER note AFTER INSERT ON fastjobs_jobs FOR EACH ROW EXECUTE FUNCTION note()",
    ),
}


async def instance(url: str, folder: Path) -> None:
    """One process of the app: it pushes runs, runs them, and writes down which it ran."""
    queue = Queue(SQLStore(create_async_engine(url)), workers=2, poll=0.25, hold=1, grace=1)
    with (folder / f"ran-{os.getpid()}").open("a", buffering=1) as ran:

        @queue.kind("tick")
        async def tick() -> None:
            ran.write(f"{current_job().id}\n")

        tick.schedule(Every(seconds=1))
        await queue.run()


class Place:
    """The database, asked from outside of the app."""

    def __init__(self, which: str, folder: Path, at_exit: ExitStack) -> None:
        self._which = which
        if which == "sqlite":
            self._where = str(folder / "app.db")
            self.url = f"sqlite+aiosqlite:///{self._where}"
        else:
            found = find_postgres()
            if not found:
                raise SystemExit(ABSENT)
            server = at_exit.enter_context(Server(found[0]))
            self._where = server.create_database("schedules").url()
            self.url = self._where.replace("postgresql://", "postgresql+asyncpg://", 1)
        store = SQLStore(create_async_engine(self.url))

        async def make() -> None:
            await store.open(["tick"])
            await store.close()

        asyncio.run(make())
        for text in _MADE[which]:
            self.ask(text)

    def ask(self, text: str) -> list[Any]:
        """What one statement answers."""
        connection: Any = (
            sqlite3.connect(self._where, timeout=10, isolation_level=None)
            if self._which == "sqlite"
            else psycopg.connect(self._where, autocommit=True)
        )
        with closing(connection):
            found = connection.execute(text)
            return [] if found.description is None else list(found.fetchall())


def soak(place: Place, folder: Path, asked: argparse.Namespace) -> tuple[int, float, float]:
    """Kills and starts again for so long; answers how often, and from when to when."""
    random, processes = Random(asked.seed), int(asked.processes)
    command = [sys.executable, "-m", "tests.soak.schedules", "--instance", place.url, "--folder", str(folder)]

    def start() -> subprocess.Popen[bytes]:
        with (folder / "log").open("ab") as log:
            return subprocess.Popen(command, cwd=_ROOT, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    running = [start() for _ in range(processes)]
    kills = 0
    try:
        while not place.ask("SELECT 1 FROM pushed LIMIT 1"):
            time.sleep(0.1)
        began = time.time()
        while time.time() - began < asked.seconds:
            time.sleep(random.uniform(0.3, 1.7))
            victim = random.randrange(processes)
            running[victim].kill()
            running[victim].wait()
            kills += 1
            running[victim] = start()
        ended = time.time()
        # What a killed process held runs again after its hold.
        time.sleep(asked.settle)
    finally:
        for each in running:
            each.terminate()
        for each in running:
            with suppress(subprocess.TimeoutExpired):
                each.wait(10)
            each.kill()
    return kills, began, ended


def main(given: list[str] | None = None) -> int:
    """Soaks, tells, and answers the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.schedules", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--settle", type=float, default=4, help="seconds for what was held by the killed (4)")
    parser.add_argument("--instance", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args(given)
    if asked.instance:
        asyncio.run(instance(asked.instance, asked.folder))
        return 0
    with ExitStack() as at_exit:
        folder = Path(at_exit.enter_context(tempfile.TemporaryDirectory()))
        place = Place(asked.database, folder, at_exit)
        kills, began, ended = soak(place, folder, asked)
        pushed = place.ask("SELECT id, run_at FROM pushed")
        left = place.ask("SELECT id FROM fastjobs_jobs WHERE run_at <= %d" % ((ended + 1) * 1_000_000))  # noqa: UP031
        ran = {int(line) for file in folder.glob("ran-*") for line in file.read_text().split()}
        log = (folder / "log").read_text(errors="replace")
    seconds = Counter(run_at for _, run_at in pushed)
    twice = [run_at for run_at, count in seconds.items() if count > 1]
    wanted = range(int(began) + 1, int(ended))
    missed = [second for second in wanted if second * 1_000_000 not in seconds]
    never = [id for id, run_at in pushed if run_at <= ended * 1_000_000 and id not in ran]
    print(
        f"{asked.database}: {kills} kills of {asked.processes} processes, {len(wanted)} seconds,"
        f" {len(wanted) - len(missed)} pushed, {len(twice)} twice, {len(never)} never run, {len(left)} left"
    )
    broken = bool(twice or never) or len(missed) > max(1, round(len(wanted) * MAY_MISS))
    if broken or "Traceback" in log or "a bug in fastjobs" in log:
        print(f"missed: {missed}\ntwice: {twice}\nnever: {never}\n{log[-4000:]}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
