"""A link to Postgres, whichever driver the app's engine has, and what the server's errors say.

The hot statements go to the driver's own connection; what is written once for all databases runs on a SQLAlchemy
Connection over the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from sqlalchemy.exc import DBAPIError

from fastjobs.core.errors import StoreError
from fastjobs.stores.sql.server import link as server

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
_LOCK_NOT_AVAILABLE = "55P03"


class Link(server.Link, Protocol):
    """A link to Postgres."""

    is_pooled: bool
    """Whether something stands between that gives its clients server connections by turns, as PgBouncer does."""

    async def fetch(self, text: str, *values: object) -> Sequence[Sequence[Any]]:
        """Runs one statement, committed by itself, with `$1` placeholders, and answers its rows."""
        ...

    async def listen(self, channel: str, listening: Callable[[], None], heard: Callable[[int], None]) -> None:
        """Calls `listening` once it listens, and `heard` with the pid of each backend that notifies.

        It ends by an error as the connection is lost, or by its cancellation; the link is to be closed then.
        """
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


def is_locked_out(error: BaseException) -> bool:
    """Whether the statement waited for what another transaction has as long as it may."""
    return sqlstate(error) == _LOCK_NOT_AVAILABLE
