"""Hostile handlers on a database: what they raise is kept as text, and one that ends its process fails in the end."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine

import fastjobs.sqlite
from fastjobs import Queue, SQLStore
from tests.runtime.test_hostile import FAILS

pytestmark = pytest.mark.anyio

ENDS_ITS_PROCESS = """
    import asyncio, os, sys
    from sqlalchemy.ext.asyncio import create_async_engine
    import fastjobs.sqlite
    from fastjobs import Queue, SQLStore

    async def live():
        engine = create_async_engine("sqlite+aiosqlite:///" + sys.argv[1])
        fastjobs.sqlite.configure(engine)
        queue = Queue(SQLStore(engine), workers=2, hold=0.2, poll=0.05)
        told = asyncio.Event()

        @queue.kind("poison", attempts=2)
        async def poison() -> None:
            print("began", flush=True)
            os._exit(7)

        @poison.on_fail
        async def tell(error: Exception) -> None:
            print(f"on_fail {type(error).__name__}", flush=True)
            told.set()

        @queue.kind("other")
        async def other() -> None:
            print("other", flush=True)

        async with queue.running():
            if sys.argv[2] == "first":
                await poison.push()
            await other.push()
            await asyncio.wait_for(told.wait(), 10)
        await engine.dispose()

    for turn in range(5):
        child = os.fork()
        if not child:
            sys.argv[2:] = ["first" if turn == 0 else "again"]
            asyncio.run(live())
            os._exit(0)
        if not os.waitpid(child, 0)[1]:
            break
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="lacks fork")
def test_a_job_that_always_ends_its_process_runs_as_often_as_its_attempts_and_then_its_on_fail(
    tmp_path: Path,
) -> None:
    path = tmp_path / "app.db"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(ENDS_ITS_PROCESS), str(path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=50,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    said = [line for line in done.stdout.splitlines() if line != "other"]
    assert said == ["began", "began", "on_fail LostWorker"], done.stderr
    assert "other" in done.stdout, "it kept no other job from running for good"
    with closing(sqlite3.connect(path)) as connection:
        # Of the others one may have been in hand as its process ended, or as the last one stopped.
        ((attempts, error),) = connection.execute(
            "SELECT attempts, error FROM fastjobs_jobs WHERE kind = 'poison'"
        ).fetchall()
    assert attempts == 2
    assert error.startswith("LostWorker")


async def test_whatever_a_handler_raises_a_database_keeps_it_as_text(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'app.db'}")
    fastjobs.sqlite.configure(engine)
    store = SQLStore(engine)
    queue = Queue(store)

    @queue.kind("hostile", attempts=1)
    async def hostile(how: str) -> None:
        await FAILS[how]()

    @queue.kind("other")
    async def other() -> None: ...

    ids = await hostile.push_many(list(FAILS))
    await other.push()
    assert await queue.drain() == len(FAILS) + 1
    failed = {each.id: each.error for each in await store.failed()}
    await store.close()
    engine.dispose()
    assert set(failed) == set(ids)
    for how, id in zip(FAILS, ids, strict=True):
        error = failed[str(id)]
        assert error, how
        assert len(error.encode()) <= 4096, how
        assert "\0" not in error, how
