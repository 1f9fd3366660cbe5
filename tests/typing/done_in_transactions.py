"""What a type checker makes of `done_in(tx)` and `raw(connection)`: nothing to await in a sync transaction.

mypy and pyright read this file; it's never run. A line that's wrong on purpose says so by an ignore, and both
checkers fail on an ignore that nothing needs.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Coroutine
from typing import Any, assert_type

import aiosqlite
import psycopg
import sqlmodel
from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session
from sqlmodel.ext.asyncio.session import AsyncSession as SQLModelAsyncSession

import fastjobs
from fastjobs import Memory, Queue, current_job
from fastjobs.runtime.pushing import AsyncPush, SyncPush
from fastjobs.stores.sql.raw import RawAsync, RawSync

q = Queue(Memory())


@q.kind("tick")
async def tick() -> None: ...


def made(coroutine: Coroutine[Any, Any, None]) -> None:
    """Takes what is to be awaited."""


async def async_transactions(
    session: AsyncSession,
    connection: AsyncConnection,
    scoped: async_scoped_session[AsyncSession],
    of_sqlmodel: SQLModelAsyncSession,
) -> None:
    made(current_job().done_in(session))
    made(current_job().done_in(connection))
    made(current_job().done_in(scoped))
    made(current_job().done_in(of_sqlmodel))
    await current_job().done_in(session)


def sync_transactions(
    session: Session, connection: Connection, scoped: scoped_session[Session], of_sqlmodel: sqlmodel.Session
) -> None:
    current_job().done_in(session)
    current_job().done_in(connection)
    current_job().done_in(scoped)
    current_job().done_in(of_sqlmodel)


async def raw_connections(
    of_sqlite3: sqlite3.Connection,
    of_aiosqlite: aiosqlite.Connection,
    of_psycopg: psycopg.Connection,
    of_async_psycopg: psycopg.AsyncConnection,
) -> None:
    assert_type(fastjobs.raw(of_sqlite3), RawSync)
    assert_type(fastjobs.raw(of_psycopg), RawSync)
    assert_type(fastjobs.raw(of_aiosqlite), RawAsync)
    assert_type(fastjobs.raw(of_async_psycopg), RawAsync)
    assert_type(tick.in_(fastjobs.raw(of_sqlite3)), SyncPush[None])
    assert_type(tick.in_(fastjobs.raw(of_async_psycopg)), AsyncPush[None])
    current_job().done_in(fastjobs.raw(of_psycopg))
    await current_job().done_in(fastjobs.raw(of_aiosqlite))


async def refused(session: Session, async_session: AsyncSession, engine: Engine) -> None:
    current_job().done_in(engine)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    current_job().done_in(Memory())  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    current_job().done_in(async_session)  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
    await current_job().done_in(session)  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]
    fastjobs.raw("postgresql://")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
