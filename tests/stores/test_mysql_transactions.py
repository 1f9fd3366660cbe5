"""Pushes, and ends of jobs, in the app's transactions on MariaDB and MySQL: what they see, and what they lock.

InnoDB's locks are had until the transaction ends, and at REPEATABLE READ, the default, it reads as of its start.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from typing import Any, TypeVar, cast

import pytest
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from fastjobs import SQLStore, StoreError
from fastjobs.core.job import Job, NewJob
from fastjobs.core.marks import Done, Extend, Kept
from fastjobs.stores.sql.dialects.mysql import steps
from fastjobs.testing.suite.subject import HOLD, SECOND, claim, keyed, mark, of, take, take_one
from tests.databases.mysql import Database, Server

pytestmark = pytest.mark.anyio

_T = TypeVar("_T")

LEVELS = ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")
SOON = 1.5
"""Seconds within which what waits for nobody is done. The queue's own statements give up a lock after 2."""


_nth = itertools.count()


@pytest.fixture(autouse=True)
def _fresh() -> None:
    next(_nth)


def fresh(name: str) -> str:
    """The key or name of no test before. Of one that was there until lately, the server has entries to lock yet."""
    return f"{name} {_nth!r}"


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> str:
    level: str = request.param
    return level


@pytest.fixture
def database(mysql_module_database: Database) -> Database:
    return mysql_module_database


@pytest.fixture
async def store(database: Database) -> AsyncIterator[SQLStore]:
    engine = create_async_engine(database.url("asyncmy"))
    store = SQLStore(engine)
    await store.open(["mail"])
    database.clear(keep=["fastjobs_schema", "fastjobs_kinds"])
    yield store
    await store.close()
    await engine.dispose()


class App:
    """A transaction of the app's that has read something, on a connection of its own."""

    def __init__(self, store: SQLStore, connection: Connection) -> None:
        self._store = store
        self.connection = connection
        self._seen = connection.execute(text("SELECT COUNT(*) FROM fastjobs_schema")).all()

    @property
    def reads_freely(self) -> bool:
        """Whether it locks nothing that it reads, as its own keys are where it pushes them twice."""
        return self.connection.get_isolation_level() != "SERIALIZABLE"

    def look(self) -> None:
        """Sees the queue as of now, if the transaction keeps to that."""
        if self.reads_freely:
            self.connection.execute(text("SELECT COUNT(*) FROM fastjobs_jobs")).all()

    def push(self, *jobs: NewJob) -> list[str | None]:
        return cast("list[str | None]", self._store.within(self.connection, lambda: None).push(jobs))

    def done(self, job: Job) -> bool:
        return cast("bool", self._store.done_within(self.connection, job).done())


@contextlib.contextmanager
def begun(store: SQLStore, database: Database, level: str, **more: Any) -> Generator[App]:
    """A transaction of the app's. It's rolled back at the end, unless it was committed."""
    engine = create_engine(database.url("pymysql"), isolation_level=cast("Any", level), **more)
    with engine.connect() as connection:
        yield App(store, connection)
    engine.dispose()


def _plain(app: App, job: Job) -> None:
    assert app.push(NewJob("mail", "1"), NewJob("mail", "2")) != [None, None]


def _unique(app: App, job: Job) -> None:
    assert app.push(keyed("1", fresh("new"))) != [None]
    if app.reads_freely:
        assert app.push(keyed("1", fresh("new")), keyed("2", fresh("newer"))) != [None, None]


def _unique_waiting(app: App, job: Job) -> None:
    assert app.push(keyed("1", fresh("waits"))) == [None]
    assert app.push(keyed("1", fresh("waits")), keyed("2", fresh("waits too"))) == [None, None]


def _latest(app: App, job: Job) -> None:
    (id,) = app.push(keyed("1", fresh("waits"), after=5 * SECOND, latest=True))
    assert id is not None


def _named(app: App, job: Job) -> None:
    named = NewJob("mail", "1", name=fresh("m"), keep_name=SECOND)
    assert app.push(named) != [None]
    if app.reads_freely:
        assert app.push(named, named) == [None, None]
    assert app.push(NewJob("mail", "1", name=fresh("taken"))) == [None]


def _done(app: App, job: Job) -> None:
    assert app.done(job) is True
    assert app.done(job) is False
    assert app.done(job._replace(claim=job.claim + 1)) is False


