"""`jobs_in_tx` and `in_` in routes on Postgres: kept as the request commits, whatever its isolation and its driver."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import psycopg
import pytest
from fastapi import Depends, FastAPI, HTTPException
from fastapi.testclient import TestClient
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import fastjobs
from tests.databases.postgres import Database

LEVELS = ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")
HOW = ("asyncpg", "psycopg", "sync")

_MAKE = (
    "CREATE TABLE guest (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL,"
    " invited_by bigint REFERENCES guest DEFERRABLE INITIALLY DEFERRED)"
)
_KEEP = text("INSERT INTO guest (name, invited_by) VALUES (:name, :by)")


class Ran:
    """The guests whose jobs ran, and who of them could be found in the table by then."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.missing: list[str] = []
        self.one = threading.Event()


@pytest.fixture
def database(postgres_module_database: Database) -> Database:
    postgres_module_database.clear()
    if postgres_module_database.execute("SELECT to_regclass('guest')") == [(None,)]:
        postgres_module_database.execute(_MAKE)
        postgres_module_database.execute("ALTER TABLE guest OWNER TO app")
    return postgres_module_database


def _queue(
    store: fastjobs.SQLStore, ran: Ran, database: Database
) -> tuple[fastjobs.Queue, fastjobs.Kind[str]]:
    q = fastjobs.Queue(store, poll=30)  # so that only a commit's wake-up has a job run in time

    @q.kind("mail")
    def mail(name: str) -> None:
        with psycopg.connect(database.url()) as connection:
            if connection.execute("SELECT 1 FROM guest WHERE name = %s", [name]).fetchone() is None:
                ran.missing.append(name)
        ran.names.append(name)
        ran.one.set()

    return q, mail


def _async_app(engine: AsyncEngine, ran: Ran, database: Database) -> FastAPI:
    q, mail = _queue(fastjobs.SQLStore(engine), ran, database)

    async def get_tx() -> AsyncGenerator[AsyncSession]:
        async with AsyncSession(engine) as session, session.begin():
            yield session

    @asynccontextmanager
    async def within(_app: FastAPI) -> AsyncGenerator[None]:
        yield
        await engine.dispose()

    tx_of = Annotated[AsyncSession, Depends(get_tx, scope="function")]
    jobs_of = Annotated[fastjobs.InTx, Depends(fastjobs.jobs_in_tx(q, tx_of))]
    app = FastAPI(lifespan=fastjobs.lifespan(q, within=within))

    async def route(name: str, how: str, tx: AsyncSession, jobs: Callable[..., Any]) -> None:
        if how == "conflict":
            await tx.execute(_COUNT)
            _write_beside(database)
        await tx.execute(_KEEP, {"name": name, "by": 404 if how == "deferred" else None})
        await jobs(mail).push(name)
        if how == "savepoint":
            inner = await tx.begin_nested()
            await mail.in_(tx).push(f"{name}, rolled back")
            await inner.rollback()
        _end(how)

    route.__annotations__ |= {"name": str, "how": str, "tx": tx_of, "jobs": jobs_of}
    app.post("/{name}/{how}")(route)
    return app


def _sync_app(engine: Engine, ran: Ran, database: Database) -> FastAPI:
    q, mail = _queue(fastjobs.SQLStore(engine), ran, database)

    def get_tx() -> Generator[Session]:
        with Session(engine) as session, session.begin():
            yield session

    tx_of = Annotated[Session, Depends(get_tx, scope="function")]
    jobs_of = Annotated[fastjobs.SyncInTx, Depends(fastjobs.jobs_in_tx(q, tx_of))]
    app = FastAPI(lifespan=fastjobs.lifespan(q))

    def route(name: str, how: str, tx: Session, jobs: Callable[..., Any]) -> None:
        if how == "conflict":
            tx.execute(_COUNT)
            _write_beside(database)
        tx.execute(_KEEP, {"name": name, "by": 404 if how == "deferred" else None})
        jobs(mail).push(name)
        if how == "savepoint":
            inner = tx.begin_nested()
            mail.in_(tx).push(f"{name}, rolled back")
            inner.rollback()
        _end(how)

    route.__annotations__ |= {"name": str, "how": str, "tx": tx_of, "jobs": jobs_of}
    app.post("/{name}/{how}")(route)
    return app


_COUNT = text("SELECT count(*) FROM guest")


def _write_beside(database: Database) -> None:
    """Writes what the request has read, and reads what it's about to write: of the two one is to be refused."""
    with psycopg.connect(database.url()) as other:
        other.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        other.execute("SELECT count(*) FROM guest")
        other.execute("INSERT INTO guest (name) VALUES ('first')")


def _end(how: str) -> None:
    if how == "declined":
        raise HTTPException(402)
    if how == "boom":
        raise RuntimeError("boom")


@pytest.fixture(params=HOW)
def make_app(request: pytest.FixtureRequest, database: Database) -> Iterator[Callable[..., FastAPI]]:
    engines: list[Engine] = []

    def make(ran: Ran, **options: Any) -> FastAPI:
        if request.param == "sync":
            engines.append(create_engine(database.url("psycopg"), **options))
            return _sync_app(engines[-1], ran, database)
        return _async_app(create_async_engine(database.url(request.param), **options), ran, database)

    yield make
    for engine in engines:
        engine.dispose()


@pytest.mark.parametrize("level", LEVELS)
def test_a_job_is_kept_as_its_request_commits_and_not_as_it_rolls_back(
    make_app: Callable[..., FastAPI], database: Database, level: str
) -> None:
    ran = Ran()
    app = make_app(ran, isolation_level=level)
    with TestClient(app, raise_server_exceptions=False) as client:
        assert client.post("/Ada/kept").status_code == 200
        assert ran.one.wait(10), "the commit wakes the queue, long before its poll"
        for how, status in (("declined", 402), ("boom", 500), ("deferred", 500)):
            assert client.post(f"/{how}/{how}").status_code == status
            assert database.execute("SELECT count(*) FROM fastjobs_jobs WHERE payload ~ %s", [how]) == [(0,)]
        ran.one.clear()
        assert client.post("/Grace/savepoint").status_code == 200
        assert ran.one.wait(10)
    assert ran.names == ["Ada", "Grace"]
    assert ran.missing == []
    assert database.execute("SELECT name FROM guest ORDER BY id") == [("Ada",), ("Grace",)]
    assert database.execute("SELECT count(*) FROM fastjobs_jobs") == [(0,)]


def test_a_request_that_is_not_serializable_leaves_no_job(
    make_app: Callable[..., FastAPI], database: Database
) -> None:
    ran = Ran()
    app = make_app(ran, isolation_level="SERIALIZABLE")
    with TestClient(app, raise_server_exceptions=False) as client:
        assert client.post("/second/conflict").status_code == 500
        assert database.execute("SELECT count(*) FROM fastjobs_jobs") == [(0,)]
        assert client.post("/third/kept").status_code == 200
        assert ran.one.wait(10)
    assert ran.names == ["third"]
    assert database.execute("SELECT name FROM guest ORDER BY name") == [("first",), ("third",)]
