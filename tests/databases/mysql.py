"""A private MariaDB or MySQL server, on a free port and in a temporary folder, and the databases on it.

It has a superuser `root` and a plain user `app`, who has the rights on its databases and no other, and both need no
password. Nothing is safe from a power cut: nothing is synced. A server that is killed loses no commit by that.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pymysql
from pymysql.constants import CLIENT, ER

from tests.databases.mysql_binaries import TITLES, Binaries, Family
from tests.databases.private import Watched, environment, free_port, make_folder

Mode = Literal["fast", "immediate"]
"""How a server stops: after it rolled back and wrote what it had, or at once, by a kill -9."""

_SIGNALS = {"fast": "SIGTERM", "immediate": "SIGKILL"}
_SETTINGS = {
    "bind_address": "127.0.0.1",
    "skip_name_resolve": "ON",
    "max_connections": "200",
    "character_set_server": "utf8mb4",
    "performance_schema": "OFF",
    "innodb_buffer_pool_size": "128M",
    "innodb_flush_method": "nosync",
    "innodb_buffer_pool_dump_at_shutdown": "OFF",
    "innodb_buffer_pool_load_at_startup": "OFF",
}
_OWN_SETTINGS: dict[Family, dict[str, str]] = {
    "mariadb": {
        "loose_debug_no_sync": "ON",
        "innodb_log_file_size": "32M",
        "aria_pagecache_buffer_size": "8M",
        "key_buffer_size": "1M",
    },
    "mysql": {
        "disable_log_bin": "ON",
        "mysqlx": "OFF",
        "innodb_redo_log_capacity": "32M",
        "innodb_log_buffer_size": "4M",
        "secure_file_priv": "NULL",
        # PyMySQL takes TLS where it is offered, which takes time, and no proxy can look into it.
        "tls_version": "",
        "auto_generate_certs": "OFF",
        "caching_sha2_password_auto_generate_rsa_keys": "OFF",
    },
}
_MADE_WITH = (
    "innodb_flush_method",
    "innodb_log_file_size",
    "innodb_redo_log_capacity",
    "loose_debug_no_sync",
    "disable_log_bin",
    "auto_generate_certs",
    "caching_sha2_password_auto_generate_rsa_keys",
)
"""Those that make a folder of data small and quick to make."""
_START = 30.0
"""Seconds that a server may take to start or to stop."""


class Server:
    """One server. `start` it before anything else, and `close` it at the end."""

    def __init__(
        self, binaries: Binaries, settings: Mapping[str, str] | None = None, *, made: Path | None = None
    ) -> None:
        """`made` is a folder to keep a new server's data in: the next one copies it in a tenth of the time."""
        self.version = binaries.version
        self.family: Family = binaries.family
        self.port = 0
        self.folder, self._user = make_folder(binaries.family)
        self.pid = 0
        """The server's process, or 0 while it doesn't run."""
        self._binaries = binaries
        self._kept = made
        self._settings = {**_SETTINGS, **_OWN_SETTINGS[binaries.family], **(settings or {})}
        self._process: Watched | None = None
        self._made = False
        self._names = itertools.count(1)

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def socket(self) -> Path:
        return self.folder / "socket"

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
            logged = len(self.log_text()) if self.log.exists() else 0
            if self._started(port):
                is_first, self.port = self.port == 0, port
                if is_first:
                    self._make_users()
                return
            said = self.log_text()[logged:]
            if attempt == 5 or "Address already in use" not in said:
                raise RuntimeError(f"{TITLES[self.family]} didn't start; it logged:\n{said[-3000:]}")
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

    def url(self, driver: str, database: str, *, user: str = "app") -> str:
        """Where a database is: an SQLAlchemy URL for `driver` (asyncmy, aiomysql, pymysql)."""
        # PyMySQL would read the machine's certificates for each connection, which takes longer than most tests do.
        more = "?ssl_disabled=1" if driver == "pymysql" else ""
        return f"mysql+{driver}://{user}@127.0.0.1:{self.port}/{database}{more}"

    def connect(self, database: str | None = None, *, user: str = "app") -> pymysql.Connection[Any]:
        """A connection that commits each statement; several may be in one, with a semicolon between."""
        return pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user=user,
            database=database,
            autocommit=True,
            client_flag=CLIENT.MULTI_STATEMENTS,
            ssl_disabled=True,
        )

    def execute(
        self, statement: str, values: Sequence[Any] = (), *, database: str | None = None
    ) -> list[tuple[Any, ...]]:
        """Runs a statement as superuser, by itself and not in a transaction, and gives its rows (the last one's)."""
        with contextlib.closing(self.connect(database, user="root")) as connection:
            return _execute(connection, statement, values)

    def create_database(self, name: str | None = None) -> Database:
        """A new, empty database, which the user app may do all in."""
        name = name or f"test_{next(self._names)}"
        self.execute(f"CREATE DATABASE {quoted(name)}")
        if not name.startswith("test_"):
            pattern = name.replace("\\", r"\\").replace("_", r"\_").replace("%", r"\%")
            self.execute(f"GRANT ALL ON {quoted(pattern)}.* TO app")
        return Database(self, name)

    def drop_database(self, name: str) -> None:
        """Removes a database, whoever is connected to it."""
        # It would wait for each transaction that has looked at a table.
        self.terminate_all(name)
        self.execute(f"DROP DATABASE IF EXISTS {quoted(name)}")

    def terminate_all(self, database: str) -> int:
        """Ends all connections to a database, and gives their number."""
        ended = 0
        with contextlib.closing(self.connect(user="root")) as connection:
            for row in _execute(connection, "SHOW FULL PROCESSLIST"):
                if row[3] != database:
                    continue
                try:
                    _execute(connection, "KILL %s", [row[0]])
                    ended += 1
                except pymysql.MySQLError as error:
                    if error.args[0] != ER.NO_SUCH_THREAD:
                        raise
        return ended

    def _make(self) -> None:
        data, kept = self.folder / "data", self._kept
        if kept is not None and kept.is_dir():
            shutil.copytree(kept, data)
        else:
            self._make_data(data)
            if kept is not None:
                shutil.copytree(data, kept)
        if self._user:
            for path in (data, *data.rglob("*")):
                os.chown(path, self._user["user"], self._user["group"])
        self._made = True

    def _make_data(self, data: Path) -> None:
        settings = {"datadir": str(data), "basedir": str(self._binaries.base)}
        if self._binaries.installer is not None:
            command = [str(self._binaries.installer), "--no-defaults"]
            command += ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
        else:
            command = [*self._binaries.command, "--no-defaults", "--initialize-insecure", *self._messages()]
        own = {**_SETTINGS, **_OWN_SETTINGS[self.family]}
        settings |= {name: own[name] for name in _MADE_WITH if name in own}
        made = subprocess.run(
            command + [f"--{name}={value}" for name, value in settings.items()],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=environment(self.folder),
            timeout=120,
            **self._user,
        )
        if made.returncode:
            raise RuntimeError(
                f"no data could be made for {TITLES[self.family]}:\n{made.stdout}{made.stderr}"
            )

    def _make_users(self) -> None:
        with contextlib.closing(pymysql.connect(unix_socket=str(self.socket), user="root")) as connection:
            for statement in (
                "CREATE USER IF NOT EXISTS root@'127.0.0.1'",
                "GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION",
                "CREATE USER app",
                r"GRANT ALL ON `test\_%`.* TO app",
            ):
                _execute(connection, statement)

    def _messages(self) -> list[str]:
        """Where the server's messages are, if it isn't where it was built for."""
        share = self._binaries.base / "share" / "mysql"
        return [f"--lc-messages-dir={share}"] if share.is_dir() else []

    def _started(self, port: int) -> bool:
        settings = {
            "datadir": str(self.folder / "data"),
            "basedir": str(self._binaries.base),
            "socket": str(self.socket),
            "pid_file": str(self.folder / "pid"),
            "tmpdir": str(self.folder),
            "port": str(port),
            **self._settings,
        }
        command = [*self._binaries.command, "--no-defaults", *self._messages()]
        command += [f"--{name}={value}" for name, value in settings.items()]
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
        # By the socket in its own folder, where no other server answers. A greeting is its first word.
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(5)
            try:
                probe.connect(str(self.socket))
                return probe.recv(1) != b""
            except OSError:
                return False


