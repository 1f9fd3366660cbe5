"""fastjobs on Postgres, by asyncpg.

python -m tests.benchmarks.postgres.ours NAME COUNT URL
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fastjobs.store import Claimable, Done
from tests.benchmarks.contestant import main
from tests.benchmarks.postgres.loaded import KIND, Loaded, loaded
from tests.benchmarks.postgres.metered import Found, connect
from tests.benchmarks.work import growth, percentiles, value

WORKERS = 8


async def drain(url: str, jobs: int) -> Found:
    """From the queue's start until the last job's end is kept."""
    async with loaded(url, jobs, workers=WORKERS) as it:
        with await it.meter() as timed:
            running = asyncio.create_task(it.queue.run())
            await it.last.wait()
            await it.emptied()
        await _stop(running)
        return timed.found(jobs, once=it.once)


async def crowd_few(url: str, jobs: int) -> Found:
    async with loaded(url, jobs, workers=WORKERS) as it:
        return await _taken(it, jobs)


async def crowd_many(url: str, jobs: int) -> Found:
    async with loaded(url, jobs * 100, runs=jobs, workers=WORKERS) as it:
        return await _taken(it, jobs)


async def _taken(it: Loaded, jobs: int) -> Found:
    """From the first that ran until so many have: a start takes as long as hundreds of them."""
    meter = await it.meter()
    running = asyncio.create_task(it.queue.run())
    await it.first.wait()
    ran = it.runs.count(1)
    with meter as timed:
        await it.last.wait()
    await _stop(running)
    return timed.found(jobs - ran, once=max(it.runs) == 1)


async def _stop(running: asyncio.Task[None]) -> None:
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def push(url: str, jobs: int) -> Found:
    async with loaded(url) as it, it.queue.running(run=False):
        with await it.meter() as timed:
            for n in range(jobs):
                await it.kind.push(value(n))
        return timed.found(jobs)


async def push_sixteen(url: str, jobs: int) -> Found:
    async with loaded(url) as it, it.queue.running(run=False):

        async def pusher(number: int) -> None:
            for n in range(number, jobs, 16):
                await it.kind.push(value(n))

        with await it.meter() as timed:
            await asyncio.gather(*(pusher(number) for number in range(16)))
        return timed.found(jobs)


async def push_many(url: str, jobs: int) -> Found:
    async with loaded(url) as it, it.queue.running(run=False):
        with await it.meter() as timed:
            for start in range(0, jobs, 1000):
                await it.kind.push_many([value(n) for n in range(start, min(start + 1000, jobs))])
        return timed.found(jobs)


async def start(url: str, jobs: int) -> Found:
    took: list[float] = []
    async with loaded(url) as it:
        started = asyncio.Event()

        @it.queue.kind("timed")
        async def timed() -> None:
            took.append(time.perf_counter())
            started.set()

        async with it.queue.running():
            for _ in range(jobs):
                await asyncio.sleep(0.005)
                started.clear()
                began = time.perf_counter()
                await timed.push()
                await started.wait()
                took[-1] -= began
    return percentiles(took)


async def horizon(url: str, jobs: int) -> Found:
    """As raw's, by the store's own claims and marks."""
    async with loaded(url, jobs + 4_000) as it:
        older = await connect(url)
        await older.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await older.fetchval("SELECT count(*) FROM fastjobs_kinds")
        store: Any = it.queue.store
        kind = Claimable(kind=KIND, hold=60_000_000, attempts=10)

        async def claims(times: int, of: int) -> list[float]:
            took: list[float] = []
            for _ in range(times):
                began = time.perf_counter()
                claimed = await store.claim([kind], of)
                took.append(time.perf_counter() - began)
                await store.mark([Done(job.id, job.claim) for job in claimed.jobs])
            return took

        async with it.queue.running(run=False):
            before = await claims(200, 10)
            await claims(jobs // 100, 100)
            after = await claims(200, 10)
        await older.execute("ROLLBACK")
        await older.close()
    return growth(before, after)


if __name__ == "__main__":
    main(drain, crowd_few, crowd_many, push, push_sixteen, push_many, start, horizon)
