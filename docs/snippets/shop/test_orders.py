"""The tests of the app: no queue runs beside them, no time is slept away, and no file is left."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import StaticPool
from sqlmodel import Session, SQLModel, create_engine

from fastjobs.testing import Jobs, fixtures

from . import db
from .jobs import Placed, ask, confirm
from .main import app, q

jobs = fixtures.jobs(q, autouse=True)  # a Memory in place of the queue's store, for each test


@pytest.fixture(autouse=True)
def database(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    SQLModel.metadata.create_all(engine)  # the lifespan doesn't run, so nobody else makes the tables
    monkeypatch.setattr(db, "engine", engine)  # for routes and handlers
    yield
    engine.dispose()


@pytest.fixture(autouse=True)
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    sent: list[tuple[str, str]] = []

    def send(email: str, text: str) -> None:
        sent.append((email, text))

    monkeypatch.setattr("shop.jobs.send", send)
    return sent


def test_an_order_is_confirmed_and_asked_about(jobs: Jobs, sent: list[tuple[str, str]]) -> None:
    order = TestClient(app).post("/orders", json={"email": "ada@example.org"}).json()["id"]
    assert jobs.pushed(confirm, Placed(order=order))
    assert jobs.pushed(ask, Placed(order=order), after=timedelta(days=7))
    assert jobs.drain() == 1
    assert sent == [("ada@example.org", "We have your order.")]
    jobs.clock.advance(timedelta(days=7))
    assert jobs.drain() == 1
    assert sent[1:] == [("ada@example.org", "How was it?")]


def test_a_blocked_order_leaves_no_job(jobs: Jobs) -> None:
    client = TestClient(app)
    assert client.post("/orders", json={"email": "eve@blocked.example"}).status_code == 403
    assert not jobs.pushed()  # the transaction was rolled back


def test_a_confirmation_fails_after_five_attempts(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(email: str, text: str) -> None:
        raise ConnectionRefusedError("the mail server is down")

    monkeypatch.setattr("shop.jobs.send", refuse)
    TestClient(app).post("/orders", json={"email": "ada@example.org"})
    with pytest.raises(ConnectionRefusedError):
        jobs.drain()  # raises what a handler raised; the job waits for its next attempt
    for _attempt in range(4):
        jobs.clock.advance(timedelta(hours=1))
        assert jobs.drain(raising=False) == 1
    (failed,) = jobs.failed
    assert (failed.kind, failed.attempts) == ("confirm-order", 5)


def test_the_handler_alone(jobs: Jobs, sent: list[tuple[str, str]]) -> None:
    with Session(db.engine) as session:
        session.add(db.Order(id=1, email="ada@example.org"))
        session.commit()
    jobs.run(confirm, Placed(order=1))
    assert sent == [("ada@example.org", "We have your order.")]
