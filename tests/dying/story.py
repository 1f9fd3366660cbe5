"""What the process does until it's killed: it pushes, claims, runs, retries, fails, and gives back.

Each step is written to a log of its own before and after it's taken, with one unbuffered write, which survives a kill.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

import fastjobs.sqlite
from fastjobs import Kind, Queue, Retry, SQLStore, current_job
from fastjobs.clock import SystemClock

HOUR = 3600
BAD = "bad"
"""The job that fails for good."""
TOGETHER = ("many-1", "many-2", "many-3")
"""The jobs of one push."""
IN_TX = ("tx-1", "tx-2")
"""The jobs that are pushed in a transaction, each with a row of the app's."""
ROLLED_BACK = "rolled back"
ATTEMPTS = 3


class Diary:
    """The log."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, *words: object) -> None:
        os.write(self._file, ("\t".join(map(str, words)) + "\n").encode())


class Ahead(SystemClock):
    """The machine's clock, hours on: whatever was held then isn't now, and what was to be due later is."""

    def now(self) -> int:
        return super().now() + 2 * HOUR * 1_000_000


class App:
    """An app with its queue, on a file."""

    def __init__(self, folder: Path, *, ahead: bool = False) -> None:
        self.diary = Diary(folder / "diary")
        self.engine: AsyncEngine = create_async_engine(f"sqlite+aiosqlite:///{folder / 'app.db'}")
        fastjobs.sqlite.configure(self.engine)
        self.ahead = ahead
        self.stuck = asyncio.Event()
        self.failed = asyncio.Event()
        store = SQLStore(self.engine, clock=Ahead() if ahead else None)
        self.queue = Queue(store, workers=2, poll=0.2, grace=0.05)
        self.good = self.queue.kind("good", attempts=ATTEMPTS)(self._good)
        self.flaky = self.queue.kind("flaky", attempts=ATTEMPTS)(self._flaky)
        self.bad = self.queue.kind("bad", attempts=2, backoff=0)(self._bad)
        self.bad.on_fail(self._failed)
        self.slow = self.queue.kind("slow", attempts=ATTEMPTS)(self._slow)

    async def _good(self, ref: str) -> None:
        self._begins(ref)
        self.diary.write("handled", ref)

    async def _flaky(self, ref: str) -> None:
        self._begins(ref)
        if current_job().attempt == 1:
            raise Retry(after=0)
        self.diary.write("handled", ref)

    async def _bad(self, ref: str) -> None:
        self._begins(ref)
        raise ValueError("never")

    async def _failed(self, ref: str, error: Exception) -> None:
        self.failed.set()

    async def _slow(self, ref: str) -> None:
        self._begins(ref)
        if not self.ahead:
            self.stuck.set()
            await asyncio.Event().wait()
        self.diary.write("handled", ref)

    def _begins(self, ref: str) -> None:
        self.diary.write("begins", ref, current_job().attempt)

    async def live(self) -> None:
        """The whole story, to a stop in order."""
        async with self.engine.begin() as tx:
            await tx.execute(text("CREATE TABLE orders (ref TEXT PRIMARY KEY)"))
        async with self.queue.running():
            await self._push(self.good, "first")
            self.diary.write("pushes", *TOGETHER)
            await self.good.push_many(TOGETHER)
            self.diary.write("acked", *TOGETHER)
            for ref in IN_TX:
                async with self.engine.begin() as tx:
                    await tx.execute(text("INSERT INTO orders VALUES (:ref)"), {"ref": ref})
                    self.diary.write("pushes", ref)
                    await self.good.in_(tx).push(ref)
                self.diary.write("acked", ref)
            async with self.engine.connect() as tx:
                await tx.execute(text("INSERT INTO orders VALUES (:ref)"), {"ref": ROLLED_BACK})
                await self.good.in_(tx).push(ROLLED_BACK)
                await tx.rollback()
            await self._push(self.flaky, "flaky")
            await self._push(self.bad, BAD)
            self.diary.write("pushes", "later")
            await self.good.push("later", after=HOUR)
            self.diary.write("acked", "later")
            await self._push(self.slow, "slow")
            await self.stuck.wait()
            await self.failed.wait()
            await self._push(self.good, "last")
        await self.engine.dispose()
        self.diary.write("ended")

    async def recover(self) -> None:
        """Runs all that is left, as another process does hours later."""
        await self.queue.drain()
        await self.engine.dispose()

    async def _push(self, kind: Kind[str], ref: str) -> None:
        self.diary.write("pushes", ref)
        await kind.push(ref)
        self.diary.write("acked", ref)
