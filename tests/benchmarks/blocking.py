"""Handlers that block for 10 ms each, eight at a time: what fastjobs' threads reach, beside bare ones."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

from tests.benchmarks.loaded import loaded
from tests.benchmarks.work import Timed, Value, value

WORKERS = 8
TAKES = 0.01
Found = dict[str, Any]


def found(timed: Timed, jobs: int, once: bool) -> Found:
    ideal = jobs * TAKES / WORKERS
    return {
        "rate": jobs / timed.seconds,
        "ideal": ideal / timed.seconds,
        "cpu_us": timed.cpu / jobs * 1e6,
        "once": once,
    }


async def blocking_fastjobs(folder: Path, jobs: int) -> Found:
    async with loaded(folder, 1, workers=WORKERS) as it:
        runs, left, last, lock = bytearray(jobs), jobs, asyncio.Event(), threading.Lock()
        loop = asyncio.get_running_loop()

        @it.queue.kind("blocking", priority=1)
        def blocking(value: Value) -> None:
            nonlocal left
            time.sleep(TAKES)
            with lock:
                runs[value.n] += 1
                left -= 1
                if not left:
                    loop.call_soon_threadsafe(last.set)

        async with it.queue.running(run=False):
            for start in range(0, jobs, 1000):
                await blocking.push_many([value(n) for n in range(start, min(start + 1000, jobs))])
        with Timed() as timed:
            async with it.queue.running():
                await last.wait()
                timed_to = time.perf_counter()
        timed.seconds = timed_to - timed.began
        return found(timed, jobs, runs == bytearray([1]) * jobs)


async def blocking_threads(folder: Path, jobs: int) -> Found:
    """What eight bare threads take to sleep that often."""

    def work() -> None:
        for _ in range(jobs // WORKERS):
            time.sleep(TAKES)

    threads = [threading.Thread(target=work) for _ in range(WORKERS)]
    with Timed() as timed:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return found(timed, jobs, True)
