"""What limits cost, on each database: each contestant does one thing, in a process of its own.

    python -m tests.benchmarks.limits NAME COUNT PLACE

PLACE is a folder for a SQLite file, or the URL of an empty database on a server. One line of JSON is printed.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import statistics
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

import fastjobs
from fastjobs.store import Claimable, Claimed, Done, HoldBack, NewJob
from fastjobs.stores.sql.tables import MYSQL
from tests.benchmarks.work import Timed, Value, growth, value

Found = dict[str, Any]
HOUR = 3_600_000_000
KEY = bytes(32)
TIMES = 100
"""How many claims of each size are timed."""
SIZES = (1, 10, 100)
OTHERS = 10_000
"""How many jobs of other keys wait behind those of the one that is held."""
_DIGIT = f"({' UNION ALL '.join(f'SELECT {n} AS i' for n in range(10))})"


def _term(kind: str, *, at_once: int | None = None, limited: bool = True) -> Claimable:
    return Claimable(kind=kind, hold=HOUR, attempts=10, at_once=at_once, ahead_ok=not limited)


TERMS = (_term("free", limited=False), _term("back"), _term("limited", at_once=2), _term("alone"))


@asynccontextmanager
async def opened(place: str) -> AsyncGenerator[tuple[AsyncEngine, fastjobs.SQLStore]]:
    """An engine on the place, and a store that isn't open."""
    is_server = "://" in place
    url = place if is_server else f"sqlite+aiosqlite:///{Path(place) / 'jobs.db'}"
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://", 1))
    if not is_server:
        fastjobs.sqlite.configure(engine)
    try:
        yield engine, fastjobs.SQLStore(engine)
    finally:
        await engine.dispose()


# A claim of others, with jobs standing ahead that can't run.


async def _stand(engine: AsyncEngine, kind: str, many: int, due: int, key: str = "NULL") -> None:
    """Jobs of a kind that wait, by SQL alone; as their first attempts had failed they have let their values go."""
    columns = "INSERT INTO fastjobs_jobs (kind, payload, run_at, created_at, own_key, alone_key)"
    some = f"SELECT '{kind}', 'null', {due} + i, {due}, {key}, {key} FROM"
    async with engine.begin() as connection:
        if engine.dialect.name == "sqlite":
            numbers = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {many})"
            await connection.execute(text(f"{numbers} {columns} {some} n"))
        elif engine.dialect.name in MYSQL:
            numbers = " CROSS JOIN ".join(f"{_DIGIT} AS d{at}" for at in range(6))
            number = " + ".join(f"d{at}.i * {10**at}" for at in range(6))
            n = f"(SELECT 1 + {number} AS i FROM {numbers}) AS n"
            await connection.execute(text(f"{columns} {some} {n} WHERE i <= {many} ORDER BY i"))
        else:
            await connection.execute(text(f"{columns} {some} generate_series(1, {many}) i"))


async def _settled(engine: AsyncEngine, place: str) -> None:
    """As a database is that has had a moment: vacuumed, and written to the disk."""
    if engine.dialect.name == "sqlite":
        file = sqlite3.connect(Path(place) / "jobs.db")
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        file.close()
        return
    async with engine.connect() as connection:
        await connection.execution_options(isolation_level="AUTOCOMMIT")
        if engine.dialect.name in MYSQL:
            await connection.execute(text("ANALYZE TABLE fastjobs_jobs"))
            await asyncio.sleep(
                1
            )  # the server removes old rows by itself, and tells the superuser alone how far it is
            return
        await connection.execute(text("VACUUM ANALYZE"))
        await connection.execute(text("CHECKPOINT"))


