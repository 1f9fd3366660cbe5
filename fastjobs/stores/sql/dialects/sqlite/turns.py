"""The transactions of a configured engine: how each begins, waits for its turn to write, and gives the turn on.

By `begin="immediate"` that's where SQLAlchemy begins it. By `begin="write"` nothing begins there, and what is read
is read outside of any transaction, until the first statement that may write.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sqlite3
import time
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeVar

from sqlalchemy import Connection
from sqlalchemy.engine.cursor import FullyBufferedCursorFetchStrategy
from sqlalchemy.engine.interfaces import Dialect

from fastjobs.core.errors import StoreError
from fastjobs.stores.sql.dialects.sqlite import files
from fastjobs.stores.sql.dialects.sqlite.gate import Gate, Turn, gate
from fastjobs.stores.sql.dialects.sqlite.reading import only_reads
from fastjobs.stores.sql.waking import wake_now

log = logging.getLogger("fastjobs")

Begin = Literal["immediate", "write"]

READ_ONLY = "fastjobs_readonly"
"""The execution option of what only reads."""
AUTOCOMMIT = "AUTOCOMMIT"
GATE = "fastjobs_gate"
"""In the info of a connection of a configured engine: the gate of its file."""
WAITS = "fastjobs_waits"
"""There while SQLAlchemy has begun a transaction that begins in the database at its first write alone."""
PUSHED = "fastjobs_pushed"

_T = TypeVar("_T")

_MODE = "fastjobs_begin"
_QUERY_ONLY = "fastjobs_query_only"
_LOST = "SQLite ended this transaction before its commit, as at a full disk: what was pushed in it is lost"
_STILL_READS = (
    "database is locked: a SELECT whose rows are streamed is still being read on this connection, and others have"
    " written since it began. Read all its rows before the first write, or configure the engine with"
    ' begin="immediate"'
)


class Transactions:
    """The begin, commit and rollback of one dialect instance, so of one engine and its views."""

    def __init__(self, dialect: Dialect, timeout: float, begin: Begin) -> None:
        self._at_write = begin == "write"
        self._timeout = timeout
        self._turns: dict[int, tuple[Gate, Turn]] = {}
        self._is_async = dialect.is_async
        self._begin = dialect.do_begin
        self._commit = dialect.do_commit
        self._rollback = dialect.do_rollback
        # Not by events: `commit` comes before COMMIT is sent, and an error raised in `begin` leaves the Connection
        # believing that it has begun, so that what it does next would be in no transaction.
        for name in ("do_begin", "do_commit", "do_rollback"):
            setattr(dialect, name, getattr(self, name))

    def on_connect(self, connection: Any, record: Any) -> None:
        """Sets up a new connection of the pool's."""
        cursor = connection.cursor()
        try:
            cursor.execute("PRAGMA foreign_keys = ON")
            cursor.execute("PRAGMA database_list")
            path = next((str(row[2] or "") for row in cursor.fetchall() if row[1] == "main"), "")
            key = record.info[files.INFO] = files.file_key(path) if path else None
            if key is None:
                return
            self._set_wal(connection, cursor, path)
            cursor.execute(f"PRAGMA busy_timeout = {int(self._timeout * 1000)}")
        finally:
            cursor.close()
        driver = record.driver_connection
        legacy = getattr(sqlite3, "LEGACY_TRANSACTION_CONTROL", None)  # from Python 3.12 on
        if getattr(getattr(driver, "_conn", driver), "autocommit", legacy) != legacy:
            raise StoreError(
                "fastjobs.sqlite.configure begins the transactions itself: make the engine without autocommit= in its"
                " connect_args"
            )
        connection.isolation_level = None
        record.info[GATE] = gate(key)

    def on_checkin(self, connection: Any, record: Any) -> None:
        """The connection goes back to the pool. What it had its turn for has ended, or ends here: SQLAlchemy sends
        no ROLLBACK after a listener of the app's has raised from its commit, and the file would stay locked."""
        if id(connection) not in self._turns:
            return
        try:
            connection.rollback()
        except BaseException as error:
            record.invalidate(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._leave(connection)

    def on_end(self, connection: Any, *_: object) -> None:
        """The connection goes away, and whatever it had its turn for with it."""
        self._leave(connection)

    def do_begin(self, proxied: Any) -> None:
        info = _info(proxied)
        level, wanted = info.pop(_MODE, (None, False))
        info.pop(WAITS, None)
        found: Gate | None = info.get(GATE)
        if found is None:
            return self._begin(proxied)
        connection = proxied.dbapi_connection
        if info.get(_QUERY_ONLY, False) is not wanted:
            _execute(connection, f"PRAGMA query_only = {'ON' if wanted else 'OFF'}")
            info[_QUERY_ONLY] = wanted
        if level == AUTOCOMMIT:
            return None
        if wanted:
            return _execute(connection, "BEGIN")
        if self._at_write:
            info[WAITS] = True
            return None
        return self._begin_immediate(connection, found)

    def before_statement(self, _cursor: Any, statement: str, *values_and_context: Any) -> None:
        """Begins a transaction that waits for its first write, where this may be one.

        An error here is one of the statement, and leaves the transaction waiting: the next write asks again.
        """
        context = values_and_context[-1]
        if context is None:
            return  # on no Connection, so in no transaction of one
        proxied: Any = context.root_connection.connection
        if WAITS in proxied.info and not only_reads(statement, context):
            self._begin_immediate(proxied.dbapi_connection, proxied.info[GATE])
            del proxied.info[WAITS]

    def after_statement(
        self, connection: Connection, cursor: Any, _statement: str, _values: Any, context: Any, _many: bool
    ) -> None:
        """Fetches the rows of a read that was in no transaction, as other databases' drivers do.

        sqlite3 fetches one by one, and while one is left the connection sees the database as it was: a write after
        someone else's would find it locked.
        """
        if (
            not self._is_async  # aiosqlite has fetched them
            and WAITS in connection.connection.info
            and context is not None
            and cursor is context.cursor
            and cursor.description is not None
            and not context.execution_options.get("stream_results")
        ):
            context.cursor_fetch_strategy = FullyBufferedCursorFetchStrategy(cursor)

    def do_commit(self, proxied: Any) -> None:
        try:
            info = _info(proxied)
            info.pop(WAITS, None)
            if info.pop(PUSHED, False) and not proxied.driver_connection.in_transaction:
                raise sqlite3.OperationalError(_LOST)
            self._commit(proxied)
        except BaseException:
            # SQLite leaves a transaction open whose COMMIT it refused, over a deferred foreign key. SQLAlchemy counts
            # it as over, and would give the connection back with it, and with the lock.
            self.do_rollback(proxied)
            raise
        self._leave(proxied.dbapi_connection)
        wake_now(_info(proxied))

    def do_rollback(self, proxied: Any) -> None:
        info = _info(proxied)
        info.pop(PUSHED, None)
        info.pop(WAITS, None)
        try:
            self._rollback(proxied)
        finally:
            self._leave(proxied.dbapi_connection)

    def _begin_immediate(self, connection: Any, found: Gate) -> None:
        self._leave(connection)
        turn: Turn
        if self._is_async:
            turn = connection.run_async(_without_driver(found.enter_async, self._timeout))
        else:
            turn = found.enter(self._timeout)
        self._turns[id(connection)] = found, turn
        try:
            _execute(connection, "BEGIN IMMEDIATE")
        except BaseException as error:
            self._leave(connection)
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY_SNAPSHOT:
                raise sqlite3.OperationalError(_STILL_READS) from error
            raise

    def _leave(self, connection: Any) -> None:
        had = self._turns.pop(id(connection), None)
        if had is not None:
            had[0].leave(had[1])

    def _set_wal(self, connection: Any, cursor: Any, path: str) -> None:
        # The change of mode needs the file for itself. Two that want it at once, each waiting in SQLite's busy
        # handler, keep each other from it until both give up; two that let go and come again don't.
        deadline = time.monotonic() + self._timeout
        cursor.execute("PRAGMA busy_timeout = 0")
        while True:
            try:
                cursor.execute("PRAGMA journal_mode")
                mode = cursor.fetchone()[0]
                if mode != "wal":
                    cursor.execute("PRAGMA journal_mode = WAL")
                    mode = cursor.fetchone()[0]
            except sqlite3.OperationalError:
                if time.monotonic() > deadline:
                    raise
            else:
                if mode != "wal":
                    log.warning("%s can't have a write-ahead log (it's in mode %s)", path, mode)
                return
            pause = 0.001 + random.random() * 0.004  # noqa: S311
            if self._is_async:
                connection.run_async(_without_driver(asyncio.sleep, pause))
            else:
                time.sleep(pause)


def on_begin(connection: Connection) -> None:
    """Notes how the transaction that SQLAlchemy begins is to begin."""
    # do_begin gets the pool's connection, which knows no execution options.
    reads = bool(connection.get_execution_options().get(READ_ONLY))
    connection.connection.info[_MODE] = isolation_level(connection), reads


def isolation_level(connection: Connection) -> object:
    """The isolation level that the app has chosen; None for the driver's own."""
    own: object = connection.get_execution_options().get("isolation_level")
    return own or getattr(connection.dialect, "_on_connect_isolation_level", None)


def _without_driver(
    wait: Callable[[float], Awaitable[_T]], seconds: float
) -> Callable[[object], Awaitable[_T]]:
    # SQLAlchemy's way to await inside its greenlet passes the driver's connection, which is of no use here.
    def waited(_: object) -> Awaitable[_T]:
        return wait(seconds)

    return waited


def _info(proxied: Any) -> dict[str, Any]:
    try:
        found: dict[str, Any] = proxied.info
    except NotImplementedError:  # SQLAlchemy's own first look at a database
        return {}
    return found


def _execute(connection: Any, statement: str) -> None:
    cursor = connection.cursor()
    try:
        cursor.execute(statement)
    finally:
        cursor.close()
