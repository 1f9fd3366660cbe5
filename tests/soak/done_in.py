"""Kills processes around their commits: what is done in a transaction is done once, and what is pushed in one is whole.

`python -m tests.soak.done_in --jobs 10000`: each job's handler writes a row and is `done_in` the same transaction; one
in ten is killed around the commit. At the end there is one row for each job, exactly. With `--pushes 10000` each
transaction writes a row and pushes a job; half roll back, one in ten is killed. No row is without its job, nor a job
without its row. The processes are forks of one that has no threads, so a kill costs milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, NoReturn

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

import fastjobs
from tests.databases.mysql import Server
from tests.databases.mysql_binaries import ABSENT, FAMILIES, find_server

POINTS = ("before", "sent", "at the commit", "after")
"""Where a process is killed: before the end or the push is sent, before the commit, during it, and after it."""
_ROW = text("INSERT INTO soak_rows (number) VALUES (:number)")


class Killer:
    """Kills its own process in one transaction of ten, at one of the points."""

    def __init__(self, random: Random, killed: Path) -> None:
        self._random = random
        self._killed = killed
        self._point: str | None = None

    def draw(self) -> str | None:
        """The point for a new transaction; None for most."""
        return self._random.choice(POINTS) if self._random.random() < 0.1 else None

    def at(self, point: str, drawn: str | None) -> None:
        """It's there: the process ends here, or a moment later for the commit."""
        if drawn != point:
            return
        if point == "at the commit":
            wait = self._random.random() * 0.002

            def kill() -> None:
                time.sleep(wait)
                self._kill(point)

            threading.Thread(target=kill, daemon=True).start()
        else:
            self._kill(point)

    def _kill(self, point: str) -> None:
        with self._killed.open("a") as file:
            file.write(f"{point}\n")
        os.kill(os.getpid(), signal.SIGKILL)


@asynccontextmanager
async def opened(url: str) -> AsyncGenerator[tuple[AsyncEngine, fastjobs.SQLStore]]:
    """The app's engine and the queue's store."""
    engine = create_async_engine(url)
    if engine.dialect.name == "sqlite":
        fastjobs.sqlite.configure(engine)
    try:
        yield engine, fastjobs.SQLStore(engine)
    finally:
        await engine.dispose()


async def prepare(url: str, jobs: int) -> None:
    """Makes the tables, and pushes the jobs."""
    async with opened(url) as (engine, store):
        async with engine.begin() as connection:
            await connection.execute(text("DROP TABLE IF EXISTS soak_rows"))
            await connection.execute(text("CREATE TABLE soak_rows (number INTEGER NOT NULL)"))
        queue = fastjobs.Queue(store)

        @queue.kind("effect")
        async def effect(number: int) -> None: ...

        async with queue.running(run=False):
            async with engine.begin() as connection:
                await connection.execute(text("DELETE FROM fastjobs_jobs"))
            await effect.push_many(range(jobs))


async def work(url: str, killer: Killer, hold: float) -> None:
    """Runs jobs until none is left."""
    async with opened(url) as (engine, store):
        queue = fastjobs.Queue(store, workers=4, hold=hold, poll=0.1, grace=1)

        @queue.kind("effect", attempts=10_000, backoff=0.1)
        async def effect(number: int) -> None:
            drawn = killer.draw()
            async with AsyncSession(engine) as session:
                await session.execute(_ROW, {"number": number})
                killer.at("before", drawn)
                await fastjobs.current_job().done_in(session)
                killer.at("sent", drawn)
                killer.at("at the commit", drawn)
                await session.commit()
                killer.at("after", drawn)

        async with queue.running():
            while await left(engine):
                await asyncio.sleep(0.1)


async def left(engine: AsyncEngine) -> int:
    """How many jobs there are."""
    async with engine.execution_options(fastjobs_readonly=True).connect() as connection:
        return int(await connection.scalar(text("SELECT count(*) FROM fastjobs_jobs")) or 0)


def rolls_back(seed: int, number: int) -> bool:
    """Whether the transaction of this number is to be rolled back: half of them are."""
    return Random(f"{seed} {number}").random() < 0.5


async def push(url: str, killer: Killer, numbers: range, seed: int, begun: Path) -> None:
    """Has a transaction for each number that none was begun for, and writes down each before it begins."""
    last = max(map(int, begun.read_text().split()), default=-1) if begun.exists() else -1
    async with opened(url) as (engine, store):
        queue = fastjobs.Queue(store, workers=0)

        @queue.kind("effect")
        async def effect(number: int) -> None: ...

        with begun.open("a") as file:
            async with queue.running(run=False):
                for number in numbers:
                    if number <= last:
                        continue
                    print(number, file=file, flush=True)
                    drawn = killer.draw()
                    async with AsyncSession(engine) as session:
                        await session.execute(_ROW, {"number": number})
                        killer.at("before", drawn)
                        await effect.in_(session).push(number)
                        killer.at("sent", drawn)
                        killer.at("at the commit", drawn)
                        await (session.rollback() if rolls_back(seed, number) else session.commit())
                        killer.at("after", drawn)


