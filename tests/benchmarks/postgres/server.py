"""Where Postgres' contestants run: a private server with the settings it has by itself, or one that is named.

Each run has a database of its own, made before it and dropped after it.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from tests.benchmarks.frame import Ground
from tests.databases.binaries import ABSENT, find_postgres
from tests.databases.postgres import Server

TOLD = ("fsync", "synchronous_commit", "shared_buffers", "max_connections")


@contextmanager
def ground(url: str | None, folder: Path) -> Generator[Ground]:
    """The server at the URL, or a private one, whose files are in `folder`."""
    if url is not None:
        yield _ground(url)
        return
    found = find_postgres()
    if not found:
        raise SystemExit(ABSENT)
    # Server's defaults are a test's, which nothing needs to outlive. Here all is to be on the disk.
    on = {"fsync": "on", "full_page_writes": "on", "log_lock_waits": "off"}
    before = tempfile.tempdir
    with tempfile.TemporaryDirectory(dir=folder.resolve(), prefix=".bench-") as made:
        Path(made).chmod(0o755)  # the server may run as another user
        tempfile.tempdir = made
        try:
            server = Server(found[0], on)
        finally:
            tempfile.tempdir = before
        with server:
            server.execute("ALTER ROLE app CREATEDB")
            server.execute(
                "GRANT pg_checkpoint TO app" if found[0].major >= 15 else "ALTER ROLE app SUPERUSER"
            )
            yield _ground(server.url())


def _ground(url: str) -> Ground:
    numbers = itertools.count(1)
    with psycopg.connect(url, autocommit=True) as connection:
        version = connection.execute("SHOW server_version").fetchone()
        assert version is not None
        told = [f"{name}={_shown(connection, name)}" for name in TOLD]

    @contextmanager
    def place() -> Generator[str]:
        name = f"fastjobs_bench_{os.getpid()}_{next(numbers)}"
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            yield urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
        finally:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(
                    sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
                )

    return Ground(f"Postgres {version[0]}, {', '.join(told)}", place)


def _shown(connection: psycopg.Connection, name: str) -> str:
    found = connection.execute("SELECT current_setting(%s)", [name]).fetchone()
    assert found is not None
    return str(found[0])
