"""The database's file: found, told apart, and made with a mode that lets nobody else read it.

A file that SQLite has open is never opened here: closing a second handle of it drops SQLite's own locks. It's
only stat'ed. The one exception is the making of a file that isn't there yet, before the first connection.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import stat

from sqlalchemy.engine import URL, Connection

from fastjobs.core.errors import StoreError
from fastjobs.stores.sql.dialects.sqlite.gate import FileKey

log = logging.getLogger("fastjobs")

IN_MEMORY = (
    "a SQLite database in memory is gone with its connection, and each connection has one of its own: a queue"
    " can't live there. Use a file, or fastjobs.Memory() for tests"
)
CANTOPEN = 14
"""SQLite's code for a file that it can't open."""
INFO = "fastjobs_file"
"""Where a pooled connection's info has its FileKey, or None."""
_warned: set[str] = set()


def is_memory(url: URL) -> bool:
    """Whether the URL says itself that the database is in memory. "" may be a creator's, and says nothing."""
    name = url.database or ""
    return ":memory:" in name or url.query.get("mode") == "memory" or "mode=memory" in name


def plain_path(url: URL) -> str | None:
    """The path that the URL names; None for a file: URI, or where it names none."""
    name = url.database
    if not name or is_memory(url) or name.startswith("file:"):
        return None
    return os.path.abspath(name)


def make_private(path: str) -> None:
    """Makes the file with mode 0600, whatever the umask, where it isn't there. SQLite gives its -wal the same."""
    if os.path.exists(path):
        return
    if os.path.islink(path):
        raise StoreError(
            f"{path} is a symbolic link to a file that isn't there, and whoever made it may read it"
        )
    folder = os.path.dirname(path)
    try:
        made = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except OSError:
        # Made by another process meanwhile, or the folder isn't there or may not be written: SQLite says which.
        return
    os.close(made)
    mode = os.stat(folder).st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX and folder not in _warned:
        _warned.add(folder)
        log.warning(
            "anyone may write to the folder %s, and so move the queue's database %s away", folder, path
        )


def say_which(error: BaseException, url: URL) -> None:
    """Has SQLite's "unable to open database file" name the file, and the folder that isn't there."""
    path = plain_path(url)
    code = getattr(error, "sqlite_errorcode", None)
    if (
        path is None
        or not isinstance(error, sqlite3.OperationalError)
        or code is None
        or code & 0xFF != CANTOPEN
    ):
        return
    folder = os.path.dirname(path)
    error.args = (f"{error}: {path}" + ("" if os.path.isdir(folder) else f": there is no folder {folder}"),)


def database_path(connection: sqlite3.Connection) -> str:
    """The main database's path by SQLite's own account; "" for one in memory or a temporary one."""
    for row in connection.execute("PRAGMA database_list").fetchall():
        if row[1] == "main":
            return str(row[2] or "")
    return ""


def file_key(path: str) -> FileKey | None:
    """What tells this file from others; None where it isn't there."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def file_of(connection: Connection) -> FileKey | None:
    """What tells this connection's file from others; None for a database in memory."""
    info = connection.connection.info
    if INFO not in info:
        found = connection.exec_driver_sql("PRAGMA database_list").fetchall()
        path = next((str(row[2] or "") for row in found if row[1] == "main"), "")
        info[INFO] = file_key(path) if path else None
    key: FileKey | None = info[INFO]
    return key