def _alone(app: App, job: Job) -> None:
    assert app.push(keyed("1", fresh("alone"), alone=True), keyed("2", fresh("waits"), alone=True)) != [
        None,
        None,
    ]


@pytest.mark.parametrize("does", [_plain, _unique, _unique_waiting, _latest, _named, _done, _alone])
async def test_nobody_waits_for_an_open_transaction(
    store: SQLStore, database: Database, level: str, does: Callable[[App, Job], None]
) -> None:
    """No claim, no mark, and no push but one of the same key or name."""
    values = [fresh(name) for name in "kmp"]
    database.execute("INSERT INTO fastjobs_names (name, until) VALUES (%s, 1), (%s, 1), (%s, 1)", values)
    await store.push([keyed("0", fresh("held"), name=fresh("job"), alone=True)._replace(keep_name=SECOND)])
    held = await take_one(store)
    await store.push([keyed("9", fresh("other"), name=fresh("l"))._replace(keep_name=SECOND)])
    other = await take_one(store)
    names = [
        NewJob("mail", "1", name=fresh("taken")),
        keyed("1", fresh("waits")),
        keyed("1", fresh("waits too")),
    ]
    await store.push([*names, NewJob("mail", "1")])
    with begun(store, database, level) as app:
        does(app, held)
        await soon(store.push([NewJob("mail", "3")]))
        keys = [keyed("4", fresh(f"another {n}"), alone=n % 2 == 0) for n in range(20)]
        assert None not in await soon(store.push(keys))
        for each in (keyed("5", fresh("b")), keyed("5", fresh("c"))):
            assert await soon(store.push([each])) != [None]
        named = [
            NewJob("mail", "6", name=fresh(f"{at}{n}"), keep_name=SECOND) for at in "jlnz" for n in range(3)
        ]
        assert None not in await soon(store.push(named))
        assert await soon(mark(store, Done(other.id, other.claim))) == [Kept.YES]
        found = await soon(claim(store, of(at_once=1000), limit=100))
        assert len(found.jobs) >= 35, "claims pass over more than the transaction has"
        kept = await soon(mark(store, *(Done(each.id, each.claim) for each in found.jobs)))
        assert set(kept) == {Kept.YES}


async def soon(call: Coroutine[Any, Any, _T]) -> _T:
    async with asyncio.timeout(SOON):
        return await call


async def test_a_key_is_taken_by_a_job_that_waits_now(
    store: SQLStore, database: Database, level: str
) -> None:
    """A transaction that reads as of its start sees a job wait that has been claimed, and doesn't see one that came."""
    await store.push(
        [keyed("1", fresh("old")), keyed("2", fresh("old too")), NewJob("mail", "3", name=fresh("name"))]
    )
    with begun(store, database, level) as app:
        app.look()
        jobs = {job.payload: job for job in await take(store)}
        assert await mark(store, *(Done(job.id, job.claim) for job in jobs.values())) == [Kept.YES] * 3
        (came,) = await store.push([keyed("4", fresh("came"))])
        told = app.push(
            keyed("5", fresh("old")), keyed("6", fresh("came")), NewJob("mail", "7", name=fresh("name"))
        )
        assert [id is None for id in told] == [False, True, False]
        assert app.push(keyed("8", fresh("old")), keyed("9", fresh("old too"))) != [None, None]
        assert app.push(keyed("10", fresh("came"), after=SECOND, latest=True)) == [came]
        app.connection.commit()
    assert sorted(job.payload for job in await take(store)) == ["5", "7", "9"]


async def test_a_job_is_done_whose_claim_is_newer_than_the_transaction(
    store: SQLStore, database: Database, level: str
) -> None:
    await store.push([NewJob("mail", "1"), NewJob("mail", "2")])
    with begun(store, database, level) as app:
        app.look()
        one, two = await take(store)
        assert await mark(store, Done(two.id, two.claim)) == [Kept.YES]
        assert app.done(one) is True
        assert app.done(two) is False
        app.connection.commit()
    assert await mark(store, Done(one.id, one.claim)) == [Kept.LOST]


async def test_a_name_is_free_that_the_same_transaction_lets_go(
    store: SQLStore, database: Database, level: str
) -> None:
    """A chain of jobs of one name: each pushes the next as it's done."""
    await store.push(
        [NewJob("mail", "1", name=fresh("chain")), NewJob("mail", "1", name=fresh("kept"), keep_name=HOLD)]
    )
    one, kept = await take(store)
    with begun(store, database, level) as app:
        assert app.done(one)
        assert app.push(NewJob("mail", "2", name=fresh("chain"))) != [None]
        assert app.push(NewJob("mail", "3", name=fresh("chain"))) == [None]
        assert app.done(kept)
        assert app.push(NewJob("mail", "4", name=fresh("kept"))) == [None]
        app.connection.commit()
    assert [job.payload for job in await take(store)] == ["2"]


