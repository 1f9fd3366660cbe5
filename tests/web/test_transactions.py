"""`jobs_in_tx`: a request's jobs are kept as its transaction commits, and not at all as it rolls back."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, cast

import pytest
from fastapi import Depends, FastAPI, HTTPException, Response
from fastapi.testclient import TestClient
from pydantic import BaseModel
from sqlalchemy import Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlmodel import Field, SQLModel, select
from sqlmodel import Session as SQLModelSession
from sqlmodel.ext.asyncio.session import AsyncSession as SQLModelAsyncSession

import fastjobs
from fastjobs import RegistrationError

MakeStore = Callable[[Any], fastjobs.Store]


class Guest(SQLModel, table=True):
    id: int | None = Field(default=None, primary_key=True)
    name: str


class Mail(BaseModel):
    name: str


class Ran:
    """The mails whose jobs ran."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.one = threading.Event()


@pytest.fixture
def ran() -> Ran:
    return Ran()


@pytest.fixture(params=["memory", "sqlite"])
def make_store(request: pytest.FixtureRequest) -> MakeStore:
    if request.param == "memory":
        return lambda engine: fastjobs.Memory()
    return lambda engine: fastjobs.SQLStore(engine)


@pytest.fixture
def sync_engine(tmp_path: Path) -> Generator[Engine]:
    engine = create_engine(f"sqlite:///{tmp_path / 'app.db'}")
    fastjobs.sqlite.configure(engine)
    SQLModel.metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def engine(sync_engine: Engine) -> AsyncEngine:
    engine = create_async_engine(f"sqlite+aiosqlite:///{sync_engine.url.database}")
    fastjobs.sqlite.configure(engine)
    return engine


def queue(store: fastjobs.Store, ran: Ran, **options: Any) -> tuple[fastjobs.Queue, fastjobs.Kind[Mail]]:
    q = fastjobs.Queue(store, **options)

    @q.kind("mail")
    async def mail(value: Mail) -> None:
        ran.names.append(value.name)
        ran.one.set()

    return q, mail


def closing(engine: AsyncEngine) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def within(_app: FastAPI) -> AsyncGenerator[None]:
        yield
        await engine.dispose()

    return within


def async_app(engine: AsyncEngine, store: fastjobs.Store, ran: Ran, scope: Any) -> FastAPI:
    q, mail = queue(store, ran)

    async def get_tx() -> AsyncGenerator[SQLModelAsyncSession]:
        async with SQLModelAsyncSession(engine) as session, session.begin():
            yield session

    tx_of = Annotated[SQLModelAsyncSession, Depends(get_tx, scope=scope)]
    jobs_in_tx = fastjobs.jobs_in_tx(q, tx_of)
    jobs_of = Annotated[fastjobs.InTx, Depends(jobs_in_tx)]
    app = FastAPI(lifespan=fastjobs.lifespan(q, within=closing(engine)))

    async def route(name: str, how: str, tx: Any, jobs: Any) -> object:
        assert jobs.tx is tx
        tx.add(Guest(name=name))
        await tx.flush()
        push = jobs(mail).push(Mail(name=name))
        if how == "forgotten":
            return None
        assert isinstance(await push, str)
        if how == "savepoint":
            inner = await tx.begin_nested()
            await jobs(mail).push(Mail(name=f"{name}, rolled back"))
            await inner.rollback()
        if how == "declined":
            raise HTTPException(402)
        if how == "boom":
            raise RuntimeError("boom")
        if how == "returned":
            return Response(status_code=409)
        return {"name": name}

    # Annotations as objects, since these aliases are local names.
    route.__annotations__ |= {"name": str, "how": str, "tx": tx_of, "jobs": jobs_of}
    app.post("/guests/{name}/{how}", response_model=None)(route)
    return app


def guests(engine: Engine) -> list[str]:
    with SQLModelSession(engine) as session:
        return list(session.exec(select(Guest.name)))


