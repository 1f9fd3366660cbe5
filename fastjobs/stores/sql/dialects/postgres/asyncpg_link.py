"""The link over asyncpg. It's never imported here: whoever has such an engine has it loaded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from sqlalchemy import Connection, Engine
from sqlalchemy.util import greenlet_spawn

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

_T = TypeVar("_T")
_CLOSES_WITHIN = 2.0
_LOOKS_EVERY = 60.0
_ANSWERS_WITHIN = 10.0


class AsyncpgLink:
    """A link over asyncpg's Connection."""

    def __init__(self, opened: Opened, names: Callable[[], str | None] | None) -> None:
        self._opened = opened
        self._driver = opened.driver
        self._names = names
        self.pid = 0
        self.is_pooled = False

    @classmethod
    async def open(cls, engine: Engine) -> AsyncpgLink:
        opened: Opened = await greenlet_spawn(Opened, engine)
        # Whoever gives SQLAlchemy names for its prepared statements has a pooler for which asyncpg's own are wrong.
        names = getattr(opened.dbapi, "_prepared_statement_name_func", None)
        link = cls(opened, names if names is not None and names() is not None else None)
        try:
            ((pid, version, isolation),) = await link.fetch(GREETING)
            Greeting(pid, version, isolation).check()
            link.pid, link.is_pooled = pid, opened.driver.get_server_pid() != pid
            if isolation != "read committed":
                await link.fetch(READ_COMMITTED)
        except BaseException:
            link.abort()
            raise
        return link

    async def fetch(self, text: str, *values: object) -> Sequence[Sequence[Any]]:
        if self._names is None:
            return cast("Sequence[Sequence[Any]]", await self._driver.fetch(text, *values))
        # Its name holds on one server connection alone, and a transaction is what has one.
        async with self._driver.transaction():
            prepared = await self._driver.prepare(text, name=self._names())
            return cast("Sequence[Sequence[Any]]", await prepared.fetch(*values))

    async def run(self, work: Callable[[Connection], _T]) -> _T:
        return await greenlet_spawn(lambda: self._opened.in_transaction(work))

    def is_usable(self) -> bool:
        return not self._driver.is_closed() and not self._driver.is_in_transaction()

    async def ask_the_time(self) -> int:
        ((now,),) = await self.fetch(CLOCK)
        return int(now)

    def is_worth_another_try(self, error: BaseException) -> bool:
        return is_worth_another_try(error)

    def is_locked_out(self, error: BaseException) -> bool:
        return is_locked_out(error)

    def is_answer(self, error: BaseException) -> bool:
        # What it refuses to send is its DataError, which has a code like the server's.
        return is_from_the_server(error) or not is_the_drivers(error)

    async def listen(self, channel: str, listening: Callable[[], None], heard: Callable[[int], None]) -> None:
        lost = asyncio.Event()

        def ended(_: object) -> None:
            lost.set()

        def notified(_: object, pid: int, channel: str, payload: str) -> None:
            heard(pid)

        self._driver.add_termination_listener(ended)
        await self._driver.add_listener(channel, notified)
        listening()
        while True:
            try:
                async with asyncio.timeout(_LOOKS_EVERY):
                    await lost.wait()
            except TimeoutError:
                # A connection that a firewall has forgotten says nothing by itself.
                async with asyncio.timeout(_ANSWERS_WITHIN):
                    await self._driver.fetch("SELECT 1")
                continue
            raise ConnectionError("the connection that listens was closed")

    def abort(self) -> None:
        if not self._driver.is_closed():
            self._driver.terminate()

    def abandon(self) -> None:
        # Its loop takes no more callbacks: the transport closes its socket, and says so, as it's collected.
        self.abort()

    async def close(self) -> None:
        if not self.is_usable():
            return self.abort()
        try:
            await self._driver.close(timeout=_CLOSES_WITHIN)
        except Exception:
            self.abort()
