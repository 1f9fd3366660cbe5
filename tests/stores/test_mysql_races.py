"""Pushes, claims and marks that race on MySQL and MariaDB, from eight connections and more.

The server may end a transaction in a deadlock. It's tried again, and no caller hears of it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from fastjobs.core.job import Job, NewJob
from fastjobs.core.marks import Done, GiveBack, Kept, Mark, TryAgain
from fastjobs.stores.sql.dialects.mysql import errors
from fastjobs.stores.sql.store import SQLStore
from fastjobs.testing.suite.subject import of
from tests.databases.mysql import Database

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

log = logging.getLogger(__name__)

JOBS = 240
KEYS = [bytes([n]) * 32 for n in range(8)]


@pytest.fixture
async def stores(mysql_database: Database) -> AsyncIterator[list[SQLStore]]:
    """Four instances' stores, which have two links each."""
    engines = [create_async_engine(mysql_database.url("asyncmy")) for _ in range(4)]
    stores = [SQLStore(engine) for engine in engines]
    for store in stores:
        await store.open(["mail", "alone"])
    yield stores
    for store, engine in zip(stores, engines, strict=True):
        await store.close()
        await engine.dispose()


@pytest.fixture
def retried(monkeypatch: pytest.MonkeyPatch) -> Counter[int | None]:
    """By their numbers, the errors after which a call was made again."""
    seen: Counter[int | None] = Counter()
    is_worth: Callable[[BaseException], bool] = errors.is_worth_another_try

    def counted(error: BaseException) -> bool:
        found = is_worth(error)
        if found:
            seen[errors.code(error)] += 1
        return found

    monkeypatch.setattr(errors, "is_worth_another_try", counted)
    return seen


async def test_nobody_hears_of_a_deadlock_and_each_job_is_done_once_and_each_key_held_once(
    stores: list[SQLStore], retried: Counter[int | None]
) -> None:
    done: Counter[str] = Counter()
    pushed: set[str] = set()
    held: dict[str, str] = {}
    """Who has each key that may be held once."""
    chance = random.Random(7)

    async def pushes(store: SQLStore) -> None:
        for _ in range(JOBS // 8 // 5):
            keys = chance.sample(KEYS, 5)
            # A push of a key that waits already answers None.
            jobs = [NewJob("alone", f"{key[0]}", key=key, one_at_a_time=True) for key in keys]
            ids = [*await store.push(jobs), *await store.push([NewJob("mail", "0")] * 5)]
            pushed.update(id for id in ids if id is not None)

    def marked(job: Job) -> Mark:
        if chance.random() < 0.2:
            return (
                GiveBack(job.id, job.claim) if chance.random() < 0.5 else TryAgain(job.id, job.claim, 0, "no")
            )
        return Done(job.id, job.claim)

    async def claims(store: SQLStore) -> None:
        while pushing or len(done) < len(pushed):
            jobs = (await store.claim([of("mail"), of("alone", at_once=6)], 4)).jobs
            for job in jobs:
                if job.kind == "alone":
                    assert held.setdefault(job.payload, job.id) == job.id, "two of one key are held"
            await asyncio.sleep(0.002)
            marks = [marked(job) for job in jobs]
            for job in jobs:
                held.pop(job.payload if job.kind == "alone" else "", None)
            left = list(marks)
            while left:
                kept = await store.mark(left)
                assert set(kept) <= {Kept.YES, Kept.BUSY}
                done.update(
                    mark.id
                    for mark, answer in zip(left, kept, strict=True)
                    if answer is Kept.YES and isinstance(mark, Done)
                )
                left = [mark for mark, answer in zip(left, kept, strict=True) if answer is Kept.BUSY]
            if not jobs:
                # Who was to wake one may have passed it over, as another had its row locked just then.
                await store.sweep()
                await asyncio.sleep(0.005)

    pushing = True
    async with asyncio.timeout(60):
        claiming = [asyncio.ensure_future(claims(store)) for store in stores for _ in range(2)]
        try:
            await asyncio.gather(*(pushes(store) for store in stores for _ in range(2)))
            pushing = False
            await asyncio.gather(*claiming)
        finally:
            for each in claiming:
                each.cancel()
    assert set(done.values()) == {1}
    assert done.keys() == pushed
    log.info("tried again, by the error's number: %s", dict(retried))


async def test_a_deadlock_in_later_marks_of_a_call_has_those_before_them_told_as_kept(
    stores: list[SQLStore], mysql_database: Database
) -> None:
    store = stores[0]
    await store.push([NewJob(kind="mail", payload="1")])
    (job,) = (await store.claim([of("mail")], 1)).jobs
    # The session's variable keeps its count through the rollback.
    mysql_database.execute(
        "CREATE TRIGGER fails BEFORE DELETE ON fastjobs_jobs FOR EACH ROW BEGIN SET @fails = COALESCE(@fails, 0) + 1;"
        " IF @fails <= 2 THEN SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'a deadlock'; END IF; END"
    )
    # The second of a job goes apart from the first, after it.
    kept = await store.mark([TryAgain(job.id, job.claim, 0, "oh"), Done(job.id, job.claim + 1)])
    assert kept == [Kept.YES, Kept.YES]
    assert mysql_database.execute("SELECT COUNT(*) FROM fastjobs_jobs") == [(0,)]
