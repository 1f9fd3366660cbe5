"""Registers people, mails each of them once, and counts them each night. Run by: uvicorn async_app:app"""

import logging
import smtplib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from email.message import EmailMessage
from typing import Annotated

from fastapi import Depends, FastAPI
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import create_async_engine
from sqlmodel import Field, SQLModel, func, select
from sqlmodel.ext.asyncio.session import AsyncSession

import fastjobs

logging.basicConfig(level=logging.INFO)
engine = create_async_engine("sqlite+aiosqlite:///app.db")
fastjobs.sqlite.configure(engine)
q = fastjobs.Queue(fastjobs.SQLStore(engine))


class User(SQLModel, table=True):
    id: int | None = Field(default=None, primary_key=True)
    email: str


def send(to: str, text: str) -> None:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "shop@example.org", to, "Hello"
    message.set_content(text)
    with smtplib.SMTP("localhost", 25, timeout=10) as server:
        server.send_message(message)


class WelcomeMail(BaseModel):
    to: str


# A plain def, as smtplib blocks: it runs in a thread.
@q.kind("welcome-mail", attempts=5, timeout=30)
def welcome(mail: WelcomeMail) -> None:
    send(mail.to, "Welcome!")


@welcome.on_fail
async def give_up(mail: WelcomeMail, error: Exception) -> None:
    logging.error("%s has no welcome mail: %s", mail.to, error)


class Report(BaseModel):
    users: int


@q.kind("report")
def report(found: Report) -> None:
    send("team@example.org", f"There are {found.users} users.")


@q.kind("count-users")
async def count_users() -> None:
    async with AsyncSession(engine.execution_options(fastjobs_readonly=True)) as session:
        users = (await session.exec(select(func.count()).select_from(User))).one()
    await report.push(Report(users=users))


count_users.schedule(fastjobs.Cron("0 2 * * *", "Europe/Paris"))


@asynccontextmanager
async def database(_app: FastAPI) -> AsyncGenerator[None]:
    async with engine.begin() as connection:
        await connection.run_sync(SQLModel.metadata.create_all)
    yield
    await engine.dispose()


app = FastAPI(lifespan=fastjobs.lifespan(q, within=database))


async def get_tx() -> AsyncGenerator[AsyncSession]:
    async with AsyncSession(engine) as session, session.begin():
        yield session


Tx = Annotated[AsyncSession, Depends(get_tx, scope="function")]
jobs_in_tx = fastjobs.jobs_in_tx(q, Tx)
Jobs = Annotated[fastjobs.InTx, Depends(jobs_in_tx)]


@app.post("/register")
async def register(email: str, tx: Tx, jobs: Jobs) -> dict[str, int]:
    user = User(email=email)
    tx.add(user)
    await tx.flush()  # gives the user its id
    assert user.id is not None
    await jobs(welcome).push(WelcomeMail(to=user.email))  # kept as get_tx commits, or not at all
    return {"id": user.id}
