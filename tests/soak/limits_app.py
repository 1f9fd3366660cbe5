"""A process that hammers all limits: it pushes to each kind, in transactions too, and runs them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

import fastjobs
from fastjobs.stores.sql.dialects.mysql.errors import code
from tests.soak.kinds import Work
from tests.soak.limits_kinds import ATTEMPTS, KEYS, KINDS, POLL, RATES, SETTINGS, UNIQUE
from tests.soak.limits_stores import Limited, broken_here
from tests.soak.recording import Recorder

TOLD = "told"
"""The folder of what pushers and throttles write down."""
_WORKERS = 4
_DEADLOCK = 1213


@asynccontextmanager
async def opened(url: str) -> AsyncGenerator[AsyncEngine]:
    """The app's engine."""
    engine = create_async_engine(url)
    if engine.dialect.name == "sqlite":
        fastjobs.sqlite.configure(engine)
    try:
        yield engine
    finally:
        await engine.dispose()


async def prepare(url: str) -> None:
    """Makes the tables."""
    async with opened(url) as engine:
        store = fastjobs.SQLStore(engine)
        await store.open(KINDS)
        await store.close()
        async with engine.begin() as connection:
            quoted = connection.dialect.identifier_preparer.quote("order")
            await connection.execute(text(f"CREATE TABLE {quoted} (ref VARCHAR(100) PRIMARY KEY)"))


async def left(engine: AsyncEngine) -> int:
    """How many jobs there are."""
    async with engine.execution_options(fastjobs_readonly=True).connect() as connection:
        return int(await connection.scalar(text("SELECT count(*) FROM fastjobs_jobs")) or 0)


