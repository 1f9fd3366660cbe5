"""Others' queues on Postgres: a loaded queue is emptied. Run by the Python of an environment that has them.

    python -m tests.benchmarks.postgres.peers NAME COUNT URL

Each is set as it's fastest, and its handler does what fastjobs' does: it counts, once the value was validated. It's
timed from the worker's start until no job is left that has not ended.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import json
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from tests.benchmarks.postgres.metered import Found, asyncpg, connect, metered
from tests.benchmarks.work import Value, value

BATCH = 1000
Left = Callable[[Any], Awaitable[int]]
Start = Callable[[], Awaitable[object]]


class Runs:
    """The runs of each job."""

    def __init__(self, jobs: int) -> None:
        self.each = bytearray(jobs)
        self._left = jobs
        self._loop = asyncio.get_running_loop()
        self._last = asyncio.Event()

    def ran(self, given: Value) -> None:
        self.each[given.n] += 1
        self._left -= 1
        if not self._left:
            self._loop.call_soon_threadsafe(self._last.set)

    async def last(self) -> None:
        await self._last.wait()


async def runs_handler(**given: Any) -> None:
    """For those that find their handlers by name."""
    RUNS[0].ran(Value.model_validate(given))


RUNS: list[Runs] = []


def batches(jobs: int) -> Iterator[list[Value]]:
    for start in range(0, jobs, BATCH):
        yield [value(n) for n in range(start, min(start + BATCH, jobs))]


def left(table: str, states: str = "true") -> Left:
    async def count(connection: Any) -> int:
        found: int = await connection.fetchval(f"SELECT count(*) FROM {table} WHERE {states}")
        return found

    return count


def package(name: str) -> Any:
    """Another's package, which is not here where types are checked."""
    return importlib.import_module(name)


async def procrastinate(url: str, jobs: int, runs: Runs) -> tuple[Start, Left]:
    its = package("procrastinate")
    app = its.App(connector=its.PsycopgConnector(conninfo=url, min_size=4, max_size=20))

    async def newsletter(**given: Any) -> None:
        runs.ran(Value.model_validate(given))

    task = app.task(name="newsletter")(newsletter)
    await app.open_async()
    await app.schema_manager.apply_schema_async()
    for some in batches(jobs):
        await task.batch_defer_async(*(each.model_dump() for each in some))

    async def start() -> None:
        running = app.run_worker_async(concurrency=50, install_signal_handlers=False, delete_jobs="always")
        KEPT.append(asyncio.ensure_future(running))

    return start, left("procrastinate_jobs", "status IN ('todo', 'doing')")


async def pgqueuer(url: str, jobs: int, runs: Runs) -> tuple[Start, Left]:
    pool = await asyncpg.create_pool(url, min_size=4, max_size=20)
    queue = package("pgqueuer").PgQueuer(package("pgqueuer.adapters.drivers.asyncpg").AsyncpgPoolDriver(pool))

    async def newsletter(job: Any) -> None:
        runs.ran(Value.model_validate_json(job.payload))

    queue.entrypoint("newsletter")(newsletter)
    await queue.qm.queries.install()
    for some in batches(jobs):
        payloads = [each.model_dump_json().encode() for each in some]
        await queue.qm.queries.enqueue(["newsletter"] * len(some), payloads, [0] * len(some))

    async def start() -> None:
        KEPT.append(asyncio.ensure_future(queue.qm.run(batch_size=1000)))

    return start, left("pgqueuer")


async def chancy(url: str, jobs: int, runs: Runs) -> tuple[Start, Left]:
    its = package("chancy")
    app = its.Chancy(url, min_connection_pool_size=4, max_connection_pool_size=20)
    await app.__aenter__()
    await app.migrate()
    await app.declare(
        its.Queue(
            "default",
            concurrency=200,
            executor=its.Chancy.Executor.Async,
            eager_polling=True,
            polling_interval=1,
        )
    )
    for some in batches(jobs):
        made = [
            its.Job(func=f"{NAME}.runs_handler", kwargs=each.model_dump(), queue="default") for each in some
        ]
        async for _ in app.push_many(made):
            pass
    worker = its.Worker(app, register_signal_handlers=False, shutdown_timeout=5)
    return worker.start, left("chancy_jobs", "state IN ('pending', 'running', 'retrying')")


