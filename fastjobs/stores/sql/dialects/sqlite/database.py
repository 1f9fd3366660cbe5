"""SQLite as a home for a queue: the Store's verbs as calls to the writer's thread, and to the reader's.

Longer than 300 lines, as each thing that a store asks of its database is a few lines here, and all share the threads.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, RootTransaction
from sqlalchemy.dialects.sqlite import insert

from fastjobs.clock import Clock, SystemClock
from fastjobs.core.claiming import Claimable, Claimed
from fastjobs.core.errors import QueueError, StoreError
from fastjobs.core.job import NewJob
from fastjobs.core.marks import GiveBack, Kept, Mark
from fastjobs.store import Cancelled, Places, Run, Throttled
from fastjobs.stores.sql import migrations, operations, values
from fastjobs.stores.sql.dialects.sqlite import (
    acting,
    files,
    marks,
    pushing,
    schedules,
    throttles,
    upkeep,
)
from fastjobs.stores.sql.dialects.sqlite import claim as claiming
from fastjobs.stores.sql.dialects.sqlite.begin import begin_to_write
from fastjobs.stores.sql.dialects.sqlite.keyed_statements import make_keyed
from fastjobs.stores.sql.dialects.sqlite.listening import listening
from fastjobs.stores.sql.dialects.sqlite.opened import Opened, Synchronous
from fastjobs.stores.sql.dialects.sqlite.statements import make_statements
from fastjobs.stores.sql.dialects.sqlite.threads import Threads
from fastjobs.stores.sql.dialects.sqlite.writer import Call, Writer
from fastjobs.stores.sql.tables import Tables

_T = TypeVar("_T")


class SQLite:
    """A queue's database in a SQLite file."""

    name = "sqlite"
    beside = None

    def __init__(
        self,
        engine: Engine,
        tables: Tables,
        clock: Clock | None,
        *,
        migrate: bool,
        synchronous: Synchronous,
    ) -> None:
        if files.is_memory(engine.url):
            raise StoreError(files.IN_MEMORY)
        if tables.schema is not None:
            raise StoreError(f"SQLite has no schemas: leave out schema={tables.schema!r}, and use prefix=")
        if synchronous not in ("FULL", "NORMAL"):
            raise StoreError(f"synchronous is 'FULL' or 'NORMAL', not {synchronous!r}")
        self._engine = engine
        self._tables = tables
        self._clock = SystemClock() if clock is None else clock
        self._migrates = migrate
        self._synchronous: Synchronous = synchronous
        self._statements = make_statements(tables)
        self._threads = Threads(tables.prefix)
        self._are_there = False
        self._made_in: weakref.ref[RootTransaction] | None = None

    async def open(self, kinds: Sequence[str]) -> None:
        """Connects, makes or upgrades the tables, and notes the kinds."""
        opened = await asyncio.wrap_future(self._running().opened)
        if not opened.known.issuperset(kinds):
            now = self._clock.now()
            await self._call(Call(partial(claiming.note_kinds, kinds=list(kinds), now=now)))

    async def close(self) -> None:
        """Has the threads end once they have done all that was asked of them, and waits for that."""
        for each in self._threads.taken():
            each.stop()
            await asyncio.wrap_future(each.ended)

    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        return await self._call(Call(pushing.push(jobs, self._clock.now())), "push through kind.in_(tx)")

    async def claim(
        self, kinds: Sequence[Claimable], limit: int, ahead: int, others: Claimable | None
    ) -> Claimed:
        wanted = claiming.Wanted(tuple(kinds), limit, ahead, others)
        # The time is told once the lock is had: a claim that waited for another process, with the time of before,
        # would make holds that are short, or over already.
        now = self._clock.now
        return await self._call(
            Call(
                lambda opened: claiming.claim(opened, wanted, now()),
                look=lambda opened: claiming.look(opened, wanted, now()),
                undo=self._give_back,
            )
        )

    async def mark(self, some: Sequence[Mark]) -> list[Kept]:
        values.check_marks(some)
        asked, now = list(some), self._clock.now
        return await self._call(Call(lambda opened: marks.mark(opened, asked, now())))

    async def prune(self, failed_for: int, limit: int) -> int:
        return await upkeep.prune(self._call, failed_for, limit, self._clock.now)

    async def sweep(self) -> int:
        return await upkeep.sweep(self._call, self._clock.now)

    async def take(self, asked: Sequence[Throttled]) -> list[Places]:
        return await self._call(throttles.take(list(asked), self._clock.now))

    async def settle(self, started: Sequence[tuple[Places, int, int]]) -> None:
        if started:
            await self._call(throttles.settle(list(started)))

    async def cancel(self, ids: Sequence[str]) -> list[Cancelled]:
        return await self._call(acting.cancel(list(ids), self._clock.now)) if ids else []

    async def progress(self, reports: Sequence[tuple[str, int, str]]) -> None:
        if reports:
            await self._call(acting.progress(list(reports)))

    async def tell_the_time(self) -> int:
        return self._clock.now()

    async def runs(self, names: Sequence[str]) -> Mapping[str, int]:
        return await self._call(schedules.runs(list(names)))

    async def push_run(self, run: Run) -> bool:
        return await self._call(schedules.push_run(run, self._clock.now))

    @asynccontextmanager
    async def listen(self, wake: Callable[[], None]) -> AsyncGenerator[None]:
        """Calls `wake`, from a thread, when another process may have pushed."""
        opened = await asyncio.wrap_future(self._running().opened)
        news, name = self._statements.news, f"fastjobs {self._tables.prefix}listener"
        async with listening(self._engine, opened.path, news, wake, name):
            yield

    async def run(self, work: Callable[[Connection], _T]) -> _T:
        """Runs what is written once for all databases, in a transaction."""
        return await self._call(Call(partial(_in_core, work=work)))

    async def look(self, work: Callable[[Connection], _T]) -> _T:
        """Runs what only reads and is written once for all databases.

        In a thread of its own, which has no turn to wait for: it answers while the writer waits for one.
        """
        writer = self._running()
        if not writer.opened.done():
            # It may have the tables to make first.
            self._refuse_to_wait("end it first, or use another task")
            await asyncio.wrap_future(writer.opened)

        def looked(opened: Opened) -> tuple[_T]:
            return (_in_core(opened, work),)

        # In a tuple, as a look that answers None is one that would have something written.
        (answer,) = await Call(looked, look=looked).answer(lambda call: _submit(call, self._reading))
        return answer

    def tell_soon(self) -> None:
        """Nothing: whoever listens looks at the file."""

    def prepare(self, connection: Connection, kinds: Sequence[str]) -> None:
        """Makes the app's transaction one that can be pushed in, and sees to it that each kind has a row."""
        begin_to_write(connection)
        known: set[str] = set()
        writer = self._threads.writer
        opened: Opened | None = None
        if writer is not None and writer.opened.done() and writer.opened.exception() is None:
            opened = writer.opened.result()
            known = opened.known
        self._check_file(connection, opened)
        if opened is None and not self._are_there:
            self._make_within(connection)
        unknown = [kind for kind in kinds if kind not in known]
        table = self._tables.kinds
        for kind in operations.new_kinds(connection, self._tables, unknown) if unknown else ():
            row = insert(table).values(kind=kind, first_seen=self.now()).on_conflict_do_nothing()
            connection.execute(row)

    def tell(self, connection: Connection) -> None:
        """Nothing: whoever listens looks at the file."""

    def freed(self, kind: str, key: bytes) -> None:
        """Nothing: nobody parks while a transaction has the write lock."""

    def _check_file(self, connection: Connection, opened: Opened | None) -> None:
        """Refuses a transaction of another file, where the job would be kept and nobody would run it."""
        path = files.plain_path(self._engine.url) if opened is None else opened.path
        if path is None:
            return
        mine = files.file_key(path) if opened is None else opened.key
        if files.file_of(connection) != mine:
            raise StoreError(
                f"the transaction is one of another database than the queue's, which is {path}, or that file was"
                " moved or replaced since the transaction's connection was opened: push through an engine of the"
                " queue's own file"
            )

    def _make_within(self, connection: Connection) -> None:
        # The store's first call is this push: the tables come with the app's transaction, or go with it. That
        # they are there is remembered once they were found in a transaction that hadn't made them itself.
        made_in = self._made_in() if self._made_in is not None else None
        if migrations.found_version(connection, self._tables) >= migrations.latest():
            self._are_there = made_in is None or made_in is not connection.get_transaction()
            return
        if not self._migrates:
            migrations.check(connection, self._tables)
        migrations.migrate(connection, self._tables)
        transaction = connection.get_transaction()
        self._made_in = None if transaction is None else weakref.ref(transaction)

    def now(self) -> int:
        return self._clock.now()

    async def _call(self, call: Call[_T], instead: str = "end it first, or use another task") -> _T:
        self._refuse_to_wait(instead)
        return await call.answer(self._submit)

    def _refuse_to_wait(self, instead: str) -> None:
        if self._threads.has_the_gate():
            raise QueueError(
                "this task or thread has a transaction open that may write (a read opens one too, until its commit or"
                f" close, unless configure was given begin='write'), and the queue would wait for it in vain: {instead}"
            )

    def _submit(self, call: Call[Any]) -> None:
        _submit(call, self._running)

    def _running(self) -> Writer:
        return self._threads.running("writer", self._open)

    def _reading(self) -> Writer:
        return self._threads.running("reader", self._open_to_read)

    def _open(self) -> Opened:
        # In the writer's thread, which has nothing else to do yet.
        opened = Opened(self._engine, self._statements, make_keyed(self._tables), self._synchronous)
        try:
            self._threads.gate = opened.gate
            self._prepare(opened)
            known = opened.patiently(lambda: opened.raw.execute(self._statements.known_kinds).fetchall())
            opened.known.update(kind for (kind,) in known)
        except BaseException:
            opened.close()
            raise
        return opened

    def _open_to_read(self) -> Opened:
        # In the reader's thread. The tables were made by the writer, which has been opened before.
        opened = Opened(self._engine, self._statements, make_keyed(self._tables), self._synchronous)
        try:
            opened.raw.execute("PRAGMA query_only = ON")
        except BaseException:
            opened.close()
            raise
        return opened

    def _prepare(self, opened: Opened) -> None:
        def is_made() -> bool:
            with opened.core() as connection:
                return migrations.found_version(connection, self._tables) >= migrations.latest()

        if opened.patiently(is_made):
            return
        if not self._migrates:

            def check() -> None:
                with opened.core() as connection:
                    migrations.check(connection, self._tables)

            return opened.patiently(check)
        turn = opened.gate.enter(30.0, first=True)
        try:
            opened.begin()
            try:
                with opened.core() as connection:
                    migrations.migrate(connection, self._tables)
                opened.commit()
            except BaseException:
                opened.rollback()
                raise
        finally:
            opened.gate.leave(turn)

    def _give_back(self, claimed: Claimed) -> None:
        """Undoes a claim whose caller has gone, without waiting for it."""
        some = [GiveBack(job.id, job.claim) for job in claimed.jobs]
        if some:
            self._submit(Call(partial(marks.mark, marks=some, now=self._clock.now())))


def _submit(call: Call[Any], running: Callable[[], Writer]) -> None:
    while not running().submit(call):
        pass


def _in_core(opened: Opened, work: Callable[[Connection], _T]) -> _T:
    with opened.core() as connection:
        return work(connection)
