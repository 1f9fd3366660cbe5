"""The links over psycopg 3: one for an AsyncEngine on the loop, one for a sync Engine in a thread of its own."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg import rows, sql
from psycopg.pq import ConnStatus, TransactionStatus
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.util import greenlet_spawn

from fastjobs.core.errors import StoreError
from fastjobs.stores.sql.dialects.postgres.links import (
    CLOCK,
    GREETING,
    READ_COMMITTED,
    Greeting,
    is_from_the_server,
    is_locked_out,
    is_the_drivers,
    is_worth_another_try,
)
from fastjobs.stores.sql.server.link import Opened
from fastjobs.stores.sql.server.link_thread import LinkThread

_T = TypeVar("_T")
_LOOKS_EVERY = 60.0
_ANSWERS_WITHIN = 10.0


class AsyncPsycopgLink:
    """A link over psycopg's AsyncConnection."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._driver: psycopg.AsyncConnection[Any] = opened.driver
        self._cursor = psycopg.AsyncRawCursor(self._driver, row_factory=rows.tuple_row)
        self.pid = 0
        self.is_pooled = False

    @classmethod
    async def open(cls, engine: Engine) -> AsyncPsycopgLink:
        _check_driver()
        opened: Opened = await greenlet_spawn(Opened, engine)
        link = cls(opened)
        try:
            await link._driver.set_autocommit(True)
            ((pid, version, isolation),) = await link.fetch(GREETING)
            Greeting(pid, version, isolation).check()
            link.pid, link.is_pooled = pid, link._driver.info.backend_pid != pid
            if isolation != "read committed":
                await link.fetch(READ_COMMITTED)
        except BaseException:
            await link.close()
            raise
        return link

    async def fetch(self, text: str, *values: object) -> Sequence[Sequence[Any]]:
        await self._cursor.execute(_constant(text), values)
        return await self._cursor.fetchall() if self._cursor.description else []

    async def run(self, work: Callable[[Connection], _T]) -> _T:
        await self._driver.set_autocommit(False)
        try:
            return await greenlet_spawn(lambda: self._opened.in_transaction(work))
        finally:
            if _is_idle(self._driver):
                await self._driver.set_autocommit(True)

    def is_usable(self) -> bool:
        return _is_idle(self._driver) and self._driver.autocommit and not _is_hung_up(self._driver)

    async def ask_the_time(self) -> int:
        ((now,),) = await self.fetch(CLOCK)
        return int(now)

    def is_worth_another_try(self, error: BaseException) -> bool:
        return is_worth_another_try(error)

    def is_locked_out(self, error: BaseException) -> bool:
        return is_locked_out(error)

    def is_answer(self, error: BaseException) -> bool:
        return _is_answer(error)

    async def listen(self, channel: str, listening: Callable[[], None], heard: Callable[[int], None]) -> None:
        await self._cursor.execute(_listen(channel))
        listening()
        while True:
            async for notice in self._driver.notifies(timeout=_LOOKS_EVERY):
                heard(notice.pid)
            # A connection that a firewall has forgotten says nothing by itself.
            async with asyncio.timeout(_ANSWERS_WITHIN):
                await self._cursor.execute("SELECT 1")

    def abort(self) -> None:
        _cut(self._driver)

    def abandon(self) -> None:
        # What its own close does, which is a coroutine: one that was merely cut counts as left open.
        self._driver.pgconn.finish()

    async def close(self) -> None:
        await self._driver.close()


