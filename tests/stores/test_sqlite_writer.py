"""The writer's thread: what gathers is committed together, and one call's trouble is no other's."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, event
from sqlalchemy.ext.asyncio import create_async_engine

from fastjobs.core.claiming import Claimable
from fastjobs.core.job import Job, NewJob
from fastjobs.core.marks import Done, Kept
from fastjobs.stores.sql.dialects.sqlite import opened as opening
from fastjobs.stores.sql.dialects.sqlite.database import SQLite
from fastjobs.stores.sql.dialects.sqlite.opened import Opened
from fastjobs.stores.sql.dialects.sqlite.writer import Call, Writer
from fastjobs.stores.sql.store import SQLStore
from fastjobs.testing import Clock

pytestmark = pytest.mark.anyio

SECOND = 1_000_000
MAIL = Claimable(kind="mail", hold=60 * SECOND, attempts=5)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SQLStore]:
    store = SQLStore(create_engine(f"sqlite:///{path}"), clock=Clock(), synchronous="NORMAL")
    await store.open(["mail"])
    yield store
    await store.close()


def database(store: SQLStore) -> SQLite:
    assert isinstance(store._database, SQLite)
    return store._database


def writer(store: SQLStore) -> Writer:
    return database(store)._running()


class Blocker:
    """Keeps the writer busy, so that what is asked meanwhile gathers."""

    def __init__(self, store: SQLStore) -> None:
        self._began, self._ends = threading.Event(), threading.Event()
        self.call: Call[None] = Call(self._block).in_thread()
        assert writer(store).submit(self.call)
        assert self._began.wait(5)

    def _block(self, _: Opened) -> None:
        self._began.set()
        assert self._ends.wait(10)

    def end(self) -> None:
        self._ends.set()
        self.call.result(5)


def traced(store: SQLStore) -> list[str]:
    """The statements that the writer's connection executes from now on."""
    seen: list[str] = []
    writer(store).opened.result().raw.set_trace_callback(seen.append)
    return seen


async def gathered(store: SQLStore, asked: Callable[[], list[asyncio.Task[Any]]]) -> list[Any]:
    """What is asked while the writer is busy, so in one group."""
    block = Blocker(store)
    tasks = asked()
    await asyncio.sleep(0.01)
    block.end()
    return await asyncio.gather(*tasks, return_exceptions=True)


def push(store: SQLStore, payload: str) -> asyncio.Task[list[str | None]]:
    return asyncio.create_task(store.push([NewJob(kind="mail", payload=payload)]))


async def test_calls_that_gathered_are_committed_together(store: SQLStore) -> None:
    block = Blocker(store)
    tasks = [push(store, str(n)) for n in range(50)]
    await asyncio.sleep(0.01)
    seen = traced(store)
    block.end()
    ids = await asyncio.gather(*tasks)
    assert [id for (id,) in ids] == [str(n + 1) for n in range(50)]
    # The blocker's own COMMIT comes first.
    assert [text for text in seen if "BEGIN" in text or "COMMIT" in text] == [
        "COMMIT",
        "BEGIN IMMEDIATE",
        "COMMIT",
    ]


async def test_one_that_cannot_be_done_does_not_sink_the_group(store: SQLStore) -> None:
    results = await gathered(
        store, lambda: [push(store, "1"), push(store, "\ud800"), push(store, "2"), push(store, "3")]
    )
    assert isinstance(results[1], UnicodeEncodeError)
    assert [len(result) for n, result in enumerate(results) if n != 1] == [1, 1, 1]
    jobs = (await store.claim([MAIL], 10)).jobs
    assert sorted(job.payload for job in jobs) == ["1", "2", "3"]


async def test_many_that_fail_each_get_an_error_of_their_own(store: SQLStore) -> None:
    results = await gathered(store, lambda: [push(store, "\ud800") for _ in range(3)])
    assert all(isinstance(result, UnicodeEncodeError) for result in results)
    assert len({id(result) for result in results}) == 3


