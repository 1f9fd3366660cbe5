"""What other queues got wrong on MySQL and MariaDB: locks in two orders, snapshots, collations, dates and duplicates.

What any of them raises is an error of the store's here, as a deadlock is: the server's are tried again inside.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterator
from datetime import UTC, datetime
from typing import Any

import pymysql
import pytest
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from fastjobs import Queue, SQLStore
from fastjobs.core.job import Job
from fastjobs.store import Claimable, Done, Kept, NewJob
from fastjobs.testing import Clock
from tests.cases.at_once import TERMS, all_at_once
from tests.databases.mysql import Database, Server

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

SECOND = 1_000_000
MAIL = Claimable(kind="mail", hold=60 * SECOND, attempts=5)


@pytest.fixture(scope="module")
def on_server(mysql_server: Server) -> Iterator[Database]:
    database = mysql_server.create_database()
    yield database
    database.drop()


@pytest.fixture
def database(on_server: Database) -> Database:
    on_server.clear()
    return on_server


@pytest.fixture
async def engine(database: Database) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(database.url("asyncmy"), pool_size=20)
    yield engine
    await engine.dispose()


@pytest.fixture
async def store(engine: AsyncEngine) -> AsyncIterator[SQLStore]:
    store = SQLStore(engine, clock=Clock())
    await store.open(["mail"])
    yield store
    await store.close()


def _count(database: Database, where: str = "1") -> int:
    ((count,),) = database.execute(f"SELECT count(*) FROM fastjobs_jobs WHERE {where}")
    return int(count)


# Locks


async def test_claimers_pushers_prunes_sweeps_and_hands_that_retry_and_delete_raise_nothing(
    database: Database, engine: AsyncEngine
) -> None:
    stores = [SQLStore(engine) for _ in range(6)]
    await stores[0].open([term.kind for term in TERMS])
    # The app's own transaction can't be tried again for it; where it pushes a name and a key, it may be broken.
    counts = await all_at_once(
        engine, stores, rounds=8, least=0, refused=lambda error: "(1213," in str(error)
    )
    for store in stores:
        await store.close()
    assert min(counts[each] for each in ("pushed", "Done", "TryAgain", "Fail")) > 0, counts


@pytest.mark.parametrize("pushes", [25])
async def test_the_newest_of_latest_pushes_runs_and_neither_claims_nor_threads_get_in_its_way(
    database: Database, store: SQLStore, pushes: int
) -> None:
    """Each push moves the job on, or is a new one; what was asked last is claimed after it was asked."""
    # On the store's clock each is due at once, and at another time than the last.
    failures: list[BaseException] = []
    last: dict[int, str | None] = {}
    over = threading.Event()
    claimed: Counter[str] = Counter()

    async def push(thread: int) -> None:
        own = SQLStore(create_engine(database.url("pymysql"), poolclass=NullPool), clock=Clock())
        for number in range(pushes):
            job = NewJob("mail", "1", after=-1000 * number - thread, key=b"k", latest=True)
            (last[thread],) = await own.push([job])
        await own.close()

    async def claim() -> None:
        own = SQLStore(create_engine(database.url("pymysql"), poolclass=NullPool), clock=Clock())
        while True:
            is_last = over.is_set()
            jobs = (await own.claim([MAIL], 1)).jobs
            claimed.update(job.id for job in jobs)
            for job in jobs:
                # A push may look at the row that it meets just then.
                while (kept := await own.mark([Done(job.id, job.claim)])) == [Kept.BUSY]:
                    pass
                assert kept == [Kept.YES]
            if is_last and not jobs:
                break
        await own.close()

    def run(work: Coroutine[Any, Any, None]) -> None:
        try:
            asyncio.run(work)
        except BaseException as error:
            failures.append(error)

    pushers = [threading.Thread(target=run, args=(push(each),)) for each in range(8)]
    claimers = [threading.Thread(target=run, args=(claim(),)) for _ in range(2)]
    for each in (*pushers, *claimers):
        each.start()
    most = 0
    while any(each.is_alive() for each in pushers):
        most = max(most, await asyncio.to_thread(_count, database, "unique_key IS NOT NULL"))
    over.set()
    for each in (*pushers, *claimers):
        await asyncio.to_thread(each.join)
    assert failures == []
    assert most <= 1
    assert len(last) == 8
    assert set(claimed.values()) == {1}
    assert claimed.keys() >= set(last.values())
    assert _count(database) == 0


async def test_claims_that_race_hold_no_more_of_a_kind_than_may_be(
    database: Database, engine: AsyncEngine
) -> None:
    term = Claimable(kind="mail", hold=60 * SECOND, attempts=5, at_once=3, ahead_ok=False)
    stores = [SQLStore(engine) for _ in range(4)]
    await stores[0].open(["mail"])
    await stores[0].push([NewJob("mail", "1") for _ in range(60)])
    held: set[str] = set()
    ended = most = 0

    async def claimer(store: SQLStore) -> None:
        nonlocal ended, most
        while ended < 60:
            jobs = (await store.claim([term], 2)).jobs
            assert held.isdisjoint(job.id for job in jobs)
            held.update(job.id for job in jobs)
            most = max(most, len(held))
            if not jobs:
                await asyncio.sleep(0)
            else:
                # Until there are as many as may be, or there's nothing left of which more could be.
                while len(held) < 3 and most < 3:
                    await asyncio.sleep(0.001)
                held.difference_update(job.id for job in jobs)
                assert await store.mark([Done(job.id, job.claim) for job in jobs]) == [Kept.YES] * len(jobs)
                ended += len(jobs)

    await asyncio.gather(*(claimer(store) for store in stores * 4))
    for store in stores:
        await store.close()
    assert most == 3


@pytest.mark.parametrize(("times", "attempts"), [(2, 1), (1000, 0)])
async def test_a_deadlock_in_the_claim_costs_its_job_no_attempt(
    database: Database, store: SQLStore, times: int, attempts: int
) -> None:
    await store.push([NewJob("mail", "1")])
    # Once the row was changed, as often as a table says that no rollback goes back on.
    database.execute("CREATE TABLE fails (times INTEGER) ENGINE=MyISAM")
    try:
        database.execute("INSERT INTO fails VALUES (%s)", [times])
        database.execute(
            "CREATE TRIGGER fails AFTER UPDATE ON fastjobs_jobs FOR EACH ROW BEGIN"
            " IF (SELECT times FROM fails) > 0 THEN UPDATE fails SET times = times - 1;"
            " SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'a deadlock'; END IF; END"
        )
        if attempts:
            assert [job.attempts for job in (await store.claim([MAIL], 1)).jobs] == [1]
        else:
            with pytest.raises(Exception, match="a deadlock"):
                await store.claim([MAIL], 1)
    finally:
        database.execute("DROP TRIGGER IF EXISTS fails")
        database.execute("DROP TABLE fails")
    assert database.execute("SELECT attempts, state FROM fastjobs_jobs") == [(attempts, 1 if attempts else 0)]


# Snapshots


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("of", ["the server", "the engine", "a listener"])
async def test_claims_see_new_jobs_however_transactions_are_set(
    database: Database, level: str, of: str
) -> None:
    options: dict[str, Any] = {"isolation_level": level} if of == "the engine" else {}
    engine = create_async_engine(database.url("asyncmy"), poolclass=NullPool, **options)
    if of == "a listener":
        event.listen(engine.sync_engine, "connect", _set_and_read(level))
    elif of == "the server":
        # Of each connection from now on, and no other test is on the server meanwhile.
        database.execute(f"SET GLOBAL TRANSACTION ISOLATION LEVEL {level}")
    try:
        clock = Clock()
        store, other = SQLStore(engine, clock=clock), SQLStore(engine, clock=clock)
        await store.open(["mail"])
        for number in range(3):
            assert (await store.claim([MAIL], 1)).jobs == []
            await other.push([NewJob("mail", str(number))])
            (job,) = (await store.claim([MAIL], 1)).jobs
            assert (job.payload, job.attempts) == (str(number), 1)
            assert (await other.claim([MAIL], 1)).jobs == []
            assert await store.mark([Done(job.id, job.claim)]) == [Kept.YES]
        await store.close()
        await other.close()
    finally:
        database.execute("SET GLOBAL TRANSACTION ISOLATION LEVEL REPEATABLE READ")


def _set_and_read(level: str) -> Any:
    def listen(connection: Any, _: object) -> None:
        cursor = connection.cursor()
        cursor.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
        cursor.execute("SELECT count(*) FROM information_schema.TABLES")
        cursor.fetchall()
        cursor.close()

    return listen


@pytest.mark.parametrize("commits", [True, False], ids=["commits", "rolls-back"])
@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
async def test_a_push_at_any_isolation_is_never_told_wrongly_that_its_value_waits(
    database: Database, engine: AsyncEngine, isolation: str, commits: bool
) -> None:
    q = Queue(SQLStore(engine))

    @q.kind("reindex", unique=True)
    async def reindex(page: int) -> None: ...

    async with q.running(run=False), AsyncSession(engine) as first, AsyncSession(engine) as second:
        await second.connection(execution_options={"isolation_level": isolation})
        await second.execute(text("SELECT count(*) FROM fastjobs_kinds"))
        await reindex.in_(first).push(1)
        pushing = asyncio.create_task(_pushed(reindex.in_(second).push(1)))
        await asyncio.wait({pushing}, timeout=0.1)
        await (first.commit() if commits else first.rollback())
        answer = await pushing
        if answer != "refused":
            await second.commit()
    if commits:
        # At REPEATABLE READ a server may say that the row has changed since the transaction began.
        assert answer in ((None,) if isolation == "READ COMMITTED" else (None, "refused"))
    else:
        assert answer not in (None, "refused")
    assert _count(database) == 1


async def _pushed(push: Awaitable[str | None]) -> str | None:
    try:
        return await push
    except DBAPIError as error:
        if "(1020," not in str(error):
            raise
        return "refused"


# What counts as the same

_NAMES = ("Mail", "mail", "MAIL", "Mail ", " Mail", "M.ail")
"""A name is ASCII."""

_ALIKE = (
    "Mail",
    "mail",
    "MAIL",
    "Máil",
    "Ma\u0301il",
    "Mail ",
    " Mail",
    "Mail\t",
    "Mäil",
    "Maíl",
    "Mail\u200b",
)


async def test_texts_that_a_collation_takes_for_one_are_different_values_and_names(
    database: Database, engine: AsyncEngine
) -> None:
    q = Queue(SQLStore(engine))

    @q.kind("unique", unique=True)
    async def unique(name: str) -> None: ...

    @q.kind("named")
    async def named() -> None: ...

    async with q.running(run=False):
        pushed: list[str | None] = []
        for _ in range(2):
            pushed = [await unique.push(each) for each in _ALIKE]
            pushed += [await named.push(name=each) for each in _NAMES]
            assert _count(database) == len(_ALIKE) + len(_NAMES)
        assert pushed == [None] * (len(_ALIKE) + len(_NAMES))
        # By the app's own transaction too, and many at once.
        async with AsyncSession(engine) as session, session.begin():
            assert await unique.in_(session).push_many(list(_ALIKE)) == [None] * len(_ALIKE)
            assert await unique.in_(session).push_many(["mAIL", "mAIL "]) != [None, None]
    rows = database.execute("SELECT DISTINCT payload FROM fastjobs_jobs WHERE kind = 'unique'")
    assert len({payload for (payload,) in rows}) == len(_ALIKE) + 2


async def test_kinds_that_a_collation_takes_for_one_have_jobs_of_their_own(store: SQLStore) -> None:
    kinds = ["mail", "Mail", "MAIL"]
    await store.open(kinds)
    await store.push([NewJob(kind, f'"{kind}"') for kind in kinds])
    for kind in kinds:
        jobs = (await store.claim([Claimable(kind=kind, hold=SECOND, attempts=1)], 10)).jobs
        assert [(job.kind, job.payload) for job in jobs] == [(kind, f'"{kind}"')]


# Dates


@pytest.mark.parametrize("year", [2038, 2039, 2106, 2999])
async def test_a_job_is_due_in_a_year_that_32_bits_and_a_timestamp_have_not(
    database: Database, engine: AsyncEngine, year: int
) -> None:
    at = datetime(year, 2, 1, tzinfo=UTC)
    clock = Clock()
    store = SQLStore(engine, clock=clock)
    q = Queue(store)

    @q.kind("mail")
    async def mail() -> None: ...

    async with q.running(run=False):
        await mail.push(at=at)
        assert (await store.claim([MAIL], 1)).jobs == []
        clock.advance(at.timestamp() - clock.now() / SECOND - 1)
        assert (await store.claim([MAIL], 1)).jobs == []
        clock.advance(1)
        (job,) = (await store.claim([MAIL], 1)).jobs
        assert job.run_at == int(at.timestamp()) * SECOND


# The app's transaction


async def test_what_is_rolled_back_has_no_job_and_wakes_nobody_and_what_is_committed_runs_soon(
    database: Database, engine: AsyncEngine
) -> None:
    ran: asyncio.Queue[str] = asyncio.Queue()
    # No poll helps: only what is told of a commit.
    q = Queue(SQLStore(engine), poll=60)

    @q.kind("mail")
    async def mail(what: str) -> None:
        ran.put_nowait(what)

    async with q.running(), AsyncSession(engine) as session:
        with pytest.raises(RuntimeError):
            async with session.begin():
                await mail.in_(session).push("rolled back")
                raise RuntimeError
        async with session.begin():
            undone = await session.begin_nested()
            await mail.in_(session).push("undone")
            await undone.rollback()
            async with session.begin_nested():
                await mail.in_(session).push("kept")
            # A savepoint's release is no commit.
            await asyncio.sleep(0.05)
            assert ran.empty()
        loop = asyncio.get_running_loop()
        committed = loop.time()
        assert await asyncio.wait_for(ran.get(), 5) == "kept"
        assert loop.time() - committed < 1
    assert ran.empty()
    assert _count(database) == 0


def test_a_push_in_a_two_phase_transaction_is_kept_as_that_commits(database: Database) -> None:
    engine: Engine = create_engine(database.url("pymysql"), poolclass=NullPool)
    asyncio.run(_made(SQLStore(engine)))
    q = Queue(SQLStore(engine), workers=0)

    @q.kind("mail")
    def mail(number: int) -> None: ...

    with Session(engine, twophase=True) as session:
        mail.in_(session).push(1)
        session.prepare()
        assert _count(database) == 0
        session.commit()
        mail.in_(session).push(2)
        session.prepare()
        session.rollback()
    assert database.execute("SELECT payload FROM fastjobs_jobs") == [("1",)]


async def _made(store: SQLStore) -> None:
    await store.open()
    await store.close()


async def test_a_savepoint_that_is_rolled_back_gives_its_value_back(
    database: Database, engine: AsyncEngine
) -> None:
    q = Queue(SQLStore(engine))

    @q.kind("reindex", unique=True)
    async def reindex(page: int) -> None: ...

    async with q.running(run=False), AsyncSession(engine) as session, session.begin():
        undone = await session.begin_nested()
        assert await reindex.in_(session).push(1) is not None
        await undone.rollback()
        assert await reindex.in_(session).push(1) is not None
        assert await reindex.in_(session).push(1) is None
    assert _count(database) == 1


# Rows that others write


async def test_a_key_is_free_and_the_next_of_it_runs_as_the_holders_row_is_deleted_by_hand(
    database: Database, store: SQLStore
) -> None:
    term = Claimable(kind="mail", hold=60 * SECOND, attempts=5, ahead_ok=False)
    new = NewJob("mail", "1", key=b"k", one_at_a_time=True)
    await store.push([new])
    (job,) = (await store.claim([term], 10)).jobs
    assert await store.push([new]) != [None]
    assert await _claimed(store, term) == []
    database.execute("DELETE FROM fastjobs_jobs WHERE id = %s", [int(job.id)])
    await store.sweep()
    assert len(await _claimed(store, term)) == 1


async def _claimed(store: SQLStore, term: Claimable) -> list[Job]:
    jobs: list[Job] = []
    for _ in range(3):  # what a claim parks has it be asked again
        jobs += (await store.claim([term], 10)).jobs
    return jobs


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
async def test_a_claim_waits_for_no_transaction_that_met_a_jobs_key(
    database: Database, store: SQLStore, isolation: str
) -> None:
    await store.push([NewJob("mail", "1", key=b"k"), NewJob("mail", "2")])
    with contextlib.closing(database.connect()) as app, app.cursor() as cursor:
        cursor.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation}")
        cursor.execute("BEGIN")
        # What a push does that another was quicker than, and what it leaves locked.
        with pytest.raises(pymysql.IntegrityError):
            cursor.execute(
                "INSERT INTO fastjobs_jobs (kind, payload, run_at, created_at, own_key, unique_key)"
                " VALUES ('mail', '1', 0, 0, 'k', 'k')"
            )
        async with asyncio.timeout(1):
            assert [job.payload for job in (await store.claim([MAIL], 10)).jobs] == ["2"]
        cursor.execute("ROLLBACK")
    assert [job.payload for job in (await store.claim([MAIL], 10)).jobs] == ["1"]
