"""The app with Celery. Run by:

uvicorn celery_app:app
celery -A celery_app:celery worker
celery -A celery_app:celery beat
"""

import logging
import smtplib
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from email.message import EmailMessage
from typing import Annotated

from celery import Celery, Task
from celery.schedules import crontab
from fastapi import Depends, FastAPI
from sqlmodel import Field, Session, SQLModel, create_engine, func, select

engine = create_engine("sqlite:///app.db")
celery = Celery("celery_app", broker="redis://localhost:6379/0")
celery.conf.update(timezone="Europe/Paris", task_acks_late=True, task_ignore_result=True)


class User(SQLModel, table=True):
    id: int | None = Field(default=None, primary_key=True)
    email: str


def send(to: str, text: str) -> None:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "shop@example.org", to, "Hello"
    message.set_content(text)
    with smtplib.SMTP("localhost", 25, timeout=10) as server:
        server.send_message(message)


class Welcome(Task):
    def on_failure(self, exc, task_id, args, kwargs, einfo):
        logging.error("user %s has no welcome mail: %s", args[0], exc)


@celery.task(
    name="welcome-mail",
    base=Welcome,
    autoretry_for=(OSError,),
    retry_backoff=True,
    max_retries=4,
    soft_time_limit=30,
)
def welcome(user_id: int) -> None:
    with Session(engine) as session:
        user = session.get(User, user_id)
    if user is not None:
        send(user.email, "Welcome!")


@celery.task(name="count-users")
def count_users() -> None:
    with Session(engine) as session:
        users = session.exec(select(func.count()).select_from(User)).one()
    send("team@example.org", f"There are {users} users.")


celery.conf.beat_schedule = {"count-users": {"task": "count-users", "schedule": crontab(hour=2, minute=0)}}


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
    welcome.delay(user.id)  # after the commit: a crash in between loses the mail
    return {"id": user.id}
