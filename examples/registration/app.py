"""A registration and its welcome mail in one transaction, and a report that takes its time.

    uvicorn examples.registration.app:app

`DATABASE_URL` in the environment says where it keeps people and their jobs: in an SQLite file, on Postgres as
`postgresql+asyncpg://app@localhost/people`, on MySQL or MariaDB as `mysql+asyncmy://app@localhost/people`.
`SMTP_HOST` and `SMTP_PORT` say where it sends mail.
"""

from __future__ import annotations

import asyncio
import logging
import os
import smtplib
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from email.message import EmailMessage
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException
from pydantic import BaseModel
from pydantic import Field as Checked
from sqlalchemy.ext.asyncio import create_async_engine
from sqlmodel import Field, SQLModel, select
from sqlmodel.ext.asyncio.session import AsyncSession

import fastjobs

DATABASE_URL = os.environ.get("DATABASE_URL", "sqlite+aiosqlite:///registration.db")
SMTP_HOST = os.environ.get("SMTP_HOST", "127.0.0.1")
SMTP_PORT = int(os.environ.get("SMTP_PORT", "1025"))

logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.INFO)
log = logging.getLogger("registration")


# --- what is kept -----------------------------------------------------------------------------------------------


class Person(SQLModel, table=True):
    id: int | None = Field(default=None, primary_key=True)
    name: str
    email: str = Field(unique=True)
    welcomed: bool = False


class Report(SQLModel, table=True):
    id: int | None = Field(default=None, primary_key=True)
    steps: int
    finished_at_attempt: int | None = None


engine = create_async_engine(DATABASE_URL)
if engine.dialect.name == "sqlite":
    fastjobs.sqlite.configure(engine)  # transactions that hold what they promise, and writers that queue up
reading = engine.execution_options(fastjobs_readonly=True)  # on SQLite, reads that wait for no writer


async def get_tx() -> AsyncGenerator[AsyncSession]:
    async with AsyncSession(engine) as session, session.begin():
        yield session


async def get_reader() -> AsyncGenerator[AsyncSession]:
    async with AsyncSession(reading) as session:
        yield session


# scope="function": the transaction commits before the response is sent, so a 200 means that it's kept.
Tx = Annotated[AsyncSession, Depends(get_tx, scope="function")]
Reader = Annotated[AsyncSession, Depends(get_reader, scope="function")]


# --- the jobs ---------------------------------------------------------------------------------------------------

q = fastjobs.Queue(
    fastjobs.SQLStore(engine),
    workers=4,
    grace=5,
    hold=3,  # a killed worker's job runs again after three seconds: short, so that the demo is
    carry=[fastjobs.CarryRequestID()],
)
jobs_in_tx = fastjobs.jobs_in_tx(q, Tx)
Jobs = Annotated[fastjobs.InTx, Depends(jobs_in_tx)]


class WelcomeMail(BaseModel):
    person: int


@q.kind("welcome-mail", attempts=60, backoff=1, timeout=15)
async def welcome(mail: WelcomeMail) -> None:
    async with AsyncSession(reading) as session:
        person = await session.get(Person, mail.person)
    if person is None or person.welcomed:
        return  # nothing left to do: done
    try:
        await asyncio.to_thread(send, person.name, person.email, fastjobs.current_job().id)
    except smtplib.SMTPRecipientsRefused as refused:
        if all(code >= 500 for code, _ in refused.recipients.values()):
            raise fastjobs.Permanent("the mail server knows no such address") from refused
        raise
    async with AsyncSession(engine) as session, session.begin():
        found = await session.get(Person, mail.person)
        if found is not None:
            found.welcomed = True


@welcome.on_fail
async def tell_support(mail: WelcomeMail, error: Exception) -> None:
    log.error("person %s has no welcome mail, tell support: %s", mail.person, error)


def send(name: str, email: str, job: str) -> None:
    """Sends the mail. It blocks, so the handler runs it in a thread."""
    message = EmailMessage()
    message["From"] = "hello@registration.example"
    message["To"] = email
    message["Subject"] = "Welcome"
    # A job may run twice: where it was sent and the worker died before that was kept. The id stays the same.
    message["Message-ID"] = f"<welcome-{job}@registration.example>"
    message.set_content(f"Hello {name}, you are registered.")
    with smtplib.SMTP(SMTP_HOST, SMTP_PORT, timeout=5) as server:
        server.send_message(message)


class MakeReport(BaseModel):
    report: int


@q.kind("report", timeout=60)
async def make_report(wanted: MakeReport) -> None:
    attempt = fastjobs.current_job().attempt
    async with AsyncSession(reading) as session:
        report = await session.get(Report, wanted.report)
    if report is None:
        return
    for step in range(1, report.steps + 1):
        log.info("report %s: attempt %s, step %s of %s", wanted.report, attempt, step, report.steps)
        await asyncio.sleep(1)
    async with AsyncSession(engine) as session, session.begin():
        found = await session.get(Report, wanted.report)
        if found is not None:
            found.finished_at_attempt = attempt
    log.info("report %s: done at attempt %s", wanted.report, attempt)


# --- the app ----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def database(_app: FastAPI) -> AsyncGenerator[None]:
    async with engine.begin() as connection:
        await connection.run_sync(SQLModel.metadata.create_all)
    yield
    await engine.dispose()


app = FastAPI(title="Registration", lifespan=fastjobs.lifespan(q, within=database))
app.add_middleware(fastjobs.RequestIDMiddleware)


class Registration(BaseModel):
    name: str = Checked(min_length=1, max_length=100)
    email: str = Checked(pattern=r"^[^@\s,;<>]+@[^@\s,;<>]+$", max_length=200)
    card: str = "good"


@app.post("/register")
async def register(form: Registration, tx: Tx, jobs: Jobs) -> dict[str, int]:
    person = Person(name=form.name, email=form.email)
    tx.add(person)
    await tx.flush()
    assert person.id is not None
    await jobs(welcome).push(WelcomeMail(person=person.id))
    if form.card != "good":  # the person and the mail are in the transaction by now, and both go with it
        raise HTTPException(402, "the card was declined")
    return {"id": person.id}


@app.get("/people")
async def people(session: Reader) -> Sequence[Person]:
    return (await session.exec(select(Person).order_by("id"))).all()


@app.post("/reports")
async def new_report(tx: Tx, jobs: Jobs, steps: int = 4) -> dict[str, int]:
    report = Report(steps=steps)
    tx.add(report)
    await tx.flush()
    assert report.id is not None
    await jobs(make_report).push(MakeReport(report=report.id))
    return {"id": report.id}


@app.get("/reports/{id}")
async def report_of(id: int, session: Reader) -> Report:
    report = await session.get(Report, id)
    if report is None:
        raise HTTPException(404, "there's no such report")
    return report
