"""What may be wrong with a queue in a SQLite file.

The file is opened through SQLite alone, as closing any other handle of it would drop SQLite's locks, and not by the
app's engine, whose listeners may write: `configure` sets WAL.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterable
from urllib.parse import quote

from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import DatabaseError, OperationalError
from sqlalchemy.pool import StaticPool

from fastjobs.core.errors import StoreError
from fastjobs.stores.sql.dialects.sqlite import files
from fastjobs.stores.sql.dialects.sqlite.begin import is_configured
from fastjobs.stores.sql.dialects.sqlite.mounts import file_system, is_of_a_network
from fastjobs.stores.sql.inspecting import (
    Asked,
    Check,
    Finding,
    Level,
    carry_out,
    paused_kinds,
    unknown_kinds,
)

LARGE = 64 * 1024 * 1024
"""From how many bytes on a write-ahead log is told of. SQLite begins it anew at 4 MB, where nobody reads."""
_MENDED = ((3, 44, 6), (3, 45)), ((3, 50, 7), (3, 51)), ((3, 51, 3), (9,))
"""The versions without the WAL-reset fault: from each first one on, and before each second one."""


def look(asked: Asked) -> list[Finding]:
    """All that is found. StoreError where there's no file that can be opened."""
    path = files.plain_path(asked.engine.url)
    if path is None:
        raise StoreError(
            f"the engine's URL names no file by its path ({asked.engine.url.render_as_string()}), so none is looked at"
        )
    if not os.path.exists(path):
        return [
            Finding(
                Level.WRONG,
                "file",
                f"{path} isn't there",
                "start the app once, which makes it; if it has run, look whether the URL's path is relative, and to"
                " which folder",
            )
        ]
    raw = _opened(path)
    try:
        engine = create_engine("sqlite://", creator=lambda: raw, poolclass=StaticPool)
        with engine.connect() as connection:
            return carry_out(CHECKS, OF_TABLES, connection, asked)
    finally:
        raw.close()


def _opened(path: str) -> sqlite3.Connection:
    # A reader that is the only one leaves a -wal and a -shm behind, and a writer takes them away with it; but what is
    # in a -wal that a killed process left, the writer would move into the database.
    mode = "ro" if os.path.exists(f"{path}-wal") else "rw"
    raw = sqlite3.connect(f"file:{quote(path)}?mode={mode}", uri=True, check_same_thread=False, timeout=2)
    raw.isolation_level = None
    try:
        raw.execute("PRAGMA query_only = ON")
        raw.execute("SELECT count(*) FROM sqlite_master").fetchone()  # raises where it's no database
    except BaseException:
        raw.close()
        raise
    return raw


def _path(asked: Asked) -> str:
    return files.plain_path(asked.engine.url) or ""


def version(connection: Connection, asked: Asked) -> Iterable[Finding]:
    found, check = sqlite3.sqlite_version_info, "version"
    if found < (3, 35):
        yield Finding(
            Level.WRONG,
            check,
            f"SQLite {sqlite3.sqlite_version} is too old: the queue needs 3.35",
            "upgrade it",
        )
    elif any(first <= found < second for first, second in _MENDED):
        yield Finding(Level.OK, check, f"SQLite {sqlite3.sqlite_version}")
    else:
        yield Finding(
            Level.WARNING,
            check,
            f"SQLite {sqlite3.sqlite_version} has the WAL-reset fault: in a rare moment, with several connections, a"
            " commit that was answered may be lost or the file damaged, so a push with it",
            "use a Python with SQLite 3.51.3, or 3.50.7 or 3.44.6 of the older lines; until then back up",
        )


def journal(connection: Connection, asked: Asked) -> Iterable[Finding]:
    mode = connection.exec_driver_sql("PRAGMA journal_mode").scalar()
    if mode == "wal":
        yield Finding(Level.OK, "journal", "a write-ahead log: readers don't wait for writers")
    else:
        yield Finding(
            Level.WARNING,
            "journal",
            f"the file is in journal mode {mode}: readers and the queue wait for each other",
            "start the queue, which sets WAL, and see its log for why it can't where it doesn't last",
        )


def synchronous(connection: Connection, asked: Asked) -> Iterable[Finding]:
    if asked.synchronous == "FULL":
        yield Finding(Level.OK, "synchronous", "FULL: a push that has answered is kept through a power cut")
    else:
        yield Finding(
            Level.WARNING,
            "synchronous",
            "the store has NORMAL: after a power cut the last jobs that were pushed may be gone, and jobs that were"
            " done may run again",
            'leave out SQLStore(synchronous="NORMAL") where that matters',
        )


def configured(connection: Connection, asked: Asked) -> Iterable[Finding]:
    if is_configured(asked.engine):
        yield Finding(Level.OK, "engine", "fastjobs.sqlite.configure had the app's engine")
    else:
        yield Finding(
            Level.WARNING,
            "engine",
            "the app's engine isn't configured: transactions that read and then write may find the database locked or"
            " lose updates, and a push may survive the rollback around its savepoint",
            "fastjobs.sqlite.configure(engine), once after the engine is made",
        )


