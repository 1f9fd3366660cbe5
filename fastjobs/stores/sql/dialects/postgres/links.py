"""A link: one connection of the store's own to Postgres, whichever driver the app's engine has.

It's opened by the app's own pool class and creator, so with its arguments and connect listeners, and belongs to no
pool from then on. The hot statements go to the driver's own connection; what is written once for all databases runs
on a SQLAlchemy Connection over the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import StaticPool

from fastjobs.core.errors import StoreError

_T = TypeVar("_T")

OLDEST = 13
GREETING = (
    "SELECT pg_backend_pid(), current_setting('server_version_num')::int,"
    " current_setting('default_transaction_isolation')"
)
READ_COMMITTED = "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED"
CLOCK = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

_LOST = ("08", "57P0")
"""Classes of SQLSTATE that say the connection has ended, or is about to."""
_AGAIN = ("40001", "40P01")


class Link(Protocol):
    """One connection. One call uses it at a time."""

    pid: int
    """Of the server's process behind it."""
    is_pooled: bool
    """Whether something stands between that gives its clients server connections by turns, as PgBouncer does."""

    async def fetch(self, text: str, *values: object) -> Sequence[Sequence[Any]]:
        """Runs one statement, committed by itself, with `$1` placeholders, and answers its rows."""
        ...

    async def run(self, work: Callable[[Connection], _T]) -> _T:
        """Runs `work` on a SQLAlchemy Connection in one READ COMMITTED transaction, committed after it."""
        ...

    def is_usable(self) -> bool:
        """Whether it's open and between statements, as far as is known here without asking the server."""
        ...

    def is_answer(self, error: BaseException) -> bool:
        """Whether the error leaves no doubt that nothing of the statement is kept: the server's own word, or one
        that came before anything was sent."""
        ...

    async def listen(self, channel: str, listening: Callable[[], None], heard: Callable[[int], None]) -> None:
        """Calls `listening` once it listens, and `heard` with the pid of each backend that notifies.

        It ends by an error as the connection is lost, or by its cancellation; the link is to be closed then.
        """
        ...

    def abort(self) -> None:
        """Cuts the connection, so that the call that's under way ends with an error."""
        ...

    def abandon(self) -> None:
        """Closes it from outside of its loop, which has been closed: nothing can be awaited there any more."""
        ...

    async def close(self) -> None:
        """Closes it. Nothing here waits long for a server that doesn't answer, and nothing is raised."""
        ...


class Greeting(NamedTuple):
    """What a server says as a link is opened."""

    pid: int
    version: int
    isolation: str

    def check(self) -> None:
        """Raises a StoreError for a server that is too old."""
        if self.version < OLDEST * 10_000:
            raise StoreError(
                f"the server is Postgres {self.version // 10_000}, and the queue needs {OLDEST} or newer: upgrade"
                " the server"
            )


class Opened:
    """A connection by the app's own means, and SQLAlchemy over it. Made where SQLAlchemy's sync side may do I/O."""

    def __init__(self, engine: Engine) -> None:
        pool = engine.pool.recreate()
        proxied = pool.connect()
        dialect = engine.dialect
        dbapi: Any = proxied.dbapi_connection
        self.dbapi = dbapi
        self.driver: Any = proxied.driver_connection
        # From here on no pool knows of it, and none resets, recycles or reports it.
        proxied.detach()
        try:
            # A connect listener that executed something, as a SET, has psycopg in a transaction.
            dialect.do_commit(dbapi)
            # The app's engine may be SERIALIZABLE, and the queue's statements are written for READ COMMITTED.
            dialect.set_isolation_level(dbapi, "READ COMMITTED")
        except BaseException:
            dialect.do_terminate(dbapi)
            raise
        # Not by create_engine: the app's listeners have had this connection already, and its `begin` listeners
        # are to have none of ours. The parameters are values of the app's, and errors go to logs.
        self._engine = Engine(
            StaticPool(lambda: dbapi, dialect=dialect), dialect, engine.url, hide_parameters=True
        )

    def close(self) -> None:
        """Closes it, where SQLAlchemy's sync side may do I/O. Nothing is raised."""
        try:
            self._engine.dialect.do_close(self.dbapi)
        except Exception:
            self._engine.dialect.do_terminate(self.dbapi)

    def in_transaction(self, work: Callable[[Connection], _T]) -> _T:
        """Does the work in a transaction, committed after it."""
        # Not by Engine.connect, which an app's tracing may have wrapped for every engine there is.
        with Connection(self._engine) as connection, connection.begin():
            return work(connection)


def sqlstate(error: BaseException) -> str | None:
    """The server's code for the error, by whichever of the drivers and SQLAlchemy it came; None where it has none."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    found = getattr(cause, "sqlstate", None)
    return found if isinstance(found, str) else None


def is_from_the_server(error: BaseException) -> bool:
    """Whether the error is the server's answer to a statement, on a connection that goes on."""
    code = sqlstate(error)
    return code is not None and not code.startswith(_LOST)


def is_the_drivers(error: BaseException) -> bool:
    """Whether the error says something of the connection, and not of what was asked of it."""
    return not isinstance(error, Exception) or any(
        each.__module__.partition(".")[0] in ("asyncpg", "psycopg", "sqlalchemy")
        or each in (OSError, EOFError, TimeoutError)
        for each in type(error).__mro__
    )


def is_worth_another_try(error: BaseException) -> bool:
    """Whether the server gave the statement up for another's sake: a deadlock, or a serialization failure."""
    return sqlstate(error) in _AGAIN