class SyncPsycopgLink:
    """A link over psycopg's Connection, in a daemon thread of its own: one call is in it at a time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._opened: Opened | None = None
        self._driver: psycopg.Connection[Any]
        self._cursor: psycopg.RawCursor[tuple[Any, ...]]
        self.pid = 0
        self.is_pooled = False
        self._thread = LinkThread("fastjobs postgres link", self._close)

    @classmethod
    async def open(cls, engine: Engine) -> SyncPsycopgLink:
        _check_driver()
        link = cls(engine)
        try:
            await link._thread.call(link._open)
        except BaseException:
            link._thread.end()
            raise
        return link

    async def fetch(self, text: str, *values: object) -> Sequence[Sequence[Any]]:
        return await self._thread.call(lambda: self._fetch(text, *values))

    async def run(self, work: Callable[[Connection], _T]) -> _T:
        return await self._thread.call(lambda: self._run(work))

    def is_usable(self) -> bool:
        return (
            not self._thread.is_busy
            and _is_idle(self._driver)
            and self._driver.autocommit
            and not _is_hung_up(self._driver)
        )

    async def ask_the_time(self) -> int:
        ((now,),) = await self.fetch(CLOCK)
        return int(now)

    def is_worth_another_try(self, error: BaseException) -> bool:
        return is_worth_another_try(error)

    def is_locked_out(self, error: BaseException) -> bool:
        return is_locked_out(error)

    def is_answer(self, error: BaseException) -> bool:
        return _is_answer(error)

    async def listen(self, channel: str, listening: Callable[[], None], heard: Callable[[int], None]) -> None:
        loop = asyncio.get_running_loop()

        def tell(callback: Callable[..., None], *values: int) -> None:
            if not self._thread.is_ending:
                loop.call_soon_threadsafe(callback, *values)

        def hear() -> None:
            self._cursor.execute(_listen(channel))
            tell(listening)
            while not self._thread.is_ending:
                for notice in self._driver.notifies(timeout=_LOOKS_EVERY):
                    tell(heard, notice.pid)
                self._cursor.execute("SELECT 1")

        await self._thread.call(hear)

    def abort(self) -> None:
        if self._opened is not None:
            _cut(self._driver)

    def abandon(self) -> None:
        # Its thread has no loop, and goes on waiting for calls until it's told to end.
        if self._thread.is_busy:
            self.abort()
        self._thread.end()

    async def close(self) -> None:
        self.abandon()

    def _close(self) -> None:
        if self._opened is not None:
            self._driver.close()

    def _open(self) -> None:
        self._opened = Opened(self._engine)
        self._driver = self._opened.driver
        self._driver.autocommit = True
        self._cursor = psycopg.RawCursor(self._driver, row_factory=rows.tuple_row)
        ((pid, version, isolation),) = self._fetch(GREETING)
        Greeting(pid, version, isolation).check()
        self.pid, self.is_pooled = pid, self._driver.info.backend_pid != pid
        if isolation != "read committed":
            self._fetch(READ_COMMITTED)

    def _fetch(self, text: str, *values: object) -> Sequence[Sequence[Any]]:
        self._cursor.execute(_constant(text), values)
        return self._cursor.fetchall() if self._cursor.description else []

    def _run(self, work: Callable[[Connection], _T]) -> _T:
        assert self._opened is not None
        self._driver.autocommit = False
        try:
            return self._opened.in_transaction(work)
        finally:
            if _is_idle(self._driver):
                self._driver.autocommit = True


def _check_driver() -> None:
    if not hasattr(psycopg, "RawCursor"):
        raise StoreError(
            f"psycopg {psycopg.__version__} is too old: the queue needs 3.2 or newer (RawCursor)."
            " Install psycopg>=3.2"
        )


def _constant(text: str) -> bytes:
    # Its types want literals where a str is given. Statements are made of constants and checked names elsewhere.
    return text.encode()


def _listen(channel: str) -> sql.Composed:
    return sql.SQL("LISTEN {}").format(sql.Identifier(channel))


def _is_answer(error: BaseException) -> bool:
    cause = error.orig if isinstance(error, DBAPIError) else error
    # Without a code, DataError and its like were raised here, before anything was sent.
    unsent = (psycopg.DataError, psycopg.ProgrammingError, psycopg.NotSupportedError)
    return is_from_the_server(error) or not is_the_drivers(error) or isinstance(cause, unsent)


def _is_idle(driver: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    return not driver.closed and driver.pgconn.transaction_status == TransactionStatus.IDLE


def _is_hung_up(driver: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Whether the server has closed the connection: an idle one has nothing to read but that, or a notice."""
    try:
        # What was said before the end comes first, and is read before it.
        for _ in range(3):
            if not select.select([driver.fileno()], [], [], 0)[0]:
                break
            driver.pgconn.consume_input()
    except (psycopg.Error, OSError, ValueError):
        # ValueError: a file descriptor over what select takes. Then the next call finds out.
        return driver.closed
    return driver.pgconn.status != ConnStatus.OK


def _cut(driver: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    # libpq has no call that another thread may end its wait by; its socket's end does.
    if driver.closed:
        return
    try:
        with socket.fromfd(driver.fileno(), socket.AF_INET, socket.SOCK_STREAM) as cut:
            cut.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # the other side has hung up before
