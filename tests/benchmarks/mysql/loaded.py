"""A queue on a MariaDB or MySQL database with jobs waiting, and the bare driver beside it on the same tables."""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import create_async_engine

import fastjobs
from tests.benchmarks.metered import Metered
from tests.benchmarks.work import Value, value

KIND = "newsletter"
# As pushes would have kept them, made by the server: a hundred thousand take seconds so.
FILL = (
    "INSERT INTO fastjobs_jobs (kind, payload, run_at, created_at) WITH RECURSIVE n (i) AS"
    " (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < %s - 1)"
    f" SELECT '{KIND}', REPLACE(%s, '\"n\":0', CONCAT('\"n\":', i)), %s + i, %s FROM n"
)
_asyncmy: Any = importlib.import_module("asyncmy")
_Found = list[tuple[Any, ...]]


class Bare:
    """A connection of asyncmy's, as a queue by hand would have it: at READ COMMITTED, each statement by itself."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._cursor = connection.cursor()

    async def execute(self, statement: str, *values: object) -> _Found:
        """Runs a statement, and gives its rows."""
        cursor = self._cursor
        await cursor.execute(statement, values or None)
        return [*await cursor.fetchall()] if cursor.description else []

    async def close(self) -> None:
        """Closes it."""
        await self._connection.ensure_closed()


async def connect(url: str) -> Bare:
    """A connection of its own to the database."""
    at = make_url(url)
    its = await _asyncmy.connect(
        host=at.host, port=at.port, user=at.username, db=at.database, autocommit=True
    )
    connection = Bare(its)
    await connection.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    return connection


def new_queue(url: str, **settings: Any) -> tuple[fastjobs.Queue, Any]:
    """A queue on the database, and its engine."""
    engine = create_async_engine(url)
    return fastjobs.Queue(fastjobs.SQLStore(engine), **settings), engine


@dataclass
class Loaded:
    """A queue whose one kind counts the runs of each job, and a connection beside it."""

    queue: fastjobs.Queue
    kind: fastjobs.Kind[Value]
    runs: bytearray
    last: asyncio.Event
    """Set after the last job's first run."""
    look: Bare

    async def meter(self) -> Metered:
        """Times what is done inside it, on the server too where that's a process of this machine."""
        file = Path((await self.look.execute("SELECT @@pid_file"))[0][0])
        try:
            return Metered(int(file.read_text()))
        except (OSError, ValueError):
            return Metered(None)

    async def emptied(self) -> None:
        """Waits until there is no job any more."""
        while await self.look.execute("SELECT 1 FROM fastjobs_jobs LIMIT 1"):
            await asyncio.sleep(0.002)

    @property
    def once(self) -> bool:
        """Whether each job ran exactly once."""
        return self.runs == bytearray([1]) * len(self.runs)


@asynccontextmanager
async def loaded(url: str, waiting: int = 0, **settings: Any) -> AsyncGenerator[Loaded]:
    """A queue on a new database with so many jobs waiting."""
    queue, engine = new_queue(url, **settings)
    counts, last, left = bytearray(waiting), asyncio.Event(), waiting

    @queue.kind(KIND)
    async def newsletter(value: Value) -> None:
        nonlocal left
        counts[value.n] += 1
        left -= 1
        if not left:
            last.set()

    async with queue.running(run=False):
        pass  # it makes its tables, and notes its kinds
    look = await connect(url)
    if waiting:
        due = time.time_ns() // 1000 - 3_600_000_000
        # MariaDB's own name for it is another one than MySQL's.
        is_mariadb = "MariaDB" in (await look.execute("SELECT VERSION()"))[0][0]
        depth = "max_recursive_iterations" if is_mariadb else "cte_max_recursion_depth"
        await look.execute(f"SET SESSION {depth} = 10000000")
        await look.execute(FILL, waiting, value(0).model_dump_json(), due, due)
    await look.execute("ANALYZE TABLE fastjobs_jobs")
    try:
        yield Loaded(queue, newsletter, counts, last, look)
    finally:
        await look.close()
        await engine.dispose()
