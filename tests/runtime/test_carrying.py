"""What a job carries, on each store: which pushes carry, who has it back, and that nothing in the table is trusted."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from opentelemetry.trace import get_current_span
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from fastjobs import (
    CarryError,
    CarryRequestID,
    CarryTrace,
    Every,
    Kind,
    Memory,
    Permanent,
    Queue,
    SQLStore,
    Store,
    Unique,
    current_job,
    request_id,
    sqlite,
    supports,
)
from fastjobs.core.request_id import current
from fastjobs.store import Extra
from fastjobs.testing import Clock
from tests.databases.postgres import Database

pytestmark = pytest.mark.anyio

tenant: ContextVar[str] = ContextVar("tenant", default="")


class CarryTenant:
    """A carrier as an app writes one."""

    def carry(self, into: MutableMapping[str, str]) -> None:
        if found := tenant.get():
            into["tenant"] = found

    def restore(self, carried: Mapping[str, str]) -> None:
        tenant.set(carried.get("tenant", ""))


class Place:
    """A store, and the engines of its database where it has one."""

    def __init__(self, store: Store, engine: AsyncEngine | None = None, sync: Engine | None = None) -> None:
        self.store = store
        self.engine = engine
        self.sync = sync

    def edit(self, carried: str) -> None:
        """Writes something else beside every job."""
        assert self.sync is not None
        with self.sync.begin() as connection:
            connection.execute(text("UPDATE fastjobs_jobs SET carried = :carried"), {"carried": carried})


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def place(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> AsyncIterator[Place]:
    if request.param == "memory":
        yield Place(Memory(clock=clock))
        return
    if request.param == "sqlite":
        urls = f"sqlite+aiosqlite:///{tmp_path / 'app.db'}", f"sqlite:///{tmp_path / 'app.db'}"
    else:
        database: Database = request.getfixturevalue("postgres_database")
        urls = database.url("asyncpg"), database.url("psycopg")
    engine = create_async_engine(urls[0], poolclass=NullPool)
    sync = create_engine(urls[1], poolclass=NullPool)
    if request.param == "sqlite":
        sqlite.configure(engine)
        sqlite.configure(sync)
    store = SQLStore(engine, clock=clock)
    yield Place(store, engine, sync)
    await store.close()
    await engine.dispose()
    sync.dispose()


@pytest.fixture
def queue(place: Place, clock: Clock) -> Queue:
    return Queue(place.store, clock=clock, carry=[CarryRequestID(), CarryTenant()], grace=0.5)


Seen = list[tuple[str | None, str]]


@pytest.fixture
def seen() -> Seen:
    """The request's ID and the tenant, as each run saw them."""
    return []


@pytest.fixture
def mail(queue: Queue, seen: Seen) -> Kind[int]:
    @queue.kind("mail")
    async def mail(user: int) -> None:
        seen.append((request_id(), tenant.get()))

    return mail


# Every push carries.


async def _in_async(kind: Kind[int], place: Place) -> None:
    async with AsyncSession(place.engine) as session, session.begin():
        await kind.in_(session).push(1)
        await kind.in_(session).push_many([2])


async def _in_sync(kind: Kind[int], place: Place) -> None:
    def push() -> None:
        with Session(place.sync) as session, session.begin():
            kind.in_(session).push(1)
            kind.in_(session).push_many([2])

    await asyncio.to_thread(push)


async def _in_store(kind: Kind[int], place: Place) -> None:
    await kind.in_(place.store).push(1)
    await kind.in_(place.store).push_many([2])


async def _sync(kind: Kind[int], place: Place) -> None:
    await asyncio.to_thread(kind.sync.push, 1)
    await asyncio.to_thread(kind.sync.push_many, [2])


async def _many(kind: Kind[int], place: Place) -> None:
    await kind.push_many([1, 2])


async def _at(kind: Kind[int], place: Place) -> None:
    await kind.push(1, at=datetime(2025, 12, 31, tzinfo=UTC))
    await kind.push(2, after=0)


async def _named(kind: Kind[int], place: Place) -> None:
    await kind.push(1, name="one")
    await kind.push(2, name="two")


