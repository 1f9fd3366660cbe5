"""A thread that pushes by the queue itself, beside a write transaction of its own, is told so and waits for nothing."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import pytest
from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.orm import Session

import fastjobs
from fastjobs import Kind, Queue, QueueError, SQLStore
from fastjobs.core.blocked import waiting_thread, waits
from fastjobs.stores.sql.dialects.sqlite import files
from fastjobs.stores.sql.dialects.sqlite.gate import gate

OWN = r"this task or thread has a transaction open .* push through kind\.in_\(tx\)"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.db"


@pytest.fixture
def engine(path: Path) -> Generator[Engine]:
    engine = create_engine(f"sqlite:///{path}")
    fastjobs.sqlite.configure(engine)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE t (n INT)"))
    yield engine
    engine.dispose()


@pytest.fixture
def queue(engine: Engine) -> Generator[Queue]:
    store = SQLStore(engine)
    yield Queue(store)
    asyncio.run(store.close())


def kind_of(queue: Queue) -> Kind[None]:
    @queue.kind("mail")
    def mail() -> None: ...

    return mail


def write(connection: Connection) -> None:
    connection.execute(text("INSERT INTO t VALUES (1)"))


def test_a_script_is_told_at_once_and_nothing_of_its_transaction_is_lost(
    engine: Engine, queue: Queue
) -> None:
    mail = kind_of(queue)
    assert queue.sync.job("1") is None  # the first call makes the tables
    with engine.begin() as connection:
        write(connection)
        with pytest.raises(QueueError, match=OWN):
            mail.sync.push()
        with pytest.raises(QueueError, match="transaction open that may write"):
            queue.sync.cancel("1")
        assert queue.sync.job("1") is None  # what only looks waits for nobody
    assert mail.sync.push() == "1"
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM t")) == 1


def test_a_route_is_told_at_once_while_the_queue_runs(engine: Engine, queue: Queue) -> None:
    mail = kind_of(queue)

    def get_session() -> Generator[Session]:
        with Session(engine) as session:
            yield session

    app = FastAPI(lifespan=fastjobs.lifespan(queue))

    def route(session: Session, *, commits: bool) -> str:
        write(session.connection())
        if commits:
            session.commit()
        try:
            return str(mail.sync.push())
        except QueueError as error:
            return str(error)

    session = Annotated[Session, Depends(get_session, scope="function")]
    route.__annotations__ |= {"session": session, "commits": bool}
    app.post("/")(route)
    with TestClient(app) as client:
        assert "push through kind.in_(tx)" in client.post("/?commits=false").json()
        assert client.post("/?commits=true").json() == "1"


def test_a_push_waits_for_another_requests_transaction_that_was_begun_in_its_thread(
    engine: Engine, queue: Queue, path: Path
) -> None:
    # A pool's thread runs the dependency of one request, then the route of another, each in a context of its own.
    mail = kind_of(queue)
    key = files.file_key(str(path))
    assert key is not None

    def in_its_own_context(call: Callable[[], object]) -> object:
        return contextvars.copy_context().run(call)

    def begin() -> Connection:
        connection = engine.connect()
        write(connection)
        return connection

    with ThreadPoolExecutor(1) as thread:
        connection = thread.submit(in_its_own_context, begin).result(10)
        assert isinstance(connection, Connection)
        push = thread.submit(in_its_own_context, mail.sync.push)
        while not gate(key)._line:
            assert not push.done()
        connection.commit()
        assert push.result(10) == "1"
        connection.close()


def test_a_push_of_another_thread_in_the_same_context_waits(engine: Engine, queue: Queue, path: Path) -> None:
    mail = kind_of(queue)
    key = files.file_key(str(path))
    assert key is not None
    with ThreadPoolExecutor(1) as thread:
        with engine.begin() as connection:
            write(connection)
            push = thread.submit(contextvars.copy_context().run, mail.sync.push)
            while not gate(key)._line:
                assert not push.done()
        assert push.result(10) == "1"


def test_a_wait_that_is_over_is_nobodys() -> None:
    assert waiting_thread() is None
    with waits():
        left = contextvars.copy_context()  # as a task's that is begun meanwhile, and lives on
        assert left.run(waiting_thread) == waiting_thread() == threading.get_ident()
    assert left.run(waiting_thread) is None
    assert waiting_thread() is None
