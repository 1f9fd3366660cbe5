"""From a push in one process to its start in another: fastjobs, and the bare driver with NOTIFY.

    python -m tests.benchmarks.postgres.far NAME COUNT URL

Both read the same clock, which counts from the machine's start and goes with the job as its number. The first ten are
not counted, in which connections are made.
"""

from __future__ import annotations

import asyncio
import sys
import time

from tests.benchmarks.contestant import main
from tests.benchmarks.postgres.loaded import loaded, new_queue
from tests.benchmarks.postgres.metered import Found, connect
from tests.benchmarks.postgres.raw import BATCH, CLAIM, DELETE, INSERT, now
from tests.benchmarks.work import Value, percentiles, value

MODULE = "tests.benchmarks.postgres.far"
FIRST = 10
PAUSE = 0.02
_PUSH = f"WITH pushed AS ({INSERT}) SELECT pg_notify('newsletters', '') FROM pushed"


async def fastjobs(url: str, jobs: int) -> Found:
    took: list[float] = []
    async with loaded(url, poll=5) as it:
        last = asyncio.Event()

        @it.queue.kind("timed")
        async def timed(value: Value) -> None:
            took.append((time.monotonic_ns() - value.n) / 1e9)
            if len(took) == jobs + FIRST:
                last.set()

        async with it.queue.running():
            pusher = await _pushing("fastjobs_pusher", url, jobs)
            await last.wait()
            await pusher.wait()
    return percentiles(took[FIRST:])


async def fastjobs_pusher(url: str, jobs: int) -> Found:
    queue, engine = new_queue(url)

    @queue.kind("timed")
    async def timed(value: Value) -> None: ...

    async with queue.running(run=False):
        for _ in range(jobs + FIRST):
            await asyncio.sleep(PAUSE)
            await timed.push(value(time.monotonic_ns()))
    await engine.dispose()
    return {}


async def raw(url: str, jobs: int) -> Found:
    """A connection that listens, and one that claims."""
    took: list[float] = []
    async with loaded(url):
        listens, claims = await connect(url), await connect(url)
        told = asyncio.Event()

        def hears(*_: object) -> None:
            told.set()

        await listens.add_listener("newsletters", hears)
        claim = await claims.prepare(CLAIM)
        pusher = await _pushing("raw_pusher", url, jobs)
        while len(took) < jobs + FIRST:
            await told.wait()
            told.clear()
            rows = await claim.fetch(now(), BATCH)
            at = time.monotonic_ns()
            took.extend((at - Value.model_validate_json(row[1]).n) / 1e9 for row in rows)
            await claims.execute(DELETE, [row[0] for row in rows])
        await pusher.wait()
        await listens.close()
        await claims.close()
    return percentiles(took[FIRST:])


async def raw_pusher(url: str, jobs: int) -> Found:
    connection = await connect(url)
    push = await connection.prepare(_PUSH)
    for _ in range(jobs + FIRST):
        await asyncio.sleep(PAUSE)
        await push.fetchval(value(time.monotonic_ns()).model_dump_json(), now())
    await connection.close()
    return {}


async def _pushing(name: str, url: str, jobs: int) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", MODULE, name, str(jobs), url, stdout=asyncio.subprocess.DEVNULL
    )


if __name__ == "__main__":
    main(fastjobs, fastjobs_pusher, raw, raw_pusher)