async def found(url: str) -> tuple[list[int], list[int]]:
    """The numbers that have a row, and those that have a job."""
    async with opened(url) as (engine, _), engine.connect() as connection:
        rows = await connection.scalars(text("SELECT number FROM soak_rows"))
        numbers = list(rows)
        jobs = await connection.scalars(text("SELECT payload FROM fastjobs_jobs"))
        return numbers, [int(each) for each in jobs]


def fork(run: Callable[[], Coroutine[Any, Any, object]], told: int | None = None) -> int:
    """Runs it in a new process, and answers its number at once; what it returns is written to `told` as JSON."""
    pid = os.fork()
    if pid:
        return pid
    _be_a_child(run, told)


def _be_a_child(run: Callable[[], Coroutine[Any, Any, object]], told: int | None) -> NoReturn:
    code = 1
    try:
        answer = asyncio.run(run())
        if told is not None:
            os.write(told, json.dumps(answer).encode())
        code = 0
    except BaseException:
        traceback.print_exc()
    os._exit(code)


def once(run: Callable[[], Coroutine[Any, Any, object]]) -> Any:
    """Runs it in a process of its own and answers what it returned: this one never has a thread."""
    ours, theirs = os.pipe()
    pid = fork(run, theirs)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(pid, 0)
    if status:
        raise SystemExit(f"a process failed: {status}")
    return json.loads(answer)


def until_done(make: Callable[[int, int], Callable[[], Coroutine[Any, Any, object]]], slots: int) -> int:
    """Runs a process in each slot, another whenever one was killed, until each has ended. Answers how many died."""
    generation = 0
    running = {fork(make(slot, 0)): slot for slot in range(slots)}
    while running:
        pid, status = os.wait()
        slot = running.pop(pid)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            generation += 1
            running[fork(make(slot, generation))] = slot
        elif status:
            for other in running:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(other, signal.SIGKILL)
            raise SystemExit(f"a process failed: {status}")
    return generation


def jobs_are_done_once(url: str, jobs: int, processes: int, seed: int, folder: Path, hold: float) -> bool:
    """Has each job write its row. Answers whether there is one for each."""
    killed = folder / "killed"
    once(lambda: prepare(url, jobs))
    died = until_done(
        lambda slot, n: lambda: work(url, Killer(Random(f"{seed} {slot} {n}"), killed), hold),
        processes,
    )
    rows: list[int]
    left_over: list[int]
    rows, left_over = once(lambda: found(url))
    counts = Counter(rows)
    doubled = sum(count - 1 for count in counts.values())
    missing = jobs - len(counts)
    _say(jobs=jobs, rows=len(rows), kills=died, **_points(killed))
    _say(doubled=doubled, missing=missing, left=len(left_over))
    return not doubled and not missing and not left_over


def pushes_are_whole(url: str, pushes: int, processes: int, seed: int, folder: Path) -> bool:
    """Has each transaction write a row and push a job. Answers whether each row has its job, and none has two."""
    killed = folder / "killed in pushes"
    once(lambda: prepare(url, 0))
    died = until_done(
        lambda slot, n: (
            lambda: push(
                url,
                Killer(Random(f"{seed} pushes {slot} {n}"), killed),
                range(slot, pushes, processes),
                seed,
                folder / f"begun {slot}",
            )
        ),
        processes,
    )
    rows, jobs = once(lambda: found(url))
    torn = len(set(rows) ^ set(jobs)) + len(rows) - len(set(rows)) + len(jobs) - len(set(jobs))
    back = sum(rolls_back(seed, number) for number in rows)
    lost = pushes - sum(rolls_back(seed, n) for n in range(pushes)) - len(set(rows))
    _say(pushes=pushes, kept=len(rows), kills=died, **_points(killed))
    _say(torn=torn, rolled_back_and_kept=back, lost_to_kills=lost)
    return not torn and not back and 0 <= lost <= died


def _points(killed: Path) -> dict[str, int]:
    return dict(Counter(killed.read_text().splitlines())) if killed.exists() else {}


def _say(**numbers: int) -> None:
    print("  ".join(f"{name.replace('_', ' ')}={number}" for name, number in numbers.items()), flush=True)


def main() -> int:
    """Runs what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.done_in", description=__doc__)
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--pushes", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--database", choices=FAMILIES, help="a private server of it")
    parser.add_argument("--url", help="an async URL of SQLAlchemy's; a new SQLite file where it's left out")
    parser.add_argument("--hold", type=float, default=2.0, help="seconds after which a killed job runs again")
    asked = parser.parse_args()
    logging.getLogger("fastjobs").setLevel(logging.ERROR)
    began = time.monotonic()
    _say(seed=asked.seed)
    with contextlib.ExitStack() as ending:
        folder = ending.enter_context(tempfile.TemporaryDirectory())
        url = asked.url or f"sqlite+aiosqlite:///{folder}/soak.db"
        if asked.database:
            binaries = find_server(asked.database)
            if binaries is None:
                parser.error(ABSENT[asked.database])
            server = ending.enter_context(Server(binaries))
            url = server.create_database().url("asyncmy")
        sound = True
        if asked.jobs:
            sound &= jobs_are_done_once(
                url, asked.jobs, asked.processes, asked.seed, Path(folder), asked.hold
            )
        if asked.pushes:
            sound &= pushes_are_whole(url, asked.pushes, asked.processes, asked.seed, Path(folder))
    _say(seconds=round(time.monotonic() - began))
    print("sound" if sound else "BROKEN")
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