class Database:
    """A database of its own on a server."""

    def __init__(self, server: Server, name: str) -> None:
        self.server = server
        self.name = name

    def url(self, driver: str, *, user: str = "app") -> str:
        """Where it is: an SQLAlchemy URL for `driver` (asyncmy, aiomysql, pymysql)."""
        return self.server.url(driver, self.name, user=user)

    def connect(self, *, user: str = "app") -> pymysql.Connection[Any]:
        """A connection to it that commits each statement."""
        return self.server.connect(self.name, user=user)

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Runs a statement as superuser, by itself and not in a transaction, and gives its rows (the last one's)."""
        return self.server.execute(statement, values, database=self.name)

    def clear(self, *, keep: Sequence[str] = ("fastjobs_schema",)) -> None:
        """Deletes every row of every table but those in `keep`.

        It waits for those who hold a row, at most two seconds. Ids go on from where they were.
        """
        with contextlib.closing(self.connect(user="root")) as connection:
            tables = _execute(connection, "SHOW FULL TABLES WHERE Table_type = 'BASE TABLE'")
            statements = [
                "SET innodb_lock_wait_timeout = 2, lock_wait_timeout = 2, foreign_key_checks = 0",
                "BEGIN",
                *(f"DELETE FROM {quoted(name)}" for name, _ in tables if name not in keep),
                "COMMIT",
            ]
            _execute(connection, "; ".join(statements))

    def terminate_all(self) -> int:
        """Ends all connections to it, and gives their number."""
        return self.server.terminate_all(self.name)

    def drop(self) -> None:
        """Removes it, whoever is connected to it."""
        self.server.drop_database(self.name)


def quoted(name: str) -> str:
    """A name as an identifier."""
    return "`" + name.replace("`", "``") + "`"


def _execute(
    connection: pymysql.Connection[Any], statement: str, values: Sequence[Any] = ()
) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values or None)
        rows = list(cursor.fetchall())
        # An error of a later statement is known when its result is asked for.
        while cursor.nextset():
            rows = list(cursor.fetchall())
        return rows
