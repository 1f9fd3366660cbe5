"""The writer's one connection: opened by the app's own creator, and used from the writer's thread alone."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import sqlite3
import time
from collections.abc import Callable, Generator
from typing import Any, Literal, TypeVar

from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import Pool, PoolProxiedConnection, StaticPool
from sqlalchemy.util import greenlet_spawn

from fastjobs.core.errors import StoreError
from fastjobs.stores.sql.dialects.sqlite import files
from fastjobs.stores.sql.dialects.sqlite.gate import FileKey, Gate, gate
from fastjobs.stores.sql.dialects.sqlite.statements import Statements

log = logging.getLogger("fastjobs")

Synchronous = Literal["FULL", "NORMAL"]
LOCKED_FOR = 5.0
"""How many seconds a transaction is begun anew while another process has the lock."""

_OLDEST = (3, 35)
_BUSY = (5, 6)
_T = TypeVar("_T")


class Opened:
    """An open connection and what goes with it: the gate of its file, and the kinds that are known to have a row."""

    def __init__(self, engine: Engine, statements: Statements, synchronous: Synchronous) -> None:
        self.statements = statements
        self.known: set[str] = set()
        self.noted: set[str] = set()
        self._is_async = engine.dialect.is_async
        self._pool: Pool = engine.pool.recreate()
        self._proxied: PoolProxiedConnection | None = None
        path = files.plain_path(engine.url)
        if path is not None:
            files.make_private(path)
        try:
            self._proxied = self._run(self._pool.connect)
            self.raw = _stdlib(self._proxied)
            self.path, self.key = _set_up(self.raw, synchronous)
        except sqlite3.ProgrammingError as error:
            self.close()
            raise _of_another_thread(engine, error) from error
        except BaseException:
            self.close()
            raise
        self.gate: Gate = gate(self.key)
        # Over the same connection: what's written once for all databases runs here as SQLAlchemy. It never
        # begins, commits or closes anything, as that is the writer's to do.
        self.engine = create_engine("sqlite://", creator=lambda: _Lent(self.raw), poolclass=StaticPool)

    @contextlib.contextmanager
    def core(self) -> Generator[Connection, None, None]:
        """A SQLAlchemy connection inside the transaction that's open here, if one is."""
        with self.engine.connect() as connection:
            yield connection

    def begin(self) -> None:
        """BEGIN IMMEDIATE, again and again for up to five seconds while another process has the lock."""
        self.patiently(lambda: self.raw.execute("BEGIN IMMEDIATE"))

    def commit(self) -> None:
        """COMMIT, and from then on the kinds that were noted are known."""
        self.raw.execute("COMMIT")
        self.known |= self.noted
        self.noted.clear()

    def rollback(self) -> None:
        """ROLLBACK, where SQLite hasn't done so itself."""
        self.noted.clear()
        if self.raw.in_transaction:
            self.raw.execute("ROLLBACK")

    def patiently(self, work: Callable[[], _T]) -> _T:
        """Does what may find the database locked until it doesn't. Then the last error is raised.

        SQLite's own busy handler sleeps longer and longer, and so is unfair to whoever has waited: half a second
        at worst with two processes that write flat out, where this has a twentieth.
        """
        deadline = time.monotonic() + LOCKED_FOR
        while True:
            try:
                return work()
            except (sqlite3.OperationalError, OperationalError) as error:
                # What's written once for all databases comes as SQLAlchemy's error, with the driver's inside.
                cause = error.orig if isinstance(error, OperationalError) else error
                if (getattr(cause, "sqlite_errorcode", 0) & 0xFF) not in _BUSY or time.monotonic() > deadline:
                    raise
            time.sleep(random.random() * 0.0003)  # noqa: S311

    def is_in_place(self) -> bool:
        """Whether the file is still where it was opened. Writes to one that was moved away would be lost."""
        return files.file_key(self.path) == self.key

    def close(self) -> None:
        """Lets the connection go."""
        if self._proxied is not None:
            proxied, self._proxied = self._proxied, None

            def end() -> None:
                proxied.close()
                self._pool.dispose()

            self._run(end)

    def _run(self, work: Callable[[], _T]) -> _T:
        if not self._is_async:
            return work()
        # An async driver's connection is opened and closed on a loop, and this thread has none but for that.
        with asyncio.Runner() as runner:
            return runner.run(greenlet_spawn(work))


class _Lent:
    """The connection as SQLAlchemy gets it: one whose transaction and whose end are not SQLAlchemy's to decide."""

    def __init__(self, raw: sqlite3.Connection) -> None:
        self._raw = raw

    def commit(self) -> None:
        return

    def rollback(self) -> None:
        return

    def close(self) -> None:
        return

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)


def _stdlib(proxied: PoolProxiedConnection) -> sqlite3.Connection:
    driver: Any = proxied.driver_connection
    # aiosqlite keeps it here, and works on it in a thread of its own, which has nothing to do from now on.
    raw: object = driver if isinstance(driver, sqlite3.Connection) else getattr(driver, "_conn", None)
    if not isinstance(raw, sqlite3.Connection):
        raise StoreError(f"found no sqlite3.Connection in the driver's {type(driver).__name__}")
    return raw


def _of_another_thread(engine: Engine, error: sqlite3.ProgrammingError) -> StoreError:
    if (
        not engine.url.database
    ):  # SQLAlchemy binds connections to their thread where they are in memory, and only there
        return StoreError(files.IN_MEMORY)
    return StoreError(
        "the connection can't be used from the queue's thread: make the engine without check_same_thread=True"
        f" ({error})"
    )


def _set_up(raw: sqlite3.Connection, synchronous: Synchronous) -> tuple[str, FileKey]:
    if sqlite3.sqlite_version_info < _OLDEST:
        raise StoreError(
            f"SQLite {sqlite3.sqlite_version} is too old: 3.35 has what the queue needs (RETURNING)"
        )
    if hasattr(raw, "autocommit"):  # from Python 3.12 on, and with False there is always a transaction
        setattr(raw, "autocommit", getattr(sqlite3, "LEGACY_TRANSACTION_CONTROL"))  # noqa: B009, B010
        raw.rollback()
    raw.isolation_level = None
    raw.row_factory = None
    raw.text_factory = str
    path = files.database_path(raw)
    if not path:
        raise StoreError(files.IN_MEMORY)
    key = files.file_key(path)
    if key is None:
        raise StoreError(f"the database's file {path} is gone as soon as it was opened")
    raw.execute("PRAGMA query_only = OFF")
    mode = _wal(raw)
    if mode != "wal":
        log.warning("%s can't have a write-ahead log (it's in mode %s): readers and the queue wait for each other",
                    path, mode)  # fmt: skip
    raw.execute(f"PRAGMA synchronous = {'NORMAL' if synchronous == 'NORMAL' else 'FULL'}")
    return path, key


def _wal(raw: sqlite3.Connection) -> str:
    # The change of mode needs the file for itself. Two that want it at once, each waiting in SQLite's busy handler,
    # keep each other from it until both give up; two that let go and come again don't.
    deadline = time.monotonic() + LOCKED_FOR
    raw.execute("PRAGMA busy_timeout = 0")
    while True:
        try:
            mode = str(raw.execute("PRAGMA journal_mode").fetchone()[0])
            return mode if mode == "wal" else str(raw.execute("PRAGMA journal_mode = WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            if (error.sqlite_errorcode & 0xFF) not in _BUSY or time.monotonic() > deadline:
                raise
        time.sleep(0.001 + random.random() * 0.004)  # noqa: S311
