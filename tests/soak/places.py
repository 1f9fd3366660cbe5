"""Where the app keeps its data: a SQLite file, or a database on a server behind a proxy."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol
from urllib.parse import urlsplit

import psycopg

from tests.databases.binaries import ABSENT, find_postgres
from tests.databases.postgres import Server
from tests.databases.proxy import Direction, Proxy
from tests.soak.history import TABLES

_SAFE = {"fsync": "on", "full_page_writes": "on"}
"""What Postgres does of itself, and our tests' servers don't: what it has committed outlives a crash."""
LEFT = "SELECT count(*) FROM fastjobs_jobs WHERE state <> 3"


class Place(Protocol):
    """The app's database. Its methods block."""

    name: str
    """For the table."""
    url: str
    """For the app: SQLAlchemy's, with an async driver."""

    def left(self) -> int | None:
        """How many jobs wait or are held; None where it can't be said just now."""
        ...

    def look(self) -> None:
        """Notes what is amiss while the app is idle and runs still."""
        ...

    def keep(self) -> None:
        """Writes down what it holds, as the app has ended."""
        ...

    def close(self) -> None:
        """Lets go of it."""
        ...


class Answer(NamedTuple):
    """By what the proxy knows an answer, to cut the connection in its place."""

    pattern: bytes
    direction: Direction
    """Whether it's the answer itself, or what is answered."""


class PrivateServer(Protocol):
    """A server of the run's own, which may be stopped."""

    pid: int

    def start(self) -> None: ...

    def stop(self, mode: Literal["immediate"] = "immediate") -> None: ...


class ServerPlace(Place, Protocol):
    """A database on a server."""

    proxy: Proxy

    @property
    def server(self) -> PrivateServer | None:
        """The private one; None where a URL named another."""
        ...

    @property
    def answers(self) -> Mapping[str, Answer]:
        """Those that are cut, by what they're called."""
        ...

    @property
    def crashes(self) -> tuple[str, ...]:
        """How the server is stopped: "restart" as it stops at once by itself, "crash" by a kill -9."""
        ...

    def terminate(self) -> int:
        """Ends one of the app's sessions, and gives how many there were to end: 1 or 0."""
        ...


class File:
    """A SQLite file in the folder."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "app.db"
        self.url = f"sqlite+aiosqlite:///{self._file}"
        self.name = f"SQLite {sqlite3.sqlite_version}"

    def left(self) -> int | None:
        connection = sqlite3.connect(self._file, timeout=10)
        try:
            (count,) = connection.execute(LEFT).fetchone()
            return int(count)
        finally:
            connection.close()

    def look(self) -> None:
        pass

    def keep(self) -> None:
        pass  # the file is what it holds

    def close(self) -> None:
        pass


_MARK_KEPT = b"D\x00\x00\x00\x12\x00\x03" + b"\xff" * 12
"""One row of three nulls: the function that keeps marks says so that all were kept."""


class OnServer:
    """An empty database on a Postgres server: one of a private server, unless a URL names another."""

    crashes = ("restart", "crash")
    answers: Mapping[str, Answer] = {
        "answer to COMMIT": Answer(b"COMMIT\x00", "to_client"),
        "answer to a push": Answer(b"INSERT 0 1\x00", "to_client"),
        "answer to a claim": Answer(b'{"ref"', "to_client"),
        "answer to a mark": Answer(_MARK_KEPT, "to_client"),
    }

    def __init__(self, folder: Path, driver: str, url: str | None) -> None:
        self._file = folder / TABLES
        self._idle_in_tx: list[str] = []
        self.server: Server | None = None
        """The private one, which may be stopped."""
        if url is None:
            found = find_postgres()
            if not found:
                raise SystemExit(ABSENT)
            self.server = Server(found[0], _SAFE)
            self.server.start()
            url = self.server.create_database("soak").url()
        parts = urlsplit(url)
        self._direct = parts._replace(scheme="postgresql").geturl()
        self.user = parts.username or ""
        self.database = parts.path.lstrip("/")
        self._deadlocks = 0
        try:
            self.proxy = Proxy(parts.port or 5432, parts.hostname or "127.0.0.1")
            self.proxy.__enter__()
            self.url = self.proxy.url(parts._replace(scheme=f"postgresql+{driver}").geturl())
            self._prepare()
        except BaseException:
            self.close()
            raise
        ((version, fsync),) = self.execute(
            "SELECT current_setting('server_version'), current_setting('fsync')"
        )
        self.name = f"Postgres {version} by {driver}, fsync {fsync}"

    def _prepare(self) -> None:
        found = self.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        )
        if found:
            raise SystemExit(f"the soak takes an empty database, and this one has the table {found[0][0]!r}")
        self.execute('CREATE TABLE "order" (ref text PRIMARY KEY)')
        self._deadlocks = self._counted()

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """Runs a statement, past the proxy and as the app's user."""
        with psycopg.connect(self._direct, autocommit=True, connect_timeout=10) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def terminate(self) -> int:
        try:
            ended = self.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
                " AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1"
            )
        except psycopg.OperationalError:
            return 0
        return len(ended)

    def left(self) -> int | None:
        try:
            return int(self.execute(LEFT)[0][0])
        except psycopg.Error:
            return None

    def look(self) -> None:
        # A second, as an app that still answers a request has such sessions for moments.
        idle = self.execute(
            "SELECT query FROM pg_stat_activity WHERE datname = current_database()"
            " AND starts_with(state, 'idle in transaction')"
            " AND state_change < clock_timestamp() - interval '1 second'"
        )
        self._idle_in_tx.extend(query for (query,) in idle)

    def keep(self) -> None:
        kept = {
            "jobs": self.execute("SELECT id::text, kind, payload, state, attempts FROM fastjobs_jobs"),
            "orders": [ref for (ref,) in self.execute('SELECT ref FROM "order"')],
            "integrity": self._integrity(),
            "deadlocks": self._deadlocks_since(),
            "idle_in_tx": self._idle_in_tx,
        }
        self._file.write_text(json.dumps(kept))

    def _integrity(self) -> str:
        """What the server has said of broken files, and whether each index leads to the rows that there are."""
        if self.server is None:
            return "ok"
        bad = re.findall(
            r"(?:PANIC|invalid page|could not read block|unexpected chunk|could not access status).*",
            self.server.log_text(),
        )
        if self.server.execute("SELECT 1 FROM pg_available_extensions WHERE name = 'amcheck'"):
            self.server.execute("CREATE EXTENSION IF NOT EXISTS amcheck", database=self.database)
            try:
                self.server.execute(
                    "SELECT bt_index_check(c.oid, heapallindexed => true) FROM pg_class c"
                    " JOIN pg_am a ON a.oid = c.relam WHERE c.relkind = 'i' AND a.amname = 'btree'"
                    " AND c.relnamespace = 'public'::regnamespace",
                    database=self.database,
                )
            except psycopg.Error as error:
                bad.append(str(error))
        return ", ".join(bad) or "ok"

    def _deadlocks_since(self) -> int:
        # A crash takes the server's counts with it, and not its log.
        if self.server is not None:
            return self.server.log_text().count("deadlock detected")
        return self._counted() - self._deadlocks

    def _counted(self) -> int:
        return int(
            self.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")[0][0]
        )

    def close(self) -> None:
        if hasattr(self, "proxy"):
            self.proxy.__exit__()
        if self.server is not None:
            self.server.close()
