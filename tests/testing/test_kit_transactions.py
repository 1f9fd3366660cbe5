"""`jobs.pushed` and the app's transactions: what is committed was pushed, also in a transaction of the test's."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
import sqlmodel
from fastapi import Depends, FastAPI, HTTPException
from fastapi.testclient import TestClient
from httpx import ASGITransport, AsyncClient
from sqlalchemy import Connection, Engine, NullPool, StaticPool, create_engine, event, func, select
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncEngine,
    AsyncSession,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker
from sqlmodel.ext.asyncio.session import AsyncSession as SQLModelAsyncSession

import fastjobs
from fastjobs import NotAwaited, Queue, current_job
from fastjobs.testing import Jobs
from tests.databases.postgres import Database

pytestmark = pytest.mark.anyio


class Base(DeclarativeBase):
    pass


class Guest(Base):
    __tablename__ = "guests"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]


q = Queue()
greeted: list[str] = []
sessions = sessionmaker[Session](expire_on_commit=False)
async_sessions = async_sessionmaker[AsyncSession](expire_on_commit=False)


@q.kind("greet")
def greet(guest: int) -> None:
    with sessions.begin() as session:
        found = session.get_one(Guest, guest)
        greeted.append(found.name)
        found.name = found.name.upper()


@q.kind("welcome")
async def welcome(guest: int) -> None:
    async with async_sessions.begin() as session:
        found = await session.get_one(Guest, guest)
        greeted.append(found.name)
        await current_job().done_in(session)
        await tidy.in_(session).push(guest)


@q.kind("tidy")
async def tidy(guest: int) -> None: ...


def get_session() -> Generator[Session]:
    with sessions.begin() as session:
        yield session


async def get_async_session() -> AsyncGenerator[AsyncSession]:
    async with async_sessions.begin() as session:
        yield session


SessionDep = Annotated[Session, Depends(get_session, scope="function")]
AsyncDep = Annotated[AsyncSession, Depends(get_async_session, scope="function")]
jobs_in_tx = fastjobs.jobs_in_tx(q, SessionDep)
jobs_in_async = fastjobs.jobs_in_tx(q, AsyncDep)
app = FastAPI(lifespan=fastjobs.lifespan(q))


@app.post("/guests/{name}")
def add(name: str, session: SessionDep, jobs: Annotated[fastjobs.SyncInTx, Depends(jobs_in_tx)]) -> int:
    guest = Guest(name=name)
    session.add(guest)
    session.flush()
    jobs(greet).push(guest.id)
    if name == "eve":
        raise HTTPException(403)
    return guest.id


@app.post("/async/{name}")
async def add_async(
    name: str, session: AsyncDep, jobs: Annotated[fastjobs.InTx, Depends(jobs_in_async)]
) -> int:
    guest = Guest(name=name)
    session.add(guest)
    await session.flush()
    await jobs(welcome).push(guest.id)
    if name == "eve":
        raise HTTPException(403)
    return guest.id


@pytest.fixture(autouse=True)
def nobody_is_greeted_yet() -> None:
    greeted.clear()


@pytest.fixture
def jobs() -> Iterator[Jobs]:
    with q.testing() as jobs:
        yield jobs


def _on(request: pytest.FixtureRequest, tmp_path: Path, *, driver: str, sqlite: str) -> dict[str, Any]:
    """The URL and the arguments of an engine on the database that the test asks for."""
    if request.param == "postgres":
        database: Database = request.getfixturevalue("postgres_database")
        return {"url": database.url(driver), "poolclass": NullPool}
    if request.param == "memory":
        return {"url": f"{sqlite}://", "poolclass": StaticPool, "connect_args": {"check_same_thread": False}}
    return {"url": f"{sqlite}:///{tmp_path / 'app.db'}"}


def _sync_engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    engine = create_engine(**_on(request, tmp_path, driver="psycopg", sqlite="sqlite"))
    if engine.dialect.name == "sqlite":
        fastjobs.sqlite.configure(engine)
    Base.metadata.create_all(engine)
    sessions.configure(bind=engine)
    yield engine
    sessions.configure(bind=None, join_transaction_mode="conditional_savepoint")
    engine.dispose()


async def _async_engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(**_on(request, tmp_path, driver="asyncpg", sqlite="sqlite+aiosqlite"))
    if engine.dialect.name == "sqlite":
        fastjobs.sqlite.configure(engine)
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async_sessions.configure(bind=engine)
    yield engine
    async_sessions.configure(bind=None, join_transaction_mode="conditional_savepoint")
    await engine.dispose()


@pytest.fixture(params=["memory", "file", "postgres"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    yield from _sync_engine(request, tmp_path)


@pytest.fixture(params=["memory", "file", "postgres"])
async def async_engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AsyncEngine]:
    async for engine in _async_engine(request, tmp_path):
        yield engine


# In-memory SQLite takes part in no rollback of an outer transaction, by its driver's own ways: a test has a new one.


@pytest.fixture(params=["file", "postgres"])
def connection(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Connection]:
    """A connection in a transaction that is rolled back in the end, which the app's sessions join."""
    for engine in _sync_engine(request, tmp_path):
        with engine.connect() as connection:
            around = connection.begin()
            sessions.configure(bind=connection, join_transaction_mode="create_savepoint")
            yield connection
            around.rollback()
        with Session(engine) as session:
            assert session.scalars(select(Guest)).all() == []


