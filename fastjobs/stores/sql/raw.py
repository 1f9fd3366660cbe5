"""A driver's own connection as a transaction to push and be done in: `fastjobs.raw(connection)`, without SQLAlchemy's.

Drivers are known by the names of their types, so that none is imported.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, ClassVar, Literal, Protocol, overload

from fastjobs.core.errors import StoreError

Driver = Literal[
    "sqlite3", "aiosqlite", "asyncpg", "psycopg", "psycopg async", "asyncmy", "aiomysql", "pymysql"
]
"""Which driver, and which of psycopg's two connections."""

_KNOWN: dict[tuple[str, str], Driver] = {
    ("sqlite3", "Connection"): "sqlite3",
    ("aiosqlite", "Connection"): "aiosqlite",
    ("asyncpg", "Connection"): "asyncpg",
    ("asyncpg", "PoolConnectionProxy"): "asyncpg",
    ("psycopg", "Connection"): "psycopg",
    ("psycopg", "AsyncConnection"): "psycopg async",
    ("asyncmy", "Connection"): "asyncmy",
    ("aiomysql", "Connection"): "aiomysql",
    ("pymysql", "Connection"): "pymysql",
}
"""By the first part of the module and the name of a type, or of one that it's derived from."""


class _ClosesAsync(Protocol):
    def close(self) -> Coroutine[Any, Any, object]: ...


class _EnsuresClosed(Protocol):
    """asyncmy's and aiomysql's `close` doesn't wait for the server."""

    def ensure_closed(self) -> Coroutine[Any, Any, object]: ...


class _Closes(Protocol):
    def close(self) -> None: ...


class RawAsync:
    """An async driver's connection, as a transaction."""

    sync: ClassVar[Literal[False]] = False

    def __init__(self, connection: Any, driver: Driver) -> None:
        self.connection = connection
        self.driver: Driver = driver


class RawSync:
    """A sync driver's connection, as a transaction."""

    sync: ClassVar[Literal[True]] = True

    def __init__(self, connection: Any, driver: Driver) -> None:
        self.connection = connection
        self.driver: Driver = driver


@overload
def raw(connection: _ClosesAsync | _EnsuresClosed) -> RawAsync: ...
@overload
def raw(connection: _Closes) -> RawSync: ...
def raw(connection: object) -> RawAsync | RawSync:
    """A driver's own connection as a transaction for `kind.in_` and `current_job().done_in`, without SQLAlchemy's.

    It takes an asyncpg connection (a pool's too), psycopg's Connection and AsyncConnection, an aiosqlite and a
    sqlite3 connection, one of asyncmy, of aiomysql and of PyMySQL. What is pushed is in the transaction that you have
    begun on it, by hand or by the driver's own `transaction()`, and goes with it or its savepoint; one that is in none
    is a StoreError at the push. An async connection gives a push to await, a sync one a sync push. Type checkers tell
    them apart by `close`, or by the `ensure_closed` of the drivers for MySQL: of a driver without types, as asyncpg
    before 0.30, they see an async one.

    A driver tells nobody of its commit. On Postgres the push sends a NOTIFY, so that queues that run hear of it at
    the commit. Elsewhere the queue is woken at the push, and 5 and 50 ms after it on a loop, and finds the job at its
    next poll where the commit comes later. Nor can a commit refuse a push that was never awaited. The queue's tables
    have to be there: a push makes none.

    StoreError for anything else.
    """
    for each in type(connection).__mro__:
        driver = _KNOWN.get((each.__module__.partition(".")[0], each.__qualname__))
        if driver is not None:
            is_sync = driver in ("sqlite3", "psycopg", "pymysql")
            return RawSync(connection, driver) if is_sync else RawAsync(connection, driver)
    name = f"{type(connection).__module__}.{type(connection).__qualname__}"
    if name.startswith(("sqlalchemy.", "sqlmodel.")):
        raise StoreError(f"raw is for a driver's own connection: give this {name} to in_ or done_in as it is")
    raise StoreError(
        "raw takes a connection of asyncpg, psycopg, aiosqlite, sqlite3, asyncmy, aiomysql or PyMySQL (of a pool, one"
        f" that was acquired), and this is a {name}"
    )
