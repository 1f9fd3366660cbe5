"""The app with arq. Run by:

uvicorn arq_app:app
arq arq_app.WorkerSettings
"""

import asyncio
import logging
import smtplib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from email.message import EmailMessage
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from arq import Retry, create_pool, cron, func
from arq.connections import ArqRedis, RedisSettings
from fastapi import Depends, FastAPI, Request
from sqlalchemy.ext.asyncio import create_async_engine
from sqlmodel import Field, SQLModel, select
from sqlmodel import func as sql
from sqlmodel.ext.asyncio.session import AsyncSession

engine = create_async_engine("sqlite+aiosqlite:///app.db")


class User(SQLModel, table=True):
    id: int | None = Field(default=None, primary_key=True)
    email: str


def send(to: str, text: str) -> None:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "shop@example.org", to, "Hello"
    message.set_content(text)
    with smtplib.SMTP("localhost", 25, timeout=10) as server:
        server.send_message(message)


async def welcome(ctx: dict[str, Any], to: str) -> None:
    try:
        await asyncio.to_thread(send, to, "Welcome!")
    except OSError as error:
        if ctx["job_try"] >= 5:
            logging.error("%s has no welcome mail: %s", to, error)
            raise
        raise Retry(defer=ctx["job_try"] ** 4) from error


async def count_users(ctx: dict[str, Any]) -> None:
    async with AsyncSession(engine) as session:
        users = (await session.exec(select(sql.count()).select_from(User))).one()
    await asyncio.to_thread(send, "team@example.org", f"There are {users} users.")


class WorkerSettings:
    functions = (func(welcome, name="welcome-mail", timeout=30, max_tries=5),)
    cron_jobs = (cron(count_users, hour=2, minute=0),)
    timezone = ZoneInfo("Europe/Paris")
    redis_settings = RedisSettings()


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
    async with engine.begin() as connection:
        await connection.run_sync(SQLModel.metadata.create_all)
    app.state.arq = await create_pool(RedisSettings())
    yield
    await app.state.arq.aclose()
    await engine.dispose()


app = FastAPI(lifespan=lifespan)


async def get_session() -> AsyncGenerator[AsyncSession]:
    async with AsyncSession(engine) as session:
        yield session


def get_arq(request: Request) -> ArqRedis:
    return request.app.state.arq


Tx = Annotated[AsyncSession, Depends(get_session)]
Arq = Annotated[ArqRedis, Depends(get_arq)]


@app.post("/register")
async def register(email: str, tx: Tx, arq: Arq) -> dict[str, int]:
    user = User(email=email)
    tx.add(user)
    await tx.flush()
    assert user.id is not None
    answer = {"id": user.id}
    await tx.commit()
    await arq.enqueue_job("welcome-mail", email)  # after the commit: a crash in between loses the mail
    return answer
