"""PgBouncer before a server, in transaction mode: after a COMMIT an app may be on another connection."""

from __future__ import annotations

import os
import shutil
import socket
import time
from pathlib import Path

from tests.databases.postgres import Server
from tests.databases.private import Watched, free_port, make_folder

_START = 20.0
"""Seconds that it may take to start or to stop."""


def find_pgbouncer() -> str | None:
    """The program, if it is installed."""
    return shutil.which("pgbouncer", path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"]))


class PgBouncer:
    """All databases of a server, on a port of its own. Enter it to start it."""

    def __init__(self, program: str, server: Server, *, pool_size: int = 20) -> None:
        self.port = 0
        self.server = server
        self.folder: Path | None = None
        self._program = program
        self._pool_size = pool_size
        self._process: Watched | None = None

    def url(self, driver: str | None = None, database: str = "postgres", *, user: str = "app") -> str:
        """Where a database is, by way of PgBouncer: as `Server.url`."""
        scheme = "postgresql" if driver is None else f"postgresql+{driver}"
        return f"{scheme}://{user}@127.0.0.1:{self.port}/{database}"

    def __enter__(self) -> PgBouncer:
        self.folder, user = make_folder("bouncer")
        try:
            for _ in range(5):
                # Between the look for a free port and its use another may have taken it.
                self.port = free_port()
                self._process = Watched([self._program, self._write()], self.folder, user)
                if self._is_up():
                    return self
                self._stop()
            said = (self.folder / "log").read_text(errors="replace")
            raise RuntimeError(f"PgBouncer didn't start; it logged:\n{said[-3000:]}")
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        self._stop()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            # What SIGTERM and SIGQUIT do goes by its version: some wait for all clients to leave.
            process.stop("SIGKILL", _START)

    def _write(self) -> str:
        assert self.folder is not None
        users = self.folder / "users.txt"
        users.write_text('"app" ""\n"postgres" ""\n')
        settings = self.folder / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\n* = host=127.0.0.1 port={self.server.port}\n[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\n"
            f"auth_type = trust\nauth_file = {users}\nadmin_users = postgres\n"
            f"pool_mode = transaction\ndefault_pool_size = {self._pool_size}\nmax_client_conn = 500\n"
        )
        for path in (users, settings):
            path.chmod(0o644)
        return str(settings)

    def _is_up(self) -> bool:
        assert self._process is not None
        until = time.monotonic() + _START
        while not self._process.has_ended() and time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                time.sleep(0.01)
            else:
                # Another's server may be what answers there, if ours found the port taken and ends.
                time.sleep(0.02)
                return not self._process.has_ended()
        return False
