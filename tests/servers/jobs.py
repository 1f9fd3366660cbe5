"""The queue under test, and its kinds: what waits, what swallows every cancellation, and what pushes to its last."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

from sqlalchemy.ext.asyncio import create_async_engine

import fastjobs

HOLD = 600.0
"""Seconds: what would wait for its hold is not back while anyone looks."""
LATER = 3600.0
HOSTILE = {"waits": 60, "swallows": 20, "pushes": 20}
"""How many jobs of each kind run as the stop comes."""
QUICK = 200
"""How many jobs have run before."""


class Jobs:
    """A queue on a file in this folder; a file beside it has what was started, another what was pushed."""

    def __init__(self, folder: Path, *, workers: int = 0, grace: float = 1.0) -> None:
        self._folder = folder
        engine = create_async_engine(f"sqlite+aiosqlite:///{folder / 'jobs.db'}")
        fastjobs.sqlite.configure(engine)
        self.store = fastjobs.SQLStore(engine)
        self.q = fastjobs.Queue(self.store, workers=workers, grace=grace, hold=HOLD, poll=0.2)
        self.note = self.q.kind("note")(self._note)
        self.quick = self.q.kind("quick", priority=1)(self._quick)
        # A timeout as long as this has each hold be the queue's own.
        self.hostile = {
            "waits": self.q.kind("waits", attempts=1, timeout=HOLD)(self._waits),
            "swallows": self.q.kind("swallows", attempts=1, timeout=HOLD)(self._swallows),
            "pushes": self.q.kind("pushes", attempts=1, timeout=HOLD)(self._pushes),
        }

    async def push(self) -> str:
        """Pushes a note that isn't due, and writes down that it was."""
        made = str(await self.note.push(after=LATER))
        self._write("pushed", made)
        return made

    async def load(self) -> None:
        """Pushes all that is to run."""
        await self.quick.push_many([None] * QUICK)
        for name, count in HOSTILE.items():
            await self.hostile[name].push_many([None] * count)

    async def _note(self) -> None: ...

    async def _quick(self) -> None:
        self._started("quick")

    async def _waits(self) -> None:
        self._started("hostile")
        await asyncio.Event().wait()

    async def _swallows(self) -> None:
        self._started("hostile")
        while True:
            try:
                await asyncio.Event().wait()
            except BaseException:
                continue

    async def _pushes(self) -> None:
        self._started("hostile")
        while True:
            await self.push()
            await asyncio.sleep(0.2)

    def _started(self, what: str) -> None:
        self._write(what, fastjobs.current_job().id)

    def _write(self, file: str, line: str) -> None:
        with (self._folder / file).open("a") as out:  # appended in one write, by each process
            out.write(f"{line}\n")


def made_by_environment() -> Jobs:
    """The queue that the environment describes."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    return Jobs(
        Path(os.environ["SERVERS_FOLDER"]),
        workers=int(os.environ["SERVERS_WORKERS"]),
        grace=float(os.environ["SERVERS_GRACE"]),
    )
