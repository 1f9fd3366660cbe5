"""What a job costs stays bounded: its row by its attempts, and a claim by what it takes, however large others are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from fastjobs import Memory, Permanent, Queue, Snooze, SQLStore, current_job
from fastjobs.store import Claimable, Fail, NewJob, TryAgain
from fastjobs.stores.sql.dialects.sqlite.database import SQLite
from fastjobs.testing import Clock

pytestmark = pytest.mark.anyio

LARGE = '"' + "x" * 100_000 + '"'
PHOTO = Claimable(kind="photo", hold=1_000_000, attempts=3)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def sqlite(tmp_path: Path, clock: Clock) -> AsyncIterator[SQLStore]:
    engine = create_engine(f"sqlite:///{tmp_path / 'app.db'}")
    store = SQLStore(engine, clock=clock, synchronous="NORMAL")
    yield store
    await store.close()
    engine.dispose()


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, clock: Clock, sqlite: SQLStore) -> Memory | SQLStore:
    return sqlite if request.param == "sqlite" else Memory(clock=clock)


def _texts(store: SQLStore) -> list[int]:
    """How long each text is that the store reads from its database from now on."""
    read: list[int] = []

    def counted(found: bytes) -> str:
        read.append(len(found))
        return found.decode()

    database = store._database
    assert isinstance(database, SQLite)
    database._running().opened.result(5).raw.text_factory = counted
    return read


async def test_a_row_stays_small_however_often_its_job_fails_and_tells_of_its_last_error(
    store: Memory | SQLStore, clock: Clock
) -> None:
    queue = Queue(store, clock=clock)
    longest = 0

    @queue.kind("mail", attempts=400, backoff=0)
    async def mail() -> None:
        nonlocal longest
        last = current_job().last_error or ""
        longest = max(longest, len(last.encode()))
        raise ValueError(f"again é {last} " + "x" * 100)

    await mail.push()
    assert await queue.drain() == 400
    (failed,) = await store.failed()
    assert failed.attempts == 400
    assert 4000 < longest <= 4096
    assert sum(len(str(value).encode()) for value in failed) < 5000


async def test_a_row_stays_small_through_two_thousand_attempts_with_the_longest_error_and_progress(
    sqlite: SQLStore, clock: Clock
) -> None:
    (id,) = await sqlite.push([NewJob(kind="photo", payload='"x"', carried='{"request_id": "1"}')])
    assert id is not None
    terms = Claimable(kind="photo", hold=60_000_000, attempts=20_000)
    for n in range(2_000):
        (job,) = (await sqlite.claim([terms], 1)).jobs
        if n % 100 == 0:
            await sqlite.progress([(job.id, job.claim, '"' + "x" * 1000 + '"')])
        await sqlite.mark([TryAgain(job.id, job.claim, 0, f"{n} " + "é" * 5_000)])
    found = await sqlite.job(id)
    assert found is not None
    assert found.attempts == 2_000
    assert len((found.error or "").encode()) <= 4096
    assert sum(len(str(value).encode()) for value in found) < 6000


async def test_a_row_stays_small_however_often_its_job_is_lost_and_run_again(
    store: Memory | SQLStore, clock: Clock
) -> None:
    queue = Queue(store, clock=clock)

    @queue.kind("photo", attempts=3)
    async def photo() -> None:
        raise AssertionError("its attempts are used up")

    await photo.push()
    for _ in range(60):
        for _ in range(3):
            assert len((await store.claim([PHOTO], 1)).jobs) == 1
            clock.advance(1)
        assert await queue.drain() == 0
        (failed,) = await store.failed()
        assert len((failed.error or "").encode()) <= 4096
        assert await store.run_again([failed.id]) == [True]


async def test_a_job_may_be_snoozed_for_ever(store: Memory | SQLStore, clock: Clock) -> None:
    queue = Queue(store, clock=clock)
    runs = 0

    @queue.kind("mail", attempts=1)
    async def mail() -> None:
        nonlocal runs
        runs += 1
        if runs == 500:
            raise Permanent("enough")
        raise Snooze(after=0)

    await mail.push()
    assert await queue.drain() == 500
    (failed,) = await store.failed()
    assert failed.attempts == 1


async def test_a_claim_reads_the_payloads_of_the_jobs_it_takes_alone(sqlite: SQLStore, clock: Clock) -> None:
    await sqlite.push([NewJob(kind="photo", payload=LARGE) for _ in range(30)])
    read = _texts(sqlite)
    assert len((await sqlite.claim([PHOTO], 3)).jobs) == 3
    assert 3 <= sum(length > 1000 for length in read) <= 4


async def test_a_claim_ahead_reads_no_payload_of_the_jobs_that_lost_a_worker_and_wait_for_a_free_one(
    sqlite: SQLStore, clock: Clock
) -> None:
    await sqlite.push([NewJob(kind="photo", payload=LARGE) for _ in range(30)])
    assert len((await sqlite.claim([PHOTO], 30)).jobs) == 30
    clock.advance(2)
    await sqlite.push([NewJob(kind="photo", payload=str(n)) for n in range(3)])
    read = _texts(sqlite)
    assert [job.payload for job in (await sqlite.claim([PHOTO], 3, ahead=3)).jobs] == ["0", "1", "2"]
    assert max(read) < 1000
    found = await sqlite.claim([PHOTO], 3, ahead=3)
    assert (found.jobs, found.next_in) == ([], 0), "they're told of as due"
    assert max(read) < 1000
    assert len((await sqlite.claim([PHOTO], 40)).jobs) == 30


async def test_a_mark_and_a_renewal_read_no_payload(sqlite: SQLStore, clock: Clock) -> None:
    await sqlite.push([NewJob(kind="photo", payload=LARGE)])
    (job,) = (await sqlite.claim([PHOTO], 1)).jobs
    read = _texts(sqlite)
    await sqlite.mark([Fail(job.id, job.claim, "no")])
    assert await sqlite.run_again([job.id]) == [True]
    assert (await sqlite.claim([PHOTO], 0)).jobs == []
    assert max(read, default=0) < 1000
