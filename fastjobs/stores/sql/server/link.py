"""A link: one connection of the store's own to a database server, whichever server and driver the app's engine has.

It's opened by the app's own pool class and creator, so with its arguments and connect listeners, and belongs to no
pool from then on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.pool import StaticPool

_T = TypeVar("_T")


class Link(Protocol):
    """One connection. One call uses it at a time."""

    pid: int
    """The server's number for the connection."""

    async def run(self, work: Callable[[Connection], _T]) -> _T:
        """Runs `work` on a SQLAlchemy Connection in one READ COMMITTED transaction, committed after it."""
        ...

    async def ask_the_time(self) -> int:
        """The server's now, in Unix microseconds."""
        ...

    def is_usable(self) -> bool:
        """Whether it's open and between statements, as far as is known here without asking the server."""
        ...

    def is_answer(self, error: BaseException) -> bool:
        """Whether the error leaves no doubt that nothing of the statement is kept: the server's own word, or one
        that came before anything was sent."""
        ...

    def is_worth_another_try(self, error: BaseException) -> bool:
        """Whether the server gave the statement up for another's sake, as in a deadlock."""
        ...

    def is_locked_out(self, error: BaseException) -> bool:
        """Whether the statement waited in vain for what another transaction has."""
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


L = TypeVar("L", bound=Link)


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
            # A connect listener that executed something, as a SET, has some drivers in a transaction.
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
            # PyMySQL's raises for one that is closed.
            with contextlib.suppress(Exception):
                self._engine.dialect.do_terminate(self.dbapi)

    def in_transaction(self, work: Callable[[Connection], _T]) -> _T:
        """Does the work in a transaction, committed after it."""
        # Not by Engine.connect, which an app's tracing may have wrapped for every engine there is.
        with Connection(self._engine) as connection, connection.begin():
            return work(connection)
