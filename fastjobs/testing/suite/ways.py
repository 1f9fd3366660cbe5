"""The ways an app has a transaction with SQLAlchemy, behind one face, so that each test is written once."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import pytest
from sqlalchemy import Column, Connection, Engine, MetaData, String, Table, delete, func, insert, select
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from fastjobs.core.job import NewJob
from fastjobs.store import Pusher, SyncPusher

APP = MetaData()
NOTES = Table("fastjobs_suite_notes", APP, Column("text", String(100)))
"""A table of the app's own."""


@dataclass(frozen=True)
class Way:
    """A kind of session or connection."""

    name: str
    sync: bool
    make: Callable[[Any], object]
    """Makes one of an engine."""

    def __str__(self) -> str:
        return self.name


def _sqlmodel_session(engine: Engine) -> object:
    return pytest.importorskip("sqlmodel").Session(engine)


def _sqlmodel_async_session(engine: AsyncEngine) -> object:
    return pytest.importorskip("sqlmodel.ext.asyncio.session").AsyncSession(engine)


WAYS = (
    Way("Session", True, Session),
    Way("scoped_session", True, lambda engine: scoped_session(sessionmaker(engine))),
    Way("sqlmodel.Session", True, _sqlmodel_session),
    Way("Connection", True, lambda engine: engine.connect()),
    Way("AsyncSession", False, AsyncSession),
    Way(
        "async_scoped_session",
        False,
        lambda engine: async_scoped_session(async_sessionmaker(engine), scopefunc=asyncio.current_task),
    ),
    Way("sqlmodel.AsyncSession", False, _sqlmodel_async_session),
    Way("AsyncConnection", False, lambda engine: engine.connect()),
)


class Transaction:
    """A session or connection of the app's. What an async one would have awaited is awaited here."""

    def __init__(self, tx: Any) -> None:
        self.tx = tx

    async def push(self, pusher: Pusher | SyncPusher, *payloads: str) -> list[str | None]:
        """Pushes "mail" jobs."""
        jobs: Sequence[NewJob] = [NewJob(kind="mail", payload=each) for each in payloads]
        return cast("list[str | None]", await _awaited(pusher.push(jobs)))

    async def note(self, text: str) -> None:
        """Writes a row of the app's own."""
        # SQLModel's sessions warn of `execute`, and have `exec` for it.
        execute = self.tx.exec if hasattr(self.tx, "exec") else self.tx.execute
        await _awaited(execute(insert(NOTES).values(text=text)))

    async def commit(self) -> None:
        await _awaited(self.tx.commit())

    async def rollback(self) -> None:
        await _awaited(self.tx.rollback())

    async def savepoint(self) -> Transaction:
        """A savepoint: its commit releases it, its rollback rolls back to it."""
        return Transaction(await _awaited(self.tx.begin_nested()))

    async def close(self) -> None:
        scoped = isinstance(self.tx, (scoped_session, async_scoped_session))
        await _awaited(self.tx.remove() if scoped else self.tx.close())


async def _awaited(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer


class App:
    """The app's side of the transactions' tests: engines of its own, with its own table, and one way to use them."""

    def __init__(self, way: Way, engine: Engine | AsyncEngine) -> None:
        self.way = way
        self.engine = engine

    @property
    def sync_engine(self) -> Engine:
        """What SQLAlchemy's events are heard on."""
        return self.engine.sync_engine if isinstance(self.engine, AsyncEngine) else self.engine

    @asynccontextmanager
    async def begin(self) -> AsyncGenerator[Transaction]:
        """A new session or connection, closed at the end."""
        tx = self.way.make(self.engine)
        if isinstance(tx, AsyncConnection):
            await tx.start()
        transaction = Transaction(tx)
        try:
            yield transaction
        finally:
            await transaction.close()

    async def notes(self) -> int:
        """How many rows of the app's own are committed."""
        count = select(func.count()).select_from(NOTES)
        if isinstance(self.engine, AsyncEngine):
            async with self.engine.connect() as connection:
                return int(await connection.scalar(count) or 0)
        with self.engine.connect() as sync_connection:
            return int(sync_connection.scalar(count) or 0)

    async def set_up(self) -> None:
        """Makes the app's own table, or empties the one that is there."""
        if isinstance(self.engine, AsyncEngine):
            async with self.engine.begin() as connection:
                await connection.run_sync(_make_empty)
        else:
            with self.engine.begin() as sync_connection:
                _make_empty(sync_connection)


def _make_empty(connection: Connection) -> None:
    APP.create_all(connection)
    connection.execute(delete(NOTES))
