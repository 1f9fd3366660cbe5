"""Looks, counts and cancels on SQLite beyond the suite: who waits for whom, and what is read by which index."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

import fastjobs.sqlite
from fastjobs.core.claiming import Claimable
from fastjobs.core.errors import QueueError, StoreError
from fastjobs.core.job import FailedJob, JobState, KeptJob, NewJob
from fastjobs.store import Cancelled
from fastjobs.stores.sql.dialects.sqlite.database import SQLite
from fastjobs.stores.sql.looks import Pages, make_looks
from fastjobs.stores.sql.store import SQLStore
from fastjobs.stores.sql.tables import make_tables
from fastjobs.testing import Clock

pytestmark = pytest.mark.anyio

SECOND = 1_000_000
MAIL = Claimable(kind="mail", hold=60 * SECOND, attempts=5)
MANY = 20_000
_NUMBERS = "WITH RECURSIVE n(value) AS (VALUES (1) UNION ALL SELECT value + 1 FROM n WHERE value < ?)"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.db"


@pytest.fixture
async def engine(path: Path) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    fastjobs.sqlite.configure(engine)
    yield engine
    await engine.dispose()


@pytest.fixture
async def store(clock: Clock, engine: AsyncEngine) -> AsyncIterator[SQLStore]:
    store = SQLStore(engine, clock=clock, synchronous="NORMAL")
    await store.open(["mail", "photo"])
    yield store
    await store.close()


def write(path: Path, *statements: str, many: int = MANY) -> None:
    """Each by itself; those that begin with numbers have as many of them."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous = OFF")
        for each in statements:
            connection.execute(each, (many,) if each.startswith("WITH") else ())
    finally:
        connection.close()


def jobs(kind: str, values: str) -> str:
    """The statement that inserts so many jobs: state, run_at, held_until, failed_at."""
    return (
        f"{_NUMBERS} INSERT INTO fastjobs_jobs (kind, payload, state, run_at, held_until, failed_at)"
        f" SELECT '{kind}', '1', {values} FROM n"
    )


# Who waits for whom.


async def _looks(store: SQLStore, id: str) -> None:
    found = await store.job(id)
    assert found is not None
    assert found.state is JobState.WAITING
    assert [each.waiting for each in await store.counts() if each.kind == "mail"] == [1]
    assert len(await store.jobs("mail", JobState.WAITING)) == 1
    assert await store.failed() == []
    assert await store.asked([(id, 1)]) == set()


async def test_what_looks_answers_inside_of_a_transaction_of_the_same_task(
    store: SQLStore, engine: AsyncEngine
) -> None:
    (id,) = await store.push([NewJob("mail", "1")])
    assert id is not None
    async with engine.begin():
        await _looks(store, id)
        with pytest.raises(QueueError, match="has a transaction open"):
            await store.cancel([id])
        with pytest.raises(QueueError, match="has a transaction open"):
            await store.pause("mail", True)


async def test_what_looks_answers_while_the_writer_waits_for_a_transaction(
    store: SQLStore, engine: AsyncEngine
) -> None:
    database = store._database
    assert isinstance(database, SQLite)
    (id,) = await store.push([NewJob("mail", "1")])
    assert id is not None
    async with engine.begin():
        waits = asyncio.create_task(store.claim([MAIL], 1))
        gate = database._running().opened.result().gate
        while not gate._line:
            await asyncio.sleep(0.001)
        await _looks(store, id)
        assert not waits.done()
    assert len((await waits).jobs) == 1


async def test_what_looks_first_has_the_tables_made(clock: Clock, tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'new.db'}")
    store = SQLStore(engine, clock=clock)
    try:
        counts, failed, job = await asyncio.gather(store.counts(), store.failed(), store.job("1"))
        assert (counts, failed, job) == ([], [], None)
    finally:
        await store.close()
        engine.dispose()


async def test_a_look_writes_nothing(store: SQLStore, path: Path) -> None:
    database = store._database
    assert isinstance(database, SQLite)
    with pytest.raises(Exception, match="readonly database"):
        await database.look(lambda connection: connection.execute(text("DELETE FROM fastjobs_jobs")))


async def test_a_store_that_looked_ends_with_all_its_threads(store: SQLStore, path: Path) -> None:
    database = store._database
    assert isinstance(database, SQLite)
    await store.counts()
    writer, reader = database._running(), database._reading()
    await store.close()
    assert writer.ended.done()
    assert reader.ended.done()
    assert not Path(f"{path}-wal").exists()
    assert [each.kind for each in await store.counts()] == ["mail", "photo"]
    assert database._reading() is not reader


async def test_a_file_that_was_moved_is_told_of_and_another_in_its_place_is_read(
    store: SQLStore, path: Path, engine: AsyncEngine
) -> None:
    assert len(await store.counts()) == 2
    path.rename(path.with_name("moved.db"))
    with pytest.raises(sqlite3.OperationalError, match="was moved or removed"):
        await store.counts()
    path.with_name("moved.db").rename(path)
    assert len(await store.counts()) == 2


# What is read.


