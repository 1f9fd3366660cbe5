"""What `configure(engine, begin=…)` gives and costs: `python -m tests.benchmarks.begin`, about a minute.

Both settings, in turn, for: 8 clients that read and then write beside a busy queue; 8 that each read a number, add
one and write it 20 times; a background task that writes after the route's session has read; and 100 requests at once
whose user is read by a `def` dependency, before a `def` route that writes.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import httpx
from fastapi import BackgroundTasks, Depends, FastAPI
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlmodel import Field, Session, SQLModel, select
from sqlmodel.ext.asyncio.session import AsyncSession

import fastjobs
import fastjobs.sqlite

Begin = Literal["immediate", "write"]
SECONDS = 5.0


class Person(SQLModel, table=True):
    id: int | None = Field(default=None, primary_key=True)
    name: str


class Database:
    """A file with one row, and an engine of each kind on it."""

    def __init__(self, path: Path, begin: Begin) -> None:
        self.engine = create_engine(f"sqlite:///{path}", pool_size=60)
        self.async_engine: AsyncEngine = create_async_engine(f"sqlite+aiosqlite:///{path}", pool_size=60)
        for engine in (self.engine, self.async_engine):
            fastjobs.sqlite.configure(engine, begin=begin)
        SQLModel.metadata.create_all(self.engine, [SQLModel.metadata.tables["person"]])
        with self.engine.begin() as connection:
            connection.execute(text("CREATE TABLE counter (n INT)"))
            connection.execute(text("INSERT INTO counter VALUES (0)"))
            connection.execute(text("INSERT INTO person (name) VALUES ('first')"))

    async def close(self) -> None:
        self.engine.dispose()
        await self.async_engine.dispose()


def client(app: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app, raise_app_exceptions=False), base_url="http://app", timeout=60
    )


async def beside_a_busy_queue(database: Database) -> str:
    queue = fastjobs.Queue(fastjobs.SQLStore(database.async_engine), workers=4)

    @queue.kind("nothing")
    async def nothing(_: int) -> None: ...

    took: list[float] = []
    errors = 0
    end = time.perf_counter() + SECONDS

    async def pushes() -> None:
        while time.perf_counter() < end:
            await nothing.push_many(range(20))
            await asyncio.sleep(0.005)

    async def requests() -> None:
        nonlocal errors
        while time.perf_counter() < end:
            began = time.perf_counter()
            try:
                async with AsyncSession(database.async_engine) as session:
                    person = (await session.exec(select(Person).limit(1))).one()
                    await asyncio.sleep(0.005)  # what a route does otherwise
                    session.add(Person(name=f"after {person.name}"))
                    await session.commit()
            except OperationalError:
                errors += 1
            took.append(time.perf_counter() - began)

    async with queue.running():
        await asyncio.gather(pushes(), *(requests() for _ in range(8)))
    took.sort()
    p99 = took[int(len(took) * 0.99)] * 1000
    return f"{len(took) / SECONDS:.0f} requests/s, p99 {p99:.0f} ms, {errors} errors"


async def lost_updates(database: Database) -> str:
    errors = 0

    async def adds() -> None:
        nonlocal errors
        for _ in range(20):
            try:
                async with AsyncSession(database.async_engine) as session:
                    connection = await session.connection()
                    n: int = (await connection.execute(text("SELECT n FROM counter"))).scalar_one()
                    await connection.execute(text("UPDATE counter SET n = :n"), {"n": n + 1})
                    await session.commit()
            except OperationalError:
                errors += 1

    await asyncio.gather(*(adds() for _ in range(8)))
    with database.engine.connect() as connection:
        n = connection.execute(text("SELECT n FROM counter")).scalar_one()
    return f"{160 - n - errors} of 160 lost, {errors} errors"


async def background_task(database: Database) -> str:
    app = FastAPI()
    failed = 0

    async def get_session() -> AsyncIterator[AsyncSession]:
        async with AsyncSession(database.async_engine) as session:
            yield session

    its_session = Depends(get_session)

    async def tells() -> None:
        nonlocal failed
        try:
            async with AsyncSession(database.async_engine) as session:
                session.add(Person(name="told"))
                await session.commit()
        except OperationalError:
            failed += 1

    @app.post("/")
    async def create(tasks: BackgroundTasks, session: AsyncSession = its_session) -> Any:
        person = Person(name="new")
        session.add(person)
        await session.commit()
        await session.refresh(person)
        tasks.add_task(tells)
        return person

    async with client(app) as http:
        for _ in range(10):
            await http.post("/")
    return f"{failed} of 10 tasks failed"


async def a_hundred_at_once(database: Database) -> str:
    queue = fastjobs.Queue(fastjobs.SQLStore(database.engine))

    @queue.kind("greet")
    async def greet(_: int) -> None: ...

    def get_session() -> Iterator[Session]:
        with Session(database.engine) as session:
            yield session

    its_session = Depends(get_session)
    its_jobs = Depends(fastjobs.jobs_in_tx(queue, Annotated[Session, its_session]))

    def get_user(session: Session = its_session) -> Person | None:
        return session.exec(select(Person).limit(1)).first()

    its_user = Depends(get_user)
    app = FastAPI()

    @app.post("/")
    def create(
        session: Session = its_session,
        jobs: fastjobs.SyncInTx = its_jobs,
        _user: Person | None = its_user,
    ) -> Any:
        person = Person(name="new")
        session.add(person)
        session.flush()
        assert person.id is not None
        jobs(greet).push(person.id)
        session.commit()
        session.refresh(person)
        return person

    async with queue.running(), client(app) as http:
        began = time.perf_counter()
        answers = await asyncio.gather(*(http.post("/") for _ in range(100)))
        took = time.perf_counter() - began
    failed = sum(answer.status_code != 200 for answer in answers)
    return f"{failed} of 100 failed, {took:.1f} s"


MEASURES: list[Callable[[Database], Any]] = [
    beside_a_busy_queue,
    lost_updates,
    background_task,
    a_hundred_at_once,
]


async def main() -> None:
    for measure in MEASURES:
        for begin in ("immediate", "write"):
            with tempfile.TemporaryDirectory() as folder:
                database = Database(Path(folder) / "app.db", begin)
                found = await measure(database)
                await database.close()
            print(f"{measure.__name__.replace('_', ' ')}, {begin}: {found}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
