"""Keys and limits on Postgres, in stories that other queues are known to have got wrong."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import cast

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

import fastjobs
from fastjobs.core.job import Job
from fastjobs.store import Claimable, Done, Fail, GiveBack, HoldBack, Kept, Mark, NewJob, Pusher, TryAgain
from tests.databases.postgres import Database

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

SECOND = 1_000_000


@pytest.fixture
async def engine(postgres_database: Database) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(postgres_database.url("asyncpg"), pool_size=20)
    yield engine
    await engine.dispose()


@pytest.mark.parametrize("commits", [True, False], ids=["commits", "rolls-back"])
@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
async def test_a_push_at_any_isolation_is_never_told_wrongly_that_its_value_waits(
    engine: AsyncEngine, isolation: str, commits: bool
) -> None:
    q = fastjobs.Queue(fastjobs.SQLStore(engine))

    @q.kind("reindex", unique=True)
    async def reindex(page: int) -> None: ...

    async with q.running(run=False):
        async with AsyncSession(engine) as first, AsyncSession(engine) as second:
            await second.connection(execution_options={"isolation_level": isolation})
            await second.execute(text("SELECT 1"))
            await reindex.in_(first).push(1)
            pushing = asyncio.create_task(_pushed(reindex.in_(second).push(1)))
            await asyncio.wait({pushing}, timeout=0.2)
            await (first.commit() if commits else first.rollback())
            answer = await pushing
            if answer != "refused":
                await second.commit()
        async with engine.connect() as connection:
            count = await connection.scalar(text("SELECT count(*) FROM fastjobs_jobs"))
    if not commits:
        assert answer not in (None, "refused")
        assert count == 1
    else:
        assert answer in ((None,) if isolation == "READ COMMITTED" else (None, "refused"))
        assert count == 1


async def _pushed(push: Awaitable[str | None]) -> str | None:
    try:
        return await push
    except DBAPIError as error:
        if "serialize" not in str(error):
            raise
        return "refused"


TERMS = (
    Claimable(kind="mail", hold=SECOND // 5, attempts=1000),
    Claimable(kind="photo", hold=SECOND // 5, attempts=1000, at_once=3, ahead_ok=False),
    Claimable(kind="account", hold=SECOND // 5, attempts=1000, ahead_ok=False),
)
_EACH = ("Done", "TryAgain", "GiveBack", "HoldBack", "Fail", "pushed", "run again", "deleted", "pruned")
"""What there is to be some of before it's over."""


def _new(chance: random.Random) -> NewJob:
    kind = chance.choice([term.kind for term in TERMS])
    key = f"{kind} {chance.randrange(25)}".encode().ljust(32)
    return NewJob(
        kind,
        "null",
        after=chance.choice([0, 0, 20_000]),
        key=key if kind != "photo" or chance.random() < 0.3 else None,
        latest=kind == "mail" and chance.random() < 0.5,
        one_at_a_time=kind == "account",
        name=f"name {chance.randrange(200)}" if chance.random() < 0.2 else None,
        keep_name=chance.choice([0, 50_000]),
    )


def _end(job: Job, chance: random.Random) -> Mark:
    what = chance.random()
    if what < 0.6:
        return Done(job.id, job.claim)
    if what < 0.75:
        return TryAgain(job.id, job.claim, chance.randrange(10_000), "again")
    if what < 0.85:
        return GiveBack(job.id, job.claim)
    if what < 0.9:
        return HoldBack(job.id, job.claim, 10_000)
    return Fail(job.id, job.claim, "failed")


async def test_claimers_pushers_prunes_sweeps_and_hands_that_retry_and_delete_never_deadlock(
    postgres_database: Database, engine: AsyncEngine
) -> None:
    stores = [fastjobs.SQLStore(engine) for _ in range(6)]
    chance = random.Random(3)
    counts: Counter[str] = Counter()
    pushing = 0

    def count(what: str, more: int) -> None:
        counts[what] += more

    async def claimer(store: fastjobs.SQLStore) -> None:
        while pushing:
            claimed = await store.claim(TERMS, chance.choice([1, 8, 40]))
            if not claimed.jobs:
                await asyncio.sleep(0.002)
                continue
            if chance.random() < 0.05:
                await asyncio.sleep(0.25)  # past the hold, so that others have taken it
            marks = [_end(job, chance) for job in claimed.jobs]
            for mark, kept in zip(marks, await store.mark(marks), strict=True):
                counts[type(mark).__name__] += kept is Kept.YES

    async def push(store: fastjobs.SQLStore, in_tx: bool) -> None:
        nonlocal pushing
        pushing += 1
        rounds = 0
        while (rounds := rounds + 1) <= 120 or (rounds < 3000 and any(counts[each] < 5 for each in _EACH)):
            jobs = [_new(chance) for _ in range(chance.choice([1, 2, 40]))]
            if not in_tx:
                count("pushed", sum(id is not None for id in await store.push(jobs)))
                continue
            async with AsyncSession(engine) as session:
                # In one order over all transactions, as with any rows of the app's own.
                for job in sorted(jobs, key=lambda job: (job.kind, job.key or b"", job.name or ""))[:1]:
                    pusher = cast("Pusher", store.within(session, lambda: None))
                    await pusher.push([job])
                await (session.rollback() if chance.random() < 0.3 else session.commit())
        pushing -= 1

    async def hand(store: fastjobs.SQLStore) -> None:
        while pushing:
            failed = await store.failed(limit=20)
            ids = [job.id for job in failed]
            chance.shuffle(ids)
            half = len(ids) // 2
            count("run again", sum(await store.run_again(ids[: half + 1])))
            count("deleted", sum(await store.delete(ids[half:])))
            if chance.random() < 0.2:
                count("pruned", await store.prune(0, 1))
            count("swept", await store.sweep())
            await asyncio.sleep(0.01)

    def so_many() -> int:
        rows = postgres_database.execute(
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        )
        return int(rows[0][0])

    async def all_at_once() -> None:
        works: list[Callable[[], Awaitable[None]]] = [
            *(lambda store=store: push(store, False) for store in stores[:3]),
            lambda: push(stores[3], True),
            *(lambda store=store: claimer(store) for store in stores),
            *(lambda store=store: hand(store) for store in stores[4:]),
        ]
        await asyncio.gather(*(work() for work in works))

    await stores[0].open([term.kind for term in TERMS])
    before = so_many()
    await all_at_once()
    for store in stores:
        await store.close()
    await engine.dispose()
    await asyncio.sleep(0.1)  # each of the server's processes tells of its own as it ends
    assert so_many() == before
    assert min(counts[each] for each in _EACH) >= 5, counts
