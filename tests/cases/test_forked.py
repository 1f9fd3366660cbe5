"""An app that is forked once it's imported, as servers that preload do: nothing of the parent's is shared."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="lacks fork")

PROGRAM = """
import asyncio, os, sys, threading, time
from sqlalchemy.ext.asyncio import create_async_engine
import fastjobs.sqlite
from fastjobs import Queue, SQLStore

path, before = sys.argv[1:]
engine = create_async_engine("sqlite+aiosqlite:///" + path)
fastjobs.sqlite.configure(engine)
store = SQLStore(engine, synchronous="NORMAL")
q = Queue(store, workers=4, poll=0.02, grace=5)


@q.kind("mail")
async def mail(number: int) -> None:
    os.write(1, f"{number}\\n".encode())
    await asyncio.sleep(0)


@q.kind("thread")
def thread(number: int) -> None:
    os.write(1, f"{number}\\n".encode())


assert threading.active_count() == 1, threading.enumerate()
assert not os.path.exists(path), "nothing is opened by an import"


async def push(numbers):
    await mail.push_many(numbers[::2])
    await thread.push_many(numbers[1::2])


if before == "pushed":
    asyncio.run(push(range(1000, 1100)))
elif before == "pushed without a loop":
    for number in range(1000, 1100):
        mail.sync.push(number)
elif before == "ran":
    async def once():
        async with q.running():
            await push(range(1000, 1100))
            while (await store.claim([], 0)).next_in is not None or not q.health().claimed:
                await asyncio.sleep(0.01)
    asyncio.run(once())


async def child(n):
    async with q.running():
        await push(range(n * 100, n * 100 + 100))
        until = time.monotonic() + 20
        while time.monotonic() < until:
            with_rows = await store._database.run(
                lambda c: c.exec_driver_sql("SELECT count(*) FROM fastjobs_jobs").scalar()
            )
            if not with_rows:
                break
            await asyncio.sleep(0.02)
    await engine.dispose()


children = []
for n in range(4):
    pid = os.fork()
    if not pid:
        asyncio.run(child(n))
        sys.exit(0)
    children.append(pid)
for pid in children:
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""


@pytest.mark.parametrize("before", ["imported", "pushed", "pushed without a loop", "ran"])
def test_an_app_that_is_forked_after_its_import_runs_each_job_once_in_all_its_processes(
    tmp_path: Path, before: str
) -> None:
    path = tmp_path / "app.db"
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            "-W",
            "ignore:This process:DeprecationWarning",
            "-c",
            PROGRAM,
            path,
            before,
        ],
        capture_output=True,
        text=True,
        timeout=50,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    ran = Counter(map(int, done.stdout.split()))
    assert set(ran) == {*range(400), *(() if before == "imported" else range(1000, 1100))}
    assert set(ran.values()) == {1}
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM fastjobs_jobs").fetchone() == (0,)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
