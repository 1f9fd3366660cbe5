"""Schedules on real databases: a run and its job are whole whatever fails in between, and queues agree who pushes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from fastjobs import Every, Queue, SQLStore, Unique
from fastjobs.core.claiming import Claimable
from fastjobs.core.job import NewJob
from fastjobs.store import Run
from tests.databases.postgres import Database

pytestmark = pytest.mark.anyio

NewStore = Callable[[], SQLStore]
SOON = 3.0
"""Seconds that a call may take: far less than the ten after which it's given up."""
CLAIM = [Claimable(kind="mail", hold=60_000_000, attempts=5)]

BREAKS = {
    "sqlite": [
        "CREATE TRIGGER breaks BEFORE INSERT ON fastjobs_jobs BEGIN SELECT RAISE(ABORT, 'broken'); END",
    ],
    "postgresql": [
        "CREATE FUNCTION breaks() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'broken'; END $$",
        "CREATE TRIGGER breaks BEFORE INSERT ON fastjobs_jobs FOR EACH ROW EXECUTE FUNCTION breaks()",
    ],
}
MENDS = {
    "sqlite": "DROP TRIGGER breaks",
    "postgresql": "DROP TRIGGER breaks ON fastjobs_jobs",
}


@pytest.fixture(params=["sqlite", "postgresql"])
def engines(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[AsyncEngine, Engine]]:
    if request.param == "sqlite":
        url = f"{tmp_path}/app.db"
        urls = f"sqlite+aiosqlite:///{url}", f"sqlite:///{url}"
    else:
        database: Database = request.getfixturevalue("postgres_database")
        urls = database.url("asyncpg"), database.url("psycopg")
    sync = create_engine(urls[1], poolclass=NullPool)
    yield create_async_engine(urls[0], poolclass=NullPool), sync
    sync.dispose()


@pytest.fixture
async def new_store(engines: tuple[AsyncEngine, Engine]) -> AsyncIterator[NewStore]:
    made: list[SQLStore] = []

    def new() -> SQLStore:
        made.append(SQLStore(engines[0]))
        return made[-1]

    yield new
    for each in made:
        await each.close()


def _run(due: int, key: bytes | None = None) -> Run:
    return Run("nightly", due, NewJob("mail", "1", at=0, key=key))


@pytest.mark.parametrize("key", [None, b"k" * 32], ids=["no key", "key"])
async def test_a_push_that_breaks_between_the_run_and_its_job_keeps_neither(
    new_store: NewStore, engines: tuple[AsyncEngine, Engine], key: bytes | None
) -> None:
    store, sync = new_store(), engines[1]
    await store.open(["mail"])
    assert await store.push_run(_run(1, key)) is True
    (job,) = (await store.claim(CLAIM, 10)).jobs
    with sync.begin() as connection:
        for each in BREAKS[sync.dialect.name]:
            connection.execute(text(each))
    with pytest.raises(Exception, match="broken"):
        await store.push_run(_run(2, key))
    with sync.begin() as connection:
        connection.execute(text(MENDS[sync.dialect.name]))
    assert await store.runs(["nightly"]) == {"nightly": 1}
    assert (await store.claim(CLAIM, 10)).jobs == []
    assert await store.push_run(_run(2, key)) is True
    assert [each.id != job.id for each in (await store.claim(CLAIM, 10)).jobs] == [True]


async def test_several_queues_push_each_run_once_and_run_it(new_store: NewStore) -> None:
    """In real time: a fifth of a second, ten times."""
    ran: list[datetime] = []
    enough = asyncio.Event()
    every = Every(seconds=0.2)

    pushed: list[int] = []

    def new_queue() -> Queue:
        store = new_store()
        push_run = store.push_run

        async def recorded(run: Run) -> bool:
            won = await push_run(run)
            if won:
                pushed.append(run.due)
            return won

        store.push_run = recorded  # type: ignore[method-assign]
        queue = Queue(store, poll=0.1, grace=1)

        @queue.kind("tick")
        async def tick() -> None:
            ran.append(datetime.now(UTC))
            if len(ran) == 10:
                enough.set()

        tick.schedule(every)
        return queue

    one, two, three = new_queue(), new_queue(), new_queue()
    async with one.running(), two.running(), three.running(), asyncio.timeout(20):
        await enough.wait()
    assert len(pushed) == len(set(pushed)), "a run was pushed twice"
    assert sorted(pushed) == pushed
    assert all(due % 200_000 == 0 for due in pushed)


@pytest.mark.parametrize("commits", [True, False])
async def test_a_run_whose_key_an_open_transaction_has_waits_for_its_end_and_keeps_nobody_else_waiting(
    postgres_database: Database, commits: bool
) -> None:
    engine = create_async_engine(postgres_database.url("asyncpg"), poolclass=NullPool)
    store = SQLStore(engine)
    queue = Queue(store, workers=0)

    @queue.kind("mail", unique=Unique(latest=True))
    async def mail(n: int) -> None: ...

    mail.schedule(Every(seconds=60), 1)
    run = queue.schedules[0].run(datetime(2026, 1, 1, tzinfo=UTC))
    try:
        await store.open(["mail"])
        async with engine.connect() as connection:
            transaction = await connection.begin()
            await mail.in_(connection).push(1)
            waits = asyncio.create_task(store.push_run(run))
            for _ in range(5):
                async with asyncio.timeout(SOON):
                    assert (await store.claim(CLAIM, 10)).jobs == []
                    await store.push([NewJob("photo", "1")])
                await asyncio.sleep(0.1)
            assert not waits.done()
            await (transaction.commit() if commits else transaction.rollback())
        async with asyncio.timeout(SOON):
            assert await waits is True
        assert await store.runs(["nightly", "mail"]) == {"mail": run.due}
        (job,) = (await store.claim(CLAIM, 10)).jobs
        assert (job.run_at == run.due) is not commits, "one job is there: the transaction's, or the run's own"
    finally:
        await store.close()
        await engine.dispose()
