"""A queue on a Postgres database with jobs waiting, and the bare driver beside it on the same tables."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy.ext.asyncio import create_async_engine

import fastjobs
from tests.benchmarks.postgres.metered import Metered, connect, metered
from tests.benchmarks.work import Value, value

KIND = "newsletter"
# As pushes would have kept them, made by the server: a million take seconds so.
_FILL = (
    "INSERT INTO fastjobs_jobs (kind, payload, run_at, created_at)"
    f" SELECT '{KIND}', replace($2, '\"n\":0', '\"n\":' || n), $3::bigint + n, $3"
    " FROM generate_series(0, $1::int - 1) n"
)


def new_queue(url: str, **settings: Any) -> tuple[fastjobs.Queue, Any]:
    """A queue on the database, and its engine."""
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://", 1))
    return fastjobs.Queue(fastjobs.SQLStore(engine), **settings), engine


@dataclass
class Loaded:
    """A queue whose one kind counts the runs of each job, and a connection beside it."""

    url: str
    queue: fastjobs.Queue
    kind: fastjobs.Kind[Value]
    runs: bytearray
    first: asyncio.Event
    """Set after the first run."""
    last: asyncio.Event
    """Set after so many runs as were asked for."""
    look: Any

    async def meter(self) -> Metered:
        """Times what is done inside it, on the server too."""
        return await metered(self.look)

    async def emptied(self) -> None:
        """Waits until there is no job any more."""
        while await self.look.fetchval("SELECT EXISTS (SELECT FROM fastjobs_jobs)"):
            await asyncio.sleep(0.002)

    @property
    def once(self) -> bool:
        """Whether each job ran exactly once."""
        return self.runs == bytearray([1]) * len(self.runs)


@asynccontextmanager
async def loaded(
    url: str, waiting: int = 0, *, runs: int | None = None, **settings: Any
) -> AsyncGenerator[Loaded]:
    """A queue on a new database with so many jobs waiting, vacuumed and with all that was written on the disk.

    `last` is set after `runs` of them, or all.
    """
    queue, engine = new_queue(url, **settings)
    counts, first, last = bytearray(waiting), asyncio.Event(), asyncio.Event()
    left = whole = waiting if runs is None else runs

    @queue.kind(KIND)
    async def newsletter(value: Value) -> None:
        nonlocal left
        counts[value.n] += 1
        if left == whole:
            first.set()
        left -= 1
        if not left:
            last.set()

    async with queue.running(run=False):
        pass  # it makes its tables, and notes its kinds
    look = await connect(url)
    if waiting:
        due = time.time_ns() // 1000 - 3_600_000_000
        await look.execute(_FILL, waiting, value(0).model_dump_json(), due)
    await look.execute("VACUUM ANALYZE")
    await look.execute("CHECKPOINT")
    try:
        yield Loaded(url, queue, newsletter, counts, first, last, look)
    finally:
        await look.close()
        await engine.dispose()