@pytest.fixture(params=["file", "postgres"])
async def async_connection(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AsyncConnection]:
    async for engine in _async_engine(request, tmp_path):
        async with engine.connect() as connection:
            around = await connection.begin()
            async_sessions.configure(bind=connection, join_transaction_mode="create_savepoint")
            yield connection
            await around.rollback()
        async with AsyncSession(engine) as session:
            assert (await session.scalars(select(Guest))).all() == []


# The app's own test database.


def test_what_a_request_commits_was_pushed_and_what_it_rolls_back_was_not(engine: Engine, jobs: Jobs) -> None:
    client = TestClient(app)
    guest = client.post("/guests/ada").json()
    assert client.post("/guests/eve").status_code == 403
    assert jobs.pushed(greet) == [guest]
    assert jobs.drain() == 1
    assert greeted == ["ada"]


def test_a_push_that_was_rolled_back_is_told_of(engine: Engine, jobs: Jobs) -> None:
    TestClient(app).post("/guests/eve")
    told = repr(jobs.pushed(greet))
    assert told == "<no push of 'greet'; never committed: 'greet' 1; nothing else was pushed>"
    TestClient(app).post("/guests/ada")
    told = repr(jobs.pushed(tidy))
    assert told.startswith("<no push of 'tidy'; never committed: 'greet' 1; pushed: 'greet' ")


async def test_an_async_app_pushes_and_drains_on_the_tests_own_loop(
    async_engine: AsyncEngine, jobs: Jobs
) -> None:
    async with AsyncClient(transport=ASGITransport(app), base_url="http://test") as client:
        guest = (await client.post("/async/ada")).json()
        assert (await client.post("/async/eve")).status_code == 403
    assert jobs.pushed(welcome) == [guest]
    assert await jobs.adrain() == 2
    assert greeted == ["ada"]
    assert jobs.pushed(tidy) == [guest]


async def test_a_run_of_a_handler_that_ends_its_job_in_its_own_transaction(
    async_engine: AsyncEngine, jobs: Jobs
) -> None:
    async with async_sessions.begin() as session:
        session.add(Guest(id=7, name="ada"))
    assert (await jobs.arun(welcome, 7)).error is None
    assert jobs.pushed(tidy) == [7]
    assert not jobs.pushed(welcome)


@pytest.mark.parametrize("make", [Session, sqlmodel.Session])
def test_each_session_counts_as_it_commits(engine: Engine, jobs: Jobs, make: type[Session]) -> None:
    with make(engine) as session:
        greet.in_(session).push(1)
        assert not jobs.pushed(greet)
        session.commit()
        greet.in_(session).push(2)
        session.rollback()
        with session.begin_nested():
            greet.in_(session).push(3)
        assert jobs.pushed(greet) == [1]
        session.commit()
        greet.in_(session).push(4)
    assert jobs.pushed(greet) == [1, 3]


@pytest.mark.parametrize("make", [AsyncSession, SQLModelAsyncSession])
async def test_each_async_session_counts_as_it_commits(
    async_engine: AsyncEngine, jobs: Jobs, make: type[AsyncSession]
) -> None:
    async with make(async_engine) as session:
        await greet.in_(session).push(1)
        assert not jobs.pushed(greet)
        await session.commit()
        await greet.in_(session).push(2)
        await session.rollback()
    assert jobs.pushed(greet) == [1]


def test_a_scoped_session_and_a_connection_count_as_they_commit(engine: Engine, jobs: Jobs) -> None:
    scoped = scoped_session(sessions)
    greet.in_(scoped).push(1)
    scoped.commit()
    scoped.remove()
    with engine.begin() as connection:
        greet.in_(connection).push(2)
        assert jobs.pushed(greet) == [1]
    assert jobs.pushed(greet) == [1, 2]


# In a transaction of the test's, which never commits.


def test_a_sessions_own_commit_counts_in_a_transaction_of_the_tests(
    connection: Connection, jobs: Jobs
) -> None:
    client = TestClient(app)
    guest = client.post("/guests/ada").json()
    assert client.post("/guests/eve").status_code == 403
    assert jobs.pushed(greet) == [guest]
    assert jobs.drain() == 1
    assert greeted == ["ada"]
    with sessions() as session:
        assert session.scalars(select(Guest.name)).all() == ["ADA"]