@pytest.mark.parametrize("scope", ["function", "request"])
@pytest.mark.parametrize(
    ("how", "status", "kept"),
    [
        ("kept", 200, True),
        ("savepoint", 200, True),
        ("declined", 402, False),
        ("boom", 500, False),
        ("returned", 409, True),  # a response that is returned is no exception, so the transaction commits
    ],
)
def test_a_job_is_kept_as_its_request_commits_and_not_as_it_rolls_back(
    make_store: MakeStore,
    engine: AsyncEngine,
    sync_engine: Engine,
    ran: Ran,
    scope: str,
    how: str,
    status: int,
    kept: bool,
) -> None:
    app = async_app(engine, make_store(engine), ran, scope)
    with TestClient(app, raise_server_exceptions=False) as client:
        assert client.post(f"/guests/first/{how}").status_code == status
        if kept:
            assert ran.one.wait(10)
        ran.one.clear()
        assert client.post("/guests/last/kept").status_code == 200
        assert ran.one.wait(
            10
        )  # jobs run in the order of their pushes: what the first left would have run by now
    assert ran.names == (["first", "last"] if kept else ["last"])
    assert guests(sync_engine) == ran.names


def test_a_push_that_was_never_awaited_fails_the_commit_and_names_its_kind(
    make_store: MakeStore, engine: AsyncEngine, sync_engine: Engine, ran: Ran
) -> None:
    app = async_app(engine, make_store(engine), ran, "function")
    with TestClient(app) as client, pytest.raises(fastjobs.NotAwaited, match="'mail'"):
        client.post("/guests/first/forgotten")
    assert guests(sync_engine) == []
    assert ran.names == []


def test_sync_sessions_push_without_an_await(make_store: MakeStore, sync_engine: Engine, ran: Ran) -> None:
    q, mail = queue(make_store(sync_engine), ran)

    def get_tx() -> Generator[Session]:
        with Session(sync_engine) as session, session.begin():
            yield session

    tx_of = Annotated[Session, Depends(get_tx, scope="function")]
    jobs_in_tx = fastjobs.jobs_in_tx(q, tx_of)
    app = FastAPI(lifespan=fastjobs.lifespan(q))

    def route(name: str, tx: Session, jobs: Any) -> str:
        assert type(jobs) is fastjobs.SyncInTx
        assert jobs.tx is cast("object", tx)
        tx.add(Guest(name=name))
        tx.flush()
        id = jobs(mail).push(Mail(name=name))
        if name == "Mallory":
            raise HTTPException(402)
        assert isinstance(id, str)
        return id

    route.__annotations__ |= {
        "name": str,
        "tx": tx_of,
        "jobs": Annotated[fastjobs.SyncInTx, Depends(jobs_in_tx)],
    }
    app.post("/{name}")(route)
    with TestClient(app) as client:
        assert client.post("/Mallory").status_code == 402
        assert client.post("/Ada").status_code == 200
        assert ran.one.wait(10)
    assert ran.names == ["Ada"]
    assert guests(sync_engine) == ["Ada"]


def test_async_connections_push_too(
    make_store: MakeStore, engine: AsyncEngine, sync_engine: Engine, ran: Ran
) -> None:
    q, mail = queue(make_store(engine), ran)

    async def get_tx() -> AsyncGenerator[AsyncConnection]:
        async with engine.begin() as connection:
            yield connection

    tx_of = Annotated[AsyncConnection, Depends(get_tx, scope="function")]
    jobs_in_tx = fastjobs.jobs_in_tx(q, tx_of)
    app = FastAPI(lifespan=fastjobs.lifespan(q, within=closing(engine)))

    async def route(jobs: Any) -> None:
        assert type(jobs) is fastjobs.InTx
        await jobs(mail).push(Mail(name="Ada"))

    route.__annotations__ |= {"jobs": Annotated[fastjobs.InTx, Depends(jobs_in_tx)]}
    app.post("/")(route)
    with TestClient(app) as client:
        assert client.post("/").status_code == 200
        assert ran.one.wait(10)
    assert ran.names == ["Ada"]