def _texts() -> list[tuple[str, str]]:
    looks = make_looks(make_tables(), "sqlite")
    found: list[tuple[str, str]] = []
    for name in looks.__slots__:
        value = getattr(looks, name)
        each = [value.first, *value.after] if isinstance(value, Pages) else [value]
        found.extend((f"{name} {n}", str(statement)) for n, statement in enumerate(each))
    return found


@pytest.mark.parametrize("statistics", ["none", "of an empty table", "wrong"])
async def test_no_look_reads_or_sorts_all_jobs(store: SQLStore, path: Path, statistics: str) -> None:
    if statistics == "of an empty table":
        write(path, "ANALYZE")
    await store.push([NewJob("mail", str(n)) for n in range(200)])
    if statistics == "wrong":
        write(path, "ANALYZE", "UPDATE sqlite_stat1 SET stat = '3 3 3' WHERE idx IS NOT NULL")
    values = {"kind": "mail", "id": 1, "cut": 9, "most": 9, "now": 5, "at": 5, "last": 5}
    connection = sqlite3.connect(path)
    try:
        for name, statement in _texts():
            plan = [
                str(step[3])
                for step in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values).fetchall()
            ]
            reads = [step for step in plan if re.match(r"(SCAN|SEARCH) [jh]\b", step)]
            assert reads, f"{name}: {plan}"
            for step in reads:
                # All that failed is in the order that's asked for.
                assert step.startswith("SEARCH") or (name == "failed 0" and "jobs_failed" in step), (
                    f"{name}: {plan}"
                )
            assert not any("TEMP B-TREE" in step for step in plan), f"{name}: {plan}"
    finally:
        connection.close()


async def _steps(store: SQLStore, work: Callable[[], Awaitable[Any]]) -> int:
    """How many steps SQLite's machine makes on the reader's connection."""
    database = store._database
    assert isinstance(database, SQLite)
    raw = (await asyncio.wrap_future(database._reading().opened)).raw
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return 0

    raw.set_progress_handler(step, 1)
    await work()
    raw.set_progress_handler(None, 1)
    return count


async def test_a_look_costs_the_same_among_many_jobs(store: SQLStore, path: Path, clock: Clock) -> None:
    now = clock.now()
    few = (
        jobs("mail", f"0, {now}, 0, NULL"),
        jobs("mail", f"1, {now}, {now + SECOND}, NULL"),
        jobs("mail", f"3, {now}, 0, {now}"),
        jobs("photo", f"3, {now}, 0, {now} - value"),
    )
    write(path, *few, many=30)
    write(path, "ANALYZE")
    works: dict[str, Callable[[], Awaitable[Any]]] = {
        "counts": lambda: store.counts(cap=20),
        "job": lambda: store.job("1"),
        "waiting": lambda: store.jobs("mail", JobState.WAITING, limit=10),
        "held": lambda: store.jobs("mail", JobState.HELD, after=(now + SECOND, "35"), limit=10),
        "failed": lambda: store.failed(limit=10),
        "failed of a kind": lambda: store.failed(kind="photo", limit=10),
        "failed after many of one time": lambda: store.failed(after=(now, "66"), limit=10),
        "failed of a kind after many of one time": lambda: store.failed(
            kind="mail", after=(now, "75"), limit=10
        ),
        "asked": lambda: store.asked([("1", 1), ("40", 1)]),
    }
    before = {name: await _steps(store, work) for name, work in works.items()}
    write(path, *few)
    after = {name: await _steps(store, work) for name, work in works.items()}
    # The job's kind has 30 held in one and far more than are counted in the other.
    assert {name: count for name, count in after.items() if count > before[name] + 12_000} == {}
    for name in ("counts", "failed", "failed of a kind", "asked"):
        assert after[name] <= before[name] + 100, name


async def test_pages_of_jobs_that_share_their_time_leave_none_out(
    store: SQLStore, path: Path, clock: Clock
) -> None:
    now = clock.now()
    write(
        path,
        jobs("mail", f"0, {now} + value / 40, 0, NULL"),
        jobs("mail", f"1, {now}, {now + SECOND} + value / 40, NULL"),
        jobs("mail", f"3, {now}, 0, {now} - value / 40"),
        many=100,
    )
    failed: list[FailedJob] = []
    while page := await store.failed(
        kind="mail", limit=7, after=(failed[-1].failed_at, failed[-1].id) if failed else None
    ):
        failed += page
    assert [(-each.failed_at, -int(each.id)) for each in failed] == sorted(
        (-each.failed_at, -int(each.id)) for each in failed
    )
    assert len({each.id for each in failed}) == len(failed) == 100
    for state in (JobState.WAITING, JobState.HELD):
        kept: list[KeptJob] = []
        places: list[tuple[int, str]] = []
        while page2 := await store.jobs("mail", state, limit=7, after=places[-1] if places else None):
            kept += page2
            places += [
                (each.run_at if state is JobState.WAITING else each.held_until or 0, each.id)
                for each in page2
            ]
        assert len({each.id for each in kept}) == len(kept) == 100
        assert [(at, int(id)) for at, id in places] == sorted((at, int(id)) for at, id in places)


