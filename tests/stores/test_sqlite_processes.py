"""Several processes on one file: claims and pushes, first openings, kills and forks."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from fastjobs.core.claiming import Claimable
from fastjobs.core.job import NewJob
from fastjobs.core.marks import Done, Kept
from fastjobs.stores.sql.store import SQLStore

pytestmark = pytest.mark.anyio

MAIL = Claimable(kind="mail", hold=60_000_000, attempts=5)
JOB = NewJob(kind="mail", payload="1")

_HEAD = """
import asyncio, sys
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from fastjobs.core.claiming import Claimable
from fastjobs.core.job import NewJob
from fastjobs.core.marks import Done
from fastjobs.stores.sql.store import SQLStore
MAIL = Claimable(kind="mail", hold=60_000_000, attempts=5)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.db"


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a program, which doesn't outlive its test."""
    running: list[subprocess.Popen[str]] = []

    def started(program: str, *args: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", _HEAD + textwrap.dedent(program), *map(str, args)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process

    yield started
    for process in running:
        process.kill()
        process.communicate()


def rows(path: Path, sql: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def test_four_processes_push_claim_and_mark_and_none_meets_a_locked_database(
    start: Start, path: Path
) -> None:
    """None is claimed twice, none is left, and an app's write that takes long only makes them wait."""
    program = """
    async def main():
        store = SQLStore(create_async_engine(f"sqlite+aiosqlite:///{sys.argv[1]}"), synchronous="NORMAL")
        await store.open(["mail"])

        pushed = False

        async def pushes():
            nonlocal pushed
            for n in range(60):
                await store.push([NewJob(kind="mail", payload=f'"{sys.argv[2]}-{n}"')])
            pushed = True

        async def claims():
            while True:
                last = pushed
                jobs = (await store.claim([MAIL], 5)).jobs
                for job in jobs:
                    print("claimed", job.id)
                    (kept,) = await store.mark([Done(job.id, job.claim)])
                    print(kept.value)
                if last and not jobs:
                    return

        await asyncio.gather(pushes(), claims())
        await store.close()

    asyncio.run(main())
    """
    running = [start(program, path, n) for n in range(4)]
    while not path.exists():
        time.sleep(0.01)
    app = sqlite3.connect(path, isolation_level=None, timeout=10)
    for _ in range(2):
        time.sleep(0.3)
        app.execute("BEGIN IMMEDIATE")
        time.sleep(0.7)
        app.execute("COMMIT")
    app.close()
    outs = [process.communicate(timeout=40) for process in running]
    assert [(process.returncode, err) for process, (_, err) in zip(running, outs, strict=True)] == [
        (0, "")
    ] * 4
    lines = [line for out, _ in outs for line in out.splitlines()]
    claimed = [line for line in lines if line.startswith("claimed")]
    assert len(claimed) == len(set(claimed)) == 240
    assert lines.count("yes") == 240
    assert rows(path, "SELECT count(*) FROM fastjobs_jobs") == [(0,)]


def test_of_four_processes_that_open_a_new_file_at_once_one_makes_the_tables(
    start: Start, path: Path
) -> None:
    program = """
    import logging
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
    async def main():
        engine = create_engine(f"sqlite:///{sys.argv[1]}")
        store = SQLStore(engine)
        await store.open(["mail", sys.argv[2]])
        await store.push([NewJob(kind="mail", payload="1")])
        await store.close()
    asyncio.run(main())
    """
    running = [start(program, path, f"kind-{n}") for n in range(4)]
    outs = [process.communicate(timeout=40) for process in running]
    assert [(process.returncode, err) for process, (_, err) in zip(running, outs, strict=True)] == [
        (0, "")
    ] * 4
    assert "".join(out for out, _ in outs).count("made the tables") == 1
    assert rows(path, "SELECT count(*) FROM fastjobs_jobs") == [(4,)]
    assert len(rows(path, "SELECT kind FROM fastjobs_kinds")) == 5


async def test_a_process_killed_as_it_makes_the_tables_leaves_none(start: Start, path: Path) -> None:
    program = """
    import os, signal
    from fastjobs.stores.sql import migrations
    made = migrations.migrate
    def killed(connection, tables):
        made(connection, tables)
        os.kill(os.getpid(), signal.SIGKILL)
    migrations.migrate = killed
    asyncio.run(SQLStore(create_engine(f"sqlite:///{sys.argv[1]}")).open())
    """
    process = start(program, path)
    process.communicate(timeout=40)
    assert process.returncode == -signal.SIGKILL
    assert rows(path, "SELECT name FROM sqlite_master") == []
    store = SQLStore(create_engine(f"sqlite:///{path}"))
    assert await store.push([JOB]) == ["1"]
    await store.close()


async def test_what_a_push_has_answered_outlives_a_kill(start: Start, path: Path) -> None:
    program = """
    async def main():
        store = SQLStore(create_async_engine(f"sqlite+aiosqlite:///{sys.argv[1]}"))
        while True:
            (id,) = await store.push([NewJob(kind="mail", payload="1")])
            print(id, flush=True)
    asyncio.run(main())
    """
    process = start(program, path)
    assert process.stdout is not None
    answered = [process.stdout.readline().strip() for _ in range(30)]
    process.kill()
    answered += process.communicate()[0].split()
    store = SQLStore(create_engine(f"sqlite:///{path}"))
    jobs = {job.id for job in (await store.claim([MAIL], 100_000)).jobs}
    # The last line may have been cut by the kill.
    assert set(answered[:-1]) <= jobs
    assert (await store.push([JOB]))[0] not in jobs
    await store.close()


async def test_a_child_process_opens_a_connection_of_its_own(path: Path) -> None:
    store = SQLStore(create_engine(f"sqlite:///{path}"))
    await store.push([JOB, JOB])
    child = os.fork()
    if child == 0:  # a loop of its own, as the parent's is the parent's
        code = 1
        try:
            asyncio._set_running_loop(None)
            code = asyncio.new_event_loop().run_until_complete(_claims_one(store))
        finally:
            os._exit(code)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert len((await store.claim([MAIL], 5)).jobs) == 1
    await store.close()


async def _claims_one(store: SQLStore) -> int:
    (job,) = (await store.claim([MAIL], 1)).jobs
    kept = await store.mark([Done(job.id, job.claim)])
    await store.close()
    return 0 if kept == [Kept.YES] else 2


def test_a_program_that_never_closes_its_store_ends_all_the_same(start: Start, path: Path) -> None:
    program = """
    async def main():
        store = SQLStore(create_async_engine(f"sqlite+aiosqlite:///{sys.argv[1]}"))
        await store.push([NewJob(kind="mail", payload="1")])
        return store
    kept = asyncio.run(main())
    """
    process = start(program, path)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, "")
    assert rows(path, "SELECT count(*) FROM fastjobs_jobs") == [(1,)]
