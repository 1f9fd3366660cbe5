"""The bare driver: what asyncmy and the database do of it, on fastjobs' own table and indexes.

python -m tests.benchmarks.mysql.raw NAME COUNT URL
"""

from __future__ import annotations

import asyncio
import time

from tests.benchmarks.contestant import main
from tests.benchmarks.metered import Found
from tests.benchmarks.mysql.loaded import KIND, Bare, connect, loaded
from tests.benchmarks.work import growth, percentiles, value

BATCH = 100
HOLD = 60_000_000
# By the name of the index, as fastjobs': with the statistics of an empty table the server would take another.
DUE = (
    "SELECT id, payload, attempts, claim FROM fastjobs_jobs FORCE INDEX (fastjobs_jobs_due)"
    f" WHERE kind = '{KIND}' AND state = 0 AND due <= %s ORDER BY due, id LIMIT %s FOR UPDATE SKIP LOCKED"
)
TAKE = (
    "UPDATE fastjobs_jobs SET state = 1, held_until = %s, attempts = attempts + 1, claim = claim + 1"
    " WHERE id IN ({})"
)
DELETE = "DELETE FROM fastjobs_jobs WHERE id IN ({})"
INSERT = "INSERT INTO fastjobs_jobs (kind, payload, run_at, created_at) VALUES "
ROW = f"('{KIND}', %s, %s, %s)"


def now() -> int:
    return time.time_ns() // 1000


async def claim(connection: Bare, most: int) -> list[tuple[int, str]]:
    """Takes the first jobs in a transaction."""
    await connection.execute("START TRANSACTION")
    rows = await connection.execute(DUE, now(), most)
    if rows:
        await connection.execute(TAKE.format(",".join(str(row[0]) for row in rows)), now() + HOLD)
    await connection.execute("COMMIT")
    return [(row[0], row[1]) for row in rows]


async def delete(connection: Bare, jobs: list[tuple[int, str]]) -> None:
    """Deletes them."""
    await connection.execute(DELETE.format(",".join(str(id) for id, _ in jobs)))


async def insert(connection: Bare, *numbers: int) -> None:
    """Inserts jobs in one statement."""
    values = [each for n in numbers for each in (value(n).model_dump_json(), now(), now())]
    await connection.execute(INSERT + ", ".join([ROW] * len(numbers)), *values)


async def drain(url: str, jobs: int) -> Found:
    """Claim 100, delete 100, on one connection, until there are none."""
    async with loaded(url, jobs) as it:
        connection = await connect(url)
        seen: set[int] = set()
        taken = 0
        with await it.meter() as timed:
            while some := await claim(connection, BATCH):
                await delete(connection, some)
                taken += len(some)
                seen.update(id for id, _ in some)
        await connection.close()
        return timed.found(jobs, once=len(seen) == taken == jobs)


async def push(url: str, jobs: int) -> Found:
    """One connection that inserts one after another, each a transaction."""
    async with loaded(url) as it:
        connection = await connect(url)
        with await it.meter() as timed:
            for n in range(jobs):
                await insert(connection, n)
        await connection.close()
        return timed.found(jobs)


async def push_sixteen(url: str, jobs: int) -> Found:
    """Sixteen tasks with a connection each, that insert one after another."""
    async with loaded(url) as it:
        connections = [await connect(url) for _ in range(16)]

        async def pusher(number: int) -> None:
            for n in range(number, jobs, 16):
                await insert(connections[number], n)

        with await it.meter() as timed:
            await asyncio.gather(*(pusher(number) for number in range(16)))
        for each in connections:
            await each.close()
        return timed.found(jobs)


async def push_many(url: str, jobs: int) -> Found:
    """A thousand in each statement."""
    async with loaded(url) as it:
        connection = await connect(url)
        with await it.meter() as timed:
            for start in range(0, jobs, 1000):
                await insert(connection, *range(start, min(start + 1000, jobs)))
        await connection.close()
        return timed.found(jobs)


async def start(url: str, jobs: int) -> Found:
    """An insert, then the claim of it on another connection."""
    took: list[float] = []
    async with loaded(url):
        pushes, claims = await connect(url), await connect(url)
        for n in range(jobs):
            await asyncio.sleep(0.005)
            began = time.perf_counter()
            await insert(pushes, n)
            some = await claim(claims, BATCH)
            took.append(time.perf_counter() - began)
            await delete(claims, some)
        await pushes.close()
        await claims.close()
    return percentiles(took)


async def horizon(url: str, jobs: int) -> Found:
    """Claims of 10 before and after so many were done, beside a transaction that stays open."""
    async with loaded(url, jobs + 4_000) as it:
        connection = await connect(url)
        await it.look.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await it.look.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")

        async def claims(times: int, of: int) -> list[float]:
            took: list[float] = []
            for _ in range(times):
                began = time.perf_counter()
                some = await claim(connection, of)
                took.append(time.perf_counter() - began)
                await delete(connection, some)
            return took

        before = await claims(200, 10)
        await claims(jobs // BATCH, BATCH)
        after = await claims(200, 10)
        await it.look.execute("ROLLBACK")
        await connection.close()
    return growth(before, after)


if __name__ == "__main__":
    main(drain, push, push_sixteen, push_many, start, horizon)
