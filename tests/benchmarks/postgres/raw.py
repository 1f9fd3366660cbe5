"""The bare driver: what asyncpg and the database do of it, on fastjobs' own table and indexes.

python -m tests.benchmarks.postgres.raw NAME COUNT URL
"""

from __future__ import annotations

import asyncio
import time

from tests.benchmarks.contestant import main
from tests.benchmarks.postgres.loaded import KIND, Loaded, loaded
from tests.benchmarks.postgres.metered import Found, connect
from tests.benchmarks.work import growth, percentiles, value

BATCH = 100
HOLD = 60_000_000
_DUE = (
    f"WITH due AS MATERIALIZED (SELECT id FROM fastjobs_jobs WHERE kind = '{KIND}' AND state = 0 AND run_at <= $1"
    " ORDER BY run_at, id LIMIT $2 FOR UPDATE SKIP LOCKED)"
)
CLAIM = (
    f"{_DUE} UPDATE fastjobs_jobs AS job SET state = 1, held_until = $1 + {HOLD}, attempts = attempts + 1,"
    " claim = claim + 1 FROM due WHERE job.id = due.id RETURNING job.id, payload, attempts, claim"
)
DELETE = "DELETE FROM fastjobs_jobs WHERE id = ANY($1::bigint[])"
INSERT = f"INSERT INTO fastjobs_jobs (kind, payload, run_at, created_at) VALUES ('{KIND}', $1, $2, $2) RETURNING id"
INSERT_MANY = (
    "INSERT INTO fastjobs_jobs (kind, payload, run_at, created_at)"
    f" SELECT '{KIND}', each, $2, $2 FROM unnest($1::text[]) AS each RETURNING id"
)


def now() -> int:
    return time.time_ns() // 1000


async def drain(url: str, jobs: int) -> Found:
    """Claim 100, delete 100, on one connection, until there are none."""
    async with loaded(url, jobs) as it:
        return await _taken(url, it, jobs)


async def crowd_few(url: str, jobs: int) -> Found:
    async with loaded(url, jobs) as it:
        return await _taken(url, it, jobs)


async def crowd_many(url: str, jobs: int) -> Found:
    async with loaded(url, jobs * 100) as it:
        return await _taken(url, it, jobs)


async def _taken(url: str, it: Loaded, jobs: int) -> Found:
    """The first so many are claimed and deleted."""
    connection = await connect(url)
    claim, delete = await connection.prepare(CLAIM), await connection.prepare(DELETE)
    seen: set[int] = set()
    taken = 0
    with await it.meter() as timed:
        while taken < jobs:
            ids = [row[0] for row in await claim.fetch(now(), min(BATCH, jobs - taken))]
            await delete.fetch(ids)
            taken += len(ids)
            seen.update(ids)
    await connection.close()
    return timed.found(jobs, once=len(seen) == taken == jobs)


async def push(url: str, jobs: int) -> Found:
    """One connection that inserts one after another, each a transaction."""
    async with loaded(url) as it:
        connection = await connect(url)
        insert = await connection.prepare(INSERT)
        with await it.meter() as timed:
            for n in range(jobs):
                await insert.fetchval(value(n).model_dump_json(), now())
        await connection.close()
        return timed.found(jobs)


async def push_sixteen(url: str, jobs: int) -> Found:
    """Sixteen tasks with a connection each, that insert one after another."""
    async with loaded(url) as it:
        connections = [await connect(url) for _ in range(16)]
        inserts = [await each.prepare(INSERT) for each in connections]

        async def pusher(number: int) -> None:
            for n in range(number, jobs, 16):
                await inserts[number].fetchval(value(n).model_dump_json(), now())

        with await it.meter() as timed:
            await asyncio.gather(*(pusher(number) for number in range(16)))
        for each in connections:
            await each.close()
        return timed.found(jobs)


async def push_many(url: str, jobs: int) -> Found:
    """A thousand in each statement, of arrays."""
    async with loaded(url) as it:
        connection = await connect(url)
        insert = await connection.prepare(INSERT_MANY)
        with await it.meter() as timed:
            for start in range(0, jobs, 1000):
                some = [value(n).model_dump_json() for n in range(start, min(start + 1000, jobs))]
                await insert.fetch(some, now())
        await connection.close()
        return timed.found(jobs)


async def start(url: str, jobs: int) -> Found:
    """An insert, then the claim of it on another connection."""
    took: list[float] = []
    async with loaded(url):
        pushes, claims = await connect(url), await connect(url)
        insert, claim = await pushes.prepare(INSERT), await claims.prepare(CLAIM)
        for n in range(jobs):
            await asyncio.sleep(0.005)
            began = time.perf_counter()
            await insert.fetchval(value(n).model_dump_json(), now())
            rows = await claim.fetch(now(), BATCH)
            took.append(time.perf_counter() - began)
            await claims.execute(DELETE, [row[0] for row in rows])
        await pushes.close()
        await claims.close()
    return percentiles(took)


async def horizon(url: str, jobs: int) -> Found:
    """Claims of 10 before and after so many were done, beside a transaction that stays open."""
    async with loaded(url, jobs + 4_000):
        older, connection = await connect(url), await connect(url)
        await older.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await older.fetchval("SELECT count(*) FROM fastjobs_kinds")
        claim, delete = await connection.prepare(CLAIM), await connection.prepare(DELETE)

        async def claims(times: int, of: int) -> list[float]:
            took: list[float] = []
            for _ in range(times):
                began = time.perf_counter()
                rows = await claim.fetch(now(), of)
                took.append(time.perf_counter() - began)
                await delete.fetch([row[0] for row in rows])
            return took

        before = await claims(200, 10)
        await claims(jobs // BATCH, BATCH)
        after = await claims(200, 10)
        await older.execute("ROLLBACK")
        await older.close()
        await connection.close()
    return growth(before, after)


if __name__ == "__main__":
    main(drain, crowd_few, crowd_many, push, push_sixteen, push_many, start, horizon)