async def test_a_cut_payload_is_cut_by_the_database(store: SQLStore, path: Path, clock: Clock) -> None:
    write(
        path,
        f"INSERT INTO fastjobs_jobs (kind, payload, run_at, state, failed_at) SELECT 'mail',"
        f" '\"' || hex(zeroblob(500000)) || '\"', {clock.now()}, state, {clock.now()}"
        " FROM (SELECT 0 AS state UNION ALL SELECT 3)",
    )
    database = store._database
    assert isinstance(database, SQLite)
    raw = (await asyncio.wrap_future(database._reading().opened)).raw
    read: list[int] = []

    def counted(found: bytes) -> str:
        read.append(len(found))
        return found.decode()

    raw.text_factory = counted
    (failed,) = await store.failed(cut=4096)
    (waiting,) = await store.jobs("mail", JobState.WAITING, cut=4096)
    assert (len(failed.payload), failed.size) == (4096, 1_000_002)
    assert (len(waiting.payload), waiting.size) == (4096, 1_000_002)
    assert max(read) == 4096
    assert len((await store.failed(cut=0))[0].payload) == 0
    assert len((await store.failed())[0].payload) == 1_000_002


# Cancels and pauses.


async def test_a_cancel_of_what_is_no_id_is_of_no_job(store: SQLStore) -> None:
    (id,) = await store.push([NewJob("mail", "1")])
    assert id is not None
    ids = ["", "x", "-1", "01", "9" * 19, "9" * 30, id, id]
    assert await store.cancel(ids) == [Cancelled.NOT_THERE] * 6 + [Cancelled.REMOVED, Cancelled.NOT_THERE]


async def test_the_listener_hears_of_a_kind_that_is_resumed_and_not_of_one_that_is_paused(
    store: SQLStore, engine: AsyncEngine, clock: Clock
) -> None:
    heard: asyncio.Queue[None] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def wake() -> None:
        loop.call_soon_threadsafe(heard.put_nowait, None)

    other = SQLStore(engine, clock=clock, synchronous="NORMAL")
    await store.push([NewJob("mail", "1")])
    try:
        async with other.listen(wake):
            assert await store.pause("mail", True)
            # What comes after it is heard: had the pause been, there would be two.
            await store.push([NewJob("photo", "1")])
            async with asyncio.timeout(10):
                await heard.get()
            assert heard.empty()
            assert await store.pause("mail", False)
            async with asyncio.timeout(10):
                await heard.get()
    finally:
        await other.close()


def by_hand(path: Path, statement: str, *values: object) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(statement, values)
    connection.close()


@pytest.mark.parametrize(
    "value", [b"a\xff\x1b", 5, "\x1b[2J\u202e"], ids=["bytes", "a number", "control characters"]
)
async def test_what_was_written_by_hand_hides_no_other_job(
    store: SQLStore, path: Path, value: object
) -> None:
    await store.push([NewJob(kind="mail", payload="1"), NewJob(kind="mail", payload="2")])
    by_hand(path, "UPDATE fastjobs_jobs SET state = 3, failed_at = id")
    columns = ("payload", "error", "name", "progress", "carried")
    by_hand(
        path,
        f"UPDATE fastjobs_jobs SET {', '.join(f'{each} = ?' for each in columns)} WHERE id = 2",
        *[value] * len(columns),
    )
    listed = await store.failed()
    assert [each.id for each in listed] == ["2", "1"]
    for job in (listed[0], await store.job("2")):
        assert job is not None
        assert all(isinstance(getattr(job, each), str) for each in columns)


async def test_bytes_that_are_no_text_are_shown_all_the_same(store: SQLStore, path: Path) -> None:
    await store.push([NewJob(kind="mail", payload="1")])
    by_hand(path, "UPDATE fastjobs_jobs SET state = 3, failed_at = 1, error = CAST(x'61ff' AS TEXT)")
    (job,) = await store.failed()
    assert job.error is not None
    assert job.error.startswith("a")


async def test_a_job_that_was_set_to_failed_by_hand_is_listed_though_it_has_no_time(
    store: SQLStore, path: Path
) -> None:
    await store.push([NewJob(kind="mail", payload=str(n)) for n in range(3)])
    by_hand(path, "UPDATE fastjobs_jobs SET state = 3, failed_at = 5")
    by_hand(path, "UPDATE fastjobs_jobs SET failed_at = NULL WHERE id = 2")
    assert [(each.id, each.failed_at) for each in await store.failed()] == [("3", 5), ("1", 5), ("2", 0)]
    assert await store.delete(["2"]) == [True]


async def test_a_state_of_a_later_version_is_told_by_its_number(store: SQLStore, path: Path) -> None:
    await store.push([NewJob(kind="mail", payload="1")])
    by_hand(path, "UPDATE fastjobs_jobs SET state = 9")
    with pytest.raises(
        StoreError, match="job 1 is in a state, 9, that this version of fastjobs doesn't know"
    ):
        await store.job("1")
