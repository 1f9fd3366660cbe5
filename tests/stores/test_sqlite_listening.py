"""On SQLite a queue starts what another process pushes at once: by inotify, and without it by a look each 50 ms."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, event
from sqlalchemy.ext.asyncio import create_async_engine

from fastjobs import Queue
from fastjobs.core.claiming import Claimable
from fastjobs.core.job import NewJob
from fastjobs.core.marks import Done, GiveBack
from fastjobs.stores.sql.dialects.sqlite import listening
from fastjobs.stores.sql.dialects.sqlite.database import SQLite
from fastjobs.stores.sql.dialects.sqlite.inotify import Inotify
from fastjobs.stores.sql.store import SQLStore
from fastjobs.testing.suite.subject import Heard

pytestmark = pytest.mark.anyio

MAIL = Claimable(kind="mail", hold=60_000_000, attempts=5)
JOB = NewJob(kind="mail", payload="1")
WITHIN = 10.0
linux = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")

PUSHES = """
import asyncio, sys, time
from sqlalchemy import create_engine
from fastjobs.core.job import NewJob
from fastjobs.stores.sql.store import SQLStore

async def main():
    store = SQLStore(create_engine(f"sqlite:///{sys.argv[1]}"))
    await store.open()
    for line in sys.stdin:
        await store.push([NewJob(kind="mail", payload=str(time.monotonic()))])
    await store.close()

asyncio.run(main())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.db"


def new_store(path: Path) -> SQLStore:
    return SQLStore(create_engine(f"sqlite:///{path}"), synchronous="NORMAL")


@pytest.fixture(params=[pytest.param(True, marks=linux), False], ids=["inotify", "looks alone"])
def ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether there is inotify."""

    def none(path: str) -> Inotify:
        raise OSError("no inotify here")

    if not request.param:
        monkeypatch.setattr(listening, "Inotify", none)
    return bool(request.param)


def threads() -> list[threading.Thread]:
    """Those that listen."""
    return [each for each in threading.enumerate() if each.name.endswith("listener")]


async def ended(threads: Iterable[threading.Thread]) -> bool:
    """Whether they end: a thread that has told of its end has a few steps to go."""
    for each in threads:
        await asyncio.to_thread(each.join, WITHIN)
    return not any(each.is_alive() for each in threads)


async def test_an_idle_queue_starts_at_once_what_another_process_pushes(path: Path, ways: bool) -> None:
    """Its poll is an hour: nothing but what it hears has it look."""
    queue = Queue(SQLStore(create_async_engine(f"sqlite+aiosqlite:///{path}")), poll=3600)
    took: asyncio.Queue[float] = asyncio.Queue()

    @queue.kind("mail")
    async def mail(pushed_at: float) -> None:
        took.put_nowait(time.monotonic() - pushed_at)

    async with queue.running():
        other = await asyncio.create_subprocess_exec(
            sys.executable, "-W", "error", "-c", PUSHES, str(path), stdin=asyncio.subprocess.PIPE
        )
        assert other.stdin is not None
        found: list[float] = []
        try:
            for _ in range(5):
                other.stdin.write(b"push\n")
                found.append(await asyncio.wait_for(took.get(), WITHIN))
        finally:
            other.stdin.close()
            await other.wait()
    assert min(found) < 1


async def test_nobody_is_woken_while_nothing_is_pushed_though_others_write_and_jobs_run(path: Path) -> None:
    """What an app writes for itself, and each claim and mark of the queue's own, is no news."""
    store, app = new_store(path), sqlite3.connect(path, isolation_level=None)
    await store.open(["mail"])
    ids = await store.push([JOB] * 20)
    assert len(ids) == 20
    app.execute("CREATE TABLE notes (text)")
    wakes: list[str] = []
    heard = Heard(WITHIN)

    def wake() -> None:
        wakes.append("woken")
        heard.wake()

    async with store.listen(wake):
        for _ in range(10):
            app.execute("INSERT INTO notes VALUES ('the app''s own')")
            (job,) = (await store.claim([MAIL], 1)).jobs
            await store.mark([Done(job.id, job.claim)])
            await asyncio.to_thread(time.sleep, 0.01)  # several looks, each after a commit
        assert wakes == []
        await store.push([JOB])
        await heard.once_more("a push woke nobody")
    app.close()
    await store.close()


