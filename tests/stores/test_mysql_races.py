"""Pushes, claims and marks that race on MySQL and MariaDB: from eight connections and more, and each race by itself.

The server may end a transaction in a deadlock. It's tried again, and no caller hears of it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pymysql
import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from fastjobs.core.claiming import Claimable
from fastjobs.core.job import Job, NewJob
from fastjobs.core.marks import Done, Extend, GiveBack, Kept, Mark, TryAgain
from fastjobs.store import Ender, Throttled
from fastjobs.stores.sql.dialects.mysql import errors, greeting, marks
from fastjobs.stores.sql.dialects.mysql import push as push_steps
from fastjobs.stores.sql.dialects.mysql.claim import Asked, claim, look
from fastjobs.stores.sql.dialects.mysql.statements import make_statements
from fastjobs.stores.sql.dialects.mysql.steps import Steps, in_line
from fastjobs.stores.sql.server import on_loop
from fastjobs.stores.sql.server.floors import Floors
from fastjobs.stores.sql.server.wanted import Wanted
from fastjobs.stores.sql.store import SQLStore
from fastjobs.stores.sql.tables import make_tables
from fastjobs.testing.suite.subject import of
from tests.databases.mysql import Database, Server

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

log = logging.getLogger(__name__)

JOBS = 240
KEYS = [bytes([n]) * 32 for n in range(8)]
TEXTS = make_statements(make_tables(dialect="mysql"))


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


class Other:
    """Another process's transaction, which commits as it's told to."""

    def __init__(self, database: Database) -> None:
        self.connection = database.connect()
        self.cursor = self.connection.cursor()
        self.cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        self.cursor.execute("SET SESSION innodb_lock_wait_timeout = 2")
        self.cursor.execute("START TRANSACTION")

    def mark(self, now: int, *some: Mark) -> list[Kept]:
        (batch,) = marks.batches(some)
        answers = in_line(self.cursor, marks.mark(TEXTS, batch, now)).answers
        return [answers.get(place, Kept.LOST) for place in range(len(some))]

    def claim(self, kind: Claimable, now: int) -> list[Job]:
        asked = Asked(TEXTS, Wanted((kind,), 10, 0, None), now, Floors())
        return in_line(self.cursor, claim(asked, in_line(self.cursor, look(asked)))).jobs

    def meet(self, key: bytes) -> None:
        """Pushes what is there already, which the server locks."""
        with pytest.raises(pymysql.err.IntegrityError):
            self.cursor.execute(
                "INSERT INTO fastjobs_jobs (kind, payload, run_at, unique_key) VALUES ('mail', '0', 0, %s)",
                (key,),
            )

    def push(self, key: bytes) -> None:
        self.cursor.execute(
            "INSERT INTO fastjobs_jobs (kind, payload, run_at, own_key, unique_key) VALUES ('mail', '0', 0, %s, %s)",
            (key, key),
        )

    def commit(self) -> None:
        self.connection.commit()
        self.connection.close()


async def test_a_key_that_comes_to_wait_behind_the_first_of_many_statements_is_answered_none(
    stores: list[SQLStore], mysql_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = push_steps._push_together

    def just_then(*asked: Any) -> Steps[list[int]]:
        other = Other(mysql_database)
        other.push(KEYS[5])
        other.commit()
        return (yield from together(*asked))

    monkeypatch.setattr(push_steps, "_push_together", just_then)
    monkeypatch.setattr(push_steps, "TOGETHER", 3)
    ids = await stores[0].push([NewJob("mail", f"{key[0]}", key=key) for key in KEYS])
    assert [nth for nth, id in enumerate(ids) if id is None] == [5]
    found = {job.id: job.payload for job in (await stores[0].claim([of("mail")], 20)).jobs}
    assert [found[id] for id in ids if id is not None] == ["0", "1", "2", "3", "4", "6", "7"]


async def test_a_claim_waits_for_no_push_that_met_the_key_of_a_job_without_attempts(
    stores: list[SQLStore], mysql_database: Database
) -> None:
    await stores[0].push([NewJob("mail", "1", key=KEYS[0]), NewJob("mail", "2")])
    mysql_database.execute("UPDATE fastjobs_jobs SET attempts = 5 WHERE payload = '1'")
    other = Other(mysql_database)
    other.meet(KEYS[0])
    async with asyncio.timeout(1.5):
        claimed = await stores[0].claim([of("mail")], 5)
    assert ([job.payload for job in claimed.jobs], claimed.exhausted) == (["2"], [])
    other.commit()
    assert [job.payload for job in (await stores[0].claim([of("mail")], 5)).exhausted] == ["1"]


async def test_a_job_that_is_extended_as_its_hold_ends_is_counted(
    stores: list[SQLStore], mysql_database: Database
) -> None:
    store = stores[0]
    await store.push([NewJob("mail", "1"), NewJob("mail", "2")])
    claimed = await store.claim([of("mail", hold=1_000, at_once=1)], 5)
    (job,) = claimed.jobs
    other = Other(mysql_database)
    assert other.mark(claimed.now, Extend(job.id, job.claim, 60_000_000)) == [Kept.YES]
    while await store.now() <= claimed.now + 1_000:
        await asyncio.sleep(0.001)
    assert (await store.claim([of("mail", at_once=1)], 5)).jobs == []
    other.commit()
    assert (await store.claim([of("mail", at_once=1)], 5)).jobs == []


async def test_a_job_that_is_parked_as_the_transaction_commits_that_did_the_one_before_is_woken(
    stores: list[SQLStore], mysql_database: Database
) -> None:
    store = stores[0]
    await store.push([NewJob("alone", "1", key=KEYS[0], one_at_a_time=True)])
    (first,) = (await store.claim([of("alone", hold=60_000_000)], 5)).jobs
    # MariaDB's claims lock the held job that is next in the index, so that is another.
    await store.push([NewJob("alone", "0")])
    assert len((await store.claim([of("alone", hold=50_000_000)], 5)).jobs) == 1
    await store.push([NewJob("alone", "2", key=KEYS[0], one_at_a_time=True)])
    other = Other(mysql_database)
    assert other.claim(of("alone"), await store.now()) == []
    engine = create_async_engine(mysql_database.url("asyncmy"))
    async with engine.begin() as tx:
        assert await cast("Ender", store.done_within(tx, first)).done()
    await engine.dispose()
    waiting = "SELECT 1 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
    async with asyncio.timeout(10):
        while not mysql_database.execute(waiting):
            await asyncio.sleep(0.01)
        other.commit()
        while not (jobs := (await store.claim([of("alone")], 5)).jobs):
            await asyncio.sleep(0.01)
    assert [job.payload for job in jobs] == ["2"]


async def test_a_latest_push_waits_for_the_transaction_that_moves_its_job_however_long_that_is(
    mysql_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        greeting, "_SESSION", greeting._SESSION.replace("wait_timeout = 2", "wait_timeout = 1")
    )
    monkeypatch.setattr(on_loop, "TRIES", 1)
    engine = create_async_engine(mysql_database.url("asyncmy"))
    store = SQLStore(engine)
    (id,) = await store.push([NewJob("mail", "1", key=KEYS[0], latest=True)])
    other = Other(mysql_database)
    other.cursor.execute("UPDATE fastjobs_jobs SET run_at = run_at + 1 WHERE id = %s", (id,))
    push = asyncio.ensure_future(store.push([NewJob("mail", "2", key=KEYS[0], latest=True)]))
    await asyncio.wait([push], timeout=1.5)
    assert not push.done()
    other.commit()
    async with asyncio.timeout(10):
        assert await push == [id]
    await store.close()
    await engine.dispose()


async def test_stores_of_one_schema_that_connect_to_two_databases_count_starts_together(
    mysql_server: Server,
) -> None:
    databases = [mysql_server.create_database() for _ in range(3)]
    engines = [create_async_engine(each.url("asyncmy")) for each in databases[:2]]
    stores = [SQLStore(engine, schema=databases[2].name) for engine in engines]
    for store in stores:
        await store.open()
    for n in range(10):
        asked = Throttled("mails", f"{n}", 3, 60_000_000, 3)
        taken = await asyncio.gather(*(store.take([asked]) for store in stores))
        assert sorted(len(places.slots) for (places,) in taken) == [0, 3]
    for store, engine in zip(stores, engines, strict=True):
        await store.close()
        await engine.dispose()
    for each in databases:
        each.drop()


async def test_marks_beside_one_whose_key_is_locked_are_kept_where_a_lock_wait_undoes_a_transaction(
    make_mariadb: Callable[..., Server],
) -> None:
    database = make_mariadb(innodb_rollback_on_timeout="ON", max_allowed_packet="1M").create_database()
    engine = create_async_engine(database.url("asyncmy"))
    store = SQLStore(engine)
    await store.push([NewJob("mail", "1", key=KEYS[nth]) for nth in (0, 4, 6)])
    # What has been taken lately is locked with what is beside it, so there's another in between.
    await store.push([NewJob("mail", "1", after=60_000_000, key=KEYS[2])])
    free, locked, done = (await store.claim([of("mail")], 5)).jobs
    other = Other(database)
    other.push(KEYS[4])
    some: list[Mark] = [
        GiveBack(free.id, free.claim),
        GiveBack(locked.id, locked.claim),
        Done(done.id, done.claim),
    ]
    assert await store.mark(some) == [Kept.YES] * 3
    rows = database.execute("SELECT state, unique_key FROM fastjobs_jobs ORDER BY id")
    assert rows == [(0, KEYS[0]), (0, None), (0, KEYS[2])]
    other.commit()
    # And errors as long as they may be, from more jobs than one packet has room for.
    await store.push([NewJob("photo", "1")] * 200)
    jobs = (await store.claim([of("photo")], 200)).jobs
    error = "'" * 4096
    assert {*await store.mark([TryAgain(job.id, job.claim, 0, error) for job in jobs])} == {Kept.YES}
    await store.close()
    await engine.dispose()
