import asyncio

from sqlalchemy import String, select
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import fastjobs

engine = create_async_engine("sqlite+aiosqlite:///app.db")
fastjobs.sqlite.configure(engine)
q = fastjobs.Queue(fastjobs.SQLStore(engine))


class Base(DeclarativeBase):
    pass


class Account(Base):
    __tablename__ = "accounts"
    name: Mapped[str] = mapped_column(String(100), primary_key=True)
    credit: Mapped[int]


@q.kind("top-up")
async def top_up(name: str) -> None:
    async with AsyncSession(engine) as session, session.begin():
        account = await session.get_one(Account, name, with_for_update=True)
        account.credit += 10
        await receipt.in_(session).push(name)
        await fastjobs.current_job().done_in(session)
    # Committed: the credit, the job of the receipt, and the end of this job. Or none of the three.


@q.kind("receipt")
async def receipt(name: str) -> None:
    async with AsyncSession(engine.execution_options(fastjobs_readonly=True)) as session:
        credit = await session.scalar(select(Account.credit).where(Account.name == name))
    print(f"{name} has {credit} now")


async def main() -> None:
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with AsyncSession(engine) as session, session.begin():
        session.add(Account(name="ada", credit=0))
        await top_up.in_(session).push("ada")
    await q.drain()
    await engine.dispose()


if __name__ == "__main__":
    asyncio.run(main())
