"""What other queues were brought down by on Postgres: its restarts, silences, deadlocks and ended sessions."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import asyncpg
import pytest
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from fastjobs import Outcome, Queue, Ran, SQLStore, current_job
from fastjobs.core.job import Job, NewJob
from fastjobs.runtime import waiting
from fastjobs.store import Claimable, Done, Fail, GiveBack, Kept, Mark
from fastjobs.testing import Clock
from tests.databases.postgres import Database, Server
from tests.databases.proxy import Proxy

pytestmark = pytest.mark.anyio

DRIVERS = ("asyncpg", "psycopg", "psycopg in threads")
MAIL = Claimable(kind="mail", hold=60_000_000, attempts=3)


def _engine(url: Callable[[str], str], driver: str = "asyncpg", **more: Any) -> Engine | AsyncEngine:
    if driver == "psycopg in threads":
        return create_engine(url("psycopg"), poolclass=NullPool, **more)
    return create_async_engine(url(driver), poolclass=NullPool, **more)


def _impatient(monkeypatch: pytest.MonkeyPatch, limit: float) -> None:
    for part in ("feed", "ledger", "pushing", "renewal"):
        monkeypatch.setattr(f"fastjobs.runtime.{part}.limited", partial(waiting.limited, limit=limit))


@pytest.mark.parametrize("driver", DRIVERS)
async def test_work_goes_on_once_a_silent_connection_is_well_and_a_stop_in_the_silence_ends_in_time(
    postgres_database: Database,
    driver: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    _impatient(monkeypatch, 0.3)
    told: asyncio.Queue[Ran] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    with Proxy(postgres_database.server.port) as proxy:
        engine = _engine(lambda name: proxy.url(postgres_database.url(name)), driver)
        queue = Queue(SQLStore(engine), poll=0.1, grace=0.5, observe=told.put_nowait)

        @queue.kind("mail")
        async def mail() -> None: ...

        async with asyncio.timeout(20):
            async with queue.running():
                await mail.push()
                assert (await told.get()).outcome is Outcome.DONE
                proxy.hang()
                with pytest.raises(TimeoutError):
                    await mail.push()
                while queue.health().store_ok:
                    await asyncio.sleep(0.02)
                proxy.heal()
                await mail.push()
                assert (await told.get()).outcome is Outcome.DONE
                proxy.hang()
                stopped = loop.time()
        # Its grace, and then the time that the store's close has.
        assert loop.time() - stopped < 6
        proxy.heal()
    assert not [line for line in caplog.records if line.levelno >= logging.CRITICAL]


async def test_no_job_is_lost_by_a_crash_of_the_server_and_few_lines_are_logged(
    make_postgres: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    server = make_postgres()
    database = server.create_database()
    seen: list[Ran] = []
    # Without TLS: where a server ends as it's asked for TLS, asyncpg may leave a future's exception to nobody.
    engine = _engine(database.url, connect_args={"ssl": False})
    queue = Queue(SQLStore(engine), workers=200, poll=0.1, observe=seen.append)
    runs: Counter[int] = Counter()
    all_run, end = asyncio.Event(), asyncio.Event()

    @queue.kind("mail")
    async def mail(number: int) -> None:
        runs[number] += 1
        if len(runs) == 200:
            all_run.set()
        await end.wait()

    async with asyncio.timeout(30):
        async with queue.running():
            await mail.push_many(list(range(200)))
            await all_run.wait()
            await asyncio.to_thread(server.stop, "immediate")
            end.set()
            while queue.health().store_ok:
                await asyncio.sleep(0.02)
            await asyncio.to_thread(server.start)
            while len(seen) < 200:
                await asyncio.sleep(0.02)
    assert {ran.outcome for ran in seen} == {Outcome.DONE}
    assert set(runs.values()) == {1}, "their marks were kept within their holds"
    assert database.execute("SELECT count(*) FROM fastjobs_jobs") == [(0,)]
    assert len(caplog.records) < 20, caplog.messages


async def test_a_job_whose_sessions_are_all_ended_is_marked_on_another_and_runs_once(
    postgres_database: Database,
) -> None:
    told: asyncio.Queue[Ran] = asyncio.Queue()
    attempts: list[int] = []
    queues = [
        Queue(SQLStore(_engine(postgres_database.url)), poll=0.05, observe=told.put_nowait) for _ in range(2)
    ]

    async def mail() -> None:
        attempts.append(current_job().attempt)
        await asyncio.to_thread(postgres_database.terminate_all)
        await asyncio.sleep(0.3)  # several polls of both

    kinds = [queue.kind("mail")(mail) for queue in queues]
    async with asyncio.timeout(20), queues[0].running(), queues[1].running():
        await kinds[0].push()
        assert (await told.get()).outcome is Outcome.DONE
    assert attempts == [1]
    assert postgres_database.execute("SELECT count(*) FROM fastjobs_jobs") == [(0,)]


def _begin_and_read(connection: Any, _: object) -> None:
    connection.cursor().execute("SELECT 1")


SETTINGS: dict[str, dict[str, Any]] = {
    "REPEATABLE READ": {"isolation_level": "REPEATABLE READ"},
    "SERIALIZABLE": {"isolation_level": "SERIALIZABLE"},
    "AUTOCOMMIT": {"isolation_level": "AUTOCOMMIT"},
    "begun by a listener": {},
}


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("how", SETTINGS)
async def test_claims_see_new_jobs_however_the_app_set_its_transactions(
    postgres_database: Database, driver: str, how: str
) -> None:
    engine = _engine(postgres_database.url, driver, **SETTINGS[how])
    if how == "begun by a listener":
        event.listen(
            engine.sync_engine if isinstance(engine, AsyncEngine) else engine, "connect", _begin_and_read
        )
    # By one clock, as each tells the server's within a round trip.
    clock = Clock()
    store, other = SQLStore(engine, clock=clock), SQLStore(_engine(postgres_database.url), clock=clock)
    await store.open(["mail"])
    for number in range(3):
        assert (await store.claim([MAIL], 1)).jobs == []
        await other.push([NewJob(kind="mail", payload=str(number))])
        (job,) = (await store.claim([MAIL], 1)).jobs
        assert (job.payload, job.attempts) == (str(number), 1)
        assert (await other.claim([MAIL], 1)).jobs == []
        assert await store.mark([Done(job.id, job.claim)]) == [Kept.YES]
    await store.push([NewJob(kind="mail", payload="9")])
    assert [job.payload for job in (await other.claim([MAIL], 1)).jobs] == ["9"]
    await store.close()
    await other.close()


@pytest.mark.parametrize(("times", "attempts"), [(2, 1), (1000, 0)])
async def test_a_deadlock_in_the_claim_costs_its_job_no_attempt(
    postgres_database: Database, times: int, attempts: int
) -> None:
    store = SQLStore(_engine(postgres_database.url))
    await store.open(["mail"])
    await store.push([NewJob(kind="mail", payload="1")])
    # Once the row was changed, so long as there are numbers left, which no rollback gives back.
    postgres_database.execute("CREATE SEQUENCE fails")
    postgres_database.execute("GRANT ALL ON SEQUENCE fails TO app")
    postgres_database.execute(
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF nextval('fails') <= "
        f"{times} THEN RAISE EXCEPTION 'a deadlock' USING ERRCODE = '40P01'; END IF; RETURN NEW; END $$"
    )
    postgres_database.execute(
        "CREATE TRIGGER fails AFTER UPDATE ON fastjobs_jobs FOR EACH ROW EXECUTE FUNCTION fail()"
    )
    if attempts:
        assert [job.attempts for job in (await store.claim([MAIL], 1)).jobs] == [1]
    else:
        with pytest.raises(asyncpg.DeadlockDetectedError):
            await store.claim([MAIL], 1)
    assert postgres_database.execute("SELECT attempts, state FROM fastjobs_jobs") == [
        (attempts, 1 if attempts else 0)
    ]
    await store.close()


async def test_a_push_that_waits_for_an_open_transaction_in_vain_says_what_it_may_have_waited_for(
    postgres_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    _impatient(monkeypatch, 0.3)
    engine = create_engine(postgres_database.url("psycopg"), poolclass=NullPool)
    queue = Queue(SQLStore(_engine(postgres_database.url)))

    @queue.kind("mail", unique=True)
    async def mail(number: int) -> None: ...

    async with asyncio.timeout(20), queue.running(run=False):
        with engine.begin() as connection:
            await asyncio.to_thread(lambda: mail.in_(connection).push(1))
            with pytest.raises(TimeoutError, match="may have pushed the same key or name"):
                await mail.push(1)


async def test_a_deadlock_in_later_marks_of_a_call_has_those_before_them_told_as_kept(
    postgres_database: Database,
) -> None:
    store = SQLStore(_engine(postgres_database.url))
    await store.open(["mail"])
    await store.push([NewJob(kind="mail", payload=each) for each in "12"])
    done, back = (await store.claim([MAIL], 2)).jobs
    postgres_database.execute("CREATE SEQUENCE fails")
    postgres_database.execute("GRANT ALL ON SEQUENCE fails TO app")
    postgres_database.execute(
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF nextval('fails') <= 2"
        " THEN RAISE EXCEPTION 'a deadlock' USING ERRCODE = '40P01'; END IF; RETURN NEW; END $$"
    )
    postgres_database.execute(
        "CREATE TRIGGER fails AFTER UPDATE ON fastjobs_jobs FOR EACH ROW EXECUTE FUNCTION fail()"
    )
    # What is given back goes apart from the others, after them.
    kept = await store.mark([Done(done.id, done.claim), GiveBack(back.id, back.claim)])
    assert kept == [Kept.YES, Kept.YES]
    assert postgres_database.execute("SELECT last_value, id, state FROM fails, fastjobs_jobs") == [
        (3, int(back.id), 0)
    ]
    await store.close()


async def test_one_hold_that_is_over_is_found_among_ten_thousand_that_are_not(
    postgres_database: Database,
) -> None:
    store = SQLStore(_engine(postgres_database.url))
    await store.open(["mail"])
    await store.push([NewJob(kind="mail", payload="1") for _ in range(10_001)])
    held: list[Job] = []
    while more := (await store.claim([MAIL], 2000)).jobs:
        held += more
    assert len(held) == 10_001
    # In the middle, by no order.
    lost = held[5000]
    postgres_database.execute("UPDATE fastjobs_jobs SET held_until = 1 WHERE id = %s", [int(lost.id)])
    postgres_database.execute("ANALYZE fastjobs_jobs")
    found: list[Job] = []
    async with asyncio.timeout(5):
        while not found:  # half a second at most, as most of what a claim would walk past is gone
            found = (await store.claim([MAIL], 10)).jobs
    assert [(job.id, job.attempts, job.lost) for job in found] == [(lost.id, 2, 1)]
    assert (await store.claim([MAIL], 10)).jobs == []
    await store.close()


async def test_claims_marks_pushes_and_an_operators_work_at_once_meet_no_deadlock(
    postgres_database: Database,
) -> None:
    stores = [SQLStore(_engine(postgres_database.url)) for _ in range(4)]
    for store in stores:
        await store.open(["mail", "other"])
    before = postgres_database.server.log_text().count("deadlock detected")
    loop = asyncio.get_running_loop()
    end = loop.time() + 1.2
    counts: Counter[str] = Counter()

    async def work(store: SQLStore) -> None:
        kinds = [MAIL, Claimable(kind="other", hold=60_000_000, attempts=3)]
        while loop.time() < end:
            jobs = (await store.claim(kinds, 20)).jobs
            some: list[Mark] = []
            for number, job in enumerate(reversed(jobs)):
                ends = Done(job.id, job.claim), Fail(job.id, job.claim, "no"), GiveBack(job.id, job.claim)
                some.append(ends[number % 3])
            kept = await store.mark(some)
            counts["done"] += sum(
                isinstance(mark, Done) and answer is Kept.YES for mark, answer in zip(some, kept, strict=True)
            )

    async def push(store: SQLStore) -> None:
        while loop.time() < end:
            kinds = ("mail", "other") if counts["pushed"] % 2 else ("other", "mail")
            ids = await store.push([NewJob(kind=kind, payload="1") for kind in kinds * 5])
            counts["pushed"] += len(ids)

    async def operate(store: SQLStore) -> None:
        while loop.time() < end:
            failed = [job.id for job in await store.failed(limit=50)]
            await store.run_again(failed[::2])
            deleted = await store.delete(failed[1::2][::-1])
            counts["deleted"] += sum(deleted)

    async with asyncio.timeout(30):
        await asyncio.gather(*(each(store) for store in stores for each in (work, work, push, operate)))
    assert postgres_database.server.log_text().count("deadlock detected") == before
    ((left,),) = postgres_database.execute("SELECT count(*) FROM fastjobs_jobs")
    assert counts["pushed"] == counts["done"] + counts["deleted"] + left
    assert counts["done"] > 0
    assert counts["deleted"] > 0
    for store in stores:
        await store.close()


async def test_idle_queues_write_nothing_and_ask_little(postgres_database: Database) -> None:
    queues = [Queue(SQLStore(_engine(postgres_database.url)), poll=0.05) for _ in range(2)]

    async def nothing() -> None: ...

    for queue in queues:
        queue.kind("mail")(nothing)

    def numbers() -> tuple[int, int]:
        # A transaction that writes gets a number of its own; it counts those of the whole server.
        ((writes, asked),) = postgres_database.execute(
            "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint, xact_commit FROM pg_stat_database"
            " WHERE datname = current_database()"
        )
        return int(writes), int(asked)

    async with asyncio.timeout(20), queues[0].running(), queues[1].running():
        await asyncio.sleep(0.2)
        least, asked, now_asked = 1 << 62, 0, 0
        for _ in range(3):  # a server tidies up by itself now and then
            before, asked = await asyncio.to_thread(numbers)
            await asyncio.sleep(0.4)
            after, now_asked = await asyncio.to_thread(numbers)
            least = min(least, after - before)
        assert least == 0
        # Two polls each tenth of a second, and what is asked here.
        assert now_asked - asked < 80


def test_a_push_in_a_two_phase_transaction_is_kept_as_that_commits(
    make_postgres: Callable[..., Server],
) -> None:
    database = make_postgres(max_prepared_transactions="4").create_database()
    engine = create_engine(database.url("psycopg"), poolclass=NullPool)
    queue = Queue(SQLStore(engine), workers=0)

    @queue.kind("mail")
    def mail(number: int) -> None: ...

    with Session(engine, twophase=True) as session:
        mail.in_(session).push(1)
        session.prepare()
        assert database.execute("SELECT count(*) FROM fastjobs_jobs") == [(0,)]
        session.commit()
        mail.in_(session).push(2)
        session.prepare()
        session.rollback()
    assert database.execute("SELECT payload FROM fastjobs_jobs") == [("1",)]
