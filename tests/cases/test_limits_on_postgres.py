"""Keys and limits on Postgres, in stories that other queues are known to have got wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

import fastjobs
from tests.cases.at_once import EACH, TERMS, all_at_once
from tests.databases.postgres import Database

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


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


async def test_claimers_pushers_prunes_sweeps_and_hands_that_retry_and_delete_never_deadlock(
    postgres_database: Database, engine: AsyncEngine
) -> None:
    stores = [fastjobs.SQLStore(engine) for _ in range(6)]

    def so_many() -> int:
        rows = postgres_database.execute(
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        )
        return int(rows[0][0])

    await stores[0].open([term.kind for term in TERMS])
    before = so_many()
    counts = await all_at_once(engine, stores)
    for store in stores:
        await store.close()
    await engine.dispose()
    await asyncio.sleep(0.1)  # each of the server's processes tells of its own as it ends
    assert so_many() == before
    assert min(counts[each] for each in EACH) >= 5, counts