async def test_a_job_that_another_process_puts_back_wakes(path: Path) -> None:
    """As one does that stops for a deploy: its jobs are due at once, here too."""
    store, other = new_store(path), new_store(path)
    await store.push([JOB])
    (job,) = (await other.claim([MAIL], 1)).jobs
    heard = Heard(WITHIN)
    async with store.listen(heard.wake):
        await other.mark([GiveBack(job.id, job.claim)])
        await heard.once_more("a job that was put back woke nobody")
    await other.close()
    await store.close()


async def test_listening_writes_nothing_and_holds_no_lock(path: Path, ways: bool) -> None:
    store = new_store(path)
    await store.push([JOB])
    looks = threading.Semaphore(0)

    class Seen(listening._Sight):
        def has_news(self) -> bool:
            news = super().has_news()
            looks.release()
            return news

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listening, "_Sight", Seen)
        async with store.listen(lambda: None):
            before = os.stat(f"{path}-wal").st_mtime_ns, os.stat(path).st_mtime_ns
            for _ in range(4):
                assert await asyncio.to_thread(looks.acquire, True, WITHIN)
            app = sqlite3.connect(path, isolation_level=None, timeout=0)
            assert before == (os.stat(f"{path}-wal").st_mtime_ns, os.stat(path).st_mtime_ns)
            app.execute("BEGIN IMMEDIATE")
            app.execute("COMMIT")
            assert app.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
            app.close()
    await store.close()


async def test_pushes_are_heard_also_after_the_log_was_emptied(path: Path, ways: bool) -> None:
    store, other = new_store(path), new_store(path)
    await store.open()
    heard = Heard(WITHIN)
    async with store.listen(heard.wake):
        for _ in range(3):
            app = sqlite3.connect(path)
            app.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            app.close()
            await other.push([JOB])
            await heard.once_more("a push after a checkpoint woke nobody")
            await other.close()
    await store.close()


async def test_a_file_that_was_replaced_is_listened_to_anew(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "AGAIN", 0.01)
    store = new_store(path)
    await store.push([JOB])
    heard = Heard(WITHIN)
    async with store.listen(heard.wake):
        for each in path.parent.iterdir():
            each.unlink()
        assert not path.exists(), "it makes no file by itself"
        replaced = new_store(path)
        await replaced.push([JOB])
        await heard.once_more("nobody was woken by a file that's new")
        await replaced.push([JOB])
        await heard.once_more("a push to a file that's new woke nobody")
        await replaced.close()
        assert len(threads()) == 1
    assert await ended(threads())
    await store.close()


async def test_a_file_that_is_gone_is_not_made_by_who_listens(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "AGAIN", 0.0)
    store = new_store(path)
    await store.push([JOB])
    tries = threading.Semaphore(0)

    class Tried(listening._Sight):
        def __init__(self, *given: Any) -> None:
            tries.release()
            super().__init__(*given)

    monkeypatch.setattr(listening, "_Sight", Tried)
    async with store.listen(lambda: None):
        for each in path.parent.iterdir():
            each.unlink()
        for _ in range(5):
            assert await asyncio.to_thread(tries.acquire, True, WITHIN)
        assert list(path.parent.iterdir()) == []
    assert await ended(threads())
    await store.close()