def ownership(connection: Connection, asked: Asked) -> Iterable[Finding]:
    check, path = "file", _path(asked)
    good, main = True, os.stat(path)
    for each in (path, f"{path}-wal", f"{path}-shm"):
        try:
            found = os.stat(each)
        except FileNotFoundError:
            continue
        if each != path and (found.st_mode, found.st_uid) == (main.st_mode, main.st_uid):
            continue  # as SQLite makes them, and told of already
        if found.st_mode & (stat.S_IROTH | stat.S_IWOTH):
            good = False
            may = "change" if found.st_mode & stat.S_IWOTH else "read"
            yield Finding(
                Level.WRONG if may == "change" else Level.WARNING,
                check,
                f"anyone on this machine may {may} {each} (mode {found.st_mode & 0o777:o}), and the values of jobs with"
                " it",
                f"chmod 600 {each}, or 660 for a group",
            )
        if hasattr(os, "geteuid") and found.st_uid != os.geteuid() and os.geteuid():
            good = False
            yield Finding(
                Level.REMARK,
                check,
                f"{each} belongs to user {found.st_uid}, and this is user {os.geteuid()}",
                "run this as the app's user, to see what it may",
            )
        if not os.access(each, os.W_OK):
            good = False
            said = f"this user can't write {each}: pushes fail"
            yield Finding(Level.WRONG, check, said, "run as the file's owner, or give it the right")
    folder = os.path.dirname(path)
    mode = os.stat(folder).st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        good = False
        said = f"anyone may write to the folder {folder}, and so move the database away"
        yield Finding(Level.WRONG, check, said, f"chmod o-w {folder}")
    if not os.access(folder, os.W_OK):
        good = False
        said = f"this user can't write to the folder {folder}, where SQLite has to make a -wal"
        yield Finding(Level.WRONG, check, said, "give the app's user the folder")
    if good:
        yield Finding(Level.OK, check, f"{path}, for its owner alone")


def network(connection: Connection, asked: Asked) -> Iterable[Finding]:
    found = file_system(_path(asked))
    if found is None:
        yield Finding(Level.REMARK, "file system", "can't tell here whether the file is on a network")
    elif is_of_a_network(found):
        yield Finding(
            Level.WRONG,
            "file system",
            f"the file is on {found}, a network file system: SQLite's locks don't hold there, so two may write at once"
            " and damage it",
            "put the file on a disk of this machine, or use a database server",
        )
    else:
        yield Finding(Level.OK, "file system", f"{found}, of this machine")


def log_size(connection: Connection, asked: Asked) -> Iterable[Finding]:
    try:
        size = os.stat(f"{_path(asked)}-wal").st_size
    except FileNotFoundError:
        size = 0
    if size < LARGE:
        yield Finding(Level.OK, "log's size", f"the -wal has {size / 1e6:.1f} MB")
    else:
        yield Finding(
            Level.WARNING,
            "log's size",
            f"the -wal has {size / 1e6:.0f} MB: a reader has a transaction open for long, or had, and claims get slow",
            "find what keeps a session or a cursor open, in the app or a tool beside it, and end it",
        )


def plans(connection: Connection, asked: Asked) -> Iterable[Finding]:
    tables = asked.tables
    ready = f"{tables.prefix}jobs_ready"
    try:
        # Pinned to its index, as claims are.
        connection.exec_driver_sql(
            f'EXPLAIN QUERY PLAN SELECT id FROM "{tables.jobs.name}" INDEXED BY "{tables.prefix}jobs_ready"'  # noqa: S608
            " WHERE kind = ? AND state = 0 AND run_at <= ? ORDER BY run_at, id",
            ("mail", 0),
        )
    except OperationalError as error:
        yield Finding(
            Level.WRONG,
            "plan",
            f"claims fail: {error.orig}",
            f"make the index {ready} as it was: `fastjobs schema`",
        )
    else:
        yield Finding(Level.OK, "plan", f"claims go by {ready}")


def integrity(connection: Connection, asked: Asked) -> Iterable[Finding]:
    if not asked.deep:
        return
    try:
        rows = connection.exec_driver_sql("PRAGMA quick_check(10)").fetchall()
        what = "; ".join(str(row[0]) for row in rows)
    except DatabaseError as error:
        what = str(error.orig)
    if what == "ok":
        yield Finding(Level.OK, "integrity", "quick_check found nothing")
    else:
        said = f"the file is damaged: {what}"
        do = "stop the app, copy the file and its -wal away, then `sqlite3 app.db .recover` into a new one, or a backup"
        yield Finding(Level.WRONG, "integrity", said, do)


CHECKS: tuple[tuple[str, Check], ...] = (
    ("version", version),
    ("file", ownership),
    ("file system", network),
    ("journal", journal),
    ("synchronous", synchronous),
    ("engine", configured),
    ("log's size", log_size),
    ("integrity", integrity),
)
OF_TABLES: tuple[tuple[str, Check], ...] = (
    ("plan", plans),
    ("unknown kinds", unknown_kinds),
    ("paused kinds", paused_kinds),
)
