"""The database: the engine, its tables, and the session of a request."""

from collections.abc import Generator
from typing import Annotated

from fastapi import Depends
from sqlmodel import Field, Session, SQLModel, create_engine

import fastjobs

engine = create_engine("sqlite:///shop.db")
fastjobs.sqlite.configure(engine)


class Order(SQLModel, table=True):
    id: int | None = Field(default=None, primary_key=True)
    email: str


def get_session() -> Generator[Session]:
    with Session(engine) as session:
        yield session


# scope="function": closed before the response is sent, so that no slow client keeps a transaction open.
SessionDep = Annotated[Session, Depends(get_session, scope="function")]


def reading() -> Session:
    """A session that only reads: it waits for no writer."""
    return Session(engine.execution_options(fastjobs_readonly=True))
