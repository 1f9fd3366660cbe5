"""Registers people, mails each of them once, and counts them each night. Run by: uvicorn sync_app:app"""

import logging
import smtplib
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from email.message import EmailMessage
from typing import Annotated

from fastapi import Depends, FastAPI
from pydantic import BaseModel
from sqlmodel import Field, Session, SQLModel, create_engine, func, select

import fastjobs

logging.basicConfig(level=logging.INFO)
engine = create_engine("sqlite:///app.db")
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


def reading() -> Session:
    return Session(engine.execution_options(fastjobs_readonly=True))


class WelcomeMail(BaseModel):
    user: int


@q.kind("welcome-mail", attempts=5, timeout=30)
def welcome(mail: WelcomeMail) -> None:
    with reading() as session:
        user = session.get(User, mail.user)
    if user is not None:
        send(user.email, "Welcome!")


@welcome.on_fail
def give_up(mail: WelcomeMail, error: Exception) -> None:
    logging.error("user %s has no welcome mail: %s", mail.user, error)


@q.kind("count-users")
def count_users() -> None:
    with reading() as session:
        users = session.exec(select(func.count()).select_from(User)).one()
    send("team@example.org", f"There are {users} users.")


count_users.schedule(fastjobs.Cron("0 2 * * *", "Europe/Paris"))


@asynccontextmanager
async def database(_app: FastAPI) -> AsyncGenerator[None]:
    SQLModel.metadata.create_all(engine)
    yield
    engine.dispose()


app = FastAPI(lifespan=fastjobs.lifespan(q, within=database))


def get_session() -> Generator[Session]:
    with Session(engine) as session, session.begin():
        yield session


SessionDep = Annotated[Session, Depends(get_session, scope="function")]
jobs_in_tx = fastjobs.jobs_in_tx(q, SessionDep)
Jobs = Annotated[fastjobs.SyncInTx, Depends(jobs_in_tx)]


@app.post("/register")
def register(email: str, session: SessionDep, jobs: Jobs) -> dict[str, int]:
    user = User(email=email)
    session.add(user)
    session.flush()  # gives the user its id
    assert user.id is not None
    jobs(welcome).push(WelcomeMail(user=user.id))  # kept as get_session commits, or not at all
    return {"id": user.id}
