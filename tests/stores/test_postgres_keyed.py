"""Keys, names and limits on Postgres beyond the suite: who waits for whom, and what a transaction that's open does."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from fastjobs.core.job import Job, NewJob
from fastjobs.core.marks import Done, Extend, GiveBack, HoldBack, Kept, TryAgain
from fastjobs.stores.sql.dialects.postgres.keyed import columns
from fastjobs.stores.sql.raw import raw
from fastjobs.stores.sql.store import SQLStore
from fastjobs.stores.sql.tables import make_tables
from tests.databases.postgres import Database
from tests.stores.postgres_link import HOLD, NOW, SECOND, Hot, connect, make, of

pytestmark = pytest.mark.anyio

YES, LOST, BUSY = Kept.YES, Kept.LOST, Kept.BUSY


@pytest.fixture(scope="module")
def made(postgres_module_database: Database) -> Database:
    make(postgres_module_database, make_tables())
    return postgres_module_database


@pytest.fixture
def database(made: Database) -> Database:
    made.clear(keep=["fastjobs_schema"])
    return made


@pytest.fixture
async def hot(database: Database) -> AsyncIterator[Hot]:
    connection = await connect(database)
    yield Hot(connection)
    await connection.close()


@pytest.fixture
async def other(database: Database) -> AsyncIterator[Hot]:
    connection = await connect(database)
    yield Hot(connection)
    await connection.close()


@pytest.fixture
async def store(database: Database) -> AsyncIterator[SQLStore]:
    engine = create_async_engine(database.url("asyncpg"))
    store = SQLStore(engine)
    yield store
    await store.close()
    await engine.dispose()


def keyed(key: str, payload: str = "null", *, alone: bool = False, **more: Any) -> NewJob:
    return NewJob("mail", payload, key=key.encode().ljust(32), one_at_a_time=alone)._replace(**more)


@asynccontextmanager
async def open_with(hot: Hot, jobs: Sequence[NewJob]) -> AsyncGenerator[Any]:
    """A transaction that has pushed these, open; it's rolled back unless the test ends it."""
    transaction = hot.connection.transaction()
    await transaction.start()
    try:
        assert None not in await hot.push_jobs(jobs)
        yield transaction
    finally:
        if hot.connection.is_in_transaction():
            await transaction.rollback()


async def deadlocks(database: Database, work: Callable[[], Awaitable[object]]) -> int:
    """How many there were in the database while it was done; each backend tells of its own as it ends."""
    before = database.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    await work()
    await asyncio.sleep(0.05)
    after = database.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    return int(after[0][0]) - int(before[0][0])


async def test_a_push_of_very_many_values_keeps_within_the_time_of_one_call(hot: Hot) -> None:
    # 1.6 s here. A look through all ids for each of them took 14.
    values = [keyed(f"{n * 7919 % 30_000}", latest=bool(n % 2)) for n in range(30_000)]
    async with asyncio.timeout(10):
        ids = await hot.push_jobs(values)
    assert None not in ids
    assert ids == sorted(ids, key=lambda id: int(id or 0))


async def test_a_push_of_a_latest_value_many_times_writes_its_job_once(hot: Hot, database: Database) -> None:
    async with hot.connection.transaction():
        ids = await hot.push_jobs([keyed("a", latest=True)] * 500)
        updated = await hot.connection.fetchval(
            "SELECT pg_stat_get_xact_tuples_updated('fastjobs_jobs'::regclass)"
        )
    assert len({*ids}) == 1
    assert updated == 0
    assert database.execute("SELECT id FROM fastjobs_jobs") == [(int(ids[0] or 0),)]


async def test_latest_pushes_answer_the_id_that_their_job_has_in_the_end(
    hot: Hot, database: Database
) -> None:
    (there,) = await hot.push_jobs([keyed("m", latest=True)])
    ids = await hot.push_jobs([keyed(key, key, latest=True) for key in "zmazbaz"])
    kept = dict(database.execute("SELECT rtrim(convert_from(own_key, 'UTF8')), id FROM fastjobs_jobs"))
    assert ids == [str(kept[key]) for key in "zmazbaz"]
    assert kept["m"] == int(there or 0)
    assert kept["m"] < kept["z"] < kept["a"] < kept["b"]


