"""What the errors of MySQL's and MariaDB's drivers say: PyMySQL, aiomysql and asyncmy all have a number first."""

from __future__ import annotations

from sqlalchemy.exc import DBAPIError

DUPLICATE = 1062
FORBIDDEN = (1044, 1045, 1142, 1143, 1227, 1370)
"""The user may not do it."""
CHANGED = 1412
"""A transaction that reads as of its start looks into a table that was made or altered since."""
_DEADLOCK, _LOCK_WAIT = 1213, 1205
_NOWAIT = 3572
"""MySQL's word for what NOWAIT didn't wait for; MariaDB says `_LOCK_WAIT`."""
_LOST = (1053, 1077, 1152, 1158, 1159, 1160, 1161, 1184, 1927, 3169, 4031)
"""The server ends the connection, or the network did."""
_DRIVERS = ("asyncmy", "aiomysql", "pymysql", "sqlalchemy")


def code(error: BaseException) -> int | None:
    """The number of the error, by whichever of the drivers and SQLAlchemy it came; None where it has none."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    args = getattr(cause, "args", ())
    return args[0] if args and isinstance(args[0], int) and not isinstance(cause, OSError) else None


def is_from_the_server(error: BaseException) -> bool:
    """Whether the error is the server's answer to a statement, on a connection that goes on."""
    number = code(error)
    # Those of 2000 to 2999 are the drivers' own.
    return number is not None and (1000 <= number < 2000 or number >= 3000) and number not in _LOST


def is_the_drivers(error: BaseException) -> bool:
    """Whether the error says something of the connection, and not of what was asked of it."""
    return not isinstance(error, Exception) or any(
        each.__module__.partition(".")[0] in _DRIVERS or each in (OSError, EOFError, TimeoutError)
        for each in type(error).__mro__
    )


def is_worth_another_try(error: BaseException) -> bool:
    """Whether the server gave the statement up for another's sake: in a deadlock, or as it waited for long."""
    return code(error) in (_DEADLOCK, _LOCK_WAIT)


def is_locked_out(error: BaseException) -> bool:
    """Whether the statement waited for what another transaction has as long as it may, or was not to wait."""
    return code(error) in (_LOCK_WAIT, _NOWAIT)
