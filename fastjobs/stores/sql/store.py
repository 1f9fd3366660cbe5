"""SQLStore: a queue in a SQL database that SQLAlchemy connects to.

Longer than 300 lines, as each method of the Protocols is one here, with the sentence that says what it does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import ClassVar, Literal, Protocol

from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from fastjobs.clock import Clock
from fastjobs.core.claiming import Claimable, Claimed
from fastjobs.core.errors import StoreError
from fastjobs.core.job import FailedJob, Job, JobState, KeptJob, NewJob
from fastjobs.core.marks import Kept, Mark
from fastjobs.store import (
    Cancelled,
    Ender,
    Extra,
    KindCount,
    Places,
    Pusher,
    Run,
    SyncEnder,
    SyncPusher,
    Throttled,
)
from fastjobs.stores.sql import looking, operations, transaction
from fastjobs.stores.sql.database import Database
from fastjobs.stores.sql.dialects.mysql.database import MySQL
from fastjobs.stores.sql.dialects.postgres.database import Postgres
from fastjobs.stores.sql.dialects.sqlite.database import SQLite
from fastjobs.stores.sql.dialects.sqlite.files import plain_path
from fastjobs.stores.sql.inspecting import Finding, examine
from fastjobs.stores.sql.script import script
from fastjobs.stores.sql.tables import Tables, make_tables


class _Makes(Protocol):
    def __call__(
        self,
        engine: Engine,
        tables: Tables,
        clock: Clock | None,
        *,
        migrate: bool,
        synchronous: Literal["FULL", "NORMAL"],
    ) -> Database: ...


_DATABASES: Mapping[str, _Makes] = {
    "mariadb": MySQL,
    "mysql": MySQL,
    "postgresql": Postgres,
    "sqlite": SQLite,
}


class SQLStore:
    """Keeps jobs in the app's own database, in tables of its own whose names begin with `prefix`.

    `engine` is the app's, sync or async. The store never uses its pool: it opens a connection of its own by the
    engine's own creator, so with its URL, arguments and connect listeners. On SQLite that is one connection in a
    thread, which commits all that gathers while the last commit is under way, and another that reads, once jobs are
    looked at. On Postgres, with asyncpg or psycopg 3, they are at most two for each event loop, and one that listens;
    on MySQL and MariaDB, with asyncmy, aiomysql or PyMySQL, two, and one for pushes with keys. None of them is held
    while a job runs. `migrate`: makes the tables as it opens, or upgrades older ones, and logs that it did; with
    False, tables that are missing or older are a StoreError. `schema` puts them in a schema of Postgres, or in another
    database of a MySQL or MariaDB server. `synchronous` is SQLite's: with "FULL", the default, a push that has
    answered is kept through a power cut, with "NORMAL" through a crash of the process alone. `clock` is the store's
    own, for tests. Nothing is connected until it's opened, by the queue that it belongs to or by its first call; it
    may be closed and opened again, on another loop too.

    Raises StoreError for a database that this version has no store for, and for a SQLite database in memory.
    """

    extras: ClassVar[Extra] = (
        Extra.FAILED | Extra.CARRY | Extra.TRANSACTIONS | Extra.DONE_IN | Extra.LISTEN | Extra.LIFECYCLE
        | Extra.UNIQUE | Extra.LATEST | Extra.ONE_AT_A_TIME | Extra.AT_ONCE | Extra.HOLD_BACK
        | Extra.NAMES | Extra.THROTTLE | Extra.PRUNE | Extra.SCHEDULES
        | Extra.COUNTS | Extra.CANCEL | Extra.PAUSE | Extra.PROGRESS
    )  # fmt: skip

    def __init__(
        self,
        engine: Engine | AsyncEngine,
        *,
        prefix: str = "fastjobs_",
        schema: str | None = None,
        migrate: bool = True,
        clock: Clock | None = None,
        synchronous: Literal["FULL", "NORMAL"] = "FULL",
    ) -> None:
        sync_engine = engine.sync_engine if isinstance(engine, AsyncEngine) else engine
        if not isinstance(sync_engine, Engine):
            raise StoreError(
                f"SQLStore takes SQLAlchemy's Engine or AsyncEngine, not {type(engine).__name__}"
            )
        made = _DATABASES.get(sync_engine.dialect.name)
        if made is None:
            raise StoreError(
                f"this version of fastjobs has a store for {', '.join(sorted(_DATABASES))}, and none for"
                f" {sync_engine.dialect.name}"
            )
        self._engine = sync_engine
        self._tables = make_tables(prefix, schema, dialect=sync_engine.dialect.name)
        self._database = made(
            sync_engine,
            self._tables,
            clock,
            migrate=migrate,
            synchronous=synchronous,
        )
        self._opens = 0
        self._synchronous = synchronous

    def ddl(self) -> str:
        """The statements that make the store's tables, as `fastjobs schema` prints them: for psql, sqlite3 or mysql."""
        return script(self._tables, self._engine.dialect.name)

    async def examine(
        self, kinds: Collection[str] = (), *, deep: bool = False, max_payload: int = 0
    ) -> list[Finding]:
        """What `fastjobs doctor` says of the store's database; `kinds` are those that the app has, and `max_payload`
        the queue's.

        Nothing is written, and the store need not be open. `deep` reads the whole of a SQLite file, too. Raises
        StoreError or the driver's error where it can't connect.
        """
        return await examine(
            self._engine,
            self._tables,
            kinds=kinds,
            synchronous=self._synchronous,
            deep=deep,
            max_payload=max_payload,
        )

    def missing_file(self) -> str | None:
        """The path of SQLite's file where it isn't there, and opening would make it. Nothing is connected."""
        path = plain_path(self._engine.url) if self._engine.dialect.name == "sqlite" else None
        return path if path is not None and not os.path.exists(path) else None

    async def open(self, kinds: Sequence[str] = ()) -> None:
        """Connects, makes or upgrades the tables, and notes the kinds' names. Each open has its close."""
        await self._database.open(kinds)
        self._opens += 1

    async def close(self) -> None:
        """Lets the connection go, once every open has been closed, and all that was asked before is done."""
        self._opens = max(self._opens - 1, 0)
        if not self._opens:
            await self._database.close()

    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        """Keeps new jobs, all or none, and answers their ids in the same order.

        Raises QueueError from a task that has a write transaction open on a configured engine, as it would wait
        for itself: push through `kind.in_(tx)` there.
        """
        return await self._database.push(jobs)

    async def claim(
        self,
        kinds: Sequence[Claimable],
        limit: int,
        *,
        ahead: int = 0,
        others: Claimable | None = None,
    ) -> Claimed:
        """Takes up to `limit` jobs that are due. A claim whose caller is cancelled gives its jobs back."""
        return await self._database.claim(kinds, limit, ahead, others)

    async def mark(self, marks: Sequence[Mark]) -> list[Kept]:
        """Keeps what became of claimed jobs, and answers each in the same order."""
        return await self._database.mark(marks)

    async def failed(
        self,
        *,
        kind: str | None = None,
        after: tuple[int, str] | None = None,
        limit: int = 100,
        cut: int | None = None,
    ) -> list[FailedJob]:
        """The failed jobs, the latest first; `after` is the (failed_at, id) of the last one seen before this page."""
        return await self._database.look(
            lambda connection: looking.failed(connection, self._tables, kind, after, limit, cut)
        )

    async def run_again(self, ids: Sequence[str]) -> list[bool]:
        """Puts failed jobs back, due now, and says of each whether it was there and failed."""

        def run_again(connection: Connection) -> list[bool]:
            # The time is told here, as a server's is known once there is a connection.
            return operations.run_again(connection, self._tables, ids, self._database.now())

        were = await self._database.run(run_again)
        if any(were):
            self._database.tell_soon()
        return were

    async def delete(self, ids: Sequence[str]) -> list[bool]:
        """Removes failed jobs, and says of each whether it was there and failed."""

        def delete(connection: Connection) -> list[bool]:
            return operations.delete(connection, self._tables, ids, self._database.now())

        return await self._database.run(delete)

    async def counts(self, *, cap: int = 10_000) -> list[KindCount]:
        """A row for each kind that was ever registered or pushed; no number goes past `cap` + 1."""

        def counts(connection: Connection) -> list[KindCount]:
            return looking.counts(connection, self._tables, cap, self._database.now())

        return await self._database.look(counts)

    async def job(self, id: str, *, cut: int | None = None) -> KeptJob | None:
        """One job as it's kept, or None: it's done, was removed, or never was."""

        def job(connection: Connection) -> KeptJob | None:
            return looking.job(connection, self._tables, id, cut, self._database.now())

        return await self._database.look(job)

    async def jobs(
        self,
        kind: str,
        state: JobState,
        *,
        after: tuple[int, str] | None = None,
        limit: int = 100,
        cut: int | None = None,
    ) -> list[KeptJob]:
        """A page of a kind's jobs that are WAITING, in the order they're due, or HELD, in the order their holds end."""

        def jobs(connection: Connection) -> list[KeptJob]:
            now = self._database.now()
            return looking.jobs(connection, self._tables, kind, state, after, limit, cut, now)

        return await self._database.look(jobs)

    async def cancel(self, ids: Sequence[str]) -> list[Cancelled]:
        """Removes jobs that wait, and asks held ones to stop; says what became of each, in order."""
        return await self._database.cancel(ids)

    async def asked(self, held: Sequence[tuple[str, int]]) -> set[str]:
        """Of these jobs, each with its claim, the ids of those whose claim was asked to stop."""
        if not held:
            return set()
        return await self._database.look(lambda connection: looking.asked(connection, self._tables, held))

    async def progress(self, reports: Sequence[tuple[str, int, str]]) -> None:
        """Keeps the JSON text of each (id, claim, text) whose claim has the job."""
        await self._database.progress(reports)

    async def pause(self, kind: str, paused: bool) -> bool:
        """Has no claim return a job of the kind, on any instance, until it's resumed by `paused=False`."""
        there = await self._database.run(
            lambda connection: operations.pause(connection, self._tables, kind, paused)
        )
        if there and not paused:
            self._database.tell_soon()
        return there

    async def prune(self, failed_for: int, limit: int) -> int:
        """Removes at most `limit` rows: jobs that failed over `failed_for` microseconds ago, and ended names,
        slots and counters. Answers how many."""
        return await self._database.prune(failed_for, limit)

    async def sweep(self) -> int:
        """Wakes a parked job of each key that nobody holds. Answers how many."""
        return await self._database.sweep()

    async def take(self, asked: Sequence[Throttled]) -> list[Places]:
        """Takes up to `wanted` places of each, such that no window of `per` ever has more than `most` starts."""
        return await self._database.take(asked)

    async def settle(self, started: Sequence[tuple[Places, int, int]]) -> None:
        """Of each of these places so many started, at that time by the database's clock; the rest are free again."""
        await self._database.settle(started)

    async def now(self) -> int:
        """The database's now, in Unix microseconds: the one by which its jobs are due."""
        return await self._database.tell_the_time()

    async def runs(self, schedules: Sequence[str]) -> Mapping[str, int]:
        """The last run that was pushed of each of these schedules that had one, in Unix microseconds."""
        return await self._database.runs(schedules)

    async def push_run(self, run: Run) -> bool:
        """Pushes the run unless one of its schedule due then or later was pushed already, and says whether it did.

        The schedule's row and the job are written in one transaction.
        """
        return await self._database.push_run(run)

    def listen(self, wake: Callable[[], None]) -> AbstractAsyncContextManager[None]:
        """While entered, calls `wake`, from any thread, when another instance may have pushed. A hint alone.

        Entering it raises the driver's own error where the database can't be reached.
        """
        return self._database.listen(wake)

    def within(
        self,
        tx: object,
        committed: Callable[[], None],
        unfinished: Callable[[], str | None] = lambda: None,
    ) -> Pusher | SyncPusher:
        """What pushes through `tx`: a SyncPusher for a Session, scoped_session or Connection, SQLModel's too, and a
        Pusher for an AsyncSession, async_scoped_session or AsyncConnection; either for what `fastjobs.raw` answers.
        A StoreError for anything else."""
        return transaction.through(self._database, self._tables, self._engine, tx, committed, unfinished)

    def done_within(
        self,
        tx: object,
        job: Job,
        committed: Callable[[], None] = lambda: None,
        unfinished: Callable[[], str | None] = lambda: None,
    ) -> Ender | SyncEnder:
        """What marks a claimed job done in `tx`, which is what `within` takes. `committed` is never called for one
        of `fastjobs.raw`, as nobody is told of its commit."""
        database, tables = self._database, self._tables
        return transaction.through(database, tables, self._engine, tx, committed, unfinished).ender(job)