@pytest.mark.parametrize("commits", [True, False])
async def test_pushes_that_wait_for_a_transaction_are_in_nobodys_way(
    store: SQLStore, other: Hot, commits: bool
) -> None:
    await store.open(["mail"])
    async with open_with(other, [keyed("a")]) as transaction:
        waiting = [asyncio.create_task(store.push([keyed("a", str(n))])) for n in range(6)]
        for n in range(10):
            async with asyncio.timeout(2):
                assert await store.push([keyed(f"free {n}")]) != [None]
                (job,) = (await store.claim([of()], 1)).jobs
                assert await store.mark([Done(job.id, job.claim)]) == [YES]
                assert await store.push([NewJob("photo", "null")]) != [None]
        assert not any(each.done() for each in waiting)
        await (transaction.commit() if commits else transaction.rollback())
        async with asyncio.timeout(5):
            ids = [id for (id,) in await asyncio.gather(*waiting)]
    assert len([id for id in ids if id is not None]) == (0 if commits else 1)


async def test_a_push_that_nobody_waits_for_any_more_is_not_tried_again(store: SQLStore, other: Hot) -> None:
    await store.open(["mail"])
    async with open_with(other, [keyed("a")]) as transaction:
        waiting = asyncio.create_task(store.push([keyed("a")]))
        await store.push([keyed("b")])
        await asyncio.sleep(0.1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.sleep(0.2)  # the statement that was under way has given up by then
        await transaction.rollback()
    await asyncio.sleep(0.3)
    assert len((await store.claim([of()], 10)).jobs) == 1


async def test_pushes_of_the_same_keys_in_any_order_never_wait_for_each_other_for_ever(
    database: Database,
) -> None:
    hots = [Hot(await connect(database)) for _ in range(4)]
    chance = random.Random(1)

    async def push(hot: Hot) -> None:
        for _ in range(15):
            keys = [str(n) for n in range(40)]
            chance.shuffle(keys)
            # As the app's transactions wait: as long as it takes.
            jobs = [keyed(key, latest=chance.random() < 0.3) for key in keys]
            await hot.fetch(hot.statements.push_keyed, *columns(jobs, hot.now), hot.now, None, None)
            if chance.random() < 0.5:
                await hot.claim(limit=20)

    async def race() -> None:
        await asyncio.gather(*map(push, hots))
        for hot in hots:
            await hot.connection.close()

    assert await deadlocks(database, race) == 0


async def test_push_manys_of_the_same_keys_in_any_order_are_all_kept_once(database: Database) -> None:
    """Each takes the keys in the order of its jobs at first, so that two may have what the other waits for."""
    engines = [create_async_engine(database.url("asyncpg")) for _ in range(3)]
    stores = [SQLStore(engine) for engine in engines]
    chance = random.Random(2)
    for store in stores:
        await store.open(["mail"])

    async def push(store: SQLStore, number: int) -> list[str | None]:
        keys = [f"{number} {n}" for n in range(200)]
        chance.shuffle(keys)
        return await store.push([keyed(key, f'"{key}"') for key in keys])

    for number in range(10):
        async with asyncio.timeout(20):
            answers = await asyncio.gather(*(push(store, number) for store in stores))
        given = [id for ids in answers for id in ids if id is not None]
        assert len(given) == len({*given}) == 200
        for ids in answers:
            mine = [int(id) for id in ids if id is not None]
            assert mine == sorted(mine)
    assert database.execute("SELECT count(*) FROM fastjobs_jobs") == [(2_000,)]
    for store, engine in zip(stores, engines, strict=True):
        await store.close()
        await engine.dispose()


async def test_a_push_of_unique_jobs_writes_each_row_once(store: SQLStore, database: Database) -> None:
    await store.open(["mail"])
    database.execute("TRUNCATE fastjobs_jobs")
    keys = [f"{n * 7919 % 100}" for n in range(100)]
    await asyncio.gather(*(store.push([keyed(key)]) for key in keys[:40]))
    ids = await store.push([keyed(key, key) for key in keys])
    assert [id is None for id in ids] == [True] * 40 + [False] * 60
    kept = dict(database.execute("SELECT payload, id::text FROM fastjobs_jobs WHERE payload <> 'null'"))
    assert ids[40:] == [kept[key] for key in keys[40:]]
    # A version of a row that was written over has a place of its own until a vacuum.
    places = database.execute("SELECT (ctid::text::point)[0], (ctid::text::point)[1] FROM fastjobs_jobs")
    assert len(places) == 100
    for page in {page for page, _ in places}:
        on_page = [place for each, place in places if each == page]
        assert max(on_page) == len(on_page)


async def test_of_one_value_in_two_kinds_each_has_the_id_of_its_own(store: SQLStore) -> None:
    await store.open(["mail", "note"])
    await store.push([keyed("z")])
    ids = await store.push([keyed("z"), keyed("z", kind="note"), keyed("a"), keyed("z", kind="note")])
    assert [id is None for id in ids] == [True, False, False, True]
    jobs = {job.id: job.kind for job in (await store.claim([of(), of("note")], 10)).jobs}
    assert [jobs[id] for id in ids if id is not None] == ["note", "mail"]


async def test_claims_and_marks_of_few_keys_lose_no_wake_up_and_never_deadlock(database: Database) -> None:
    """Who parks is woken by the end of who has the key: a sweep comes only where all have found nothing for long."""
    hots = [Hot(await connect(database)) for _ in range(5)]
    chance = random.Random(2)
    jobs = [
        NewJob(kind, f'"{key}"', key=f"{key} {n}".encode().ljust(32))._replace(at=NOW + n)
        for kind in ("mail", "photo")
        for key in range(6)
        for n in range(25)
    ]
    chance.shuffle(jobs)
    await hots[0].push_jobs(jobs)
    await hots[0].connection.execute(
        "UPDATE fastjobs_jobs SET alone_key = sha256(payload::bytea), own_key = sha256(payload::bytea)"
    )
    held: set[tuple[str, str]] = set()
    done: list[Job] = []
    counts = {"photo": 0}

    async def work(hot: Hot) -> None:
        hot.now = NOW + SECOND
        idle = 0
        while len(done) < len(jobs) and idle < 400:
            found = await hot.claim(of(), of("photo", at_once=3), limit=chance.choice([1, 3, 20]))
            idle = 0 if found.jobs else idle + 1
            if idle == 200:  # a wake-up passes over a row that someone has locked for that moment
                await hot.fetch(hot.statements.sweep, hot.now)
            for job in found.jobs:
                assert (job.kind, job.payload) not in held
                held.add((job.kind, job.payload))
                counts["photo"] += job.kind == "photo"
            assert counts["photo"] <= 3
            await asyncio.sleep(chance.random() * 0.002)
            for job in found.jobs:
                held.discard((job.kind, job.payload))
                counts["photo"] -= job.kind == "photo"
            marks = [
                TryAgain(job.id, job.claim, 0, "again") if chance.random() < 0.1 else Done(job.id, job.claim)
                for job in found.jobs
            ]
            left = marks
            while left:
                # Busy for the moment of a claim that began before this job was claimed, and looks at it once more.
                answers = await hot.mark(*left)
                assert set(answers) <= {YES, BUSY}
                left = [mark for mark, kept in zip(left, answers, strict=True) if kept is BUSY]
            done.extend(job for job, mark in zip(found.jobs, marks, strict=True) if isinstance(mark, Done))

    async def race() -> None:
        await asyncio.gather(*map(work, hots))
        for hot in hots:
            await hot.connection.close()

    assert await deadlocks(database, race) == 0
    assert len(done) == len(jobs)
    assert database.execute("SELECT count(*) FROM fastjobs_slots") == [(0,)]


async def test_a_claim_waits_for_no_transaction_that_marks_a_job_of_the_key_done(
    store: SQLStore, database: Database
) -> None:
    await store.push([keyed("a", '"1"', alone=True)])
    (job,) = (await store.claim([of()], 10)).jobs
    await store.push([keyed("a", '"2"', alone=True), keyed("b", '"3"', alone=True)])
    engine = create_engine(database.url("psycopg"))
    with engine.begin() as connection:
        ender = store.done_within(connection, job)
        assert ender.sync is True
        assert await asyncio.to_thread(ender.done)
        async with asyncio.timeout(2):
            assert [each.payload for each in (await store.claim([of()], 10)).jobs] == ['"3"']
    engine.dispose()
    # The one that parked meanwhile is woken as that has committed; a bare connection tells of it a little early.
    async with asyncio.timeout(5):
        while not (found := (await store.claim([of()], 10)).jobs):
            await asyncio.sleep(0.01)
    assert [each.payload for each in found] == ['"2"']


async def test_a_slot_whose_job_is_gone_is_nobodys(hot: Hot) -> None:
    await hot.push_jobs([keyed("a", '"1"', alone=True)])
    (job,) = (await hot.claim()).jobs
    await hot.push_jobs([keyed("a", '"2"', alone=True)])
    await hot.connection.execute("DELETE FROM fastjobs_jobs WHERE id = $1", int(job.id))
    assert [each.payload for each in (await hot.claim()).jobs] == ['"2"']


async def test_a_sweep_wakes_who_waits_for_a_job_that_is_gone(hot: Hot) -> None:
    await hot.push_jobs([keyed("a", '"1"', alone=True)])
    (job,) = (await hot.claim()).jobs
    await hot.push_jobs([keyed("a", '"2"', alone=True)])
    assert (await hot.claim()).jobs == []
    assert await hot.fetch(hot.statements.sweep, hot.now) == [(0,)]
    await hot.connection.execute("DELETE FROM fastjobs_jobs WHERE id = $1", int(job.id))
    assert await hot.fetch(hot.statements.sweep, hot.now) == [(1,)]
    assert [each.payload for each in (await hot.claim()).jobs] == ['"2"']


async def test_a_limited_kind_that_another_claims_of_is_left_to_it_and_asked_for_again(
    hot: Hot, other: Hot
) -> None:
    await hot.push("1", kind="photo")
    await hot.push("2")
    kinds = of(), of("photo", at_once=2)
    async with other.connection.transaction():
        await other.connection.execute("SELECT FROM fastjobs_kinds WHERE kind = 'photo' FOR UPDATE")
        async with asyncio.timeout(2):
            found = await hot.claim(*kinds)
        assert [job.payload for job in found.jobs] == ["2"]
        assert found.again
    found = await hot.claim(*kinds)
    assert [job.payload for job in found.jobs] == ["1"]
    assert not found.again


async def test_an_extend_of_a_job_whose_key_another_has_by_now_is_lost(hot: Hot, other: Hot) -> None:
    """Two instances whose clocks differ: by one's the hold is over, by the other's it's not quite."""
    await hot.push_jobs([keyed("a", '"1"', alone=True)])
    (job,) = (await hot.claim()).jobs
    await hot.push_jobs([keyed("a", '"2"', alone=True)])
    other.now = NOW + HOLD
    lock = hot.connection.transaction()
    await lock.start()
    await hot.connection.execute("SELECT FROM fastjobs_jobs WHERE id = $1 FOR UPDATE", int(job.id))
    # The reap passes it over, as someone has its row.
    assert [each.payload for each in (await other.claim()).jobs] == ['"2"']
    other.now = NOW + HOLD - 1
    assert await other.mark(Extend(job.id, job.claim, HOLD)) == [BUSY]
    await lock.rollback()
    assert await other.mark(Extend(job.id, job.claim, HOLD)) == [LOST]


async def test_marks_that_give_keys_back_wait_a_moment_alone_for_transactions(hot: Hot, other: Hot) -> None:
    keys = [str(n) for n in range(20)]
    await hot.push_jobs([keyed(key) for key in keys])
    jobs = (await hot.claim()).jobs
    async with open_with(other, [keyed(key) for key in keys[:15]]):
        began = asyncio.get_running_loop().time()
        marks = [
            GiveBack(job.id, job.claim) if n % 2 else HoldBack(job.id, job.claim, SECOND)
            for n, job in enumerate(jobs)
        ]
        assert await hot.mark(*marks) == [YES] * 20
        assert asyncio.get_running_loop().time() - began < 2
        rows = await other.connection.fetch(
            "SELECT own_key, unique_key FROM fastjobs_jobs WHERE id = ANY ($1)", [int(job.id) for job in jobs]
        )
    assert {row["own_key"].decode().strip() for row in rows if row["unique_key"]} == set(keys[15:])
    assert await hot.connection.fetchval("SHOW lock_timeout") == "0"


@pytest.mark.parametrize("isolation_level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
async def test_a_name_that_is_taken_since_a_transaction_began_is_not_taken_twice(
    store: SQLStore, database: Database, isolation_level: Any
) -> None:
    named = NewJob("mail", "null", name="welcome 7", keep_name=60 * 60 * SECOND)
    await store.open()
    engine = create_engine(database.url("psycopg"), isolation_level=isolation_level)
    with engine.connect() as connection:
        connection.exec_driver_sql(
            "SELECT count(*) FROM fastjobs_names"
        )  # its snapshot, where it has but one
        await store.push([named])
        (job,) = (await store.claim([of()], 1)).jobs
        assert await store.mark([Done(job.id, job.claim)]) == [YES]
        pusher = store.within(connection, lambda: None)
        assert pusher.sync is True
        push = pusher.push
        if isolation_level == "READ COMMITTED":
            assert await asyncio.to_thread(push, [named]) == [None]
            connection.commit()
        else:
            try:
                answer = await asyncio.to_thread(push, [named])
                connection.commit()
            except DBAPIError as error:
                assert getattr(error.orig, "sqlstate", None) == "40001"  # noqa: PT017
            else:
                assert answer == [None]
    engine.dispose()
    assert (await store.claim([of()], 1)).jobs == []


async def test_a_refused_key_or_name_leaves_the_apps_transaction_whole(
    store: SQLStore, database: Database
) -> None:
    await store.push([keyed("a"), NewJob("mail", "null", name="n")])
    engine = create_engine(database.url("psycopg"))
    with engine.begin() as connection:
        pusher = store.within(connection, lambda: None)
        assert pusher.sync is True
        push = pusher.push
        jobs = [keyed("a"), keyed("b"), NewJob("mail", "null", name="n"), NewJob("mail", '"plain"')]
        ids = await asyncio.to_thread(push, jobs)
        assert [id is None for id in ids] == [True, False, True, False]
        connection.exec_driver_sql("SELECT 1")
    engine.dispose()
    assert len((await store.claim([of()], 10)).jobs) == 4


_RAW = [keyed("a", alone=True), keyed("b", '"2"', name="n"), NewJob("mail", '"3"', name="n"), keyed("a")]


async def test_a_drivers_own_transaction_keeps_keys_and_names_by_asyncpg(store: SQLStore, other: Hot) -> None:
    await store.open(["mail"])
    async with other.connection.transaction():
        pusher = store.within(raw(other.connection), lambda: None)
        assert pusher.sync is False
        ids = await pusher.push(_RAW)
        assert [id is None for id in ids] == [False, False, True, True]
    (first, second) = (await store.claim([of()], 10)).jobs
    assert [first.id, second.id] == ids[:2]
    async with other.connection.transaction():
        ender = store.done_within(raw(other.connection), second)
        assert ender.sync is False
        assert await ender.done()
    assert await store.push([NewJob("mail", "null", name="n"), keyed("a")]) != [None, None]


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_drivers_own_transaction_keeps_keys_and_names_by_psycopg(
    store: SQLStore, database: Database, is_async: bool
) -> None:
    await store.open(["mail"])
    if is_async:
        async with await psycopg.AsyncConnection.connect(database.url()) as connection:
            pusher = store.within(raw(connection), lambda: None)
            assert pusher.sync is False
            ids = await pusher.push(_RAW)
    else:
        with psycopg.connect(database.url()) as connection:
            pusher = store.within(raw(connection), lambda: None)
            assert pusher.sync is True
            ids = pusher.push(_RAW)
    assert [id is None for id in ids] == [False, False, True, True]
    jobs = (await store.claim([of()], 10)).jobs
    assert [job.id for job in jobs] == ids[:2]
    with psycopg.connect(database.url()) as connection:
        ender = store.done_within(raw(connection), jobs[0])
        assert ender.sync is True
        assert ender.done()
    assert (await store.claim([of()], 10)).jobs == []
