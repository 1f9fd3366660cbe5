"""The writer's one connection: opened by the app's own creator, and used from the writer's thread alone."""

from __future__ import annotations

import contextlib
import logging
import random
import sqlite3
import time
from collections.abc import Callable, Generator
from typing import Any, Literal, TypeVar

from sqlalchemy import Connection, Engine, make_url
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import StaticPool

from fastjobs.stores.sql.dialects.sqlite import files
from fastjobs.stores.sql.dialects.sqlite.connected import Connected
from fastjobs.stores.sql.dialects.sqlite.gate import Gate, gate
from fastjobs.stores.sql.dialects.sqlite.keyed_statements import Keyed
from fastjobs.stores.sql.dialects.sqlite.statements import Statements

log = logging.getLogger("fastjobs")

Synchronous = Literal["FULL", "NORMAL"]
LOCKED_FOR = 5.0
"""How many seconds a transaction is begun anew while another process has the lock."""

BUSY = (5, 6)
"""SQLite's codes for a lock that someone else has."""

_T = TypeVar("_T")


class Opened:
    """An open connection and what goes with it: the gate of its file, and the kinds that are known to have a row."""

    def __init__(
        self, engine: Engine, statements: Statements, keyed: Keyed, synchronous: Synchronous
    ) -> None:
        self.statements = statements
        self.keyed = keyed
        self.known: set[str] = set()
        self.noted: set[str] = set()
        path = files.plain_path(engine.url)
        if path is not None:
            files.make_private(path)
        self._connected = Connected(engine)
        self.raw, self.path, self.key = self._connected.raw, self._connected.path, self._connected.key
        try:
            _set_up(self.raw, self.path, synchronous)
        except BaseException:
            self.close()
            raise
        self.gate: Gate = gate(self.key)
        # Over the same connection: what's written once for all databases runs here as SQLAlchemy. It never
        # begins, commits or closes anything, as that is the writer's to do.
        # Not by create_engine and Engine.connect, which an app's tracing may have wrapped for every engine there is.
        dialect = SQLiteDialect_pysqlite(dbapi=SQLiteDialect_pysqlite.import_dbapi())
        lend: Callable[[], Any] = lambda: _Lent(self.raw)  # noqa: E731
        pool = StaticPool(lend, dialect=dialect)
        self.engine = Engine(pool, dialect, make_url("sqlite://"), hide_parameters=True)

    @contextlib.contextmanager
    def core(self) -> Generator[Connection, None, None]:
        """A SQLAlchemy connection inside the transaction that's open here, if one is."""
        with Connection(self.engine) as connection:
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
                if (getattr(cause, "sqlite_errorcode", 0) & 0xFF) not in BUSY or time.monotonic() > deadline:
                    raise
            time.sleep(random.random() * 0.0003)  # noqa: S311

    def is_in_place(self) -> bool:
        """Whether the file is still where it was opened. Writes to one that was moved away would be lost."""
        return files.file_key(self.path) == self.key

    def close(self) -> None:
        """Lets the connection go."""
        self._connected.close()


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


def _set_up(raw: sqlite3.Connection, path: str, synchronous: Synchronous) -> None:
    raw.execute("PRAGMA query_only = OFF")
    mode = _wal(raw)
    if mode != "wal":
        log.warning("%s can't have a write-ahead log (it's in mode %s): readers and the queue wait for each other",
                    path, mode)  # fmt: skip
    raw.execute(f"PRAGMA synchronous = {'NORMAL' if synchronous == 'NORMAL' else 'FULL'}")


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
            if (error.sqlite_errorcode & 0xFF) not in BUSY or time.monotonic() > deadline:
                raise
        time.sleep(0.001 + random.random() * 0.004)  # noqa: S311
