"""A running queue and its app on one SQLite file: wake-ups, locks of others, full and read-only files."""

from __future__ import annotations

import asyncio
import itertools
import logging
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import fastjobs
from fastjobs import Kind, Outcome, Queue, Ran, SQLStore

pytestmark = pytest.mark.anyio


class App:
    """A table, and a queue whose handler looks for the row that its job is about."""

    def __init__(self, path: Path, *, configured: bool, **settings: Any) -> None:
        self.path = path
        self.engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
        self.sync_engine = create_engine(f"sqlite:///{path}")
        if configured:
            fastjobs.sqlite.configure(self.engine)
            fastjobs.sqlite.configure(self.sync_engine)
        self.store = SQLStore(self.engine, synchronous="NORMAL")
        self.seen: list[Ran] = []
        self.found: list[tuple[int, bool]] = []
        self.ran = asyncio.Event()
        chosen: dict[str, Any] = {"poll": 60, "grace": 0.5, **settings}
        self.queue = Queue(self.store, observe=self._observe, **chosen)
        self.mail: Kind[int] = self.queue.kind("mail", backoff=0)(self._mail)

    async def _mail(self, user: int) -> None:
        found = await asyncio.to_thread(rows, self.path, "SELECT 1 FROM users WHERE id = ?", user)
        self.found.append((user, bool(found)))

    def _observe(self, ran: Ran) -> None:
        self.seen.append(ran)
        self.ran.set()

    async def has_run(self, seconds: float = 20.0) -> float:
        """Waits for the next end of a job, and answers how long that took."""
        began = time.monotonic()
        async with asyncio.timeout(seconds):
            await self.ran.wait()
        self.ran.clear()
        return time.monotonic() - began


def rows(path: Path, sql: str, *values: object) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(path, timeout=5)
    try:
        with connection:
            return connection.execute(sql, values).fetchall()
    finally:
        connection.close()


@pytest.fixture
async def new_app(tmp_path: Path) -> AsyncIterator[Callable[..., App]]:
    made: list[App] = []

    def new(*, configured: bool = True, **settings: Any) -> App:
        path = tmp_path / "app.db"
        rows(path, "CREATE TABLE IF NOT EXISTS users (id INTEGER PRIMARY KEY)")
        made.append(App(path, configured=configured, **settings))
        return made[-1]

    yield new
    for app in made:
        await app.engine.dispose()
        app.sync_engine.dispose()


INSERT = text("INSERT INTO users (id) VALUES (:id)")


async def _async_session(app: App, user: int) -> None:
    async with AsyncSession(app.engine) as session, session.begin():
        await app.mail.in_(session).push(user)
        await session.execute(INSERT, {"id": user})


async def _async_connection(app: App, user: int) -> None:
    async with app.engine.begin() as connection:
        await app.mail.in_(connection).push(user)
        await connection.execute(INSERT, {"id": user})


async def _sync_session(app: App, user: int) -> None:
    def route() -> None:
        with Session(app.sync_engine) as session, session.begin():
            app.mail.in_(session).push(user)
            session.execute(INSERT, {"id": user})

    await asyncio.to_thread(route)


async def _sync_connection(app: App, user: int) -> None:
    def route() -> None:
        with app.sync_engine.begin() as connection:
            app.mail.in_(connection).push(user)
            connection.execute(INSERT, {"id": user})

    await asyncio.to_thread(route)


async def _released_savepoint(app: App, user: int) -> None:
    async with AsyncSession(app.engine) as session, session.begin():
        async with session.begin_nested():
            await app.mail.in_(session).push(user)
        await asyncio.sleep(0.05)
        assert not app.seen, "a savepoint's release is no commit"
        await session.execute(INSERT, {"id": user})


WAYS = [
    *itertools.product([_async_session, _async_connection, _sync_session, _sync_connection], [True, False]),
    # Without configure the release of a savepoint that begins a transaction is SQLite's commit: the queue warns of it,
    # and hears it like any other.
    (_released_savepoint, True),
]


@pytest.mark.parametrize(("way", "configured"), WAYS)
async def test_a_commit_wakes_the_queue_at_once_and_its_handler_finds_the_row(
    new_app: Callable[..., App], way: Callable[[App, int], Any], configured: bool
) -> None:
    app = new_app(configured=configured)
    async with app.queue.running():
        await asyncio.sleep(0.05)
        await way(app, 7)
        assert await app.has_run() < 20, "not by its poll, which is a minute"
    assert app.found == [(7, True)]


