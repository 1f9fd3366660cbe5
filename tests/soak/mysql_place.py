"""Where the app keeps its data on MariaDB or MySQL: a database on a private server, or one that a URL names."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pymysql

from tests.databases.mysql import Server
from tests.databases.mysql_binaries import ABSENT, TITLES, Family, find_server
from tests.databases.proxy import Proxy
from tests.soak.history import TABLES
from tests.soak.places import LEFT, Answer

_SAFE = {"loose_debug_no_sync": "OFF", "innodb_flush_method": "fsync", "innodb_print_all_deadlocks": "ON"}
"""What the servers do of themselves, and our tests' don't: what is committed outlives the machine."""
_IDLE = (
    "SELECT p.ID, COALESCE(t.trx_query, '') FROM information_schema.INNODB_TRX AS t"
    " JOIN information_schema.PROCESSLIST AS p ON p.ID = t.trx_mysql_thread_id"
    " WHERE p.DB = DATABASE() AND p.COMMAND = 'Sleep' AND p.TIME >= 1"
)


class OnMySQL:
    """An empty database on MariaDB or MySQL: one of a private server, unless a URL names another."""

    crashes = ("crash",)
    # An answer is a few numbers here, so it's known by what it's the answer to.
    answers: Mapping[str, Answer] = {
        "answer to COMMIT": Answer(b"COMMIT", "to_server"),
        "answer to a push": Answer(b"INSERT INTO `fastjobs_jobs`", "to_server"),
        "answer to a claim": Answer(b" SET state = 1, held_until", "to_server"),
        "answer to a mark": Answer(b"DELETE FROM `fastjobs_jobs`", "to_server"),
    }

    def __init__(self, family: Family, folder: Path, driver: str, url: str | None) -> None:
        self._file = folder / TABLES
        self._idle_in_tx: list[str] = []
        self.server: Server | None = None
        self._direct = url or ""
        try:
            if url is None:
                self.server = private_server(family, _SAFE)
                self.server.start()
                database = self.server.create_database("soak")
                # The superuser sees all sessions, and the app has rights on its database alone.
                self._direct, url = database.url(driver, user="root"), database.url(driver)
            parts = urlsplit(url)
            self.proxy = Proxy(parts.port or 3306, parts.hostname or "127.0.0.1")
            self.proxy.__enter__()
            self.url = self.proxy.url(parts._replace(scheme=f"mysql+{driver}").geturl())
            self._prepare()
        except BaseException:
            self.close()
            raise
        ((version, flushes),) = self.execute("SELECT VERSION(), @@innodb_flush_log_at_trx_commit")
        self.name = f"{TITLES[family]} {version} by {driver}, flushes at each commit: {flushes}"

    def _prepare(self) -> None:
        found = self.execute("SHOW TABLES")
        if found:
            raise SystemExit(f"the soak takes an empty database, and this one has the table {found[0][0]!r}")
        self.execute("CREATE TABLE `order` (ref VARCHAR(100) PRIMARY KEY)")

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Runs a statement, past the proxy."""
        return execute(self._direct, statement, values)

    def terminate(self) -> int:
        try:
            found = self.execute(
                "SELECT ID FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND ID <> CONNECTION_ID()"
                " ORDER BY RAND() LIMIT 1"
            )
            for (id,) in found:
                self.execute("KILL %s", [id])
        except pymysql.MySQLError:
            return 0
        return len(found)

    def left(self) -> int | None:
        try:
            return int(self.execute(LEFT)[0][0])
        except pymysql.MySQLError:
            return None

    def look(self) -> None:
        # A second, as an app that still answers a request has such sessions for moments.
        self._idle_in_tx.extend(f"session {id}: {query}" for id, query in self.execute(_IDLE))

    def keep(self) -> None:
        kept = {
            "jobs": self.execute(JOBS),
            "orders": [ref for (ref,) in self.execute("SELECT ref FROM `order`")],
            "integrity": self._integrity(),
            # InnoDB breaks some, and what was broken is tried again: their number is told, and is no fault.
            "deadlocks": 0,
            "broken": self.deadlocks(),
            "idle_in_tx": self._idle_in_tx,
        }
        self._file.write_text(json.dumps(kept))

    def deadlocks(self) -> int:
        """How many deadlocks the server has logged, of its own accord."""
        return 0 if self.server is None else self.server.log_text().count("deadlock detected, dumping")

    def _integrity(self) -> str:
        """Whether each index leads to the rows that there are, and what the server has said of broken files."""
        bad = [
            f"{table}: {said}"
            for table, _, kind, said in self.execute(
                "CHECK TABLE fastjobs_jobs, fastjobs_kinds, `order` EXTENDED"
            )
            if (kind, said) != ("status", "OK")
        ]
        if self.server is not None:
            log = self.server.log_text().splitlines()
            bad += [line for line in log if "corrupt" in line.lower() and "[ERROR]" in line]
        return ", ".join(bad) or "ok"

    def close(self) -> None:
        if hasattr(self, "proxy"):
            self.proxy.__exit__()
        if self.server is not None:
            self.server.close()


JOBS = "SELECT CAST(id AS CHAR), kind, payload, state, attempts FROM fastjobs_jobs"
"""What is kept of the jobs at the end."""


def private_server(family: Family, settings: dict[str, str]) -> Server:
    """One that isn't started yet."""
    found = find_server(family)
    if found is None:
        raise SystemExit(ABSENT[family])
    return Server(found, settings)


def execute(url: str, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """Runs a statement by a connection of its own, and gives its rows."""
    parts = urlsplit(url)
    connection: pymysql.Connection[Any] = pymysql.connect(
        host=parts.hostname or "127.0.0.1",
        port=parts.port or 3306,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        database=parts.path.lstrip("/"),
        autocommit=True,
        connect_timeout=10,
    )
    with contextlib.closing(connection), connection.cursor() as cursor:
        cursor.execute(statement, values or None)
        return list(cursor.fetchall())
