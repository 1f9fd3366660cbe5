"""How an app's transactions are to begin: `configure` says it for all of an engine's, `begin_to_write` for a push.

The driver's own way is to begin a transaction at the first INSERT, UPDATE or DELETE. A read before it is in none,
so that it may be stale by then; a SAVEPOINT before it is the whole transaction, which its RELEASE commits; and a
plain BEGIN that reads and then writes fails with "database is locked" as soon as someone else wrote between.
"""

from __future__ import annotations

import logging
import weakref
from typing import Any

from sqlalchemy import Connection, Engine, Integer, event, literal_column, select
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.ext.asyncio import AsyncEngine

from fastjobs.core.duration import Seconds, micros
from fastjobs.core.errors import QueueError, StoreError
from fastjobs.stores.sql.dialects.sqlite import files
from fastjobs.stores.sql.dialects.sqlite.turns import (
    AUTOCOMMIT,
    GATE,
    PUSHED,
    READ_ONLY,
    WAITS,
    Begin,
    Transactions,
    isolation_level,
    on_begin,
)

log = logging.getLogger("fastjobs")

__all__ = ["READ_ONLY", "begin_to_write", "configure", "is_configured"]

_BEGAN = "fastjobs_began"
_BEGINS = select(literal_column("1", Integer)).with_for_update()
"""A statement that changes nothing and counts as a write."""

_configured: weakref.WeakKeyDictionary[Dialect, Begin] = weakref.WeakKeyDictionary()
_warned: weakref.WeakSet[Dialect] = weakref.WeakSet()


def configure(engine: Engine | AsyncEngine, *, timeout: Seconds = 5.0, begin: Begin = "immediate") -> None:
    """Gives the engine's connections WAL and foreign keys, and its transactions a beginning that can write.

    Each transaction begins IMMEDIATE, in a line that all transactions of this process and the queue's writer stand
    in, so that none fails with "database is locked" because another one wrote. With `begin="write"` it does so at
    its first statement that may write, a SAVEPOINT, or a SELECT … FOR UPDATE; a read before that is in no
    transaction, waits for nobody, and may be stale by the time of the write, as at READ COMMITTED.

    One that waits over `timeout` seconds (or a timedelta, 5 s by default) for its turn, or for another process, raises
    SQLAlchemy's OperationalError, as does one whose task has another open, at once. With the execution option
    `fastjobs_readonly=True`, of an engine, a connection or a session's bind, a transaction takes no part in it and
    can't write. `synchronous` is left as the app has it, which is FULL. Connections that are open already are not
    changed: configure an engine as it's made. A second time is nothing, and a StoreError with another `begin`. In an
    in-memory database only foreign keys are set. StoreError for an engine of another database.
    """
    sync_engine = engine.sync_engine if isinstance(engine, AsyncEngine) else engine
    if not isinstance(sync_engine, Engine):
        raise StoreError(f"configure takes SQLAlchemy's Engine or AsyncEngine, not {type(engine).__name__}")
    dialect = sync_engine.dialect
    if dialect.name != "sqlite":
        raise StoreError(
            f"fastjobs.sqlite.configure is for SQLite, and this engine is for {dialect.name}: leave that line out"
        )
    if begin not in ("immediate", "write"):
        raise StoreError(f"begin is 'immediate' or 'write', not {begin!r}")
    seconds = micros(timeout, "timeout") / 1_000_000
    before = _configured.get(dialect)
    if before is not None:
        if before != begin:
            raise StoreError(f"this engine was configured with begin={before!r}, so {begin!r} comes too late")
        return
    # An engine with execution options of its own is a view of this one, and shares its dialect and pool.
    owner: Engine = getattr(sync_engine, "_proxied", sync_engine)
    transactions = Transactions(dialect, seconds, begin)
    _configured[dialect] = begin
    path = files.plain_path(owner.url)

    def before_connect(*_: object) -> None:
        if path is not None:
            files.make_private(path)

    event.listen(owner, "do_connect", before_connect)
    event.listen(owner, "connect", transactions.on_connect)
    event.listen(owner, "begin", on_begin)
    if begin == "write":
        # Not `before_cursor_execute`: SQLAlchemy 2.0 takes an error in it for one of its listener's own.
        for executes in ("do_execute", "do_executemany", "do_execute_no_params"):
            event.listen(owner, executes, transactions.before_statement)
        event.listen(owner, "after_cursor_execute", transactions.after_statement)
    event.listen(owner.pool, "checkin", transactions.on_checkin)
    for ends in ("close", "close_detached", "invalidate"):
        event.listen(owner.pool, ends, transactions.on_end)


def is_configured(engine: Engine) -> bool:
    """Whether `configure` had this engine, or the one that it's a view of."""
    return engine.dialect in _configured


def begin_to_write(connection: Connection) -> None:
    """Sees to it that a push through this connection is in a real transaction, however the engine begins them.

    Raises QueueError where it only reads, and where it has ended in the database alone, as at a full disk: the push
    would be kept by itself.
    """
    if is_configured(connection.engine) and connection.get_execution_options().get(READ_ONLY):
        raise QueueError(
            f"this transaction only reads, as its engine has the option {READ_ONLY}=True: take a session of one"
            " that hasn't"
        )
    driver: Any = connection.connection.driver_connection
    info = connection.connection.info
    began = info.get(_BEGAN)
    if connection.in_transaction() and not driver.in_transaction:
        if is_configured(connection.engine):
            # One of a connection that was open before `configure` is sqlite3's, and begins at a write.
            begun = GATE in info and WAITS not in info and isolation_level(connection) != AUTOCOMMIT
        else:
            begun = began is not None and began() is connection.get_transaction()
        if begun:
            raise QueueError(
                "SQLite has ended this transaction, as it does when the disk is full, or at ON CONFLICT ROLLBACK:"
                " a push in it would be kept alone. Roll back, and begin again"
            )
    if is_configured(connection.engine):
        begins_late = _configured.get(connection.dialect) == "write" and GATE in info
        if begins_late and (WAITS in info or not connection.in_transaction()):
            connection.execute(_BEGINS)
        info[PUSHED] = GATE in info and isolation_level(connection) != AUTOCOMMIT
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
