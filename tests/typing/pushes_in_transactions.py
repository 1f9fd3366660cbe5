"""What a type checker makes of `kind.in_(tx)`: a sync push for a sync transaction, one to await for an async one.

mypy and pyright read this file; it's never run. A line that's wrong on purpose says so by an ignore, and both
checkers fail on an ignore that nothing needs.
"""

from __future__ import annotations

from typing import assert_type

import sqlmodel
from pydantic import BaseModel
from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session
from sqlmodel.ext.asyncio.session import AsyncSession as SQLModelAsyncSession

from fastjobs import Memory, Queue
from fastjobs.runtime.pushing import AsyncPush, SyncPush

q = Queue(Memory())


class Mail(BaseModel):
    user: int


@q.kind("mail")
async def mail(value: Mail) -> None: ...


@q.kind("tick")
async def tick() -> None: ...


def sync_transactions(
    session: Session, connection: Connection, scoped: scoped_session[Session], of_sqlmodel: sqlmodel.Session
) -> None:
    assert_type(mail.in_(session), SyncPush[Mail])
    assert_type(mail.in_(connection), SyncPush[Mail])
    assert_type(mail.in_(scoped), SyncPush[Mail])
    assert_type(mail.in_(of_sqlmodel), SyncPush[Mail])
    assert_type(tick.in_(session), SyncPush[None])
    assert_type(mail.in_(session).push(Mail(user=1)), str | None)
    assert_type(mail.in_(session).push(Mail(user=1), after=5), str | None)
    assert_type(mail.in_(session).push_many([Mail(user=1)]), list[str | None])
    assert_type(tick.in_(session).push(), str | None)


async def async_transactions(
    session: AsyncSession,
    connection: AsyncConnection,
    scoped: async_scoped_session[AsyncSession],
    of_sqlmodel: SQLModelAsyncSession,
) -> None:
    assert_type(mail.in_(session), AsyncPush[Mail])
    assert_type(mail.in_(connection), AsyncPush[Mail])
    assert_type(mail.in_(scoped), AsyncPush[Mail])
    assert_type(mail.in_(of_sqlmodel), AsyncPush[Mail])
    assert_type(mail.in_(Memory()), AsyncPush[Mail])
    assert_type(tick.in_(session), AsyncPush[None])
    assert_type(await mail.in_(session).push(Mail(user=1)), str | None)
    assert_type(await mail.in_(session).push_many([Mail(user=1)]), list[str | None])
    assert_type(await tick.in_(session).push(), str | None)


async def refused(
    session: Session, engine: Engine, async_session: AsyncSession, async_engine: AsyncEngine
) -> None:
    mail.in_(engine)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    mail.in_(async_engine)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    mail.in_("sqlite://")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await mail.in_(session).push(Mail(user=1))  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]
    mail.in_(session).push(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    mail.in_(session).push()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await tick.in_(async_session).push(5)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    mail.in_(async_session).push(Mail(user=1)) + ""  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue, reportUnusedExpression]