async def test_a_savepoint_takes_its_keys_names_and_ends_with_it(
    store: SQLStore, database: Database, level: str
) -> None:
    await store.push([NewJob("mail", "1", name=fresh("kept"), keep_name=HOLD)])
    job = await take_one(store)
    jobs = [keyed("2", "a"), NewJob("mail", "3", name=fresh("b"))]
    with begun(store, database, level) as app:
        for _ in range(2):
            savepoint = app.connection.begin_nested()
            assert None not in app.push(*jobs)
            assert app.done(job)
            savepoint.rollback()
        assert None not in app.push(*jobs)
        assert app.done(job)
        app.connection.commit()
    assert sorted(job.payload for job in await take(store)) == ["2", "3"]


async def test_of_two_transactions_with_one_key_the_second_waits_and_hears_how_it_ended(
    store: SQLStore, database: Database, level: str
) -> None:
    for commits in (True, False):
        with begun(store, database, level) as first, begun(store, database, level) as second:
            assert first.push(keyed("1", fresh(f"key {commits}"))) != [None]
            waiting = asyncio.create_task(asyncio.to_thread(second.push, keyed("2", fresh(f"key {commits}"))))
            early, _ = await asyncio.wait({waiting}, timeout=0.1)
            assert not early
            (first.connection.commit if commits else first.connection.rollback)()
            assert ((await waiting) == [None]) is commits
            if level != "SERIALIZABLE":  # where it has locked what it saw
                await soon(store.push([NewJob("mail", "3")]))
                found = sorted(job.payload for job in await soon(take(store)))
                assert found == (["1", "3"] if commits else ["3"])
            second.connection.commit()
    assert "2" in [job.payload for job in await take(store)]


async def test_a_lock_that_is_not_had_is_the_apps_to_hear_of(
    store: SQLStore, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "PAUSES", (0.01,))
    with (
        begun(store, database, "REPEATABLE READ") as first,
        begun(store, database, "READ COMMITTED") as second,
    ):
        assert first.push(keyed("1")) != [None]
        second.connection.execute(text("SET SESSION innodb_lock_wait_timeout = 1"))
        with pytest.raises(Exception, match="Lock wait timeout exceeded"):
            await asyncio.to_thread(second.push, keyed("2"))


async def test_a_transaction_that_sees_what_nobody_has_committed_is_refused_for_keys(
    store: SQLStore, database: Database
) -> None:
    with begun(store, database, "READ UNCOMMITTED") as app:
        for new in (keyed("1"), NewJob("mail", "1", name="n")):
            with pytest.raises(StoreError, match="make it READ COMMITTED"):
                app.push(new)
        assert app.push(NewJob("mail", "2")) != [None]
        app.connection.commit()
    (job,) = await take(store)
    with begun(store, database, "READ UNCOMMITTED") as app:
        assert app.done(job)


async def test_a_sync_session_asks_by_one_connection_that_is_kept(
    store: SQLStore, database: Database
) -> None:
    engine = create_engine(database.url("pymysql"))
    find = f"SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE db = '{database.name}'"
    with Session(engine) as session:
        session.execute(text("SELECT 1"))
        ((before,),) = database.execute(find)
        for n in range(3):
            assert store.within(session, lambda: None).push([keyed("1", fresh(str(n)))]) != [None]
        ((after,),) = database.execute(find)
        session.rollback()
    engine.dispose()
    assert after <= before + 1


@pytest.mark.parametrize("has_key", [True, False], ids=["keyed", "plain"])
async def test_a_push_that_no_statement_takes_says_so_and_leaves_the_transaction(
    store: SQLStore, database: Database, has_key: bool
) -> None:
    ((most,),) = database.execute("SELECT @@GLOBAL.max_allowed_packet")
    with begun(store, database, "REPEATABLE READ") as app:
        long = NewJob("mail", f'"{"x" * most}"', key=b"k" * 32 if has_key else None)
        with pytest.raises(
            StoreError, match=rf"up to {most + 4096:,}"[:8] + rf".* bytes, and the server takes {most:,}"
        ):
            app.push(keyed("0", "first"), long)
        assert app.push(NewJob("mail", "1")) != [None]
        app.connection.commit()
    assert [job.payload for job in await take(store)] == ["1"]


