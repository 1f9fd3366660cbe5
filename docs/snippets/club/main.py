"""A club: who joins is given credit by one job, and welcomed by the next. Each job has a session of its own."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI
from pydantic import BaseModel
from sqlalchemy import String
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import fastjobs

engine = create_async_engine("sqlite+aiosqlite:///club.db")
fastjobs.sqlite.configure(engine)
sessions = async_sessionmaker(engine, expire_on_commit=False)
reading = async_sessionmaker(engine.execution_options(fastjobs_readonly=True))
q = fastjobs.Queue(fastjobs.SQLStore(engine))


class Base(DeclarativeBase):
    pass


class Member(Base):
    __tablename__ = "members"
    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str] = mapped_column(String(200))
    credit: Mapped[int] = mapped_column(default=0)


class Joined(BaseModel):
    member: int


async def send(email: str, text: str) -> None:
    print(f"to {email}: {text}")


@q.kind("give-credit")
async def give_credit(joined: Joined) -> None:
    async with sessions.begin() as session:  # commits at its end, and rolls back where an error leaves it
        member = await session.get_one(Member, joined.member, with_for_update=True)
        member.credit += 10
        await welcome.in_(session).push(joined)  # the next job
        await fastjobs.current_job().done_in(session)  # and the end of this one: all three, or none


@q.kind("welcome")
async def welcome(joined: Joined) -> None:
    async with reading() as session:
        member = await session.get_one(Member, joined.member)
    # The session is closed: no connection is held, and no lock, while the mail goes.
    await send(member.email, f"Welcome! Your credit is {member.credit}.")


async def get_tx() -> AsyncGenerator[AsyncSession]:
    async with sessions.begin() as session:
        yield session


Tx = Annotated[AsyncSession, Depends(get_tx, scope="function")]
jobs_in_tx = fastjobs.jobs_in_tx(q, Tx)


@asynccontextmanager
async def database(_app: FastAPI) -> AsyncGenerator[None]:
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield
    await engine.dispose()


app = FastAPI(lifespan=fastjobs.lifespan(q, within=database))


@app.post("/members/{email}")
async def join(email: str, tx: Tx, jobs: Annotated[fastjobs.InTx, Depends(jobs_in_tx)]) -> dict[str, int]:
    member = Member(email=email)
    tx.add(member)
    await tx.flush()  # gives the member its id
    await jobs(give_credit).push(Joined(member=member.id))
    return {"id": member.id}
