"""Looks, counts, cancels and progress on Postgres beyond the suite: who waits for whom, and what is read.

It's counted what each reads among jobs that it has nothing to do with, with statistics of the empty table and of the
full one, on a connection that planned it while the table was empty and on a new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import pytest
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine

from fastjobs.core.job import FailedJob, JobState, KeptJob, NewJob
from fastjobs.core.marks import Done, Kept
from fastjobs.store import Cancelled
from fastjobs.stores.sql import looking, operations
from fastjobs.stores.sql.dialects.postgres import acting
from fastjobs.stores.sql.store import SQLStore
from fastjobs.stores.sql.tables import make_tables
from fastjobs.testing import Clock
from tests.databases.postgres import Database, Server
from tests.stores.postgres_link import HOLD, NOW, SECOND, Hot, connect, make, of

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

TABLES = make_tables()
# What none of them has anything to do with: of each state, many of one kind, and few or none of another.
_BACKLOG = f"""
INSERT INTO fastjobs_jobs (kind, payload, run_at, state, held_until, failed_at, claim, attempts, alone_key)
SELECT 'mail', 'null', {NOW - SECOND}, state, held_until, failed_at, 1, 1, key 
FROM generate_series(1, 40000) AS n, (VALUES
  (0::smallint, 0::bigint, NULL::bigint, NULL::bytea),
  (1, {NOW + HOLD}, NULL, NULL),
  (2, 0, NULL, decode('{"00" * 32}', 'hex')),
  (3, 0, {NOW}, NULL)
) AS each(state, held_until, failed_at, key)
"""
_READ = text(
    "SELECT coalesce(sum(seq_tup_read), 0)::bigint, coalesce(sum((SELECT"
    " sum(pg_stat_get_xact_tuples_returned(indexrelid)) FROM pg_index WHERE indrelid = relid)), 0)::bigint"
    " FROM pg_stat_xact_user_tables WHERE relname IN ('fastjobs_jobs', 'fastjobs_slots')"
)


class _Read(NamedTuple):
    rows: int
    """By scans of whole tables."""
    entries: int
    """Of indexes."""


@pytest.fixture(params=["postgres", "postgres_old"])
def database(request: pytest.FixtureRequest) -> Any:
    server: Server = request.getfixturevalue(request.param)
    database = server.create_database()
    make(database, TABLES)
    for table in ("jobs", "slots", "kinds"):
        database.execute(f"ALTER TABLE fastjobs_{table} SET (autovacuum_enabled = off)")
    yield database
    database.drop()


@pytest.fixture
def clock() -> Clock:
    return Clock(NOW)


class _Opened:
    """A store and a connection beside it, whose plans were made when they were first used."""

    def __init__(self, store: SQLStore, hot: Hot, engine: Any) -> None:
        self.store, self.hot, self.engine = store, hot, engine

    async def close(self) -> None:
        await self.store.close()
        await self.engine.dispose()
        await self.hot.connection.close()


async def _open(database: Database, clock: Clock) -> _Opened:
    engine = create_async_engine(database.url("asyncpg"))
    store = SQLStore(engine, clock=clock)
    await store.open(["mail", "rare"])
    return _Opened(store, Hot(await connect(database)), engine)


async def _read(opened: _Opened, work: Callable[[Connection], object], *, writes: bool) -> _Read:
    def counted(connection: Connection) -> _Read:
        before = connection.execute(_READ).one()
        work(connection)
        after = connection.execute(_READ).one()
        return _Read(*(b - a for a, b in zip(before, after, strict=True)))

    database = opened.store._database
    return await (database.run(counted) if writes else database.look(counted))


async def _read_hot(opened: _Opened, work: Callable[[], Awaitable[object]]) -> _Read:
    connection = opened.hot.connection
    async with connection.transaction():
        before = tuple(await connection.fetchrow(_READ.text) or (0, 0))
        await work()
        after = tuple(await connection.fetchrow(_READ.text) or (0, 0))
    return _Read(*(b - a for a, b in zip(before, after, strict=True)))


async def _everything(opened: _Opened, when: str) -> None:
    """Does each thing several times, and sees that none has read more than it may, or a whole table."""
    hot = opened.hot
    ids = [str(id) for id in await hot.push(*map(str, range(20)), kind="rare")]
    claimed = (await hot.claim(of("rare"), limit=5)).jobs
    numbers = [int(id) for id in ids]
    failed = numbers[5:15]
    await hot.connection.execute(
        "UPDATE fastjobs_jobs SET state = 3, failed_at = $1 + id WHERE id = ANY ($2)", NOW, failed
    )
    parked = numbers[15]
    await hot.connection.execute(
        "UPDATE fastjobs_jobs SET state = 2, alone_key = sha256('x') WHERE id = $1", parked
    )
    held = [(job.id, job.claim) for job in claimed]
    now = hot.now

    def check(name: str, read: _Read, most: int) -> None:
        assert read.rows == 0, f"{name} read a whole table, {when}"
        assert read.entries <= most, f"{name} read {read.entries} entries, {when}"

    looks: dict[str, tuple[int, Callable[[Connection], object]]] = {
        "counts": (1000, lambda c: looking.counts(c, TABLES, 100, now)),
        "job": (1100, lambda c: looking.job(c, TABLES, ids[0], None, now)),
        "a parked job": (1100, lambda c: looking.job(c, TABLES, str(parked), None, now)),
        "waiting": (60, lambda c: looking.jobs(c, TABLES, "rare", JobState.WAITING, None, 10, 9, now)),
        "held": (60, lambda c: looking.jobs(c, TABLES, "rare", JobState.HELD, None, 10, 9, now)),
        "more that wait": (
            1200,
            lambda c: looking.jobs(c, TABLES, "mail", JobState.WAITING, (NOW - SECOND, "9000"), 10, 9, now),
        ),
        "failed": (20, lambda c: looking.failed(c, TABLES, None, None, 10, 9)),
        "more failed": (20, lambda c: looking.failed(c, TABLES, None, (NOW, "90000"), 10, 9)),
        "failed of a kind": (30, lambda c: looking.failed(c, TABLES, "rare", None, 20, 9)),
        "failed of none": (10, lambda c: looking.failed(c, TABLES, "none", None, 20, 9)),
        "more failed of a kind": (
            30,
            lambda c: looking.failed(c, TABLES, "rare", (NOW + failed[5], str(failed[5])), 20, 9),
        ),
        "more failed of many": (30, lambda c: looking.failed(c, TABLES, "mail", (NOW, "90000"), 20, 9)),
        "asked": (20, lambda c: looking.asked(c, TABLES, held)),
    }
    # The sixth time a driver may have the server keep a plan that is for any parameters.
    for _ in range(7):
        for name, (most, look) in looks.items():
            check(name, await _read(opened, look, writes=False), most)
    again, gone = [str(number) for number in failed[:5]], [str(number) for number in failed[5:]]
    for _ in range(7):
        check(
            "run again",
            await _read(opened, lambda c: operations.run_again(c, TABLES, again, now), writes=True),
            60,
        )
    check("delete", await _read(opened, lambda c: operations.delete(c, TABLES, gone, now), writes=True), 60)
    statements, fetch = hot.statements, hot.fetch
    reports = [(id, claim, "1") for id, claim in held]
    for n in range(7):
        check(
            "progress", await _read_hot(opened, lambda: acting.progress(hot._link, statements, reports)), 60
        )
        some = [numbers[n], parked] if n else numbers[:5]
        check("a cancel", await _read_hot(opened, lambda some=some: fetch(statements.cancel, some, now)), 60)  # type: ignore[misc]
        check("a prune", await _read_hot(opened, lambda: fetch(statements.prune, NOW - SECOND, 500, now)), 20)
    for kind in ("rare", "mail"):
        assert await opened.store.pause(kind, False)
    await hot.connection.execute("DELETE FROM fastjobs_jobs WHERE kind = 'rare'")


async def test_no_look_and_no_act_reads_more_than_it_takes_whatever_the_statistics(
    database: Database, clock: Clock
) -> None:
    early = await _open(database, clock)
    late: _Opened | None = None
    try:
        await _everything(early, "planned as all is empty")
        database.execute("VACUUM ANALYZE")
        database.execute(_BACKLOG)
        for statistics in ("of the empty tables", "of the full tables"):
            if statistics == "of the full tables":
                database.execute("VACUUM ANALYZE")
            late = await _open(database, clock)
            for each in (early, late):
                await _everything(each, f"with statistics {statistics}")
            await late.close()
            late = None
    finally:
        await early.close()
        if late is not None:
            await late.close()


async def test_the_failed_of_a_kind_are_found_where_statistics_say_that_nearly_all_are_of_it(
    database: Database, clock: Clock
) -> None:
    """There are two indexes of failed jobs, of which the one of all kinds is the smaller."""
    database.execute(_BACKLOG)
    database.execute("VACUUM ANALYZE fastjobs_jobs")
    database.execute(
        "UPDATE fastjobs_jobs SET kind = 'other' WHERE state = 3 AND id NOT IN"
        " (SELECT id FROM fastjobs_jobs WHERE state = 3 ORDER BY id LIMIT 5)"
    )
    database.execute("VACUUM fastjobs_jobs")
    opened = await _open(database, clock)
    try:
        found = await opened.store.failed(kind="mail")
        assert len(found) == 5
        place = found[1].failed_at, found[1].id
        looks: dict[str, Callable[[Connection], object]] = {
            "the failed": lambda c: looking.failed(c, TABLES, "mail", None, 20, 9),
            "more of them": lambda c: looking.failed(c, TABLES, "mail", place, 20, 9),
            "counts": lambda c: looking.counts(c, TABLES, 20, NOW),
        }
        for name, look in looks.items():
            read = await _read(opened, look, writes=False)
            assert read.rows == 0, name
            assert read.entries <= 150, name
    finally:
        await opened.close()


async def test_a_prune_reads_and_removes_no_more_than_its_step(database: Database) -> None:
    hot = Hot(await connect(database))
    try:
        database.execute("ANALYZE")
        database.execute(_BACKLOG)
        for _ in range(3):
            async with hot.connection.transaction():
                before = tuple(await hot.connection.fetchrow(_READ.text) or (0, 0))
                ((gone,),) = await hot.fetch(hot.statements.prune, NOW + 1, 500, NOW)
                after = tuple(await hot.connection.fetchrow(_READ.text) or (0, 0))
            assert gone == 500
            assert after[0] - before[0] == 0
            # An earlier step's entries are in the index until a vacuum.
            assert after[1] - before[1] <= 2100
    finally:
        await hot.connection.close()


# Who waits for whom.


@pytest.fixture
async def opened(postgres_database: Database, clock: Clock) -> AsyncIterator[_Opened]:
    make(postgres_database, TABLES)
    opened = await _open(postgres_database, clock)
    yield opened
    await opened.close()


async def test_a_cancel_passes_over_a_row_that_is_locked_for_long_and_waits_out_one_that_is_for_a_moment(
    opened: _Opened,
) -> None:
    ids = [str(id) for id in await opened.hot.push("1", "2", "3")]
    connection = opened.hot.connection
    async with asyncio.timeout(20):
        async with connection.transaction():
            await connection.execute("SELECT FROM fastjobs_jobs WHERE id = $1 FOR UPDATE", int(ids[0]))
            assert await opened.store.cancel([*ids[:2], "99"]) == [
                Cancelled.BUSY,
                Cancelled.REMOVED,
                Cancelled.NOT_THERE,
            ]
            await opened.store.progress([(ids[0], 0, "1")])
        assert await opened.store.cancel(ids) == [
            Cancelled.REMOVED,
            Cancelled.NOT_THERE,
            Cancelled.REMOVED,
        ]


async def test_a_look_waits_for_no_transaction_and_sees_what_is_committed(
    opened: _Opened, postgres_database: Database
) -> None:
    hot = opened.hot
    (id,) = [str(id) for id in await hot.push("1")]
    async with asyncio.timeout(20), hot.connection.transaction():
        await hot.connection.execute("LOCK TABLE fastjobs_jobs IN EXCLUSIVE MODE")
        await hot.connection.execute("UPDATE fastjobs_jobs SET state = 3, failed_at = 1")
        await hot.connection.execute("UPDATE fastjobs_kinds SET paused = 1")
        found = await opened.store.job(id)
        assert found is not None
        assert (found.state, found.kind_paused) == (JobState.WAITING, False)
        assert len(await opened.store.jobs("mail", JobState.WAITING)) == 1
        assert await opened.store.failed() == []
        assert [each.waiting for each in await opened.store.counts()] == [1, 0]
        assert await opened.store.asked([(id, 0)]) == set()


async def test_of_a_large_payload_no_more_is_read_than_is_asked_for(
    opened: _Opened, postgres_database: Database
) -> None:
    # Of letters that don't compress, so that each is kept in a thousand pieces.
    postgres_database.execute(
        "INSERT INTO fastjobs_jobs (kind, payload, run_at, state, failed_at) SELECT 'mail', p.payload, s.state,"
        " s.state, CASE s.state WHEN 3 THEN 5 END FROM (SELECT '\"' || string_agg(md5(random()::text), '')"
        " || '\"' AS payload"
        " FROM generate_series(1, 62500)) p, generate_series(0, 3, 3) s(state), generate_series(1, 3)"
    )
    pieces = text(
        "SELECT sum(pg_stat_get_xact_tuples_returned(i.indexrelid))::bigint FROM pg_index i"
        " JOIN pg_class c ON c.reltoastrelid = i.indrelid WHERE c.relname = 'fastjobs_jobs'"
    )

    async def read(look: Callable[[Connection], Sequence[FailedJob | KeptJob]]) -> tuple[int, set[int]]:
        def counted(connection: Connection) -> tuple[int, set[int]]:
            before = connection.execute(pieces).scalar_one()
            found = look(connection)
            assert {each.size for each in found} == {2_000_002}
            return connection.execute(pieces).scalar_one() - before, {len(each.payload) for each in found}

        return await opened.store._database.look(counted)

    cut, lengths = await read(lambda c: looking.failed(c, TABLES, None, None, 10, 4096))
    assert lengths == {4096}
    assert 3 <= cut <= 3 * 12
    waiting, lengths = await read(
        lambda c: looking.jobs(c, TABLES, "mail", JobState.WAITING, None, 10, 4096, NOW)
    )
    assert lengths == {4096}
    assert 3 <= waiting <= 3 * 12
    whole, lengths = await read(lambda c: looking.failed(c, TABLES, "mail", None, 10, None))
    assert lengths == {2_000_002}
    assert whole > 3 * 500


async def test_a_look_can_write_nothing(opened: _Opened) -> None:
    with pytest.raises(Exception, match="read-only transaction"):
        await opened.store._database.look(lambda c: c.execute(text("DELETE FROM fastjobs_jobs")))
    await opened.hot.push("1")
    assert (
        await opened.store._database.run(lambda c: c.execute(text("DELETE FROM fastjobs_jobs")).rowcount) == 1
    )


async def test_cancels_marks_and_claims_of_one_key_at_once_lose_no_job_and_meet_no_deadlock(
    opened: _Opened, postgres_database: Database
) -> None:
    """Of 200 jobs of four keys each is done or cancelled once, and none is left parked behind nobody."""
    hot = opened.hot
    kind = of("account", ahead_ok=False)
    await hot.push_jobs(
        [NewJob("account", str(n), key=bytes([n % 4]) * 32, one_at_a_time=True) for n in range(4)]
    )
    database = postgres_database
    database.execute(
        "INSERT INTO fastjobs_jobs (kind, payload, run_at, alone_key, own_key)"
        f" SELECT 'account', n, {NOW - SECOND}, decode(repeat('0' || n % 4, 32), 'hex'),"
        " decode(repeat('0' || n % 4, 32), 'hex') FROM generate_series(4, 199) n"
    )
    ids = [str(id) for (id,) in database.execute("SELECT id FROM fastjobs_jobs ORDER BY id")]
    ended: list[str] = []
    over = asyncio.Event()

    async def cancel(mine: list[str]) -> None:
        for id in mine:
            while (found := (await opened.store.cancel([id]))[0]) is Cancelled.BUSY:
                await asyncio.sleep(0.001)
            if found is Cancelled.REMOVED:
                ended.append(id)

    async def work() -> None:
        own = Hot(await connect(database))
        try:
            idle = 0
            while not over.is_set() or idle < 5:
                jobs = (await own.claim(kind, limit=3)).jobs
                idle = 0 if jobs else idle + 1
                for job in jobs:
                    while (found := (await own.mark(Done(job.id, job.claim)))[0]) is Kept.BUSY:
                        await asyncio.sleep(0.001)
                    # One that was asked to stop is its worker's to end.
                    assert found is Kept.YES
                    ended.append(job.id)
                await asyncio.sleep(0)
        finally:
            await own.connection.close()

    async with asyncio.timeout(60):
        working = [asyncio.create_task(work()) for _ in range(3)]
        await asyncio.gather(cancel(ids[150:]), cancel(ids[100:150]))
        while len(ended) < len(ids):
            await asyncio.sleep(0.005)
        over.set()
        await asyncio.gather(*working)
    assert sorted(map(int, ended)) == sorted(map(int, ids))
    assert database.execute("SELECT count(*) FROM fastjobs_slots") == [(0,)]


def test_the_functions_are_the_owners_to_call_in_a_schema_of_their_own(postgres_database: Database) -> None:
    database = postgres_database
    database.execute("CREATE SCHEMA own AUTHORIZATION app")
    tables = make_tables("mail_", "own")
    make(database, tables)
    engine = create_engine(database.url("psycopg"))

    async def act() -> list[Cancelled]:
        store = SQLStore(engine, prefix="mail_", schema="own")
        try:
            (id,) = await store.push([NewJob("mail", "1")])
            assert id is not None
            await store.progress([(id, 0, "1")])
            assert [each.waiting for each in await store.counts()] == [1]
            assert (await store.job(id)) is not None
            return await store.cancel([id])
        finally:
            await store.close()

    try:
        assert asyncio.run(act()) == [Cancelled.REMOVED]
    finally:
        engine.dispose()
