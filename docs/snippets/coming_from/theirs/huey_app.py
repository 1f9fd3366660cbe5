"""The app with Huey. Run by:

uvicorn huey_app:app
huey_consumer huey_app.huey --workers 4
"""

import logging
import smtplib
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from email.message import EmailMessage
from typing import Annotated

from fastapi import Depends, FastAPI
from huey import SqliteHuey, crontab
from huey.signals import SIGNAL_ERROR
from sqlmodel import Field, Session, SQLModel, create_engine, func, select

engine = create_engine("sqlite:///app.db")
huey = SqliteHuey(filename="huey.db")


class User(SQLModel, table=True):
    id: int | None = Field(default=None, primary_key=True)
    email: str


def send(to: str, text: str) -> None:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "shop@example.org", to, "Hello"
    message.set_content(text)
    with smtplib.SMTP("localhost", 25, timeout=10) as server:
        server.send_message(message)


@huey.task(name="welcome-mail", retries=4, retry_delay=10, timeout=30)
def welcome(user_id: int) -> None:
    with Session(engine) as session:
        user = session.get(User, user_id)
    if user is not None:
        send(user.email, "Welcome!")


@huey.signal(SIGNAL_ERROR)
def give_up(signal, task, error) -> None:
    if task.name == "welcome-mail" and task.retries == 0:
        logging.error("user %s has no welcome mail: %s", task.args[0], error)


@huey.periodic_task(crontab(hour="2", minute="0"), name="count-users")
def count_users() -> None:
    with Session(engine) as session:
        users = session.exec(select(func.count()).select_from(User)).one()
    send("team@example.org", f"There are {users} users.")


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
    welcome(user.id)  # after the commit: a crash in between loses the mail
    return {"id": user.id}
