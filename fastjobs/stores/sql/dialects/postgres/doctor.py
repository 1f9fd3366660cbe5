"""What may be wrong with a queue on Postgres.

It connects by the app's own creator, as the store does, and each check is a transaction that is READ ONLY, has five
seconds a statement and is rolled back.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, Engine, text

from fastjobs.stores.sql.dialects.postgres.doctor_tables import CHECKS as OF_TABLES
from fastjobs.stores.sql.dialects.postgres.doctor_tables import CLOCK, horizon, setting
from fastjobs.stores.sql.inspecting import Asked, Check, Finding, Level, carry_out
from fastjobs.stores.sql.server.doctor import compare_clocks


def look(asked: Asked) -> list[Finding]:
    """All that is found. What keeps it from connecting is raised."""
    engine = asked.engine
    private = Engine(engine.pool.recreate(), engine.dialect, engine.url)
    try:
        with private.connect() as connection:
            own = connection.execution_options(isolation_level="READ COMMITTED")
            return carry_out(CHECKS, OF_TABLES, own, asked, _begin)
    finally:
        private.dispose()


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("SET TRANSACTION READ ONLY")
    connection.exec_driver_sql("SET LOCAL statement_timeout = 5000")


def version(connection: Connection, asked: Asked) -> Iterable[Finding]:
    number = int(setting(connection, "server_version_num"))
    said = f"Postgres {setting(connection, 'server_version')}, by {connection.dialect.driver}"
    if number < 130_000:
        yield Finding(Level.WRONG, "version", f"{said}: too old for the queue", "upgrade to 13 or newer")
    else:
        yield Finding(Level.OK, "version", said)


def writable(connection: Connection, asked: Asked) -> Iterable[Finding]:
    if connection.scalar(text("SELECT pg_is_in_recovery()")):
        said = "this server is a standby, and takes no pushes"
        yield Finding(Level.WRONG, "writable", said, "give the engine the primary's address")
    elif setting(connection, "default_transaction_read_only") == "on":
        said = "transactions are read only by default_transaction_read_only: pushes fail"
        yield Finding(Level.WRONG, "writable", said, "set it off for the app's role")
    else:
        yield Finding(Level.OK, "writable", "the primary, and transactions may write")


def durable(connection: Connection, asked: Asked) -> Iterable[Finding]:
    good = True
    for name, voids in (
        (
            "fsync",
            "after a crash of the machine the whole database may be damaged, and with it every job that was pushed",
        ),
        (
            "full_page_writes",
            "after a crash of the machine pages may be half written, and jobs that were pushed are gone",
        ),
    ):
        if setting(connection, name) != "on":
            good = False
            said = f"{name} is off: {voids}"
            yield Finding(Level.WRONG, "durability", said, f"{name} = on in postgresql.conf, and a reload")
    found, source = connection.execute(
        text("SELECT setting, source FROM pg_settings WHERE name = 'synchronous_commit'")
    ).one()
    if found == "off":
        good = False
        yield Finding(
            Level.WRONG,
            "durability",
            f"synchronous_commit is off (set by: {source}): after a crash of the server a push that has answered may be"
            " gone, and a job that was done may run again",
            "set it on: for the server, or by ALTER ROLE … or ALTER DATABASE … RESET synchronous_commit where it's set"
            " there",
        )
    if good:
        yield Finding(Level.OK, "durability", f"fsync, full_page_writes, synchronous_commit={found}")


def isolation(connection: Connection, asked: Asked) -> Iterable[Finding]:
    # What the session began with: this connection has been told READ COMMITTED.
    found = connection.scalar(
        text("SELECT reset_val FROM pg_settings WHERE name = 'default_transaction_isolation'")
    )
    if found == "read committed":
        yield Finding(Level.OK, "isolation", "read committed by default")
    else:
        yield Finding(
            Level.REMARK,
            "isolation",
            f"transactions are {found} by default: the queue's own are READ COMMITTED all the same, and the app's that"
            " push may have to be tried again",
        )


def sessions(connection: Connection, asked: Asked) -> Iterable[Finding]:
    if setting(connection, "idle_in_transaction_session_timeout") in ("0", "0ms"):
        yield Finding(
            Level.REMARK,
            "sessions",
            "idle_in_transaction_session_timeout is 0: a transaction that was forgotten stays, and keeps vacuum from"
            " the jobs that are done",
            "set it, for the app's role at least: ALTER ROLE app SET idle_in_transaction_session_timeout = '5min'",
        )
    else:
        yield Finding(Level.OK, "sessions", "a transaction that was forgotten is ended by the server")


def pooler(connection: Connection, asked: Asked) -> Iterable[Finding]:
    driver: Any = connection.connection.driver_connection
    if hasattr(driver, "get_server_pid"):
        told = driver.get_server_pid()
    else:
        told = driver.info.backend_pid
    # A pooler makes up what it greets its clients with.
    if told == connection.scalar(text("SELECT pg_backend_pid()")):
        yield Finding(Level.OK, "pooler", "none stands between")
    else:
        yield Finding(
            Level.WARNING,
            "pooler",
            "a pooler, as PgBouncer, stands between: where it pools by transactions, LISTEN hears nothing, and jobs"
            " that other processes push wait for the next poll",
            "that works, with a short poll=; to hear at once, pool by sessions or connect the queue's engine directly",
        )


def clock(connection: Connection, asked: Asked) -> Iterable[Finding]:
    return compare_clocks(connection, asked, CLOCK)


CHECKS: tuple[tuple[str, Check], ...] = (
    ("version", version),
    ("writable", writable),
    ("durability", durable),
    ("isolation", isolation),
    ("sessions", sessions),
    ("pooler", pooler),
    ("clock", clock),
    ("horizon", horizon),
)
