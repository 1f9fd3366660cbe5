"""fastjobs on MariaDB and MySQL, by asyncmy.

python -m tests.benchmarks.mysql.ours NAME COUNT URL
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fastjobs.store import Claimable, Done
from tests.benchmarks.contestant import main
from tests.benchmarks.metered import Found
from tests.benchmarks.mysql.loaded import KIND, loaded
from tests.benchmarks.work import growth, percentiles, value

WORKERS = 8


async def drain(url: str, jobs: int) -> Found:
    """From the queue's start until the last job's end is kept."""
    async with loaded(url, jobs, workers=WORKERS) as it:
        with await it.meter() as timed:
            running = asyncio.create_task(it.queue.run())
            await it.last.wait()
            await it.emptied()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return timed.found(jobs, once=it.once)


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
        await it.look.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await it.look.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        store: Any = it.queue.store
        kind = Claimable(kind=KIND, hold=60_000_000, attempts=10)

        async def claims(times: int, of: int) -> list[float]:
            took: list[float] = []
            for _ in range(times):
                began = time.perf_counter()
                claimed = await store.claim([kind], of)
                took.append(time.perf_counter() - began)
                assert len(claimed.jobs) == of
                await store.mark([Done(job.id, job.claim) for job in claimed.jobs])
            return took

        async with it.queue.running(run=False):
            before = await claims(200, 10)
            await claims(jobs // 100, 100)
            after = await claims(200, 10)
        await it.look.execute("ROLLBACK")
    return growth(before, after)


async def idle(url: str, seconds: int) -> Found:
    """What a queue that has nothing to do takes of the processor, and asks of the server."""
    async with loaded(url) as it, it.queue.running():
        await asyncio.sleep(2)
        names = "('Questions', 'Innodb_rows_inserted', 'Innodb_rows_updated', 'Innodb_rows_deleted')"
        asks = f"SHOW GLOBAL STATUS WHERE Variable_name IN {names}"
        before = {name: int(many) for name, many in await it.look.execute(asks)}
        with await it.meter() as timed:
            await asyncio.sleep(seconds)
        after = {name: int(many) for name, many in await it.look.execute(asks)}
        its = {name: many - before[name] for name, many in after.items()}
        asked = its.pop("Questions") - 2  # this one's own
        return {
            "core": timed.cpu / timed.seconds,
            "server": timed.server / timed.seconds,
            "asked": asked / timed.seconds,
            "wrote": sum(its.values()),
        }


if __name__ == "__main__":
    main(drain, push, push_sixteen, push_many, start, horizon, idle)