async def test_an_async_sessions_own_commit_counts_in_a_transaction_of_the_tests(
    async_connection: AsyncConnection, jobs: Jobs
) -> None:
    async with AsyncClient(transport=ASGITransport(app), base_url="http://test") as client:
        guest = (await client.post("/async/ada")).json()
        assert (await client.post("/async/eve")).status_code == 403
    assert jobs.pushed(welcome) == [guest]
    assert await jobs.adrain() == 2
    async with async_sessions() as session:
        assert await session.scalar(select(func.count(Guest.id))) == 1


@pytest.mark.parametrize("mode", ["conditional_savepoint", "rollback_only", "create_savepoint"])
def test_each_way_to_join_the_tests_transaction_counts(connection: Connection, jobs: Jobs, mode: Any) -> None:
    with Session(connection, join_transaction_mode=mode) as session:
        greet.in_(session).push(1)
        session.commit()
    assert jobs.pushed(greet) == [1]


def test_the_recipe_of_older_days_counts(connection: Connection, jobs: Jobs) -> None:
    """A savepoint of the test's around the session, begun again after each end of it."""
    nested = connection.begin_nested()
    session = Session(connection)

    @event.listens_for(session, "after_transaction_end")
    def begin_again(session: Session, ended: object) -> None:
        nonlocal nested
        if not nested.is_active and not connection.closed:
            nested = connection.begin_nested()

    greet.in_(session).push(1)
    session.commit()
    greet.in_(session).push(2)
    session.rollback()
    assert jobs.pushed(greet) == [1]
    session.close()


# A session that the test gives to its requests, and that none of them commits.


def test_a_savepoint_that_is_released_counts_where_that_is_asked(connection: Connection) -> None:
    with q.testing(savepoints=True) as jobs, sessions() as session:

        def override() -> Generator[Session]:
            with session.begin_nested():
                yield session

        app.dependency_overrides[get_session] = override
        try:
            client = TestClient(app)
            guest = client.post("/guests/ada").json()
            assert client.post("/guests/eve").status_code == 403
        finally:
            app.dependency_overrides.clear()
        assert jobs.pushed(greet) == [guest]


async def test_a_savepoint_of_an_async_session_counts_where_that_is_asked(
    async_connection: AsyncConnection,
) -> None:
    async with async_sessions() as session:

        async def override() -> AsyncGenerator[AsyncSession]:
            async with session.begin_nested():
                yield session

        app.dependency_overrides[get_async_session] = override
        try:
            with q.testing(savepoints=True) as jobs:
                async with AsyncClient(transport=ASGITransport(app), base_url="http://test") as client:
                    guest = (await client.post("/async/ada")).json()
                    assert (await client.post("/async/eve")).status_code == 403
                assert jobs.pushed(welcome) == [guest]
        finally:
            app.dependency_overrides.clear()


def test_a_savepoint_inside_another_counts_only_with_that(connection: Connection) -> None:
    with q.testing(savepoints=True) as jobs, sessions() as session:
        outer = session.begin_nested()
        with session.begin_nested():
            greet.in_(session).push(1)
        assert not jobs.pushed(greet)
        outer.commit()
        assert jobs.pushed(greet) == [1]
        outer = session.begin_nested()
        with session.begin_nested():
            greet.in_(session).push(2)
        outer.rollback()
        assert jobs.pushed(greet) == [1]
        session.commit()  # delivers nothing a second time
        assert jobs.pushed(greet) == [1]


def test_a_connections_savepoint_counts_where_that_is_asked(connection: Connection) -> None:
    with q.testing(savepoints=True) as jobs:
        with connection.begin_nested():
            with connection.begin_nested():
                greet.in_(connection).push(1)
            assert not jobs.pushed(greet)
        assert jobs.pushed(greet) == [1]
        lost = connection.begin_nested()
        with connection.begin_nested():
            greet.in_(connection).push(2)
        lost.rollback()
        greet.in_(connection).push(3)  # in the transaction that never commits
        assert jobs.pushed(greet) == [1]


def test_a_savepoint_counts_for_nobody_unasked(connection: Connection, jobs: Jobs) -> None:
    with sessions() as session:
        with session.begin_nested():
            greet.in_(session).push(1)
        assert not jobs.pushed(greet)
    with connection.begin_nested():
        greet.in_(connection).push(2)
    assert not jobs.pushed(greet)


async def test_a_push_may_be_awaited_after_its_savepoint_unasked(
    async_engine: AsyncEngine, jobs: Jobs
) -> None:
    async with async_sessions() as session:
        async with session.begin_nested():
            later = welcome.in_(session).push(1)
        await later
        await session.commit()
    assert jobs.pushed(welcome) == [1]


async def test_a_savepoint_with_a_push_that_nobody_awaited_is_not_released(
    async_connection: AsyncConnection,
) -> None:
    with q.testing(savepoints=True) as jobs:
        async with async_sessions() as session:
            nested = await session.begin_nested()
            _ = welcome.in_(session).push(1)
            with pytest.raises(NotAwaited, match="a push of 'welcome' in this transaction was never awaited"):
                await nested.commit()
        assert not jobs.pushed()
