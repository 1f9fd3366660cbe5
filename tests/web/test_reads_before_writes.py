"""Routes as FastAPI's and SQLModel's tutorials have them, over `configure(engine, begin="write")`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio.to_thread
import httpx
import pytest
from fastapi import BackgroundTasks, Depends, FastAPI
from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlmodel import Field, Session, SQLModel, select
from sqlmodel.ext.asyncio.session import AsyncSession

import fastjobs
import fastjobs.sqlite
from fastjobs.stores.sql.dialects.sqlite import files, gate

pytestmark = pytest.mark.anyio

Begin = Literal["immediate", "write"]


class Hero(SQLModel, table=True):
    id: int | None = Field(default=None, primary_key=True)
    name: str


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "app.db"
    engine = create_engine(f"sqlite:///{path}")
    SQLModel.metadata.create_all(engine, [SQLModel.metadata.tables["hero"]])
    engine.dispose()
    return path


def holder(path: Path) -> object:
    key = files.file_key(str(path))
    assert key is not None
    return gate.gate(key)._holder


def client(app: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app")


@pytest.mark.parametrize("begin", ["immediate", "write"])
async def test_a_background_task_writes_after_the_route_s_session_read(path: Path, begin: Begin) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    fastjobs.sqlite.configure(engine, begin=begin)
    app = FastAPI()
    said: list[str] = []

    async def get_session() -> AsyncIterator[AsyncSession]:
        async with AsyncSession(engine) as session:
            yield session

    its_session = Depends(get_session)

    async def tells(name: str) -> None:
        try:
            async with AsyncSession(engine) as session:
                session.add(Hero(name=f"told of {name}"))
                await session.commit()
        except OperationalError as error:
            said.append(str(error.orig))

    @app.post("/heroes")
    async def create(name: str, tasks: BackgroundTasks, session: AsyncSession = its_session) -> Any:
        hero = Hero(name=name)
        session.add(hero)
        await session.commit()
        await session.refresh(hero)
        tasks.add_task(tells, name)
        return hero

    async with client(app) as http:
        assert (await http.post("/heroes?name=a")).json() == {"id": 1, "name": "a"}
    if begin == "immediate":
        # It's what the guide warns of: the refresh began a transaction, which ends after the task.
        assert said
        assert said[0].startswith("database is locked: this task has a write transaction open")
    else:
        assert said == []
        async with AsyncSession(engine) as session:
            assert [hero.name for hero in await session.exec(select(Hero))] == ["a", "told of a"]
    assert holder(path) is None
    await engine.dispose()


async def test_more_requests_than_threads_read_in_a_dependency_and_then_write(path: Path) -> None:
    engine = create_engine(f"sqlite:///{path}", pool_size=20)
    fastjobs.sqlite.configure(engine, begin="write")
    queue = fastjobs.Queue(fastjobs.SQLStore(engine))
    ran: list[int] = []

    @queue.kind("greet")
    async def greet(hero: int) -> None:
        ran.append(hero)

    def get_session() -> Iterator[Session]:
        with Session(engine) as session:
            yield session

    its_session = Depends(get_session)
    its_jobs = Depends(fastjobs.jobs_in_tx(queue, Annotated[Session, its_session]))
    app = FastAPI()
    in_a_transaction: list[bool] = []

    def get_user(session: Session = its_session) -> Hero | None:
        return session.exec(select(Hero).limit(1)).first()

    its_user = Depends(get_user)

    @app.post("/heroes/{number}")
    def create(
        number: int,
        session: Session = its_session,
        jobs: fastjobs.SyncInTx = its_jobs,
        _user: Hero | None = its_user,
    ) -> Any:
        # A turn that was taken in the dependency would be kept until the route has a thread, which the dependencies
        # of others have, that wait for it.
        driver: Any = session.connection().connection.driver_connection
        in_a_transaction.append(driver.in_transaction)
        hero = Hero(name=str(number))
        session.add(hero)
        session.flush()
        assert hero.id is not None
        jobs(greet).push(hero.id)
        session.commit()
        session.refresh(hero)
        return hero

    limiter = anyio.to_thread.current_default_thread_limiter()
    threads, limiter.total_tokens = limiter.total_tokens, 3
    try:
        async with queue.running(), client(app) as http, asyncio.timeout(50):
            answers = await asyncio.gather(*(http.post(f"/heroes/{n}") for n in range(16)))
            assert {answer.status_code for answer in answers} == {200}
            while len(ran) < 16:
                await asyncio.sleep(0.01)
    finally:
        limiter.total_tokens = threads
    assert in_a_transaction == [False] * 16
    assert sorted(ran) == sorted(answer.json()["id"] for answer in answers)
    assert holder(path) is None
    engine.dispose()
