"""Pushes, and ends of jobs, through a transaction of the app's own, for SQLAlchemy's sessions and connections.

The row is in the app's transaction, so it's kept or lost with it; nothing here needs to be right for that. What
is added is the wake-up after the outermost commit, and the refusal of a commit with a push that was never awaited.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ClassVar, Literal, Protocol, cast

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import UnboundExecutionError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from fastjobs.core.errors import StoreError
from fastjobs.core.job import Job, NewJob
from fastjobs.store import Ender, SyncEnder
from fastjobs.stores.sql import operations, raw_transaction
from fastjobs.stores.sql.dialects.mysql.beside import Beside
from fastjobs.stores.sql.raw import RawAsync, RawSync
from fastjobs.stores.sql.tables import Tables
from fastjobs.stores.sql.waking import watch_connection, watch_session

Committed = Callable[[], None]
Unfinished = Callable[[], "str | None"]


class Home(Protocol):
    """What a push through someone's transaction needs of its store's database."""

    @property
    def name(self) -> str:
        """SQLAlchemy's name of the dialect."""
        ...

    @property
    def beside(self) -> Beside | None:
        """What asks beside the transaction, where that's needed."""
        ...

    def now(self) -> int: ...

    def prepare(self, connection: Connection, kinds: Sequence[str]) -> None:
        """Makes the transaction one that can be pushed in, and sees to it that each kind has a row."""
        ...

    def tell(self, connection: Connection) -> Callable[[], None] | None:
        """Has other instances hear of a push as the transaction commits; or what is to be called then."""
        ...

    def freed(self, kind: str, key: bytes) -> Callable[[], None] | None:
        """What is to be called after a commit that ended the job of the key, for one that parked meanwhile, if
        anything is."""
        ...


class Within:
    """Where and how one transaction is pushed in."""

    def __init__(
        self,
        home: Home,
        tables: Tables,
        engine: Engine,
        target: Session | Connection,
        committed: Committed,
        unfinished: Unfinished,
    ) -> None:
        self._home = home
        self._tables = tables
        self._engine = engine
        self._target = target
        self._committed = committed
        self._unfinished = unfinished
        bind = target.bind if isinstance(target, Session) else target
        if bind is not None:
            self._check(bind.dialect.name)
        self.watch()

    def watch(self) -> None:
        """Has `unfinished` asked before the commit, from now on; again after one transaction, for the next."""
        if isinstance(self._target, Session):
            watch_session(self._target).asks(self._unfinished)
        else:
            watch_connection(self._target).asks(self._unfinished)

    def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        """Pushes, on the thread or in the greenlet where SQLAlchemy's sync side may do I/O."""
        connection = self._connection()
        self._check(connection.dialect.name)
        if not jobs:
            return []
        self._home.prepare(connection, [job.kind for job in jobs])
        # Only now, as a server's time may have been asked for on this connection.
        ids = operations.push(connection, self._tables, jobs, self._home.now(), self._home.beside)
        tells = self._home.tell(connection)
        watch = (
            watch_session(self._target)
            if isinstance(self._target, Session)
            else watch_connection(self._target)
        )
        watch.tells(self._committed, (job.kind for job in jobs))
        if tells is not None:
            watch.tells(tells, ())
        return ids

    def done(self, job: Job) -> bool:
        """Marks the job done, where `push` would push, and answers whether its claim had it."""
        connection = self._connection()
        self._check(connection.dialect.name)
        self._home.prepare(connection, ())
        ended = operations.done(
            connection, self._tables, job.id, job.claim, self._home.now(), self._home.beside
        )
        if ended.was_held:
            watch = (
                watch_session(self._target)
                if isinstance(self._target, Session)
                else watch_connection(self._target)
            )
            watch.tells(self._committed, ())
            freed = None if ended.alone is None else self._home.freed(*ended.alone)
            if freed is not None:
                watch.tells(freed, ())
        return ended.was_held

    def _connection(self) -> Connection:
        target = self._target
        if not isinstance(target, Session):
            return target
        try:
            return target.connection(bind_arguments={"clause": self._tables.jobs.insert()})
        except UnboundExecutionError:
            # It has binds for the app's models alone. Ours is the engine that the store was made with.
            return target.connection(bind_arguments={"bind": self._engine})

    def _check(self, dialect: str) -> None:
        if dialect != self._home.name:
            raise StoreError(
                f"the transaction is one of {dialect}, and the queue's store is on {self._home.name}"
            )