class Hammer:
    """One process."""

    def __init__(self, folder: Path, url: str, name: str, control: str, hold: float, pause: float) -> None:
        self._folder = folder
        self._url = url
        self._name = name
        self._control = control
        self._hold = hold
        self._pause = pause
        self._random = Random(name)
        self._number = 0

    async def run(self, began: float, end: float, until: float) -> None:
        """Pushes until one moment of the monotonic clock, and runs until no job is left, or a later one."""
        logging.basicConfig(
            filename=self._folder / TOLD / f"{self._name}.log", level=logging.WARNING, force=True
        )
        self._began, self._end = began, end
        recorder = Recorder(self._folder, self._name)
        self._told = Recorder(self._folder / TOLD, self._name)
        async with opened(self._url) as engine:
            is_file = engine.dialect.name == "sqlite"
            self._dawdle = (
                0.02 if is_file else 0.3
            )  # who dawdles in a transaction of a file keeps all from writing
            store = broken_here(self._control, engine.dialect.name)(engine, recorder, self._told)
            queue = fastjobs.Queue(store, workers=_WORKERS, hold=self._hold, poll=POLL, grace=1)
            kinds = {name: self._kind(queue, name, store, recorder) for name in KINDS}
            async with queue.running():
                if self._name.endswith("-0"):
                    # More than may run or start at once, however slow the machine is. Not where one begins anew.
                    for name in ("one", "paced"):
                        await kinds[name].push_many(Work(ref=f"{self._name}-first-{n}") for n in range(8))
                await asyncio.gather(self._pushes(kinds), self._pushes_in(kinds, engine))
                while time.monotonic() < until and await left(engine):
                    await asyncio.sleep(0.2)
        recorder.close()
        self._told.close()

    def _kind(
        self, queue: fastjobs.Queue, name: str, store: Limited, recorder: Recorder
    ) -> fastjobs.Kind[Work]:
        settings = SETTINGS[name].copy()
        settings.update({"attempts": ATTEMPTS, "backoff": 0.05})

        @queue.kind(name, **settings)
        async def handler(work: Work) -> None:
            job = fastjobs.current_job()
            recorder.write("start", job.id, store.claim_of(job.id, job.attempt), work.ref, job.attempt)
            chance = self._random.random()
            if chance < 0.003:
                await asyncio.sleep(1.3 * self._hold)  # renewed, or it's another's by then
            elif chance < 0.05:
                await asyncio.sleep(0.3)  # so that who is killed has something to lose
            else:
                await asyncio.sleep(self._random.uniform(0, 0.03))
            if chance > 0.97:
                raise fastjobs.Snooze(after=0.05)
            if chance > 0.92:
                raise RuntimeError("it fails now and then")

        return handler

    def _drawn(self) -> tuple[str, Work]:
        """A kind, and a value of it."""
        over = (time.monotonic() - self._began) / (self._end - self._began)
        # What a rate keeps waiting isn't pushed to the very end.
        some = [each for each in KINDS if over < 0.7 or each not in RATES]
        (name,) = self._random.choices(some, [0.5 if each in RATES else 1 for each in some])
        self._number += 1
        if name in UNIQUE:
            ref = f"key {self._random.randrange(KEYS)}"
        elif name == "named":
            # Several processes come to each of these names, about as often as not.
            ref = f"name {int((time.monotonic() - self._began) * 4)} {self._random.randrange(2)}"
        elif name == "each":
            ref = f"{self._random.randrange(KEYS)}-{self._name}-{self._number}"
        else:
            ref = f"{self._name}-{self._number}"
        return name, Work(ref=ref)

    def _count(self, name: str) -> int:
        """How many to push in one call: of what has a rate more now and then than may start in its time."""
        if name in ("named", "latest"):
            return 1
        if name in RATES:
            return 20 if self._random.random() < 0.08 else 1
        return 4 if self._random.random() < 0.2 else 1

    def _asked(self, name: str, work: Work) -> dict[str, Any]:
        return {
            "after": self._random.choice((0, 0, 0.2)) if name in UNIQUE else 0,
            "name": work.ref if name == "named" else None,
        }

    async def _pushes(self, kinds: dict[str, fastjobs.Kind[Work]]) -> None:
        while time.monotonic() < self._end:
            name, work = self._drawn()
            self._told.write("try", name, work.ref)
            try:
                if self._random.random() < 0.2 and name not in ("named", "latest"):
                    # Twice the same value, where the value has a key.
                    again = work if name in UNIQUE else Work(ref=f"{work.ref}+")
                    first, second = await kinds[name].push_many([work, again])
                    if name in UNIQUE and second is not None:
                        self._told.write(
                            "error", name, f"one call pushed {work.ref} twice: {first}, {second}"
                        )
                    answer = first
                else:
                    answer = await kinds[name].push(work, **self._asked(name, work))
                self._told.write("pushed", name, work.ref, answer)
            except Exception as error:
                self._told.write("error", name, repr(error))
            await asyncio.sleep(self._random.uniform(0, 2 * self._pause))

    async def _pushes_in(self, kinds: dict[str, fastjobs.Kind[Work]], engine: AsyncEngine) -> None:
        while time.monotonic() < self._end:
            name, work = self._drawn()
            rolls_back = self._random.random() < 0.4
            self._told.write("try", name, work.ref)
            try:
                async with AsyncSession(engine) as session:
                    answer = await kinds[name].in_(session).push(work, **self._asked(name, work))
                    await asyncio.sleep(self._random.choice((0, 0, self._dawdle)) * self._random.random())
                    await (session.rollback() if rolls_back else session.commit())
                self._told.write("rolled back" if rolls_back else "pushed", name, work.ref, answer)
            except DBAPIError as error:
                if code(error) == _DEADLOCK:
                    # InnoDB has rolled it back for another's sake. That's an app's to know, and this one lets it be.
                    self._told.write("rolled back", name, work.ref, None)
                else:
                    self._told.write("error", name, repr(error))
            except Exception as error:
                self._told.write("error", name, repr(error))
            await asyncio.sleep(self._random.uniform(0, 4 * self._pause))
