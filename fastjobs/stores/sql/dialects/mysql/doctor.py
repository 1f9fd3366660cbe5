"""What may be wrong with a queue on MySQL or MariaDB.

It connects by the app's own creator, as the store does, and each check is a transaction that is READ ONLY, has five
seconds a statement, waits two for a table, and is rolled back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, Engine

from fastjobs.stores.sql.dialects.mysql.doctor_tables import CHECKS as OF_TABLES
from fastjobs.stores.sql.dialects.mysql.doctor_tables import purge
from fastjobs.stores.sql.dialects.mysql.greeting import ask
from fastjobs.stores.sql.dialects.mysql.link import CLOCK
from fastjobs.stores.sql.dialects.mysql.steps import through
from fastjobs.stores.sql.inspecting import Asked, Check, Finding, Level, carry_out
from fastjobs.stores.sql.server.doctor import compare_clocks

_IDLE = 60
"""Seconds that a connection should be let idle, at least."""


def look(asked: Asked) -> list[Finding]:
    """All that is found. What keeps it from connecting is raised."""
    engine = asked.engine
    private = Engine(engine.pool.recreate(), engine.dialect, engine.url)
    try:
        with private.connect() as connection:
            limit = (
                "max_statement_time = 5"
                if "max_statement_time" in settings(connection)
                else "max_execution_time = 5000"
            )
            # Drivers log notes, and MySQL gives one with each EXPLAIN.
            connection.exec_driver_sql(f"SET SESSION lock_wait_timeout = 2, sql_notes = 0, {limit}")
            connection.rollback()
            return carry_out(CHECKS, OF_TABLES, connection, asked, _begin)
    finally:
        private.dispose()


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("START TRANSACTION READ ONLY")


def settings(connection: Connection) -> Mapping[str, str]:
    """All that the session has set, and the server."""
    rows = connection.exec_driver_sql("SHOW VARIABLES").fetchall()
    return {str(name): str(value) for name, value in rows}


def version(connection: Connection, asked: Asked) -> Iterable[Finding]:
    greeting = through(connection, ask())
    greeting.check()
    said = f"{greeting.product} {greeting.version}, by {connection.dialect.driver}"
    yield Finding(Level.OK, "version", said)


def writable(connection: Connection, asked: Asked) -> Iterable[Finding]:
    found = settings(connection)
    # Whoever has the right for it writes nevertheless, and the app's user is not to have it.
    of_server = [
        name
        for name in ("read_only", "super_read_only", "innodb_read_only")
        if found.get(name, "OFF") not in ("OFF", "0")
    ]
    if of_server:
        said = f"this server is read only by {' and '.join(of_server)}, as a replica is, and takes no pushes"
        yield Finding(Level.WRONG, "writable", said, "give the engine the primary's address")
    elif (found.get("transaction_read_only") or found.get("tx_read_only")) == "ON":
        said = "transactions are read only by transaction_read_only: pushes fail"
        yield Finding(Level.WRONG, "writable", said, "set it OFF for the app's sessions")
    else:
        yield Finding(Level.OK, "writable", "the server is a primary, and transactions may write")


def durable(connection: Connection, asked: Asked) -> Iterable[Finding]:
    found, good = settings(connection), True
    damaged = "after a crash of the machine the whole database may be damaged, and with it every job"
    gone = "a push that has answered may be gone, and a job that was done may run again"
    flush = found["innodb_flush_log_at_trx_commit"]
    # MariaDB's 3 syncs once more than 1.
    if flush not in ("1", "3"):
        of = "machine" if flush == "2" else "server"
        said = f"innodb_flush_log_at_trx_commit is {flush}: after a crash of the {of} {gone}"
        good = False
        yield Finding(
            Level.WRONG,
            "durability",
            said,
            "SET GLOBAL innodb_flush_log_at_trx_commit = 1, and in the server's configuration",
        )
    if found["log_bin"] == "ON" and found["sync_binlog"] != "1":
        # What the log lacks is rolled back then, and replicas may have more than their primary.
        good = False
        said = (
            f"there is a binary log and sync_binlog is {found['sync_binlog']}: after a crash of the machine"
        )
        yield Finding(
            Level.WRONG,
            "durability",
            f"{said} {gone}",
            "SET GLOBAL sync_binlog = 1, and in the server's configuration",
        )
    for name, value in (
        ("innodb_doublewrite", "OFF"),
        ("innodb_doublewrite", "DETECT_ONLY"),
        ("innodb_flush_method", "nosync"),
        ("debug_no_sync", "ON"),
    ):
        if found.get(name) == value:
            good = False
            do = "set it to its default in the server's configuration, and restart it"
            yield Finding(Level.WRONG, "durability", f"{name} is {value}: {damaged}", do)
    if good:
        log = ", sync_binlog=1" if found["log_bin"] == "ON" else ""
        yield Finding(Level.OK, "durability", f"innodb_flush_log_at_trx_commit={flush}, doublewrite{log}")


def isolation(connection: Connection, asked: Asked) -> Iterable[Finding]:
    found = settings(connection)
    level = found.get("transaction_isolation") or found["tx_isolation"]
    said = f"the app's transactions are {level} by default"
    if level == "READ-UNCOMMITTED":
        yield Finding(
            Level.WRONG,
            "isolation",
            f"{said}: a unique push may find a job there already that is then rolled back, and be lost",
            "make it READ-COMMITTED or REPEATABLE-READ: create_engine(…, isolation_level=…), or for the server",
        )
    elif level == "SERIALIZABLE":
        yield Finding(
            Level.REMARK,
            "isolation",
            f"{said}: what they read they lock, and those that push may wait for each other, or have to be tried"
            " again; the queue's own are READ COMMITTED",
        )
    else:
        yield Finding(Level.OK, "isolation", f"{said}, and the queue's own READ-COMMITTED")


def sessions(connection: Connection, asked: Asked) -> Iterable[Finding]:
    found, good = settings(connection), True
    if "STRICT_" not in found["sql_mode"]:
        good = False
        yield Finding(
            Level.WARNING,
            "sessions",
            "sql_mode isn't strict: in the app's transactions a value that doesn't fit its column is cut, and nobody"
            " hears of it",
            "add STRICT_TRANS_TABLES to the server's sql_mode",
        )
    if found["innodb_rollback_on_timeout"] == "ON":
        good = False
        yield Finding(
            Level.REMARK,
            "sessions",
            "innodb_rollback_on_timeout is ON: a push in the app's transaction that waits for a lock in vain takes the"
            " whole transaction with it",
        )
    if int(found["wait_timeout"]) < _IDLE:
        good = False
        yield Finding(
            Level.REMARK,
            "sessions",
            f"wait_timeout is {found['wait_timeout']} s: the server ends connections that are idle as long, and the"
            " queue connects anew each time",
        )
    if found["innodb_autoinc_lock_mode"] == "0":
        good = False
        said = "innodb_autoinc_lock_mode is 0: pushes at once wait for each other"
        yield Finding(Level.REMARK, "sessions", said, "set it to 1 or 2, and restart the server")
    if good:
        wait = found["innodb_lock_wait_timeout"]
        yield Finding(Level.OK, "sessions", f"strict, and the app's wait at most {wait} s for a row")


def packet(connection: Connection, asked: Asked) -> Iterable[Finding]:
    found = int(settings(connection)["max_allowed_packet"])
    # Quotes and backslashes are doubled, and other columns come with the value.
    needed = 2 * asked.max_payload + 4096
    if found < needed:
        yield Finding(
            Level.WARNING,
            "packet",
            f"max_allowed_packet is {found:,} bytes, and a push of a value of max_payload={asked.max_payload:,} bytes"
            f" may need {needed:,}: such a push fails",
            f"raise it for the server to {needed:,} or more, or lower the queue's max_payload",
        )
    else:
        yield Finding(Level.OK, "packet", f"max_allowed_packet is {found:,} bytes")


def several_primaries(connection: Connection, asked: Asked) -> Iterable[Finding]:
    found = settings(connection)
    if (
        found.get("group_replication_group_name")
        and found.get("group_replication_single_primary_mode") == "OFF"
    ):
        yield Finding(
            Level.WARNING,
            "replication",
            "the server is one of several primaries of a group, where locks hold on one alone: claims on two of them"
            " fail each other's commits",
            "have all instances connect to the same primary, or the group have a single one",
        )
    else:
        yield Finding(
            Level.OK, "replication", "no other server takes writes beside this one, as far as it says"
        )


def proxy(connection: Connection, asked: Asked) -> Iterable[Finding]:
    driver: Any = connection.connection.driver_connection
    # A proxy makes up what it greets its clients with.
    if driver.thread_id() == connection.exec_driver_sql("SELECT CONNECTION_ID()").scalar():
        yield Finding(Level.OK, "proxy", "none stands between")
    else:
        yield Finding(
            Level.WARNING,
            "proxy",
            "a proxy, as ProxySQL, stands between: where it gives each statement another connection, the queue's"
            " settings and locks don't hold",
            "have it keep a session on one connection, or connect the queue's engine directly",
        )


def clock(connection: Connection, asked: Asked) -> Iterable[Finding]:
    return compare_clocks(connection, asked, CLOCK)


CHECKS: tuple[tuple[str, Check], ...] = (
    ("version", version),
    ("writable", writable),
    ("durability", durable),
    ("isolation", isolation),
    ("sessions", sessions),
    ("packet", packet),
    ("replication", several_primaries),
    ("proxy", proxy),
    ("clock", clock),
    ("purge", purge),
)
