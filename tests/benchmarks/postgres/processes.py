"""A loaded queue that one process empties, or four at once.

python -m tests.benchmarks.postgres.processes NAME COUNT URL
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from tests.benchmarks.contestant import main
from tests.benchmarks.postgres.loaded import KIND, loaded, new_queue
from tests.benchmarks.postgres.metered import Found
from tests.benchmarks.postgres.ours import WORKERS
from tests.benchmarks.work import Value

MODULE = "tests.benchmarks.postgres.processes"


async def one(url: str, jobs: int) -> Found:
    return await _emptied_by(1, url, jobs)


async def four(url: str, jobs: int) -> Found:
    return await _emptied_by(4, url, jobs)


async def _emptied_by(count: int, url: str, jobs: int) -> Found:
    async with loaded(url, jobs) as it:
        workers = [await _started(url, jobs) for _ in range(count)]
        with await it.meter() as timed:
            for each in workers:
                _tell(each)
            await it.emptied()
        answers = await asyncio.gather(*(_answer(each) for each in workers))
        runs = bytearray(jobs)
        for answer in answers:
            for n in answer["ran"]:
                runs[n] += 1
        # The server counts what a connection did as it goes.
        deadlocks = await it.look.fetchval(
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        )
        timed.cpu = sum(answer["cpu"] for answer in answers)
        return timed.found(
            jobs,
            once=runs == bytearray([1]) * jobs,
            deadlocks=deadlocks,
            least=min(len(answer["ran"]) for answer in answers) / jobs,
        )


async def worker(url: str, _: int) -> Found:
    """Says that it is there, runs jobs from one line on its input to the next, and says which.

    What it took of the processor is counted from its first job on: a start takes as much as hundreds of them.
    """
    queue, engine = new_queue(url, workers=WORKERS)
    ran: list[int] = []
    began = 0.0

    @queue.kind(KIND)
    async def newsletter(value: Value) -> None:
        nonlocal began
        if not ran:
            began = time.process_time()
        ran.append(value.n)

    print("there", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    async with queue.running():
        await asyncio.to_thread(sys.stdin.readline)
        took = time.process_time() - began if ran else 0.0
    await engine.dispose()
    return {"ran": ran, "cpu": took}


async def _started(url: str, jobs: int) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        MODULE,
        "worker",
        str(jobs),
        url,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 26,
    )
    assert process.stdout is not None
    await process.stdout.readline()
    return process


def _tell(process: asyncio.subprocess.Process) -> None:
    assert process.stdin is not None
    process.stdin.write(b"\n")


async def _answer(process: asyncio.subprocess.Process) -> Found:
    out, _ = await process.communicate(b"\n")
    answer: Found = json.loads(out.splitlines()[-1])
    return answer


if __name__ == "__main__":
    main(one, four, worker)
