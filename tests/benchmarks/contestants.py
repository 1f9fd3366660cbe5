"""What is measured: each contestant does one thing, in a process of its own.

    python -m tests.benchmarks.contestants NAME COUNT FOLDER

prints one line of JSON: `rate` (a second), `cpu_us` (of the processor, for each), and what else it says. A drain is
timed from its start until the last job's end is kept, and each job must have run exactly once. Handlers do nothing but
count, and values are validated. All are at SQLite's synchronous=FULL.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import queue as queues
import resource
import sqlite3
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from fastjobs.store import Claimable, Done
from tests.benchmarks.blocking import blocking_fastjobs, blocking_threads
from tests.benchmarks.loaded import loaded
from tests.benchmarks.work import Timed, Value, percentiles, value

BATCH = 100
INSERT = "INSERT INTO fastjobs_jobs (kind, payload, run_at, created_at) VALUES ('newsletter', ?, ?, ?)"
Found = dict[str, Any]


def found(timed: Timed, count: int, **more: Any) -> Found:
    return {"rate": count / timed.seconds, "cpu_us": timed.cpu / count * 1e6, **more}


def raw_connection(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, timeout=30, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    return connection


# A loaded queue is emptied.


async def drain_fastjobs(folder: Path, jobs: int) -> Found:
    async with loaded(folder, jobs, workers=8) as it:
        idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        look = sqlite3.connect(it.path)
        with Timed() as timed:
            running = asyncio.create_task(it.queue.run())
            await it.last.wait()
            while look.execute("SELECT count(*) FROM fastjobs_jobs").fetchone() != (0,):
                await asyncio.sleep(0.001)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - idle
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        look.close()
        return found(timed, jobs, once=it.once, grown_mib=grown / 1024)


async def drain_raw(folder: Path, jobs: int) -> Found:
    """What the database itself does of it: claim 100, delete 100, in one thread, on fastjobs' own table and indexes."""
    async with loaded(folder, jobs) as it:
        connection = raw_connection(it.path)
        claim = (
            "UPDATE fastjobs_jobs SET state = 1, held_until = ?, attempts = attempts + 1, claim = claim + 1 WHERE id IN"
            " (SELECT id FROM fastjobs_jobs WHERE kind = 'newsletter' AND state = 0 AND run_at <= ?"
            " ORDER BY run_at, id LIMIT ?) RETURNING id, payload, attempts, claim"
        )
        now, seen = time.time_ns() // 1000, 0
        with Timed() as timed:
            while rows := connection.execute(claim, (now + 60_000_000, now, BATCH)).fetchall():
                ids = ",".join(str(row[0]) for row in rows)
                connection.execute(f"DELETE FROM fastjobs_jobs WHERE id IN ({ids})")
                seen += len(rows)
        connection.close()
        return found(timed, jobs, once=seen == jobs)


async def drain_huey(folder: Path, jobs: int) -> Found:
    from huey import SqliteHuey  # type: ignore[import-untyped, unused-ignore]

    logging.disable(logging.WARNING)
    huey: Any = SqliteHuey(filename=str(folder / "huey.db"), fsync=True)
    runs, last, left = bytearray(jobs), threading.Event(), jobs

    def newsletter(payload: str) -> None:
        nonlocal left
        runs[Value.model_validate_json(payload).n] += 1
        left -= 1
        if not left:
            last.set()

    huey.task()(newsletter)
    quick: Any = SqliteHuey(filename=str(folder / "huey.db"), fsync=False)
    pushed: Any = quick.task(name="newsletter")(newsletter)
    for n in range(jobs):
        quick.enqueue(pushed.s(value(n).model_dump_json()))
    consumer: Any = huey.create_consumer(
        workers=1, worker_type="thread", periodic=False, check_worker_health=False, initial_delay=0.001
    )
    consumer._set_signal_handlers = lambda: None
    with Timed() as timed:
        consumer.start()
        await asyncio.to_thread(last.wait)
    consumer.stop()
    return found(timed, jobs, once=runs == bytearray([1]) * jobs)


# Pushes, sixteen at once.


async def push_fastjobs(folder: Path, jobs: int) -> Found:
    async with loaded(folder, 1) as it, it.queue.running(run=False):

        async def pusher(number: int) -> None:
            for n in range(number, jobs, 16):
                await it.kind.push(value(n))

        with Timed() as timed:
            await asyncio.gather(*(pusher(number) for number in range(16)))
        return found(timed, jobs)


