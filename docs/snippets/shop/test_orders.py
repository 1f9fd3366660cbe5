"""The tests of the app: no queue runs beside them, no time is slept away, and no file is left."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import StaticPool
from sqlmodel import Session, SQLModel, create_engine

import fastjobs
from fastjobs.testing import Clock

from . import db, jobs
from .main import app, q


@pytest.fixture(autouse=True)
def database(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    SQLModel.metadata.create_all(engine)  # the lifespan doesn't run, so nobody else makes the tables
    monkeypatch.setattr(db, "engine", engine)  # for routes and handlers
    yield
    engine.dispose()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def memory(clock: Clock) -> Iterator[fastjobs.Memory]:
    memory, kept = fastjobs.Memory(clock=clock), q.store
    q.use(memory)
    yield memory
    q.use(kept)  # else the next test has this store


@pytest.fixture(autouse=True)
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    sent: list[tuple[str, str]] = []

    def send(email: str, text: str) -> None:
        sent.append((email, text))

    monkeypatch.setattr(jobs, "send", send)
    return sent


def test_an_order_is_confirmed_and_asked_about(clock: Clock, sent: list[tuple[str, str]]) -> None:
    client = TestClient(app)  # not `with`: no lifespan, so nothing runs by itself
    assert client.post("/orders", json={"email": "ada@example.org"}).status_code == 200
    assert asyncio.run(q.drain()) == 1
    assert sent == [("ada@example.org", "We have your order.")]
    clock.advance(timedelta(days=7))
    assert asyncio.run(q.drain()) == 1
    assert sent[1:] == [("ada@example.org", "How was it?")]


def test_a_blocked_order_leaves_no_job(clock: Clock) -> None:
    client = TestClient(app)
    assert client.post("/orders", json={"email": "eve@blocked.example"}).status_code == 403
    clock.advance(timedelta(days=7))
    assert asyncio.run(q.drain()) == 0


def test_a_confirmation_fails_after_five_attempts(
    clock: Clock, memory: fastjobs.Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(email: str, text: str) -> None:
        raise ConnectionRefusedError("the mail server is down")

    monkeypatch.setattr(jobs, "send", refuse)
    TestClient(app).post("/orders", json={"email": "ada@example.org"})
    for _attempt in range(5):
        assert asyncio.run(q.drain()) == 1  # runs it, and doesn't raise what it raised
        clock.advance(timedelta(hours=1))
    (failed,) = asyncio.run(memory.failed())
    assert (failed.kind, failed.attempts) == ("confirm-order", 5)


def test_the_handler_alone(sent: list[tuple[str, str]]) -> None:
    with Session(db.engine) as session:
        session.add(db.Order(id=1, email="ada@example.org"))
        session.commit()
    jobs.confirm.handler(jobs.Placed(order=1))
    assert sent == [("ada@example.org", "We have your order.")]
