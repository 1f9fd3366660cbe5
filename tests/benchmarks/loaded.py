"""A queue on a SQLite file with jobs waiting."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy.ext.asyncio import create_async_engine

import fastjobs
from tests.benchmarks.work import Value, value


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