@dataclasses.dataclass
class Newsletter:
    """The value, as awa checks it."""

    user: int
    list: str
    n: int


async def awa(url: str, jobs: int, runs: Runs) -> tuple[Start, Left]:
    client = package("awa").AsyncClient(url, max_connections=20)

    async def newsletter(job: Any) -> None:
        runs.ran(job.args)

    client.task(Newsletter, queue="default")(newsletter)
    await client.migrate()
    for some in batches(jobs):
        await client.insert_many_copy([Newsletter(**each.model_dump()) for each in some])

    async def count(_: Any) -> int:
        return sum(each.total_queued for each in await client.queue_stats())

    async def start() -> None:
        await client.start([{"name": "default", "max_workers": 1000}])

    return start, count


async def saq(url: str, jobs: int, runs: Runs) -> tuple[Start, Left]:
    queue = package("saq.queue.postgres").PostgresQueue.from_url(url, min_size=4, max_size=20)
    await queue.connect()
    numbers = iter(range(jobs))

    async def pusher() -> None:
        for n in numbers:
            await queue.enqueue("newsletter", **value(n).model_dump())

    await asyncio.gather(*(pusher() for _ in range(16)))

    async def newsletter(_: Any, **given: Any) -> None:
        runs.ran(Value.model_validate(given))

    worker = package("saq").Worker(queue, functions=[("newsletter", newsletter)], concurrency=20)
    worker.SIGNALS = []

    async def start() -> None:
        KEPT.append(asyncio.ensure_future(worker.start()))

    return start, left("saq_jobs", "status IN ('queued', 'active')")


async def oban(url: str, jobs: int, runs: Runs) -> tuple[Start, Left]:
    its = package("oban")
    pool = await its.Oban.create_pool(url, min_size=4, max_size=20)
    await package("oban.schema").install(pool)

    class Newsletters:
        async def process(self, job: Any) -> None:
            runs.ran(Value.model_validate(job.args))

    worker = its.worker(queue="default")(Newsletters)
    pushes = its.Oban(pool=pool)
    for some in batches(jobs):
        await pushes.enqueue_many([worker.new(each.model_dump()) for each in some])
    runner = its.Oban(pool=pool, queues={"default": 200})
    return runner.start, left("oban_jobs", "state IN ('available', 'executing', 'scheduled')")


NAME = "tests.benchmarks.postgres.peers"
KEPT: list[asyncio.Future[Any]] = []
PEERS = {each.__name__: each for each in (procrastinate, pgqueuer, chancy, awa, saq, oban)}


async def drain(name: str, jobs: int, url: str) -> Found:
    runs = Runs(jobs)
    RUNS.append(runs)
    start, count = await PEERS[name](url, jobs, runs)
    look = await connect(url)
    await look.execute("VACUUM ANALYZE")
    await look.execute("CHECKPOINT")
    with await metered(look) as timed:
        await start()
        await runs.last()
        while await count(look):
            await asyncio.sleep(0.005)
    await asyncio.sleep(0.3)  # for a job that runs twice
    return timed.found(jobs, once=runs.each == bytearray([1]) * jobs)


async def main() -> None:
    logging.disable(logging.WARNING)
    # One who imports the handler by its name is to find this module, not a second of it.
    sys.modules[NAME] = sys.modules["__main__"]
    name, count, url = sys.argv[1:]
    print(json.dumps(await drain(name, int(count), url)), flush=True)
    os._exit(0)  # some of them wait long for their workers


if __name__ == "__main__":
    asyncio.run(main())