async def push_threads(folder: Path, jobs: int) -> Found:
    """Sixteen threads, a connection each, that commit one by one."""
    async with loaded(folder, 1) as it:

        def pusher() -> None:
            connection = raw_connection(it.path)
            for n in range(jobs // 16):
                now = time.time_ns() // 1000
                connection.execute("BEGIN IMMEDIATE")
                connection.execute(INSERT, (value(n).model_dump_json(), now, now))
                connection.execute("COMMIT")
            connection.close()

        threads = [threading.Thread(target=pusher) for _ in range(16)]
        with Timed() as timed:
            for thread in threads:
                thread.start()
            for thread in threads:
                await asyncio.to_thread(thread.join)
        return found(timed, jobs)


async def push_group(folder: Path, jobs: int) -> Found:
    """Sixteen tasks, and one thread that commits what has gathered: nothing but that."""
    async with loaded(folder, 1) as it:
        connection = raw_connection(it.path)
        loop = asyncio.get_running_loop()
        calls: queues.SimpleQueue[tuple[str, asyncio.Future[None]] | None] = queues.SimpleQueue()

        def answer(done: list[asyncio.Future[None]]) -> None:
            for each in done:
                each.set_result(None)

        def writer() -> None:
            while (first := calls.get()) is not None:
                batch = [first]
                while not calls.empty() and (more := calls.get()) is not None:
                    batch.append(more)
                now = time.time_ns() // 1000
                connection.execute("BEGIN IMMEDIATE")
                for payload, _ in batch:
                    connection.execute(INSERT, (payload, now, now))
                connection.execute("COMMIT")
                loop.call_soon_threadsafe(answer, [each for _, each in batch])

        async def pusher(number: int) -> None:
            for n in range(number, jobs, 16):
                done: asyncio.Future[None] = loop.create_future()
                calls.put((value(n).model_dump_json(), done))
                await done

        thread = threading.Thread(target=writer)
        thread.start()
        with Timed() as timed:
            await asyncio.gather(*(pusher(number) for number in range(16)))
        calls.put(None)
        thread.join()
        connection.close()
        return found(timed, jobs)


# From a push to its handler's start, on an idle queue; beside it the commit alone.


async def start_fastjobs(folder: Path, jobs: int) -> Found:
    took: list[float] = []
    async with loaded(folder, 1) as it:
        started = asyncio.Event()

        @it.queue.kind("timed")
        async def timed() -> None:
            took.append(time.perf_counter())
            started.set()

        async with it.queue.running():
            await it.last.wait()
            for _ in range(jobs):
                await asyncio.sleep(0.005)
                started.clear()
                began = time.perf_counter()
                await timed.push()
                await started.wait()
                took[-1] -= began
    return percentiles(took)


async def start_commit(folder: Path, jobs: int) -> Found:
    """The commit of one insert, in a thread of its own, as the queue's is."""
    took: list[float] = []
    async with loaded(folder, 1) as it:
        connection = raw_connection(it.path)
        calls: queues.SimpleQueue[asyncio.Future[None] | None] = queues.SimpleQueue()
        loop = asyncio.get_running_loop()

        def writer() -> None:
            while (call := calls.get()) is not None:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute(INSERT, ("{}", 1, 1))
                connection.execute("COMMIT")
                loop.call_soon_threadsafe(call.set_result, None)

        thread = threading.Thread(target=writer)
        thread.start()
        for _ in range(jobs):
            await asyncio.sleep(0.005)
            began = time.perf_counter()
            done: asyncio.Future[None] = loop.create_future()
            calls.put(done)
            await done
            took.append(time.perf_counter() - began)
        calls.put(None)
        thread.join()
        connection.close()
    return percentiles(took)


# An idle queue, and a claim among many.


async def idle(folder: Path, seconds: int) -> Found:
    async with loaded(folder, 1) as it, it.queue.running():
        await it.last.wait()
        await asyncio.sleep(1)
        log = it.path.with_name(it.path.name + "-wal")
        before = os.stat(log).st_mtime_ns, os.stat(it.path).st_mtime_ns
        with Timed() as timed:
            await asyncio.sleep(seconds)
        wrote = before != (os.stat(log).st_mtime_ns, os.stat(it.path).st_mtime_ns)
    return {"core": timed.cpu / timed.seconds, "wrote": wrote}


async def claim_alone(folder: Path, claims: int) -> Found:
    return await _claims(folder, claims, 0)


async def claim_crowded(folder: Path, claims: int) -> Found:
    return await _claims(folder, claims, 1_000_000)


async def _claims(folder: Path, claims: int, crowd: int) -> Found:
    """So many claims of 10, their jobs done after each; with a crowd waiting, a tenth as many failed, and as many not
    due yet."""
    async with loaded(folder, claims * 10) as it:
        if crowd:
            connection = raw_connection(it.path)
            connection.execute("BEGIN")
            for state, count, due in (
                (0, crowd, 2_000),
                (3, crowd // 10, 0),
                (0, crowd // 10, 9_000_000_000_000_000),
            ):
                connection.execute(
                    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) INSERT INTO"
                    " fastjobs_jobs (kind, payload, state, run_at, created_at, failed_at, attempts)"
                    " SELECT 'newsletter', '{}', ?, ? + i, 0, iif(? = 3, i, NULL), 0 FROM n",
                    (count, state, due, state),
                )
            connection.execute("COMMIT")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.close()
        store: Any = it.queue.store
        kind = Claimable(kind="newsletter", hold=60_000_000, attempts=10)
        took: list[float] = []
        async with it.queue.running(run=False):
            for _ in range(claims):
                began = time.perf_counter()
                claimed = await store.claim([kind], 10)
                took.append(time.perf_counter() - began)
                await store.mark([Done(job.id, job.claim) for job in claimed.jobs])
    return percentiles(took)


CONTESTANTS: dict[str, Callable[[Path, int], Awaitable[Found]]] = {
    each.__name__: each
    for each in (
        drain_fastjobs,
        drain_raw,
        drain_huey,
        push_fastjobs,
        push_threads,
        push_group,
        start_fastjobs,
        start_commit,
        idle,
        claim_alone,
        claim_crowded,
        blocking_fastjobs,
        blocking_threads,
    )
}


def main() -> None:
    name, count, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])

    async def measured() -> Found:
        return await CONTESTANTS[name](folder, count)

    print(json.dumps(asyncio.run(measured())), flush=True)


if __name__ == "__main__":
    main()