Push = Callable[[Kind[int], Place], Awaitable[None]]
WAYS: dict[str, Push] = {
    "many": _many, "at": _at, "named": _named, "sync": _sync, "in a store": _in_store,
    "in an async session": _in_async, "in a sync session": _in_sync,
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("unique", [None, True, Unique(latest=True)], ids=["", "unique", "latest"])
async def test_every_push_carries_its_context(
    queue: Queue, place: Place, seen: Seen, way: str, unique: Any
) -> None:
    if "session" in way and place.engine is None:
        pytest.skip("Memory lacks a database of its own: the next test pushes in another's session")

    @queue.kind("mail", unique=unique)
    async def mail(user: int) -> None:
        seen.append((request_id(), tenant.get()))

    async with queue.running(run=False):
        current.set("req-1")
        tenant.set("acme")
        await WAYS[way](mail, place)
        current.set("another")
        tenant.set("another")
        assert await queue.drain() == 2
    assert seen == [("req-1", "acme")] * 2
    assert (request_id(), tenant.get()) == ("another", "another")


async def test_a_push_in_a_session_of_the_apps_carries_where_memory_stands_for_the_store(
    tmp_path: Path, clock: Clock
) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'app.db'}", poolclass=NullPool)
    queue = Queue(Memory(clock=clock), clock=clock, carry=[CarryRequestID()])
    seen: list[str | None] = []

    @queue.kind("mail")
    async def mail(user: int) -> None:
        seen.append(request_id())

    current.set("req-1")
    async with AsyncSession(engine) as session, session.begin():
        await mail.in_(session).push(1)
    await queue.drain()
    await engine.dispose()
    assert seen == ["req-1"]


@pytest.mark.parametrize("unique", [True, Unique(latest=True)], ids=["unique", "latest"])
async def test_a_unique_push_that_finds_its_job_leaves_it_what_its_own_push_carried(
    queue: Queue, seen: Seen, unique: Any
) -> None:
    @queue.kind("mail", unique=unique)
    async def mail(user: int) -> None:
        seen.append((request_id(), tenant.get()))

    async with queue.running(run=False):
        for id in ("first", "second"):
            current.set(id)
            await mail.push(1)
        assert await queue.drain() == 1
    assert seen == [("first", "")]


async def test_a_schedules_run_carries_nothing(
    place: Place, queue: Queue, mail: Kind[int], clock: Clock
) -> None:
    carried: list[object] = []
    ran = anyio.Event()

    @queue.kind("nightly")
    async def nightly() -> None:
        carried.append((dict(current_job().carried), request_id(), tenant.get()))
        ran.set()

    nightly.schedule(Every(minutes=1))
    current.set("whoever started the app")
    tenant.set("theirs")
    async with asyncio.timeout(30), queue.running():
        while not ran.is_set():
            await clock.pass_time(30, turns=30)
            await asyncio.sleep(0)
    assert carried[0] == ({}, None, "")


# Who has it back.


async def test_retries_and_the_on_fail_and_a_run_again_have_what_the_push_carried(
    place: Place, queue: Queue, seen: Seen, clock: Clock
) -> None:
    asked: Seen = []

    class Limits:
        async def attempt(self, key: str) -> float:
            asked.append((request_id(), tenant.get()))
            return 0.0

    @queue.kind("mail", attempts=2, backoff=lambda attempt: 10, rate=Limits())
    async def mail(user: int) -> None:
        seen.append((request_id(), tenant.get()))
        raise ConnectionRefusedError

    @mail.on_fail
    async def tell(user: int, error: Exception) -> None:
        seen.append((request_id(), tenant.get()))

    async with queue.running(run=False):
        current.set("req-1")
        tenant.set("acme")
        id = await mail.push(1)
        current.set("another")
        await queue.drain()
        clock.advance(11)
        await queue.drain()
        assert seen == [("req-1", "acme")] * 3  # two attempts, and the on_fail
        assert supports(place.store, Extra.FAILED)
        (failed,) = await place.store.failed()
        assert json.loads(failed.carried or "") == {"request_id": "req-1", "tenant": "acme"}
        assert id is not None
        assert await place.store.run_again([id]) == [True]
        await queue.drain()
    assert seen == [("req-1", "acme")] * 4
    assert asked == [("req-1", "acme")] * 3