async def test_a_rollback_wakes_nobody_and_leaves_no_job(
    new_app: Callable[..., App], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = new_app()
    wakes: list[None] = []
    monkeypatch.setattr(app.queue, "wake", lambda: wakes.append(None))
    async with app.queue.running():
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                async with AsyncSession(app.engine) as session, session.begin():
                    await app.mail.in_(session).push(1)
                    raise ZeroDivisionError
        async with AsyncSession(app.engine) as session, session.begin():
            nested = await session.begin_nested()
            await app.mail.in_(session).push(2)
            await nested.rollback()
        left_open = AsyncSession(app.engine)
        await app.mail.in_(left_open).push(3)
        await left_open.close()
    assert rows(app.path, "SELECT count(*) FROM fastjobs_jobs") == [(0,)]
    assert len(wakes) <= 1, "the commit around the savepoint may say so, as a wake is a hint"


async def test_a_commit_of_jobs_in_a_queue_that_never_started_is_said_once(
    new_app: Callable[..., App], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="fastjobs")
    app = new_app()
    for user in (1, 2):
        with pytest.raises(ZeroDivisionError):
            async with AsyncSession(app.engine) as session, session.begin():
                await app.mail.in_(session).push(user)
                raise ZeroDivisionError
    told = "a job was pushed through a queue that was never started in this process"
    assert [line for line in caplog.messages if line.startswith(told)] == []
    for user in (1, 2):
        await _async_session(app, user)
    assert len([line for line in caplog.messages if line.startswith(told)]) == 1
    await app.store.close()


async def test_a_lock_of_another_program_makes_the_queue_wait_and_is_no_outage(
    new_app: Callable[..., App], caplog: pytest.LogCaptureFixture
) -> None:
    app = new_app(poll=0.05)
    async with app.queue.running():
        await app.mail.push(1)
        await app.has_run()
        other = sqlite3.connect(app.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        other.execute("INSERT INTO users (id) VALUES (2)")
        push = asyncio.create_task(app.mail.push(2))
        await asyncio.sleep(0.6)
        assert not push.done()
        other.execute("COMMIT")
        other.close()
        assert await push
        await app.has_run()
    assert app.found == [(1, False), (2, True)]
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("configured", [True, False], ids=["configured", "not configured"])
async def test_a_file_with_a_rollback_journal_gets_a_write_ahead_log(
    new_app: Callable[..., App], configured: bool
) -> None:
    app = new_app(configured=configured)
    assert rows(app.path, "PRAGMA journal_mode") == [("delete",)]
    async with app.queue.running():
        assert rows(app.path, "PRAGMA journal_mode") == [("wal",)]
        await _async_session(app, 1)
        await app.has_run()
    assert app.found == [(1, True)]


async def test_a_full_disk_fails_the_push_and_the_queue_goes_on_once_there_is_room(
    new_app: Callable[..., App],
) -> None:
    app = new_app(poll=0.05)

    @app.queue.kind("report")
    async def report(body: str) -> None: ...

    async with app.queue.running():
        await app.mail.push(1)
        await app.has_run()
        database: Any = app.store._database
        raw = database._running().opened.result().raw
        (pages,) = raw.execute("PRAGMA page_count").fetchone()
        raw.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(sqlite3.OperationalError, match="full"):
            await report.push("x" * 200_000)
        raw.execute("PRAGMA max_page_count = 1000000")
        await report.push("x" * 200_000)
        await app.has_run()
    assert [(ran.kind, ran.outcome) for ran in app.seen] == [
        ("mail", Outcome.DONE),
        ("report", Outcome.DONE),
    ]
    assert rows(app.path, "PRAGMA integrity_check") == [("ok",)]


async def test_a_read_only_database_fails_the_push_and_the_queue_says_so_once_and_stays_up(
    new_app: Callable[..., App], caplog: pytest.LogCaptureFixture
) -> None:
    app = new_app()
    async with app.queue.running():
        pass
    await app.mail.push(1)
    await app.store.close()

    engine = create_engine(f"sqlite:///file:{app.path}?mode=ro&uri=true")
    seen: list[Ran] = []
    queue = Queue(SQLStore(engine), poll=0.02, observe=seen.append)

    @queue.kind("mail")
    async def mail(user: int) -> None: ...

    async with queue.running(), asyncio.timeout(20):
        while not caplog.records:
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.3)
        with pytest.raises((sqlite3.OperationalError, OperationalError), match="readonly"):
            await mail.push(2)
    engine.dispose()
    assert seen == []
    told = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(told) == 1, told
    assert told[0].startswith("the store failed, and is asked again")
    assert rows(app.path, "SELECT count(*) FROM fastjobs_jobs") == [(1,)]


async def test_no_value_of_a_job_comes_to_the_log_whatever_becomes_of_it(
    new_app: Callable[..., App], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.INFO, logger="aiosqlite")
    app = new_app()
    canary = "canary-3f1c"

    @app.queue.kind("secret", attempts=1)
    async def secret(value: str) -> None:
        raise ValueError("no")

    @secret.on_fail
    async def tell(value: str, error: Exception) -> None:
        raise RuntimeError("nor this")

    @app.queue.kind("fine")
    async def fine(value: str) -> None: ...

    await secret.push(canary)
    await fine.push(canary)
    rows(app.path, "INSERT INTO fastjobs_jobs (kind, run_at, payload) VALUES ('mail', 0, ?)", f'"{canary}"')
    with pytest.raises(fastjobs.PayloadError) as refused:
        await app.mail.push(canary)  # type: ignore[arg-type]  # pyright: ignore
    assert await app.queue.drain() == 3
    await app.store.close()
    assert len(app.seen) == 3
    assert caplog.records
    for line in (*caplog.messages, caplog.text, repr(app.seen), str(refused.value), repr(secret), repr(fine)):
        assert canary not in line