async def test_a_look_that_finds_the_file_locked_is_left_to_the_next(path: Path) -> None:
    """Where the file can't have a write-ahead log, a commit keeps readers out."""
    store = new_store(path)
    await store.push([JOB])
    database = store._database
    assert isinstance(database, SQLite)
    await store.close()
    app = sqlite3.connect(path, isolation_level=None)
    assert app.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",)
    sight = listening._Sight(create_engine(f"sqlite:///{path}"), str(path), database._statements.news)
    assert sight.has_news()
    assert not sight.has_news()
    app.execute("BEGIN EXCLUSIVE")
    app.execute(database._statements.push, ("mail", "1", 0, 0, None))
    assert not sight.has_news()
    app.execute("COMMIT")
    assert sight.has_news()
    assert not sight.has_news()
    sight.close()
    app.close()


async def test_an_entry_raises_what_the_connection_raises(path: Path) -> None:
    engine = create_engine(f"sqlite:///{path}")
    store = SQLStore(engine)
    await store.open()

    def refuse(connection: object, record: object) -> None:
        raise ConnectionError("no more connections")

    event.listen(engine, "connect", refuse)
    for _ in range(2):
        with pytest.raises(ConnectionError, match="no more connections"):
            async with store.listen(lambda: None):
                raise AssertionError("entered")
    assert await ended(threads())
    event.remove(engine, "connect", refuse)
    async with store.listen(lambda: None):
        assert len(threads()) == 1
    await store.close()


async def test_its_connection_is_made_by_the_apps_creator_and_closed_as_it_leaves(path: Path) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    made: list[object] = []

    def note(connection: object, record: object) -> None:
        made.append(connection)

    event.listen(engine.sync_engine, "connect", note)
    store = SQLStore(engine)
    await store.open()
    opened, before = len(made), set(threading.enumerate())
    for n in range(3):
        async with store.listen(lambda: None):
            assert len(made) == opened + n + 1
            own = set(threading.enumerate()) - before
            assert len(own) == 2, "its own, and aiosqlite's"
        assert await ended(own), "a connection is left open"
        before |= set(threading.enumerate())
    await store.close()


async def test_a_listener_whose_loop_was_closed_ends(path: Path) -> None:
    def abandons() -> None:
        loop = asyncio.new_event_loop()
        store = new_store(path)
        left.append(store.listen(lambda: None))
        loop.run_until_complete(left[0].__aenter__())
        loop.close()

    left: list[Any] = []
    await asyncio.to_thread(abandons)
    assert await ended(threads())
    await left[0].__aexit__(None, None, None)


async def test_a_leave_does_not_wait_for_the_next_look(
    path: Path, ways: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "LOOK", 60.0)
    store = new_store(path)
    await store.open()
    for _ in range(20):
        async with asyncio.timeout(WITHIN), store.listen(lambda: None):
            pass
    await store.close()


@linux
async def test_a_write_to_the_log_is_heard_and_nothing_else_is(tmp_path: Path) -> None:
    file, other = tmp_path / "a", tmp_path / "b"
    file.touch()
    written = Inotify(str(file))
    assert not written.wait(0)
    other.write_text("another's")
    file.read_text()
    assert not written.wait(0.01)
    with file.open("a") as opened:
        opened.write("a")
        opened.flush()
        opened.write("b")
    assert written.wait(WITHIN)
    assert not written.wait(0), "what was heard once is not heard again"
    file.unlink()
    written.wait(0.01)
    written.close()


@linux
@pytest.mark.parametrize("lacking", ["the calls", "ctypes", "the system", "the file"])
def test_where_there_is_no_inotify_an_oserror_says_so(
    lacking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def library(*given: object, **more: object) -> object:
        return object()

    open_files = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patch:
        if lacking == "the calls":
            patch.setattr("ctypes.CDLL", library)
        elif lacking == "ctypes":
            patch.setitem(sys.modules, "ctypes", None)
        elif lacking == "the system":
            patch.setattr("fastjobs.stores.sql.dialects.sqlite.inotify.sys.platform", "darwin")
        with pytest.raises(OSError, match=r"inotify"):
            Inotify(str(tmp_path / "none"))
    assert len(os.listdir("/proc/self/fd")) == open_files