@pytest.mark.parametrize("mode", ["", "ANSI_QUOTES,NO_BACKSLASH_ESCAPES", "ANSI,PAD_CHAR_TO_FULL_LENGTH"])
async def test_what_is_pushed_is_kept_whole_in_any_sql_mode(
    store: SQLStore, database: Database, mode: str
) -> None:
    """The widest that the queue takes has room in each column, so a server that cuts has nothing to cut."""
    if database.server.family == "mysql":
        mode = mode.removesuffix(",PAD_CHAR_TO_FULL_LENGTH")
    payload = '"\\\\ \\" \' \u00e9 \U0001f600 %s %% \\u0000 \\n"'
    kind = "k" * 100
    job = NewJob(kind, payload, at=1, carried=payload, key=b"\xff\\'\"\x00" * 6 + b"ab", name="n" * 200)
    with begun(store, database, "REPEATABLE READ") as app:
        app.connection.execute(text("SET SESSION sql_mode = :mode"), {"mode": mode})
        assert None not in app.push(job, NewJob(kind, payload, carried=payload))
        assert app.push(job) == [None]
        app.connection.commit()
    found = await take(store, of(kind))
    assert [(job.kind, job.payload, job.carried) for job in found] == [(kind, payload, payload)] * 2


async def test_a_connection_that_lacks_characters_is_refused(store: SQLStore, database: Database) -> None:
    engine = create_engine(database.url("pymysql") + "&charset=latin1")
    refused = pytest.raises(StoreError, match=r"speaks latin1.*\?charset=utf8mb4")
    with engine.begin() as connection, refused:
        store.within(connection, lambda: None).push([NewJob("mail", '"\u00e9"')])
    engine.dispose()
    assert await take(store) == []


async def test_a_job_is_done_that_was_extended_since_the_transactions_start(
    make_mariadb: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 11.6 on MariaDB refuses to change a row that another has changed since. The statement says otherwise."""
    server = make_mariadb(innodb_snapshot_isolation="ON")
    monkeypatch.setattr(steps, "_AS_IT_IS", steps._AS_IT_IS.replace("110402", "101108"))
    database = server.create_database()
    engine = create_async_engine(database.url("asyncmy"))
    store = SQLStore(engine)
    await store.push([NewJob("mail", "1", name="a"), NewJob("mail", "2"), keyed("3")])
    one, two, _ = await take(store, of(limit=3))
    (moved,) = await store.push([keyed("4")])
    with begun(store, database, "REPEATABLE READ") as app:
        app.look()
        assert await mark(store, *(Extend(job.id, job.claim, HOLD) for job in (one, two))) == [Kept.YES] * 2
        await store.push([keyed("5", after=SECOND, latest=True)])
        assert app.done(one)
        assert app.push(keyed("6", after=2 * SECOND, latest=True)) == [moved]
        app.connection.commit()
    assert await mark(store, Done(one.id, one.claim), Done(two.id, two.claim)) == [Kept.LOST, Kept.YES]
    await store.close()
    await engine.dispose()


@pytest.mark.parametrize("mode", ["0", "1", "2"])
async def test_ids_are_right_however_the_server_gives_them(
    request: pytest.FixtureRequest, make_mysql_server: Callable[..., Server], mode: str
) -> None:
    server = make_mysql_server(
        innodb_autoinc_lock_mode=mode, auto_increment_increment="2", auto_increment_offset="2"
    )
    database = server.create_database()
    engine = create_async_engine(database.url("asyncmy"))
    store = SQLStore(engine)
    jobs = [NewJob("mail", str(n)) for n in range(30)]
    ids = [
        *await store.push(jobs[:10]),
        *await store.push([keyed(str(n), fresh(str(n))) for n in range(10, 13)]),
    ]
    with begun(store, database, "REPEATABLE READ") as app:
        app.connection.execute(text("SET SESSION auto_increment_increment = 3"))
        ids += app.push(*jobs[13:20])
        ids += app.push(*(keyed(str(n), fresh(str(n))) for n in range(20, 30)))
        app.connection.commit()
    found = {job.id: job.payload for job in await take(store)}
    assert [found[cast("str", id)] for id in ids] == [str(n) for n in range(30)]
    await store.close()
    await engine.dispose()