async def test_a_plain_handler_in_a_thread_has_it_and_leaves_nothing_to_the_next(
    queue: Queue, seen: Seen
) -> None:
    @queue.kind("mail")
    def mail(user: int) -> None:
        seen.append((request_id(), tenant.get()))
        current.set("left behind")
        tenant.set("left behind")

    async with queue.running(run=False):
        for id in ("first", None):
            current.set(id)
            await mail.push(1)
        await queue.drain()
    assert seen == [("first", ""), (None, "")]


async def test_a_thousand_jobs_at_once_each_see_their_own_and_nobody_sees_any_after(
    place: Place, clock: Clock
) -> None:
    queue = Queue(
        place.store, clock=clock, workers=50, carry=[CarryRequestID(), CarryTenant(), CarryTrace()], grace=5
    )
    wrong: list[object] = []
    left, all_ran = 1000, asyncio.Event()

    def check(n: int) -> None:
        nonlocal left
        mine = (f"req-{n}", f"tenant-{n}") if n % 3 else (None, "")
        if (request_id(), tenant.get()) != mine:
            wrong.append((n, request_id(), tenant.get()))

    @queue.kind("mail")
    async def mail(n: int) -> None:
        nonlocal left
        for _ in range(3):
            check(n)
            await asyncio.sleep(0)
        if n % 7 == 0:
            current.set("left behind")
            tenant.set("left behind")
        left -= 1
        if not left:
            all_ran.set()

    async with asyncio.timeout(50), queue.running():
        for start in range(0, 1000, 50):
            async with anyio.create_task_group() as group:
                for n in range(start, start + 50):
                    current.set(f"req-{n}" if n % 3 else None)
                    tenant.set(f"tenant-{n}" if n % 3 else "")
                    group.start_soon(mail.push, n)
        current.set("mine")
        while not all_ran.is_set():
            await clock.pass_time(1, turns=50)
            await asyncio.sleep(0)
    assert wrong == []
    assert request_id() == "mine"


# Limits: bytes, names, values. And a carrier that raises.


class Carries:
    def __init__(self, into: Any) -> None:
        self.into = into

    def carry(self, into: MutableMapping[str, str]) -> None:
        into.update(self.into)

    def restore(self, carried: Mapping[str, str]) -> None: ...


def filled(length: int, letter: str = "x") -> dict[str, str]:
    """Something to carry whose JSON has so many bytes, in a letter that is written as six each."""
    room = length - len('{"a":""}')
    wide = 0 if letter.isascii() else room // 6
    return {"a": letter * wide + "x" * (room - 6 * wide)}


@pytest.mark.parametrize("letter", ["x", "é"])
async def test_a_job_carries_4096_bytes_and_not_one_more(place: Place, clock: Clock, letter: str) -> None:
    carriers = Carries(filled(4096, letter))
    queue = Queue(place.store, clock=clock, carry=[carriers])
    carried: list[Mapping[str, str]] = []

    @queue.kind("mail")
    async def mail(user: int) -> None:
        carried.append(current_job().carried)

    async with queue.running(run=False):
        await mail.push(1)
        carriers.into = filled(4097, letter)
        with pytest.raises(CarryError, match="at most 4096 bytes as JSON, and this push would carry 4097"):
            await mail.push(2)
        if place.engine is not None:
            with pytest.raises(CarryError):
                async with AsyncSession(place.engine) as session, session.begin():
                    await mail.in_(session).push(2)
        assert await queue.drain() == 1
    assert carried == [filled(4096, letter)]


HOSTILE = {
    "a megabyte": json.dumps({"request_id": "a" * 1_000_000}),
    "too long by a byte": json.dumps({"request_id": "req-1", "a": "x" * 4096}),
    "not JSON": "{'request_id': 1",
    "a list": '["request_id", "req-1"]',
    "a string": '"request_id"',
    "a number": "1e999",
    "null": "null",
    "deep": "[" * 4000,
    "numbers": '{"request_id": 7, "tenant": 1.5}',
    "objects": '{"request_id": {"$ne": null}, "tenant": ["x"]}',
    "lines": json.dumps({"request_id": "req-1\r\nINFO forged", "tenant": "a\nb"}),
    "an escape": json.dumps({"request_id": "\x1b[2J", "tenant": "\x1b]8;;x\x07"}),
    "a separator": json.dumps({"request_id": "a\u2028b", "tenant": "a\u2029"}),
    "half a character": '{"request_id": "\\ud800", "tenant": "\\udfff"}',
    "names": json.dumps({"__proto__": "x", "Request-ID": "x", "level": "CRITICAL", "": "x", "a b": "x"}),
    "ten thousand names": json.dumps({f"n{n}": "" for n in range(10_000)}),
    "spaces": json.dumps({"request_id": "a b", "tenant": ""}),
    "a traceparent that is none": json.dumps({"traceparent": "00-" + "0" * 32 + "-" + "0" * 16 + "-01"}),
    "a traceparent with a line": json.dumps({"traceparent": "00-x\n"}),
}


