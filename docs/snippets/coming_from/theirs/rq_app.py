"""The app with RQ. Run by:

uvicorn rq_app:app
rq worker --with-scheduler
rq cron rq_app
"""

import logging
import smtplib
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from email.message import EmailMessage
from typing import Annotated

from fastapi import Depends, FastAPI
from redis import Redis
from rq import Queue, Retry
from rq import cron as rq_cron
from sqlmodel import Field, Session, SQLModel, create_engine, func, select

engine = create_engine("sqlite:///app.db")
queue = Queue(connection=Redis())


class User(SQLModel, table=True):
    id: int | None = Field(default=None, primary_key=True)
    email: str


def send(to: str, text: str) -> None:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "shop@example.org", to, "Hello"
    message.set_content(text)
    with smtplib.SMTP("localhost", 25, timeout=10) as server:
        server.send_message(message)


def welcome(user_id: int) -> None:
    with Session(engine) as session:
        user = session.get(User, user_id)
    if user is not None:
        send(user.email, "Welcome!")


def give_up(job, connection, kind, error, traceback) -> None:
    if not job.retries_left:  # it's called after each attempt that failed
        logging.error("user %s has no welcome mail: %s", job.args[0], error)


def count_users() -> None:
    with Session(engine) as session:
        users = session.exec(select(func.count()).select_from(User)).one()
    send("team@example.org", f"There are {users} users.")


rq_cron.register(count_users, queue_name="default", cron="0 2 * * *")


@asynccontextmanager
async def database(_app: FastAPI) -> AsyncGenerator[None]:
    SQLModel.metadata.create_all(engine)
    yield
    engine.dispose()


app = FastAPI(lifespan=database)


def get_session() -> Generator[Session]:
    with Session(engine) as session:
        yield session


SessionDep = Annotated[Session, Depends(get_session)]


@app.post("/register")
def register(email: str, session: SessionDep) -> dict[str, int]:
    user = User(email=email)
    session.add(user)
    session.commit()
    assert user.id is not None
    queue.enqueue(  # after the commit: a crash in between loses the mail
        "rq_app.welcome",
        user.id,
        job_timeout=30,
        retry=Retry(max=4, interval=[1, 16, 81, 256]),
        on_failure=give_up,
    )
    return {"id": user.id}