class _Sync:
    sync: ClassVar[Literal[True]] = True

    def __init__(self, within: Within) -> None:
        self._within = within

    def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        self._within.watch()
        return self._within.push(jobs)

    def ender(self, job: Job) -> SyncEnder:
        return _SyncEnder(self._within, job)


class _SyncEnder:
    sync: ClassVar[Literal[True]] = True

    def __init__(self, within: Within, job: Job) -> None:
        self._within = within
        self._job = job

    def done(self) -> bool:
        self._within.watch()
        return self._within.done(self._job)


class _Async:
    sync: ClassVar[Literal[False]] = False

    def __init__(self, within: Within, run_sync: Callable[..., Coroutine[Any, Any, Any]]) -> None:
        self._within = within
        self._run_sync = run_sync

    def push(self, jobs: Sequence[NewJob]) -> Coroutine[Any, Any, list[str | None]]:
        self._within.watch()

        def pushed(_: object) -> list[str | None]:
            return self._within.push(jobs)

        return self._run_sync(pushed)

    def ender(self, job: Job) -> Ender:
        return _Ender(self._within, self._run_sync, job)


class _Ender:
    sync: ClassVar[Literal[False]] = False

    def __init__(self, within: Within, run_sync: Callable[..., Coroutine[Any, Any, Any]], job: Job) -> None:
        self._within = within
        self._run_sync = run_sync
        self._job = job

    def done(self) -> Coroutine[Any, Any, bool]:
        self._within.watch()

        def done(_: object) -> bool:
            return self._within.done(self._job)

        return self._run_sync(done)


class Through(Protocol):
    """What pushes and ends jobs through one async transaction."""

    sync: ClassVar[Literal[False]] = False

    def push(self, jobs: Sequence[NewJob]) -> Coroutine[Any, Any, list[str | None]]: ...

    def ender(self, job: Job) -> Ender:
        """What marks this one job done in it."""
        ...


class SyncThrough(Protocol):
    """What pushes and ends jobs through one sync transaction."""

    sync: ClassVar[Literal[True]] = True

    def push(self, jobs: Sequence[NewJob]) -> list[str | None]: ...

    def ender(self, job: Job) -> SyncEnder:
        """What marks this one job done in it."""
        ...


def through(
    home: Home, tables: Tables, engine: Engine, tx: object, committed: Committed, unfinished: Unfinished
) -> Through | SyncThrough:
    """What pushes and ends jobs through `tx`; a StoreError for what is no transaction that this store knows."""
    if isinstance(tx, (RawSync, RawAsync)):
        return raw_transaction.through(home, tables, engine, tx, committed)
    if isinstance(tx, (scoped_session, async_scoped_session)):
        registry = cast("Callable[[], object]", tx)
        tx = registry()
    if isinstance(tx, (Session, Connection)):
        return _Sync(Within(home, tables, engine, tx, committed, unfinished))
    if isinstance(tx, AsyncSession):
        return _Async(Within(home, tables, engine, tx.sync_session, committed, unfinished), tx.run_sync)
    if isinstance(tx, AsyncConnection):
        sync = tx.sync_connection
        if sync is None:
            raise StoreError(
                "the AsyncConnection isn't open yet: await it, or use `async with engine.begin()`"
            )
        return _Async(Within(home, tables, engine, sync, committed, unfinished), tx.run_sync)
    raise StoreError(
        "a push goes through SQLAlchemy's Session, AsyncSession, Connection or AsyncConnection, one of SQLModel's"
        " sessions, or a driver's connection as fastjobs.raw(connection), and this is a"
        f" {type(tx).__module__}.{type(tx).__qualname__}"
    )
