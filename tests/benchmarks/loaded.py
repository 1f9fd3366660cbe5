"""What the benchmarks share: a queue on a SQLite file with jobs waiting, and a timer of wall and processor."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from sqlalchemy.ext.asyncio import create_async_engine

import fastjobs


class Value(BaseModel):
    user: int
    list: str
    n: int


def value(n: int) -> Value:
    """About 50 bytes of JSON."""
    return Value(user=123_456, list="newsletter", n=n)


class Timed:
    """Times a block, and what the process took of the processor."""

    def __enter__(self) -> Timed:
        self.began, self.cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self.began
        self.cpu = time.process_time() - self.cpu


@dataclass
class Loaded:
    """A queue whose one kind counts the runs of each job."""

    queue: fastjobs.Queue
    kind: fastjobs.Kind[Value]
    path: Path
    runs: bytearray
    last: asyncio.Event
    """Set after the last job's first run."""

    @property
    def once(self) -> bool:
        """Whether each job ran exactly once."""
        return self.runs == bytearray([1]) * len(self.runs)


@asynccontextmanager
async def loaded(folder: Path, jobs: int, *, ahead: int = 0, **settings: Any) -> AsyncGenerator[Loaded]:
    """A queue on a new file with so many jobs waiting, the file's log checkpointed; `ahead` says how many more are
    due in an hour."""
    path = folder / "jobs.db"
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
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
        for after, many in ((0, jobs), (3600, ahead)):
            for start in range(0, many, 1000):
                await newsletter.push_many(
                    [value(n) for n in range(start, min(start + 1000, many))], after=after
                )
    checkpoint = sqlite3.connect(path)
    checkpoint.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    checkpoint.close()
    try:
        yield Loaded(queue, newsletter, path, runs, last)
    finally:
        await engine.dispose()
