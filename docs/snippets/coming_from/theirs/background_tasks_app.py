"""The app with BackgroundTasks, and APScheduler for the night. Run by: uvicorn background_tasks_app:app"""

import logging
import smtplib
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from email.message import EmailMessage
from typing import Annotated

from apscheduler.schedulers.background import BackgroundScheduler
from fastapi import BackgroundTasks, Depends, FastAPI
from sqlmodel import Field, Session, SQLModel, create_engine, func, select

engine = create_engine("sqlite:///app.db")


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
    if user is None:
        return
    for attempt in range(5):
        try:
            return send(user.email, "Welcome!")
        except OSError as error:
            logging.warning("attempt %s: %s", attempt + 1, error)
            time.sleep(10)
    logging.error("user %s has no welcome mail", user_id)


def count_users() -> None:
    with Session(engine) as session:
        users = session.exec(select(func.count()).select_from(User)).one()
    send("team@example.org", f"There are {users} users.")


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncGenerator[None]:
    SQLModel.metadata.create_all(engine)
    scheduler = BackgroundScheduler(timezone="Europe/Paris")
    scheduler.add_job(count_users, "cron", hour=2)  # once in each process
    scheduler.start()
    yield
    scheduler.shutdown()
    engine.dispose()


app = FastAPI(lifespan=lifespan)


def get_session() -> Generator[Session]:
    with Session(engine) as session:
        yield session


SessionDep = Annotated[Session, Depends(get_session)]


@app.post("/register")
def register(email: str, session: SessionDep, tasks: BackgroundTasks) -> dict[str, int]:
    user = User(email=email)
    session.add(user)
    session.commit()
    session.refresh(user)
    assert user.id is not None
    tasks.add_task(welcome, user.id)
    return {"id": user.id}
