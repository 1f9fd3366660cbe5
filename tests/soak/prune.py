"""A million failed jobs that are kept no longer: pruned in steps beside claims, which are timed before and meanwhile.

`python -m tests.soak.prune`, or with `--database postgres`: it fills a database of its own by SQL, lists what has
failed, first one page and then all of them, prunes as a queue that runs does, and prints what each took. A thousand
rows cost it about 5 MB of disk. It exits 1 where a step removed more than it may, a job was left or one too many gone,
or the list left one out; how long anything takes is for the reader to judge.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import sqlite3
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

import psycopg
from sqlalchemy.ext.asyncio import create_async_engine

from fastjobs import SQLStore
from fastjobs.runtime.pruning import BREATH, STEP
from fastjobs.store import Claimable, Done, Kept, NewJob
from tests.databases.binaries import ABSENT, find_postgres
from tests.databases.postgres import Server

MAIL = Claimable(kind="mail", hold=60_000_000, attempts=5)
_SAFE = {"fsync": "on", "full_page_writes": "on"}
_DAY = 86_400_000_000
_PAGE = 500
_KEPT = 100
"""Failed jobs that are to stay, as they failed just now."""
_AT_A_TIME = 20_000
_BATCH = 10
_CLAIMS_EVERY = 0.01
_FILL = {
    "sqlite": "WITH RECURSIVE n(n) AS (VALUES ({first}) UNION ALL SELECT n + 1 FROM n WHERE n < {last})"
    " INSERT INTO fastjobs_jobs (kind, state, attempts, run_at, created_at, failed_at, payload, error)"
    " SELECT 'photo', 3, 10, {at} + n, {at} + n, {at} + n,"
    " '\"' || n || substr('{text}', n % 1000 + 1, {size}) || '\"', substr('{text}', n % 1000 + 1, 200) FROM n",
    "postgres": "INSERT INTO fastjobs_jobs (kind, state, attempts, run_at, created_at, failed_at, payload, error)"
    " SELECT 'photo', 3, 10, {at} + n, {at} + n, {at} + n,"
    " '\"' || n || substr('{text}', n % 1000 + 1, {size}) || '\"', substr('{text}', n % 1000 + 1, 200)"
    " FROM generate_series({first}, {last}) n",
}


class Times(NamedTuple):
    """How long some calls took, in milliseconds."""

    calls: int
    half: float
    most: float
    """95 of 100 took no longer."""
    longest: float

    def __str__(self) -> str:
        return (
            f"p50 {self.half:.2f} ms, p95 {self.most:.2f} ms, longest {self.longest:.1f} ms, of {self.calls}"
        )


def times(seconds: Sequence[float]) -> Times:
    """The calls' times."""
    ordered = sorted(seconds) or [0.0]
    half, most = ordered[len(ordered) // 2], ordered[len(ordered) * 95 // 100]
    return Times(len(seconds), half * 1000, most * 1000, ordered[-1] * 1000)


class Claims:
    """Ten jobs are pushed, claimed and done, again and again, about a hundred times a second at most."""

    def __init__(self, store: SQLStore) -> None:
        self._store = store
        self.took: list[float] = []

    async def run(self) -> None:
        """Goes on until it's cancelled."""
        loop = asyncio.get_running_loop()
        next_at = loop.time()
        while True:
            await self._store.push([NewJob("mail", "1")] * _BATCH)
            began = time.perf_counter()
            found = await self._store.claim([MAIL], _BATCH)
            self.took.append(time.perf_counter() - began)
            assert len(found.jobs) == _BATCH
            kept = await self._store.mark([Done(job.id, job.claim) for job in found.jobs])
            assert kept == [Kept.YES] * _BATCH
            next_at = max(next_at + _CLAIMS_EVERY, loop.time())
            await asyncio.sleep(next_at - loop.time())

    @asynccontextmanager
    async def timed(self) -> AsyncGenerator[list[float]]:
        """The times of the claims that are made inside."""
        took: list[float] = []
        self.took = took
        task = asyncio.create_task(self.run())
        try:
            yield took
        finally:
            await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


class Place:
    """The database: a file, or one on a server of its own."""

    def __init__(self, database: str, folder: Path, cleaning: ExitStack) -> None:
        self.database = database
        if database == "sqlite":
            self._at = folder / "app.db"
            self.url = f"sqlite+aiosqlite:///{self._at}"
            return
        found = find_postgres()
        if not found:
            raise SystemExit(ABSENT)
        made = cleaning.enter_context(Server(found[0], _SAFE)).create_database("soak")
        self._direct, self.url = made.url(None), made.url("asyncpg")

    def execute(self, statement: str) -> int:
        """Runs a statement, and answers the number that it answers; 0 for one that answers none."""
        if self.database == "sqlite":
            with closing(sqlite3.connect(self._at, timeout=60, isolation_level=None)) as file:
                found = file.execute(statement).fetchone()
        else:
            with psycopg.connect(self._direct, autocommit=True) as connection:
                cursor = connection.execute(statement.encode())
                found = cursor.fetchone() if cursor.description else None
        return int(found[0]) if found else 0

    def fill(self, jobs: int, size: int, at: int) -> None:
        """Inserts so many failed jobs, a microsecond after each other from `at` on."""
        text = Random(1).randbytes((size + 1000) // 2 + 1).hex()
        # Of the size are two quotes, and a number.
        numbers = {"at": at, "text": text, "size": max(size - 8, 1)}
        for first in range(1, jobs + 1, _AT_A_TIME):
            last = min(first + _AT_A_TIME - 1, jobs)
            self.execute(_FILL[self.database].format(**numbers, first=first, last=last))


async def listed(store: SQLStore) -> tuple[float, float, int]:
    """Seconds of the first page and of all pages of the failed, and how many there were."""
    began = time.perf_counter()
    page = await store.failed(limit=_PAGE, cut=4096)
    first, count = time.perf_counter() - began, len(page)
    while page:
        page = await store.failed(limit=_PAGE, cut=4096, after=(page[-1].failed_at, page[-1].id))
        count += len(page)
    return first, time.perf_counter() - began, count


async def pruned(store: SQLStore) -> tuple[list[int], list[float]]:
    """Prunes as `fastjobs.runtime.pruning` does, and answers how many rows each step removed, and its seconds."""
    random = Random(1)
    removed: list[int] = []
    took: list[float] = []
    while True:
        began = time.perf_counter()
        removed.append(await store.prune(_DAY, STEP))
        took.append(time.perf_counter() - began)
        if removed[-1] < STEP:
            return removed, took
        await asyncio.sleep(BREATH * (1 + random.random()))


def say(what: str, of: object) -> None:
    """A line of the table."""
    print(f"{what:<28}{of}", flush=True)


async def soak(place: Place, asked: argparse.Namespace) -> bool:
    """Does it all, and answers whether what was kept and removed is right."""
    engine = create_async_engine(place.url)
    store = SQLStore(engine)
    await store.open(["mail", "photo"])
    claims = Claims(store)
    try:
        now = await store.now()
        began = time.perf_counter()
        for jobs, at in ((asked.jobs, now - 40 * _DAY), (_KEPT, now)):
            await asyncio.to_thread(place.fill, jobs, asked.size, at)
        say(
            "filled",
            f"{asked.jobs:,} failed jobs of {asked.size} bytes in {time.perf_counter() - began:.0f} s",
        )
        async with claims.timed() as took:
            await asyncio.sleep(asked.seconds)
        before = times(took)
        say("claims before", before)
        first, whole, count = await listed(store)
        say("first page of the failed", f"{first * 1000:.1f} ms, of {_PAGE}")
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        say("all pages", f"{whole:.1f} s for {count:,} jobs; this process had {memory} MB at most")
        began = time.perf_counter()
        counts = await store.counts()
        say("counts", f"{(time.perf_counter() - began) * 1000:.1f} ms; failed {counts[-1].failed:,}")
        async with claims.timed() as took:
            began = time.perf_counter()
            removed, each = await pruned(store)
            lasted = time.perf_counter() - began
        meanwhile = times(took)
        say("claims beside the prune", f"{meanwhile}; p95 {meanwhile.most / (before.most or 1):.2f} times")
        say(
            "prune",
            f"{sum(removed):,} rows in {lasted:.1f} s, {len(removed)} steps of {max(removed)} at most",
        )
        say("its steps", times(each))
        left = place.execute("SELECT count(*) FROM fastjobs_jobs WHERE state = 3")
        say("failed jobs left", left)
    finally:
        await store.close()
        await engine.dispose()
    whole_list = count == asked.jobs + _KEPT
    return whole_list and (sum(removed), left) == (asked.jobs, _KEPT) and max(removed) <= STEP


def main(given: Sequence[str] | None = None) -> int:
    """Soaks, and answers the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.prune", description=__doc__)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite", help="(sqlite)")
    parser.add_argument("--jobs", type=int, default=1_000_000, help="how many have failed (1,000,000)")
    parser.add_argument("--size", type=int, default=2000, help="bytes of each one's value (2000)")
    parser.add_argument("--seconds", type=float, default=20, help="how long claims are timed before (20)")
    asked = parser.parse_args(given)
    with ExitStack() as cleaning:
        folder = cleaning.enter_context(tempfile.TemporaryDirectory(prefix="fastjobs-prune-"))
        good = asyncio.run(soak(Place(asked.database, Path(folder), cleaning), asked))
    if not good:
        print("! what was listed, removed and left isn't what it was to be")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
