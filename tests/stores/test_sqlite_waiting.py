"""What waited for another process's lock is done by the time at which it got it, not by the time it was asked."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Generator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError

from fastjobs.core.claiming import Claimable
from fastjobs.core.job import NewJob
from fastjobs.core.marks import Extend, Kept, TryAgain
from fastjobs.stores.sql import migrations
from fastjobs.stores.sql.store import SQLStore
from fastjobs.testing import Clock

pytestmark = pytest.mark.anyio

SECOND = 1_000_000
MAIL = Claimable(kind="mail", hold=3 * SECOND, attempts=5)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(clock: Clock, tmp_path: Path) -> AsyncIterator[SQLStore]:
    store = SQLStore(create_engine(f"sqlite:///{tmp_path / 'app.db'}"), clock=clock, synchronous="NORMAL")
    await store.open(["mail"])
    await store.push([NewJob(kind="mail", payload="1")])
    yield store
    await store.close()


@pytest.fixture
def other(store: SQLStore, tmp_path: Path) -> Generator[sqlite3.Connection]:
    """Another process, as far as SQLite can tell."""
    connection = sqlite3.connect(tmp_path / "app.db", isolation_level=None)
    yield connection
    connection.close()


async def wait_for_the_lock() -> None:
    """Gives the writer's thread the time to come to the lock, which it then asks for again and again."""
    await asyncio.sleep(0.05)


async def test_a_claim_that_waited_holds_its_jobs_from_when_it_was_made(
    store: SQLStore, clock: Clock, other: sqlite3.Connection
) -> None:
    other.execute("BEGIN IMMEDIATE")
    claiming = asyncio.create_task(store.claim([MAIL], 1))
    await wait_for_the_lock()
    clock.advance(4)
    other.execute("COMMIT")
    claimed = await claiming
    assert [job.attempts for job in claimed.jobs] == [1]
    assert claimed.now == clock.now()
    assert other.execute("SELECT held_until FROM fastjobs_jobs").fetchone() == (clock.now() + 3 * SECOND,)
    assert (await store.claim([MAIL], 1)).jobs == []


async def test_a_renewal_that_waited_until_the_hold_was_over_is_lost(
    store: SQLStore, clock: Clock, other: sqlite3.Connection
) -> None:
    (job,) = (await store.claim([MAIL], 1)).jobs
    other.execute("BEGIN IMMEDIATE")
    renewing = asyncio.create_task(store.mark([Extend(job.id, job.claim, 3 * SECOND)]))
    await wait_for_the_lock()
    clock.advance(3)
    other.execute("COMMIT")
    assert await renewing == [Kept.LOST]


async def test_a_retry_that_waited_is_due_after_its_whole_wait(
    store: SQLStore, clock: Clock, other: sqlite3.Connection
) -> None:
    (job,) = (await store.claim([MAIL], 1)).jobs
    other.execute("BEGIN IMMEDIATE")
    marking = asyncio.create_task(store.mark([TryAgain(job.id, job.claim, 5 * SECOND, "no")]))
    await wait_for_the_lock()
    clock.advance(2)
    other.execute("COMMIT")
    assert await marking == [Kept.YES]
    assert other.execute("SELECT run_at FROM fastjobs_jobs").fetchone() == (clock.now() + 5 * SECOND,)


async def test_a_store_that_opens_while_the_file_is_locked_waits_whichever_way_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, told = migrations.found_version, 0

    def locked_at_first(*args: Any, **more: Any) -> int:
        nonlocal told
        told += 1
        if told <= 3:
            driver = sqlite3.OperationalError("database is locked")
            driver.sqlite_errorcode = sqlite3.SQLITE_BUSY
            raise OperationalError("PRAGMA main.table_info", None, driver)
        return found(*args, **more)

    monkeypatch.setattr(migrations, "found_version", locked_at_first)
    store = SQLStore(create_engine(f"sqlite:///{tmp_path / 'new.db'}"), synchronous="NORMAL")
    assert await store.push([NewJob(kind="mail", payload="1")]) == ["1"]
    assert told > 3
    await store.close()
