"""What staging does beyond the suite: odd transactions, threads, and several stores in one transaction."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, StaticPool, create_engine, event, text
from sqlalchemy.exc import IntegrityError, InvalidRequestError, PendingRollbackError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from fastjobs.core.claiming import Claimable
from fastjobs.core.errors import NotAwaited, StoreError, StoreTimeout
from fastjobs.core.job import NewJob
from fastjobs.stores.memory import Memory

pytestmark = pytest.mark.anyio


class Base(DeclarativeBase):
    pass


class User(Base):
    __tablename__ = "users"
    id: Mapped[int] = mapped_column(primary_key=True)


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def store() -> Memory:
    return Memory()


def within(
    store: Memory, tx: Session | Connection, committed: Callable[[], None] = lambda: None, **more: Any
) -> Callable[[str], list[str | None]]:
    pusher = store.within(tx, committed, **more)

    def push(payload: str) -> list[str | None]:
        ids = pusher.push([NewJob(kind="mail", payload=payload)])
        assert isinstance(ids, list)
        return ids

    return push


async def kept(store: Memory) -> list[str]:
    found = await store.claim([Claimable(kind="mail", hold=60_000_000, attempts=3)], 100)
    return [job.payload for job in found.jobs]


async def test_one_commit_delivers_to_every_store_that_was_pushed_to(engine: Engine) -> None:
    one, two = Memory(), Memory()
    with Session(engine) as session:
        within(one, session)("1")
        within(two, session)("2")
        session.commit()
    assert (await kept(one), await kept(two)) == (["1"], ["2"])


async def test_committed_is_called_once_for_a_commit_however_many_pushes(
    engine: Engine, store: Memory
) -> None:
    calls: list[str] = []

    def one() -> None:
        calls.append("one")

    def two() -> None:
        calls.append("two")

    with Session(engine) as session:
        for committed in (one, two, one):
            push = within(store, session, committed)
            push("1")
            push("2")
        session.commit()
        assert calls == ["one", "two"]
        session.commit()
        assert calls == ["one", "two"]


async def test_a_push_after_a_flush_that_failed_raises_sqlalchemys_own_error(
    engine: Engine, store: Memory
) -> None:
    with Session(engine) as session:
        push = within(store, session)
        push("gone")
        session.execute(text("insert into users values (1)"))
        session.add(User(id=1))
        with pytest.raises(IntegrityError):
            session.flush()
        with pytest.raises(PendingRollbackError):
            push("gone too")
        session.rollback()
        push("kept")
        session.commit()
    assert await kept(store) == ["kept"]


async def test_a_flush_inside_a_savepoint_hides_no_push(engine: Engine, store: Memory) -> None:
    with Session(engine) as session, session.begin():
        push = within(store, session)
        with session.begin_nested():
            session.add(User(id=1))
            push("1")
            session.flush()
            with session.begin_nested():
                push("2")
                session.add(User(id=2))
    assert await kept(store) == ["1", "2"]


async def test_a_push_while_a_flush_is_under_way_is_kept(engine: Engine, store: Memory) -> None:
    with Session(engine) as session:
        push = within(store, session)
        event.listen(session, "after_flush", lambda *_: push("1"))
        session.add(User(id=1))
        session.commit()
    assert await kept(store) == ["1"]


async def test_a_session_on_a_connection_of_the_tests_delivers_as_it_commits(
    engine: Engine, store: Memory
) -> None:
    """The usual fixture of an app's tests: what the session commits is rolled back around it in the end."""
    with engine.connect() as connection:
        around = connection.begin()
        with Session(connection, join_transaction_mode="create_savepoint") as session:
            push = within(store, session)
            push("gone")
            session.rollback()
            push("kept")
            session.commit()
        assert await kept(store) == ["kept"]
        around.rollback()


async def test_a_commit_in_another_thread_delivers(engine: Engine, store: Memory) -> None:
    heard: list[str] = []

    def work(n: int) -> None:
        with Session(bind) as session:
            within(store, session, lambda: heard.append(threading.current_thread().name))(str(n))
            session.commit()

    bind = create_engine("sqlite://")
    await asyncio.gather(*(asyncio.to_thread(work, n) for n in range(20)))
    bind.dispose()
    assert sorted(await kept(store), key=int) == [str(n) for n in range(20)]
    assert len(heard) == 20
    assert threading.current_thread().name not in heard


async def test_a_connections_savepoints_nest(engine: Engine, store: Memory) -> None:
    with engine.connect() as connection:
        connection.execute(text("insert into users values (1)"))
        push = within(store, connection)
        push("1")
        with connection.begin_nested():
            push("2")
            with connection.begin_nested() as inner:
                push("gone")
                inner.rollback()
            with connection.begin_nested():
                push("3")
        outer = connection.begin_nested()
        with connection.begin_nested():
            push("gone with the one around")
        outer.rollback()
        push("4")
        assert await kept(store) == []
        connection.commit()
    assert await kept(store) == ["1", "2", "3", "4"]


async def test_a_savepoint_left_open_commits_with_its_connection(engine: Engine, store: Memory) -> None:
    with engine.connect() as connection:
        push = within(store, connection)
        push("1")
        connection.begin_nested()
        push("2")
        connection.commit()
    assert await kept(store) == ["1", "2"]


