"""The page on sessions: each way to open one in a handler commits, rolls back, chains, and ends the job."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import sqlmodel
from sqlalchemy import create_engine, func, select
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker
from sqlmodel.ext.asyncio.session import AsyncSession as SQLModelAsyncSession

import fastjobs

pytestmark = pytest.mark.anyio


class Base(DeclarativeBase):
    pass


class Row(Base):
    __tablename__ = "rows"
    id: Mapped[int] = mapped_column(primary_key=True)
    value: Mapped[int]


class Refused(Exception):
    """Raised in the middle of a handler's transaction."""


@pytest.fixture(params=[Session, sqlmodel.Session])
def sessions(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sessionmaker[Session]]:
    engine = create_engine(f"sqlite:///{tmp_path / 'app.db'}")
    fastjobs.sqlite.configure(engine)
    Base.metadata.create_all(engine)
    yield sessionmaker(engine, class_=request.param)
    engine.dispose()


@pytest.fixture(params=[AsyncSession, SQLModelAsyncSession])
async def async_sessions(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[async_sessionmaker[AsyncSession]]:
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'app.db'}")
    fastjobs.sqlite.configure(engine)
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield async_sessionmaker(engine, class_=request.param, expire_on_commit=False)
    await engine.dispose()


async def test_a_def_handler_has_a_session_of_its_own(sessions: sessionmaker[Session]) -> None:
    store = fastjobs.SQLStore(sessions.kw["bind"])
    q = fastjobs.Queue(store)
    together = threading.Barrier(3)
    seen: list[object] = []

    @q.kind("after")
    def after(value: int) -> None:
        with sessions() as session:
            seen.append(session.scalar(select(Row.value).where(Row.value == value)))

    @q.kind("write", attempts=1)
    def write(value: int) -> None:
        with sessions.begin() as session:
            session.add(Row(value=value))
            after.in_(session).push(value)
            fastjobs.current_job().done_in(session)
            if value < 0:
                raise Refused

    @q.kind("meet")
    def meet(value: int) -> None:
        with sessions() as session:
            seen.append(session)
            together.wait(10)

    await write.push_many([1, -1])
    assert await q.drain() == 3
    assert seen == [1]
    assert [(job.error or "").partition(" [")[0] for job in await store.failed()] == ["Refused"]
    seen.clear()
    async with q.running():
        await meet.push_many([1, 2])
        await asyncio.to_thread(together.wait, 10)
    assert seen[0] is not seen[1]
    await store.close()


async def test_an_async_handler_has_a_session_of_its_own(
    async_sessions: async_sessionmaker[AsyncSession],
) -> None:
    store = fastjobs.SQLStore(async_sessions.kw["bind"])
    q = fastjobs.Queue(store)
    seen: list[object] = []

    @q.kind("after")
    async def after(value: int) -> None:
        async with async_sessions() as session:
            seen.append(await session.scalar(select(Row.value).where(Row.value == value)))

    @q.kind("write", attempts=1)
    async def write(value: int) -> None:
        async with async_sessions.begin() as session:
            session.add(Row(value=value))
            await after.in_(session).push(value)
            await fastjobs.current_job().done_in(session)
            if value < 0:
                raise Refused

    await write.push_many([1, -1])
    assert await q.drain() == 3
    assert seen == [1]
    assert [(job.error or "").partition(" [")[0] for job in await store.failed()] == ["Refused"]
    async with async_sessions() as session:
        assert await session.scalar(select(func.count(Row.id))) == 1
    await store.close()
