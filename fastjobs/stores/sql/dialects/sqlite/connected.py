"""A connection of the store's own: opened by the app's own creator, for one thread, with the driver's own ways off."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Engine
from sqlalchemy.pool import Pool, PoolProxiedConnection
from sqlalchemy.util import greenlet_spawn

from fastjobs.core.errors import StoreError
from fastjobs.stores.sql.dialects.sqlite import files
from fastjobs.stores.sql.dialects.sqlite.gate import FileKey

_OLDEST = (3, 35)
_T = TypeVar("_T")


class Connected:
    """The connection, the file that it's of, and its end. It begins and ends no transaction but those it's told to."""

    def __init__(self, engine: Engine) -> None:
        """Connects, in the thread that is going to use it. Its pool is a copy of the app's, with this one in it."""
        self._is_async = engine.dialect.is_async
        self._pool: Pool = engine.pool.recreate()
        self._proxied: PoolProxiedConnection | None = None
        try:
            self._proxied = self._run(self._pool.connect)
            self.raw = _stdlib(self._proxied)
            self.path, self.key = _by_hand(self.raw)
        except sqlite3.ProgrammingError as error:
            self.close()
            raise _of_another_thread(engine, error) from error
        except BaseException as error:
            self.close()
            files.say_which(error, engine.url)
            raise

    def close(self) -> None:
        """Lets the connection go."""
        if self._proxied is not None:
            proxied, self._proxied = self._proxied, None

            def end() -> None:
                proxied.close()
                self._pool.dispose()

            self._run(end)

    def _run(self, work: Callable[[], _T]) -> _T:
        if not self._is_async:
            return work()
        # An async driver's connection is opened and closed on a loop, and this thread has none but for that.
        with asyncio.Runner() as runner:
            return runner.run(greenlet_spawn(work))


def _stdlib(proxied: PoolProxiedConnection) -> sqlite3.Connection:
    driver: Any = proxied.driver_connection
    # aiosqlite keeps it here, and works on it in a thread of its own, which has nothing to do from now on.
    raw: object = driver if isinstance(driver, sqlite3.Connection) else getattr(driver, "_conn", None)
    if not isinstance(raw, sqlite3.Connection):
        raise StoreError(f"found no sqlite3.Connection in the driver's {type(driver).__name__}")
    return raw


def _by_hand(raw: sqlite3.Connection) -> tuple[str, FileKey]:
    if sqlite3.sqlite_version_info < _OLDEST:
        raise StoreError(
            f"SQLite {sqlite3.sqlite_version} is too old: 3.35 has what the queue needs (RETURNING)"
        )
    if hasattr(raw, "autocommit"):  # from Python 3.12 on, and with False there is always a transaction
        setattr(raw, "autocommit", getattr(sqlite3, "LEGACY_TRANSACTION_CONTROL"))  # noqa: B009, B010
        raw.rollback()
    raw.isolation_level = None
    raw.row_factory = None
    raw.text_factory = _text
    path = files.database_path(raw)
    if not path:
        raise StoreError(files.IN_MEMORY)
    key = files.file_key(path)
    if key is None:
        raise StoreError(f"the database's file {path} is gone as soon as it was opened")
    return path, key


def _text(kept: bytes) -> str:
    """What is kept as text, in which SQLite lets any bytes stand: one row of them would fail a claim of all others.

    What isn't text becomes lone surrogates, which no payload and nothing that is carried may have.
    """
    return kept.decode("utf-8", "surrogateescape")


def _of_another_thread(engine: Engine, error: sqlite3.ProgrammingError) -> StoreError:
    if (
        not engine.url.database
    ):  # SQLAlchemy binds connections to their thread where they are in memory, and only there
        return StoreError(files.IN_MEMORY)
    return StoreError(
        "the connection can't be used from the queue's thread: make the engine without check_same_thread=True"
        f" ({error})"
    )
