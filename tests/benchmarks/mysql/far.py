"""From a push in one process to its start in another, where nothing notifies: the other looks.

    python -m tests.benchmarks.mysql.far NAME COUNT URL

Both read the same clock, which counts from the machine's start and goes with the job as its number. The first ten are
not counted, in which connections are made.
"""

from __future__ import annotations

import asyncio
import sys
import time

from tests.benchmarks.contestant import main
from tests.benchmarks.metered import Found
from tests.benchmarks.mysql.loaded import loaded, new_queue
from tests.benchmarks.work import Value, percentiles, value

MODULE = "tests.benchmarks.mysql.far"
FIRST = 10
OFTEN, SELDOM = "0.02", "1.5"
"""Seconds between two pushes."""


async def often(url: str, jobs: int) -> Found:
    return await _far(url, jobs, OFTEN)


async def seldom(url: str, jobs: int) -> Found:
    return await _far(url, jobs, SELDOM)


async def _far(url: str, jobs: int, pause: str) -> Found:
    took: list[float] = []
    async with loaded(url, poll=5) as it:
        last = asyncio.Event()

        @it.queue.kind("timed")
        async def timed(value: Value) -> None:
            took.append((time.monotonic_ns() - value.n) / 1e9)
            if len(took) == jobs + FIRST:
                last.set()

        async with it.queue.running():
            name = "often_pusher" if pause == OFTEN else "seldom_pusher"
            pusher = await asyncio.create_subprocess_exec(
                sys.executable, "-m", MODULE, name, str(jobs), url, stdout=asyncio.subprocess.DEVNULL
            )
            await last.wait()
            await pusher.wait()
    return percentiles(took[FIRST:])


async def often_pusher(url: str, jobs: int) -> Found:
    return await _pusher(url, jobs, float(OFTEN))


async def seldom_pusher(url: str, jobs: int) -> Found:
    return await _pusher(url, jobs, float(SELDOM))


async def _pusher(url: str, jobs: int, pause: float) -> Found:
    queue, engine = new_queue(url)

    @queue.kind("timed")
    async def timed(value: Value) -> None: ...

    async with queue.running(run=False):
        for n in range(jobs + FIRST):
            await asyncio.sleep(pause if n >= FIRST else float(OFTEN))
            await timed.push(value(time.monotonic_ns()))
    await engine.dispose()
    return {}


if __name__ == "__main__":
    main(often, often_pusher, seldom, seldom_pusher)
