"""Begins the transactions of an app's engine: `configure` for all of them, `begin_to_write` for one that pushes.

The driver's own way is to begin a transaction at the first INSERT, UPDATE or DELETE. A read before it is in none,
so that it may be stale by then; a SAVEPOINT before it is the whole transaction, which its RELEASE commits; and a
plain BEGIN that reads and then writes fails with "database is locked" as soon as someone else wrote between.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sqlite3
import time
import weakref
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.ext.asyncio import AsyncEngine

from fastjobs.core.duration import Seconds, micros
from fastjobs.core.errors import QueueError, StoreError
from fastjobs.stores.sql.dialects.sqlite import files
from fastjobs.stores.sql.dialects.sqlite.gate import Gate, Turn, gate
from fastjobs.stores.sql.waking import wake_now

log = logging.getLogger("fastjobs")

READ_ONLY = "fastjobs_readonly"
"""The execution option of what only reads."""
AUTOCOMMIT = "AUTOCOMMIT"

_T = TypeVar("_T")

_GATE = "fastjobs_gate"
_MODE = "fastjobs_begin"
_QUERY_ONLY = "fastjobs_query_only"
_BEGAN = "fastjobs_began"
_PUSHED = "fastjobs_pushed"
_LOST = "SQLite ended this transaction before its commit, as at a full disk: what was pushed in it is lost"

_configured: weakref.WeakSet[Dialect] = weakref.WeakSet()
_warned: weakref.WeakSet[Dialect] = weakref.WeakSet()


def configure(engine: Engine | AsyncEngine, *, timeout: Seconds = 5.0) -> None:
    """Gives the engine's connections WAL and foreign keys, and its transactions a beginning that can write.

    Each transaction begins IMMEDIATE, in a line that all transactions of this process and the queue's writer stand
    in, so that none fails with "database is locked" because another one wrote. One that waits over `timeout`
    seconds (or a timedelta, 5 s by default) for its turn, or for another process, raises SQLAlchemy's
    OperationalError, as does one whose task has another open, at once. With the execution option
    `fastjobs_readonly=True`, of an engine, a connection or a session's bind, a transaction takes no part in it and
    can't write. `synchronous` is left as the app has it, which is FULL. Connections that are open already are not
    changed: configure an engine as it's made. A second time is nothing. In an in-memory database only foreign keys
    are set. StoreError for an engine of another database.
    """
    sync_engine = engine.sync_engine if isinstance(engine, AsyncEngine) else engine
    if not isinstance(sync_engine, Engine):
        raise StoreError(f"configure takes SQLAlchemy's Engine or AsyncEngine, not {type(engine).__name__}")
    dialect = sync_engine.dialect
    if dialect.name != "sqlite":
        raise StoreError(f"fastjobs.sqlite.configure is for SQLite, and this engine is for {dialect.name}")
    seconds = micros(timeout, "timeout") / 1_000_000
    if dialect in _configured:
        return
    # An engine with execution options of its own is a view of this one, and shares its dialect and pool.
    owner: Engine = getattr(sync_engine, "_proxied", sync_engine)
    transactions = _Transactions(dialect, seconds)
    _configured.add(dialect)
    path = files.plain_path(owner.url)

    def before_connect(*_: object) -> None:
        if path is not None:
            files.make_private(path)

    event.listen(owner, "do_connect", before_connect)
    event.listen(owner, "connect", transactions.on_connect)
    event.listen(owner, "begin", _on_begin)
    event.listen(owner.pool, "checkin", transactions.on_checkin)
    for ends in ("close", "close_detached", "invalidate"):
        event.listen(owner.pool, ends, transactions.on_end)


def is_configured(engine: Engine) -> bool:
    """Whether `configure` had this engine, or the one that it's a view of."""
    return engine.dialect in _configured


def begin_to_write(connection: Connection) -> None:
    """Sees to it that a push through this connection is in a real transaction, on an engine that's not configured.

    Raises QueueError where it has ended in the database alone, as at a full disk: the push would be kept by itself.
    """
    driver: Any = connection.connection.driver_connection
    info = connection.connection.info
    began = info.get(_BEGAN)
    if connection.in_transaction() and not driver.in_transaction:
        if is_configured(connection.engine):
            # One of a connection that was open before `configure` is sqlite3's, and begins at a write.
            begun = _GATE in info and _level(connection) != AUTOCOMMIT
        else:
            begun = began is not None and began() is connection.get_transaction()
        if begun:
            raise QueueError(
                "SQLite has ended this transaction, as it does when the disk is full, or at ON CONFLICT ROLLBACK:"
                " a push in it would be kept alone. Roll back, and begin again"
            )
    if is_configured(connection.engine):
        info[_PUSHED] = _GATE in info and _level(connection) != AUTOCOMMIT
        return
    if not driver.in_transaction:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        info[_BEGAN] = weakref.ref(connection.get_transaction() or connection)
        return
    if began is not None and began() is connection.get_transaction():
        return
    if getattr(driver, "isolation_level", "") is None or connection.dialect in _warned:
        return  # the app begins its transactions itself
    _warned.add(connection.dialect)
    log.warning(
        "a push through a SQLite transaction that wrote before: sqlite3 began it in its own way, in which a SAVEPOINT"
        " may be kept although the transaction is rolled back, and a write after a read may find the database"
        " locked. Two lines, where the engine is made, mend it: `import fastjobs`, `fastjobs.sqlite.configure(engine)`"
    )


class _Transactions:
    """The begin, commit and rollback of one dialect instance, so of one engine and its views."""

    def __init__(self, dialect: Dialect, timeout: float) -> None:
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
        record.info[_GATE] = gate(key)

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
        found: Gate | None = info.get(_GATE)
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
        self._leave(connection)
        turn: Turn
        if self._is_async:
            turn = connection.run_async(_without_driver(found.enter_async, self._timeout))
        else:
            turn = found.enter(self._timeout)
        self._turns[id(connection)] = found, turn
        try:
            _execute(connection, "BEGIN IMMEDIATE")
        except BaseException:
            self._leave(connection)
            raise
        return None

    def do_commit(self, proxied: Any) -> None:
        try:
            if _info(proxied).pop(_PUSHED, False) and not proxied.driver_connection.in_transaction:
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
        _info(proxied).pop(_PUSHED, None)
        try:
            self._rollback(proxied)
        finally:
            self._leave(proxied.dbapi_connection)

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


def _on_begin(connection: Connection) -> None:
    # do_begin gets the pool's connection, which knows no execution options.
    reads = bool(connection.get_execution_options().get(READ_ONLY))
    connection.connection.info[_MODE] = _level(connection), reads


def _level(connection: Connection) -> object:
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
