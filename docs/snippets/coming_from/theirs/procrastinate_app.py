"""The app with procrastinate, and its worker in the app's process. Run by:

procrastinate --app procrastinate_app.jobs schema --apply
uvicorn procrastinate_app:app
"""

import asyncio
import logging
import smtplib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from email.message import EmailMessage
from typing import Annotated

from fastapi import Depends, FastAPI
from procrastinate import App, JobContext, PsycopgConnector, RetryStrategy
from sqlalchemy.ext.asyncio import create_async_engine
from sqlmodel import Field, SQLModel, func, select
from sqlmodel.ext.asyncio.session import AsyncSession

engine = create_async_engine("postgresql+psycopg://shop@localhost/shop")
jobs = App(connector=PsycopgConnector(conninfo="postgresql://shop@localhost/shop"))


class User(SQLModel, table=True):
    id: int | None = Field(default=None, primary_key=True)
    email: str


def send(to: str, text: str) -> None:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "shop@example.org", to, "Hello"
    message.set_content(text)
    with smtplib.SMTP("localhost", 25, timeout=10) as server:
        server.send_message(message)


@jobs.task(name="welcome-mail", retry=RetryStrategy(max_attempts=4, exponential_wait=4), pass_context=True)
async def welcome(context: JobContext, to: str) -> None:
    try:
        await asyncio.to_thread(send, to, "Welcome!")
    except OSError as error:
        if context.job.attempts >= 4:
            logging.error("%s has no welcome mail: %s", to, error)
        raise


@jobs.periodic(cron="0 2 * * *")  # in UTC
@jobs.task(name="count-users")
async def count_users(timestamp: int) -> None:
    async with AsyncSession(engine) as session:
        users = (await session.exec(select(func.count()).select_from(User))).one()
    await asyncio.to_thread(send, "team@example.org", f"There are {users} users.")


@jobs.periodic(cron="*/10 * * * *")
@jobs.task(name="retry-stalled", queueing_lock="retry-stalled")
async def retry_stalled(timestamp: int) -> None:
    for job in await jobs.job_manager.get_stalled_jobs():
        await jobs.job_manager.retry_job(job)


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncGenerator[None]:
    async with engine.begin() as connection:
        await connection.run_sync(SQLModel.metadata.create_all)
    async with jobs.open_async():
        worker = asyncio.create_task(
            jobs.run_worker_async(concurrency=4, install_signal_handlers=False, shutdown_graceful_timeout=10)
        )
        yield
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
    await engine.dispose()


app = FastAPI(lifespan=lifespan)


async def get_session() -> AsyncGenerator[AsyncSession]:
    async with AsyncSession(engine) as session, session.begin():
        yield session


Tx = Annotated[AsyncSession, Depends(get_session, scope="function")]


@app.post("/register")
async def register(email: str, tx: Tx) -> dict[str, int]:
    user = User(email=email)
    tx.add(user)
    await tx.flush()
    assert user.id is not None
    # psycopg's own connection, under the session's: the job is in the same transaction.
    connection = (await (await tx.connection()).get_raw_connection()).driver_connection
    await welcome.configure(connection=connection).defer_async(to=email)
    return {"id": user.id}
