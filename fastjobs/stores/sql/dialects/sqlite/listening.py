"""Hears of other processes' pushes: a thread with a connection of its own looks whether the file has changed.

SQLite tells nobody of a commit. What it has is a number that changes with the commits of all other connections,
`PRAGMA data_version`, at a price of microseconds. It's looked at every 50 ms, and as soon as the file's log is
written to, where the system tells of that. The connection can't be the writer's, whose own commits don't change it.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress

from sqlalchemy import Engine

from fastjobs.stores.sql.dialects.sqlite import files
from fastjobs.stores.sql.dialects.sqlite.connected import Connected
from fastjobs.stores.sql.dialects.sqlite.inotify import Inotify
from fastjobs.stores.sql.dialects.sqlite.opened import BUSY
from fastjobs.stores.sql.dialects.sqlite.writer import uncancellable

log = logging.getLogger("fastjobs")

LOOK = 0.05
"""Seconds between two looks at the file while nothing is heard of it."""
AFTER_A_WRITE = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016)
"""Seconds between the looks once it was written to. The log is written before its commit can be seen, and how long
before is for the disk to say. What is heard meanwhile waits, so that a busy file has 200 looks a second at most."""
AGAIN = 1.0
"""Seconds until a connection that broke, or whose file was moved away, is made anew."""


@asynccontextmanager
async def listening(
    engine: Engine, path: str, news: str, wake: Callable[[], None], name: str
) -> AsyncGenerator[None]:
    """Calls `wake`, in a thread, after others' commits that may have pushed to the file at `path`.

    Raises what the connection raises that can't be made.
    """
    listener = _Listener(engine, path, news, wake, name)
    try:
        await asyncio.wrap_future(listener.began)
        yield
    finally:
        listener.stop()
        await asyncio.wrap_future(listener.ended)


class _Listener:
    """The thread, from its connection's opening to its end."""

    def __init__(self, engine: Engine, path: str, news: str, wake: Callable[[], None], name: str) -> None:
        self.began: Future[None] = uncancellable()
        self.ended: Future[None] = uncancellable()
        self._engine = engine
        self._path = path
        self._news = news
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._written: Inotify | None = None
        """What the thread waits at; the lock is for its end, which another thread must not stir."""
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def stop(self) -> None:
        """Has it call nobody from here on, and end."""
        self._stop.set()
        with self._lock:
            if self._written is not None:
                self._written.stir()

    def _run(self) -> None:
        try:
            while not self._is_over():
                try:
                    self._listen()
                except Exception as error:
                    if not self.began.done():
                        self.began.set_exception(error)
                        return
                    # The writer has the same trouble, and its calls tell of it.
                    log.debug("the queue's database can't be listened to, and is opened anew", exc_info=True)
                    self._stop.wait(AGAIN)
        finally:
            self.ended.set_result(None)

    def _listen(self) -> None:
        """Looks until it's stopped."""
        sight = _Sight(self._engine, self._path, self._news)
        try:
            sight.has_news()
            # The connection has the log open by now, and SQLite removes it with the last connection alone: as
            # long as this one is there, the file that is watched is the one that is written.
            with suppress(OSError):
                self._written = Inotify(f"{sight.path}-wal")
            if self.began.done():
                self._call()
            else:
                self.began.set_result(None)
            while not self._is_over():
                if self._written is None:
                    self._stop.wait(LOOK)
                elif self._written.wait(LOOK):
                    for pause in AFTER_A_WRITE:
                        self._look(sight)
                        if self._stop.wait(pause):
                            return
                self._look(sight)
        finally:
            with self._lock:
                written, self._written = self._written, None
            if written is not None:
                written.close()
            sight.close()

    def _look(self, sight: _Sight) -> None:
        if sight.has_news() and not self._stop.is_set():
            self._call()

    def _is_over(self) -> bool:
        # A loop that was closed without the end of the block has nobody left to stop it.
        return self._stop.is_set() or self._loop.is_closed()

    def _call(self) -> None:
        try:
            self._wake()
        except Exception:
            log.warning("what is to be woken by other processes' pushes failed", exc_info=True)


class _Sight:
    """What the connection has seen of the file."""

    def __init__(self, engine: Engine, path: str, news: str) -> None:
        if files.file_key(path) is None:  # SQLite would make one, which others could read
            raise FileNotFoundError(f"unable to open database file: {path} was moved or removed")
        self._connected = Connected(engine)
        self.path = self._connected.path
        self._raw = self._connected.raw
        self._news = news
        self._version = -1
        self._pushed = 0
        self._soonest: dict[str, int] = {}
        try:
            # A look that has to wait is left to the next.
            self._raw.execute("PRAGMA busy_timeout = 0")
            self._raw.execute("PRAGMA query_only = ON")
        except BaseException:
            self.close()
            raise

    def has_news(self) -> bool:
        """Whether a job was pushed or put back since it was asked last, by whomever.

        A commit is no news by itself: this process's own claims and marks are other connections' commits too, and
        an app writes more than jobs.
        """
        if files.file_key(self.path) != self._connected.key:
            raise FileNotFoundError(f"unable to open database file: {self.path} was moved or removed")
        try:
            (version,) = self._raw.execute("PRAGMA data_version").fetchone()
            if version == self._version:
                return False
            rows = self._raw.execute(self._news).fetchall()
        except sqlite3.OperationalError as error:
            if (error.sqlite_errorcode & 0xFF) in BUSY:
                return False
            raise
        before = self._soonest
        self._version = version
        self._soonest = {kind: run_at for kind, run_at, _ in rows if run_at is not None}
        last = max((pushed or 0 for _, _, pushed in rows), default=0)
        more, self._pushed = last > self._pushed, last
        # A push may also move a job that waits to an earlier time, and a job that was put back has its old id.
        return more or any(
            kind not in before or run_at < before[kind] for kind, run_at in self._soonest.items()
        )

    def close(self) -> None:
        self._connected.close()