def test_a_job_carries_its_requests_id(
    make_store: MakeStore, engine: AsyncEngine, sync_engine: Engine
) -> None:
    ids: list[str | None] = []
    done = threading.Event()
    q = fastjobs.Queue(make_store(engine), carry=[fastjobs.CarryRequestID()])

    @q.kind("mail")
    async def mail() -> None:
        ids.append(fastjobs.request_id())
        done.set()

    async def get_tx() -> AsyncGenerator[AsyncSession]:
        async with AsyncSession(engine) as session, session.begin():
            yield session

    tx_of = Annotated[AsyncSession, Depends(get_tx, scope="function")]
    app = FastAPI(lifespan=fastjobs.lifespan(q, within=closing(engine)))
    app.add_middleware(fastjobs.RequestIDMiddleware)

    async def route(jobs: Any) -> None:
        await jobs(mail).push()

    jobs_in_tx = fastjobs.jobs_in_tx(q, tx_of)
    route.__annotations__ |= {"jobs": Annotated[fastjobs.InTx, Depends(jobs_in_tx)]}
    app.post("/")(route)
    with TestClient(app) as client:
        client.post("/", headers={"X-Request-ID": "abc-1"})
        assert done.wait(10)
    assert ids == ["abc-1"]


async def get_session() -> AsyncGenerator[AsyncSession]:
    yield AsyncSession()


@pytest.mark.parametrize(
    "tx",
    [get_session, AsyncSession, Depends(get_session), Annotated[AsyncSession, "a note"], "Tx", None],
    ids=["callable", "class", "Depends", "no Depends", "name", "None"],
)
def test_what_is_no_alias_is_refused_and_the_alias_shown(tx: object) -> None:
    with pytest.raises(RegistrationError, match=r"Tx = Annotated\[AsyncSession, Depends\("):
        fastjobs.jobs_in_tx(fastjobs.Queue(), tx)


def test_a_sync_dependency_is_shown_with_a_sync_session() -> None:
    def get_sync() -> Generator[Session]:
        yield Session()

    with pytest.raises(RegistrationError, match=r"Tx = Annotated\[Session, Depends\(get_sync, "):
        fastjobs.jobs_in_tx(fastjobs.Queue(), get_sync)


def test_a_callable_is_shown_in_the_alias_it_belongs_in() -> None:
    with pytest.raises(RegistrationError, match=r'Depends\(get_session, scope="function"\)'):
        fastjobs.jobs_in_tx(fastjobs.Queue(), get_session)


def test_a_type_statements_alias_is_taken() -> None:
    class TypeAlias:  # what `type Tx = …` makes, in Pythons that have it
        __value__ = Annotated[AsyncSession, Depends(get_session)]

    made = fastjobs.jobs_in_tx(fastjobs.Queue(), TypeAlias())
    assert made.__annotations__["tx"] is TypeAlias.__value__


def test_a_kind_of_another_queue_is_refused() -> None:
    _, mail = queue(fastjobs.Memory(), Ran())
    other = fastjobs.Queue(fastjobs.Memory())
    with pytest.raises(RegistrationError, match="'mail' is of another queue"):
        fastjobs.InTx(other, AsyncSession())(mail)
    with pytest.raises(RegistrationError, match="'mail' is of another queue"):
        fastjobs.SyncInTx(other, Session())(mail)


def test_nothing_of_the_dependency_is_a_parameter_of_the_route(sync_engine: Engine) -> None:
    def get_tx() -> Generator[Session]:
        with Session(sync_engine) as session:
            yield session

    app = FastAPI()
    jobs_in_tx = fastjobs.jobs_in_tx(fastjobs.Queue(), Annotated[Session, Depends(get_tx)])

    async def route(jobs: Any) -> bool:
        return type(jobs) is fastjobs.SyncInTx and cast("Any", jobs.tx).bind is sync_engine

    route.__annotations__ |= {"jobs": Annotated[fastjobs.SyncInTx, Depends(jobs_in_tx)]}
    app.get("/")(route)
    response = TestClient(app).get("/", params={"tx": "a client's", "jobs": "a client's"})
    assert (response.status_code, response.json()) == (200, True)
