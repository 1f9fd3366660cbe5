"""Where contestants on MariaDB and MySQL run: a private server that flushes at each commit, as it does by itself.

Each run has a database of its own, made before it and dropped after it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks.frame import Ground
from tests.databases.mysql import Server
from tests.databases.mysql_binaries import ABSENT, TITLES, Family, find_server

TOLD = ("innodb_flush_log_at_trx_commit", "innodb_flush_method", "innodb_buffer_pool_size", "log_bin")
# A test's server syncs nothing, and has less of all.
_ON: dict[Family, dict[str, str]] = {
    "mariadb": {
        "innodb_flush_method": "O_DIRECT",
        "loose_debug_no_sync": "OFF",
        "innodb_log_file_size": "96M",
    },
    "mysql": {"innodb_flush_method": "O_DIRECT", "innodb_redo_log_capacity": "100M"},
}


@contextmanager
def ground(family: Family, folder: Path) -> Generator[Ground]:
    """A private server, whose files are in `folder`."""
    found = find_server(family)
    if found is None:
        raise SystemExit(ABSENT[family])
    before = tempfile.tempdir
    with tempfile.TemporaryDirectory(dir=folder.resolve(), prefix=".bench-") as made:
        Path(made).chmod(0o755)  # the server may run as another user
        tempfile.tempdir = made
        try:
            server = Server(found, _ON[family])
        finally:
            tempfile.tempdir = before
        with server:
            yield Ground(_about(server), lambda: _place(server))


def _about(server: Server) -> str:
    said = dict(server.execute(f"SHOW VARIABLES WHERE Variable_name IN {TOLD}"))
    told = ", ".join(f"{name}={said[name]}" for name in TOLD)
    return f"{TITLES[server.family]} {'.'.join(map(str, server.version))}, {told}"


@contextmanager
def _place(server: Server) -> Generator[str]:
    database = server.create_database()
    try:
        yield database.url("asyncmy")
    finally:
        database.drop()