async def _claims(place: str, standing: int, *sorts: str) -> Found:
    async with opened(place) as (engine, store):
        await store.open([term.kind for term in TERMS])
        late = time.time_ns() // 1000 - HOUR
        found: Found = {}
        for each in TERMS:
            if each.kind not in sorts:
                continue
            # What has its kind, or its key, for an hour.
            keyed: Found = {"key": KEY, "one_at_a_time": True} if each.kind == "alone" else {}
            await store.push([NewJob(each.kind, "null", late, **keyed)])
            if each.kind == "limited":
                await store.push([NewJob(each.kind, "null", late)])
            held = (await store.claim([each], 2)).jobs
            if each.kind == "back":
                await store.mark([HoldBack(held[0].id, held[0].claim, HOUR)])
            key = "NULL"
            if each.kind == "alone":
                is_postgres = engine.dialect.name == "postgresql"
                key = f"decode('{KEY.hex()}', 'hex')" if is_postgres else f"x'{KEY.hex()}'"
            await _stand(engine, each.kind, standing, late, key)
        await _stand(engine, "free", sum(SIZES) * TIMES, late + standing + 1)
        if "alone" in sorts:
            keys = [NewJob("alone", "null", late + HOUR // 2, key=n.to_bytes(32), one_at_a_time=True)
                    for n in range(1, OTHERS + 1)]  # fmt: skip
            for first in range(0, OTHERS, 1000):
                await store.push(keys[first : first + 1000])
        await _settled(engine, place)
        if "alone" in sorts:
            with Timed() as timed:
                while not (claimed := await store.claim([TERMS[3]], 1)).jobs:
                    assert claimed.again
            found["park_us"] = timed.seconds / standing * 1e6
            await store.mark([Done(job.id, job.claim) for job in claimed.jobs])
            await _settled(engine, place)
        took: dict[int, list[float]] = {size: [] for size in SIZES}
        for _ in range(TIMES):
            for size in SIZES:
                began = time.perf_counter()
                claimed = await store.claim(TERMS, size)
                took[size].append(time.perf_counter() - began)
                assert [job.kind for job in claimed.jobs] == ["free"] * size, claimed.jobs[:1]
                await store.mark([Done(job.id, job.claim) for job in claimed.jobs])
        await store.close()
    return {**found, **{f"of_{size}_ms": statistics.median(each) * 1000 for size, each in took.items()}}


async def claim_free(place: str, standing: int) -> Found:
    return await _claims(place, standing)


async def claim_back(place: str, standing: int) -> Found:
    return await _claims(place, standing, "back")


async def claim_limited(place: str, standing: int) -> Found:
    return await _claims(place, standing, "limited")


async def claim_alone(place: str, standing: int) -> Found:
    return await _claims(place, standing, "alone")


async def claim_all(place: str, standing: int) -> Found:
    return await _claims(place, standing, "back", "limited", "alone")


# Pushes.


async def _pushes(place: str, jobs: int, unique: bool) -> Found:
    async with opened(place) as (_, store):
        queue = fastjobs.Queue(store)

        @queue.kind("newsletter", unique=unique)
        async def newsletter(value: Value) -> None: ...

        async def pusher(number: int) -> None:
            for n in range(number, jobs, 16):
                await newsletter.push(value(n))

        async with queue.running(run=False):
            with Timed() as timed:
                await asyncio.gather(*(pusher(number) for number in range(16)))
    return {"rate": jobs / timed.seconds, "cpu_us": timed.cpu / jobs * 1e6}


async def push_plain(place: str, jobs: int) -> Found:
    return await _pushes(place, jobs, False)


async def push_unique(place: str, jobs: int) -> Found:
    return await _pushes(place, jobs, True)


# What is reached of what a limit allows.


async def at_once(place: str, jobs: int) -> Found:
    """Two at once, of 20 ms each, with as many again waiting behind."""
    async with opened(place) as (_, store):
        queue, last, left = fastjobs.Queue(store, workers=4), asyncio.Event(), jobs

        @queue.kind("limited", at_once=2)
        async def limited(value: Value) -> None:
            nonlocal left
            await asyncio.sleep(0.02)
            left -= 1
            if not left:
                last.set()

        async with queue.running(run=False):
            for first in range(0, 10 * jobs, 1000):
                await limited.push_many([value(n) for n in range(first, min(first + 1000, 10 * jobs))])
        async with queue.running():
            began = time.perf_counter()
            await last.wait()
            took = time.perf_counter() - began
    return {"ideal": jobs * 0.02 / 2 / took, "rate": jobs / took}


class _Timed(fastjobs.SQLStore):
    """Knows when each job was claimed."""

    starts: list[int]

    async def claim(
        self, kinds: Sequence[Claimable], limit: int, *, ahead: int = 0, others: Claimable | None = None
    ) -> Claimed:
        claimed = await super().claim(kinds, limit, ahead=ahead, others=others)
        self.starts += [claimed.now] * len(claimed.jobs)
        return claimed


async def throttle(place: str, seconds: int) -> Found:
    """Three instances, with a connection, a clock and a count of places each."""
    starts: list[int] = []
    async with AsyncExitStack() as stack:
        for instance in range(3):
            engine, _ = await stack.enter_async_context(opened(place))
            store = _Timed(engine)
            store.starts = starts
            queue = fastjobs.Queue(store, workers=8)

            @queue.kind("newsletter", rate=fastjobs.Throttle(100, per=1))
            async def newsletter(value: Value) -> None: ...

            if not instance:
                async with queue.running(run=False):
                    for first in range(0, (seconds + 5) * 100, 1000):
                        await newsletter.push_many([value(n) for n in range(first, first + 1000)])
            await stack.enter_async_context(queue.running())
        await asyncio.sleep(seconds)
    starts.sort()
    most, first = 0, 0
    for last, at in enumerate(starts):
        while at - starts[first] >= 1_000_000:
            first += 1
        most = max(most, last - first + 1)
    during = sum(at - starts[0] < seconds * 1_000_000 for at in starts)
    return {"most": most, "share": during / (100 * seconds), "once": most <= 100}


async def horizon(place: str, jobs: int) -> Found:
    """Claims of a kind with a limit before and after so many are done, beside a transaction that is open meanwhile."""
    async with opened(place) as (engine, store):
        term = _term("limited", at_once=100)
        await store.open(["limited"])
        await _stand(engine, "limited", jobs + 4_000, time.time_ns() // 1000 - HOUR)
        await _settled(engine, place)

        async def claims(times: int, of: int) -> list[float]:
            took: list[float] = []
            for _ in range(times):
                began = time.perf_counter()
                claimed = await store.claim([term], of)
                took.append(time.perf_counter() - began)
                assert len(claimed.jobs) == of
                await store.mark([Done(job.id, job.claim) for job in claimed.jobs])
            return took

        async with engine.connect() as older:
            await older.execution_options(isolation_level="REPEATABLE READ")
            await older.execute(text("SELECT count(*) FROM fastjobs_kinds"))
            before = await claims(200, 10)
            await claims(jobs // 100, 100)
            after = await claims(200, 10)
            await older.rollback()
        await store.close()
    return growth(before, after)


_CONTESTANTS: dict[str, Callable[[str, int], Awaitable[Found]]] = {
    each.__name__: each
    for each in (
        claim_free, claim_back, claim_limited, claim_alone, claim_all,
        push_plain, push_unique, at_once, throttle, horizon,
    )
}  # fmt: skip


def main() -> None:
    name, count, place = sys.argv[1], int(sys.argv[2]), sys.argv[3]

    async def measured() -> Found:
        return await _CONTESTANTS[name](place, count)

    print(json.dumps(asyncio.run(measured())), flush=True)


if __name__ == "__main__":
    main()
