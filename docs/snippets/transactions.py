from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import create_async_engine
from sqlmodel import Field, SQLModel
from sqlmodel.ext.asyncio.session import AsyncSession

import fastjobs

engine = create_async_engine("sqlite+aiosqlite:///app.db")
fastjobs.sqlite.configure(engine)
q = fastjobs.Queue(fastjobs.SQLStore(engine))


class User(SQLModel, table=True):
    id: int | None = Field(default=None, primary_key=True)
    email: str


class WelcomeMail(BaseModel):
    user: int


@q.kind("welcome-mail")
async def welcome(mail: WelcomeMail) -> None:
    async with AsyncSession(engine.execution_options(fastjobs_readonly=True)) as session:
        user = await session.get(User, mail.user)
    if user is not None:
        print(f"Welcome, {user.email}!")


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
    await jobs(welcome).push(WelcomeMail(user=user.id))  # kept as tx commits, or not at all
    if email.endswith("@blocked.example"):
        raise HTTPException(403)  # rolls back: no user, and no job
    return {"id": user.id}  # get_tx commits, and that wakes the queue