async def test_a_commit_that_its_driver_refuses_keeps_no_push_of_a_connection(store: Memory) -> None:
    """The event "commit" comes before COMMIT is sent, so nothing may rest on it."""
    engine = create_engine("sqlite://", poolclass=StaticPool)
    with engine.connect() as connection:
        connection.execute(text("pragma foreign_keys = on"))
        connection.execute(text("create table a (id integer primary key)"))
        connection.execute(text("create table b (a integer references a (id) deferrable initially deferred)"))
        connection.commit()
        push = within(store, connection)
        connection.execute(text("insert into b values (7)"))
        push("gone")
        with pytest.raises(Exception, match="FOREIGN KEY"):
            connection.commit()
        connection.rollback()
        assert await kept(store) == []
    with engine.connect() as connection:
        within(store, connection)("kept")
        connection.commit()
    engine.dispose()
    assert await kept(store) == ["kept"]


async def test_an_unfinished_push_is_told_though_its_pusher_is_gone(engine: Engine, store: Memory) -> None:
    with engine.connect() as connection:
        within(store, connection, unfinished=lambda: "never awaited")
        gc.collect()
        with pytest.raises(NotAwaited, match="never awaited"):
            connection.begin().commit()
        connection.rollback()
        connection.begin().commit()


async def test_a_pusher_that_lives_on_is_asked_in_each_transaction(engine: Engine, store: Memory) -> None:
    pending: list[str] = []
    with Session(engine) as session:
        pusher = store.within(session, lambda: None, lambda: pending[0] if pending else None)
        session.commit()
        pending.append("never awaited")
        with pytest.raises(NotAwaited):
            session.commit()
        session.rollback()
        del pusher
        gc.collect()
        session.commit()


async def test_a_session_that_pushed_is_not_kept_alive(engine: Engine, store: Memory) -> None:
    session = Session(engine)
    within(store, session)("gone")
    session.close()
    gone = weakref.ref(session)
    del session
    gc.collect()
    assert gone() is None


async def test_a_closed_connection_is_refused_by_its_push(engine: Engine, store: Memory) -> None:
    with engine.connect() as connection:
        push = within(store, connection)
    with pytest.raises(InvalidRequestError):
        push("1")


async def test_what_is_no_open_transaction_is_refused_by_name(engine: Engine, store: Memory) -> None:
    async_engine = create_async_engine("sqlite+aiosqlite://")
    for nothing in (engine, async_engine, async_engine.connect(), Session, None):
        with pytest.raises(StoreError, match=type(nothing).__name__):
            store.within(nothing, lambda: None)
    await async_engine.dispose()


# Keys, while the transaction that pushed them is open.


def keyed(payload: str, *, latest: bool = False, after: int = 0) -> NewJob:
    return NewJob(kind="mail", payload=payload, key=b"k" * 32, latest=latest, after=after)


def sync_push(store: Memory, tx: Session, job: NewJob) -> str | None:
    ids = store.within(tx, lambda: None).push([job])
    assert isinstance(ids, list)
    (id,) = ids
    return id


@pytest.mark.parametrize("commits", [True, False], ids=["commits", "rolls back"])
async def test_a_push_waits_for_the_transaction_that_pushed_its_key(
    store: Memory, engine: Engine, commits: bool
) -> None:
    with Session(engine) as session:
        assert sync_push(store, session, keyed("1")) is not None
        pushing = asyncio.create_task(store.push([keyed("2")]))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not pushing.done()
        (session.commit if commits else session.rollback)()
        ids = await pushing
    assert (ids == [None]) is commits
    claimed = await store.claim([Claimable(kind="mail", hold=1_000_000, attempts=9)], 9)
    assert [job.payload for job in claimed.jobs] == ["1" if commits else "2"]


def test_a_push_on_the_very_thread_that_has_that_transaction_says_so_at_once(
    store: Memory, engine: Engine
) -> None:
    with Session(engine) as first, Session(engine) as second:
        sync_push(store, first, keyed("1"))
        assert sync_push(store, first, keyed("2")) is None, "its own transaction is in nobody's way"
        with pytest.raises(StoreTimeout, match="this thread has that transaction open"):
            sync_push(store, second, keyed("3"))


def test_a_sync_push_in_another_thread_waits(store: Memory, engine: Engine) -> None:
    answers: list[str | None] = []

    def push() -> None:
        with Session(engine) as session:
            answers.append(sync_push(store, session, keyed("2")))
            session.rollback()

    with Session(engine) as session:
        sync_push(store, session, keyed("1"))
        thread = threading.Thread(target=push)
        thread.start()
        while not store._outcomes._waiting:
            assert thread.is_alive()
        assert answers == []
        session.rollback()
        thread.join(10)
    assert len(answers) == 1
    assert answers[0] is not None


async def test_a_job_that_a_transaction_moves_is_claimed_once_that_has_ended(
    store: Memory, engine: Engine
) -> None:
    (id,) = await store.push([keyed("1")])
    terms = [Claimable(kind="mail", hold=1_000_000, attempts=9)]
    with Session(engine) as session:
        assert sync_push(store, session, keyed("2", latest=True, after=3600_000_000)) == id
        savepoint = session.begin_nested()
        assert sync_push(store, session, keyed("2", latest=True, after=0)) == id
        savepoint.rollback()
        assert (await store.claim(terms, 9)).jobs == []
        assert await store.push([keyed("3")]) == [None], "it waits, wherever it's moved to"
        session.rollback()
    assert [job.id for job in (await store.claim(terms, 9)).jobs] == [id]


async def test_a_move_is_kept_as_its_transaction_commits(store: Memory, engine: Engine) -> None:
    await store.push([keyed("1", after=3600_000_000)])
    terms = [Claimable(kind="mail", hold=1_000_000, attempts=9)]
    with Session(engine) as session:
        sync_push(store, session, keyed("2", latest=True))
        assert (await store.claim(terms, 9)).jobs == []
        session.commit()
    assert [job.payload for job in (await store.claim(terms, 9)).jobs] == ["1"]
