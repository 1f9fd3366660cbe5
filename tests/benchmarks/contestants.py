"""What is measured: each contestant empties a loaded queue of its own, in a process of its own.

    python -m tests.benchmarks.contestants NAME JOBS FOLDER

prints one line of JSON: how long it took from its start until the last job's end was kept, what it took of the
processor, and whether each job ran exactly once. The handler does nothing but count; the value has 50 bytes and is
validated. All are at SQLite's synchronous=FULL.
"""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from sqlalchemy.ext.asyncio import create_async_engine

import fastjobs

BATCH = 100


class Value(BaseModel):
    user: int
    list: str
    n: int


def value(n: int) -> Value:
    return Value(user=123_456, list="newsletter", n=n)


class Timed:
    """Times a block, and what the process took of the processor."""

    def __enter__(self) -> Timed:
        self.began, self.cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self.began
        self.cpu = time.process_time() - self.cpu


async def _load(folder: Path, jobs: int, **settings: Any) -> tuple[fastjobs.Queue, bytearray, asyncio.Event]:
    """A queue on a file with so many jobs waiting; the counts of each job's runs, and what is set after the last."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{folder / 'jobs.db'}")
    fastjobs.sqlite.configure(engine)
    queue = fastjobs.Queue(fastjobs.SQLStore(engine), **settings)
    runs, last, left = bytearray(jobs), asyncio.Event(), jobs

    @queue.kind("newsletter")
    async def newsletter(value: Value) -> None:
        nonlocal left
        runs[value.n] += 1
        left -= 1
        if not left:
            last.set()

    async with queue.running(run=False):
        for start in range(0, jobs, 1000):
            await newsletter.push_many([value(n) for n in range(start, min(start + 1000, jobs))])
    await engine.dispose()
    checkpoint = sqlite3.connect(folder / "jobs.db")
    checkpoint.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    checkpoint.close()
    return queue, runs, last


async def _fastjobs(folder: Path, jobs: int) -> dict[str, Any]:
    queue, runs, last = await _load(folder, jobs, workers=8)
    look = sqlite3.connect(folder / "jobs.db")
    with Timed() as timed:
        running = asyncio.create_task(queue.run())
        await last.wait()
        while look.execute("SELECT count(*) FROM fastjobs_jobs").fetchone() != (0,):
            await asyncio.sleep(0.001)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    look.close()
    return {"seconds": timed.seconds, "cpu": timed.cpu, "once": runs == bytearray([1]) * jobs}


async def _raw(folder: Path, jobs: int) -> dict[str, Any]:
    """What the database itself does of it: claim 100, delete 100, in one thread, on fastjobs' own table and indexes."""
    await _load(folder, jobs)
    connection = sqlite3.connect(folder / "jobs.db", isolation_level=None)
    connection.execute("PRAGMA synchronous=FULL")
    claim = (
        "UPDATE fastjobs_jobs SET state = 1, held_until = ?, attempts = attempts + 1, claim = claim + 1 WHERE id IN"
        " (SELECT id FROM fastjobs_jobs WHERE kind = 'newsletter' AND state = 0 AND run_at <= ?"
        " ORDER BY run_at, id LIMIT ?) RETURNING id, payload, attempts, claim"
    )
    now, seen = time.time_ns() // 1000, 0
    with Timed() as timed:
        while rows := connection.execute(claim, (now + 60_000_000, now, BATCH)).fetchall():
            ids = ",".join(str(row[0]) for row in rows)
            connection.execute(f"DELETE FROM fastjobs_jobs WHERE id IN ({ids})")
            seen += len(rows)
    connection.close()
    return {"seconds": timed.seconds, "cpu": timed.cpu, "once": seen == jobs}


async def _huey(folder: Path, jobs: int) -> dict[str, Any]:
    import threading

    from huey import SqliteHuey  # type: ignore[import-untyped, unused-ignore]

    logging.disable(logging.WARNING)
    huey: Any = SqliteHuey(filename=str(folder / "huey.db"), fsync=True)
    runs, last, left = bytearray(jobs), threading.Event(), jobs

    def newsletter(payload: str) -> None:
        nonlocal left
        runs[Value.model_validate_json(payload).n] += 1
        left -= 1
        if not left:
            last.set()

    task = huey.task()(newsletter)
    quick: Any = SqliteHuey(filename=str(folder / "huey.db"), fsync=False)
    pushed: Any = quick.task(name="newsletter")(newsletter)
    for n in range(jobs):
        quick.enqueue(pushed.s(value(n).model_dump_json()))
    del task
    consumer: Any = huey.create_consumer(
        workers=1, worker_type="thread", periodic=False, check_worker_health=False, initial_delay=0.001
    )
    consumer._set_signal_handlers = lambda: None
    with Timed() as timed:
        consumer.start()
        await asyncio.to_thread(last.wait)
    consumer.stop()
    return {"seconds": timed.seconds, "cpu": timed.cpu, "once": runs == bytearray([1]) * jobs}


CONTESTANTS: dict[str, Callable[[Path, int], Any]] = {"fastjobs": _fastjobs, "raw": _raw, "huey": _huey}


def main() -> None:
    name, jobs, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    found = asyncio.run(CONTESTANTS[name](folder, jobs))
    found["rss"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