async def test_a_commit_that_fails_raises_for_each_and_nothing_is_sent_again(
    store: SQLStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = 0

    def commit(self: Opened) -> None:
        nonlocal commits
        commits += 1
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patch:
        block = Blocker(store)
        tasks = [push(store, str(n)) for n in range(3)]
        await asyncio.sleep(0.01)
        patch.setattr(Opened, "commit", commit)
        block._ends.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    assert commits == 2, "the blocker's, and one for the three"
    assert all(isinstance(result, sqlite3.OperationalError) for result in results)
    assert await push(store, "4")
    assert [job.payload for job in (await store.claim([MAIL], 10)).jobs] == ["4"]


async def test_a_call_that_was_cancelled_before_it_began_is_never_done(store: SQLStore) -> None:
    block = Blocker(store)
    tasks = [push(store, "1"), push(store, '"gone"')]
    await asyncio.sleep(0.01)
    tasks[1].cancel()
    await asyncio.sleep(0)
    block.end()
    assert await tasks[0]
    assert tasks[1].cancelled()
    assert [job.payload for job in (await store.claim([MAIL], 10)).jobs] == ["1"]


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 4])
async def test_a_claim_whose_caller_was_cancelled_gives_its_jobs_back(
    store: SQLStore, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    await push(store, "1")
    began, ends = threading.Event(), threading.Event()

    opened = writer(store).opened.result()
    commit = opened.commit

    def slow_commit() -> None:
        began.set()
        assert ends.wait(5)
        commit()

    monkeypatch.setattr(opened, "commit", slow_commit)
    claim = asyncio.create_task(store.claim([MAIL], 1))
    while not began.is_set():
        await asyncio.sleep(0.001)
    monkeypatch.setattr(opened, "commit", commit)
    ends.set()
    if turns:
        # Its answer may be on the way, or there and not yet read.
        await asyncio.wrap_future(_now(store))
        for _ in range(turns - 1):
            await asyncio.sleep(0)
    if not claim.done():
        claim.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claim
        jobs: list[Job] = []
        async with asyncio.timeout(5):
            while not jobs:  # the give-back is sent as soon as the answer finds nobody
                jobs = (await store.claim([MAIL], 1)).jobs
        assert (jobs[0].attempts, jobs[0].lost) == (1, 0)


def _now(store: SQLStore) -> Any:
    call: Call[None] = Call(lambda _: None).in_thread()
    assert writer(store).submit(call)
    return call._waits


async def test_an_idle_claim_writes_nothing_and_begins_nothing(store: SQLStore) -> None:
    await store.push([NewJob(kind="mail", payload="1", after=SECOND)])
    seen = traced(store)
    found = await asyncio.gather(*(store.claim([MAIL], 5) for _ in range(3)))
    assert [each.next_in for each in found] == [SECOND] * 3
    assert not [text for text in seen if not text.startswith("SELECT")]


async def test_a_loop_that_closed_does_not_end_the_writer(store: SQLStore) -> None:
    await push(store, "1")
    block = Blocker(store)

    def elsewhere() -> None:
        loop = asyncio.new_event_loop()
        claim = loop.create_task(store.claim([MAIL], 1))
        loop.run_until_complete(asyncio.sleep(0.01))
        # Closed without a word to its tasks, as a process that ends in a hurry does.
        setattr(claim, "_log_destroy_pending", False)  # noqa: B010
        loop.close()

    await asyncio.to_thread(elsewhere)
    block.end()
    jobs: list[Job] = []
    async with asyncio.timeout(5):
        while not jobs:
            jobs = (await store.claim([MAIL], 1)).jobs
    assert jobs[0].attempts == 1, "the claim of the closed loop was given back"


async def test_a_sync_caller_waits_in_its_own_thread(store: SQLStore) -> None:
    call: Call[int] = Call(lambda opened: int(opened.raw.execute("SELECT 7").fetchone()[0])).in_thread()
    assert writer(store).submit(call)
    assert await asyncio.to_thread(call.result, 5) == 7


async def test_the_stdlib_connection_is_found_under_aiosqlite(path: Path) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    names: list[str] = []

    def connect(connection: object, _: object) -> None:
        names.append(type(connection).__name__)

    event.listen(engine.sync_engine, "connect", connect)
    store = SQLStore(engine)
    await store.open()
    raw = writer(store).opened.result().raw
    assert type(raw) is sqlite3.Connection
    assert names == ["AsyncAdapt_aiosqlite_connection"], "the app's own listeners set it up"
    assert raw.isolation_level is None
    pragmas = [
        raw.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous", "busy_timeout")
    ]
    assert pragmas == ["wal", 2, 0]
    await store.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        raw.execute("SELECT 1")


async def test_what_the_app_set_on_its_connections_does_not_change_what_the_store_reads(path: Path) -> None:
    engine = create_engine(f"sqlite:///{path}")

    def odd(connection: Any, _: object) -> None:
        connection.row_factory = sqlite3.Row
        connection.text_factory = bytes
        connection.execute("PRAGMA query_only = ON")

    event.listen(engine, "connect", odd)
    store = SQLStore(engine, clock=Clock())
    await store.push([NewJob(kind="mail", payload='"x"')])
    (job,) = (await store.claim([MAIL], 1)).jobs
    assert job.payload == '"x"'
    assert await store.mark([Done(job.id, job.claim)]) == [Kept.YES]
    await store.close()


async def test_a_lock_of_another_process_is_waited_for_and_then_told(
    store: SQLStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    waits = push(store, "1")
    await asyncio.sleep(0.2)
    assert not waits.done()
    other.execute("COMMIT")
    assert await waits == ["1"]
    monkeypatch.setattr(opening, "LOCKED_FOR", 0.1)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(sqlite3.OperationalError, match="database is locked"):
        await push(store, "2")
    other.execute("ROLLBACK")
    other.close()
    assert await push(store, "3")


async def test_a_store_that_was_closed_and_opened_again_keeps_none_of_its_old_writers(
    store: SQLStore,
) -> None:
    old = weakref.ref(writer(store))
    await store.close()
    await store.open(["mail"])
    gc.collect()
    assert old() is None