@pytest.mark.parametrize("carried", HOSTILE.values(), ids=HOSTILE.keys())
async def test_what_someone_wrote_into_the_table_is_cleaned_and_fails_no_job(
    place: Place, clock: Clock, carried: str, caplog: pytest.LogCaptureFixture
) -> None:
    if place.engine is None:
        pytest.skip("Memory lacks a table that someone could write to")
    caplog.set_level(logging.DEBUG, logger="fastjobs")
    queue = Queue(place.store, clock=clock, carry=[CarryRequestID(), CarryTenant(), CarryTrace(baggage=True)])
    had: list[tuple[Any, ...]] = []

    @queue.kind("mail", attempts=1)
    async def mail(user: int) -> None:
        is_traced = get_current_span().get_span_context().is_valid
        had.append((request_id(), tenant.get(), is_traced, dict(current_job().carried)))
        raise Permanent("so that its lines are written")

    async with queue.running(run=False):
        await mail.push(1)
        place.edit(carried)
        caplog.clear()
        assert await queue.drain() == 1
    ((*restored, found),) = had
    assert restored == [None, "", False]
    assert all(
        isinstance(value, str)
        and value.isprintable()
        and key in ("level", "tenant", "traceparent", "request_id", "__proto__")
        for key, value in found.items()
    )
    assert caplog.messages
    for line in caplog.messages:
        assert line.isprintable(), line
        assert "forged" not in line
        assert len(line) < 500


NOT_TEXT = {
    "bytes": "x'7b7d'",
    "bytes that are no text": "x'00ff'",
    "text that is none": "CAST(x'ff' AS TEXT)",
    "a value that is none": """CAST(x'7b2274656e616e74223a22ff227d' AS TEXT)""",
    "a number": "12345",
}
"""As SQL. SQLite lets anything stand in a column, also what isn't UTF-8 in one of text."""


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
@pytest.mark.parametrize("column", ["carried", "payload", "error", "keep_name = 1, name"])
@pytest.mark.parametrize("kept", NOT_TEXT.values(), ids=NOT_TEXT.keys())
async def test_what_is_no_text_in_the_table_stops_no_other_job(
    place: Place, queue: Queue, column: str, kept: str, seen: Seen
) -> None:
    @queue.kind("mail", attempts=1)
    async def mail(user: str) -> None:
        seen.append((user, tenant.get()))

    async with queue.running(run=False):
        await mail.push("ada")
        assert place.sync is not None
        with place.sync.begin() as connection:
            connection.execute(text(f"UPDATE fastjobs_jobs SET {column} = {kept}"))
        await mail.push("bob")
        assert await queue.drain() == 2
        failed = await queue.failed()
    assert seen == ([("bob", "")] if column == "payload" else [("ada", ""), ("bob", "")])
    assert len(failed) == (column == "payload")


async def test_a_carried_name_that_is_a_log_fields_changes_no_line(
    place: Place, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    into = {"level": "CRITICAL", "msg": "forged", "kind": "other", "job": "0", "request_id": 'x" job=9'}
    queue = Queue(place.store, clock=clock, carry=[Carries(into)])

    @queue.kind("mail", attempts=1)
    async def mail(user: int) -> None:
        raise Permanent("no")

    async with queue.running(run=False):
        id = await mail.push(1)
        await queue.drain()
    (record,) = [each for each in caplog.records if each.message.startswith("a job failed for good")]
    assert record.levelno == logging.ERROR
    assert f"kind=mail job={id} attempt=1" in record.message
    assert "forged" not in record.message
    assert "job=9" not in record.message
