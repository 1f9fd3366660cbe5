"""What a server says as a link is opened, and what of that the queue can't work with."""

from __future__ import annotations

import re
from typing import NamedTuple

from fastjobs.core.errors import StoreError
from fastjobs.stores.sql.dialects.mysql.steps import Step, Steps

OLDEST = {"MariaDB": (10, 6), "MySQL": (8, 0)}

LOCK_WAIT = 2
"""Seconds that a statement of the queue's own waits for a lock. What it waits for is had for a moment, but where the
app's transaction has inserted a kind's row."""
_SETTINGS = (
    "version",
    "max_allowed_packet",
    "auto_increment_increment",
    "character_set_client",
    "wsrep_on",
    "wsrep_cluster_address",
)
_SESSION = (
    # A row that doesn't fit is to be an error, whatever the server's default is. The drivers quote with backslashes,
    # and SQLAlchemy its names as the server has it by default.
    "SET SESSION sql_mode = CONCAT(IF(FIND_IN_SET('ANSI_QUOTES', @@SESSION.sql_mode), 'ANSI_QUOTES,', ''),"
    " 'STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'),"
    f" innodb_lock_wait_timeout = {int(LOCK_WAIT)}, lock_wait_timeout = 30,"
    # What a server or an app may have set for all its connections, and would cut answers short, refuse a statement, or
    # begin a transaction behind each commit, which no one would commit.
    " completion_type = 0, sql_select_limit = 18446744073709551615, sql_safe_updates = 0, sql_big_selects = 1"
    # From so many values on MariaDB makes a join of an IN, and one with a small table locks all of its rows.
    " /*M!100600 , in_predicate_conversion_threshold = 0 */"
)


class Greeting(NamedTuple):
    """What a server says of itself and of the connection."""

    pid: int
    version: str
    packet: int
    """How many bytes a statement may have (max_allowed_packet)."""
    step: int
    """How far apart the ids are that it gives (auto_increment_increment)."""
    database: str
    charset: str
    is_galera: bool

    @property
    def product(self) -> str:
        """MySQL or MariaDB."""
        return "MariaDB" if "mariadb" in self.version.lower() else "MySQL"

    @property
    def release(self) -> tuple[int, int]:
        """Its version's first two numbers. A MariaDB may say 5.5.5- before its own."""
        found = re.search(r"(\d+)\.(\d+)", self.version.removeprefix("5.5.5-"))
        return (int(found[1]), int(found[2])) if found else (0, 0)

    def check(self) -> None:
        """Raises a StoreError for a server or a connection that can't hold a queue."""
        oldest = OLDEST[self.product]
        if self.release < oldest:
            raise StoreError(
                f"the server is {self.product} {self.version}, and the queue needs {oldest[0]}.{oldest[1]} or newer:"
                " upgrade the server"
            )
        if self.is_galera:
            raise StoreError(
                "the server is a node of a Galera cluster, where locks hold on one node alone and commits may be lost,"
                " so no queue can keep its promises: give the queue a MariaDB or MySQL that is not in a cluster"
            )
        if self.charset != "utf8mb4":
            raise StoreError(
                f"the engine's connections speak {self.charset}, which lacks most characters: write ?charset=utf8mb4 at"
                " the end of its URL"
            )


def ask() -> Steps[Greeting]:
    """Asks the server."""
    found = yield Step("SHOW VARIABLES WHERE Variable_name IN %s", (_SETTINGS,))
    said = {str(name): str(value) for name, value in found.rows}
    found = yield Step("SELECT CONNECTION_ID(), DATABASE()")
    return Greeting(
        pid=int(found.rows[0][0]),
        version=said["version"],
        packet=int(said["max_allowed_packet"]),
        step=int(said["auto_increment_increment"]),
        database=str(found.rows[0][1]),
        charset=said["character_set_client"],
        is_galera=said.get("wsrep_on") == "ON" and bool(said.get("wsrep_cluster_address")),
    )


def greet() -> Steps[Greeting]:
    """Makes the session one for the queue's own statements, asks the server, and checks what it says."""
    yield Step(_SESSION)
    greeting = yield from ask()
    greeting.check()
    return greeting
