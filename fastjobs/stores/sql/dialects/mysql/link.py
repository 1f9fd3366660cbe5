"""The links to MySQL and MariaDB: one for an AsyncEngine on the loop, one for a sync Engine in a thread of its own.

Both take steps through SQLAlchemy's adapted connection of whichever driver, in autocommit but for transactions.
Longer than 300 lines, as the two are the same but for where they run, and beside each other it's seen that they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.util import greenlet_spawn

from fastjobs.stores.sql.dialects.mysql import errors
from fastjobs.stores.sql.dialects.mysql.drivers import cut, is_hung_up
from fastjobs.stores.sql.dialects.mysql.greeting import Greeting, greet
from fastjobs.stores.sql.dialects.mysql.steps import Step, Steps, in_line
from fastjobs.stores.sql.server import link as server
from fastjobs.stores.sql.server.link import Opened
from fastjobs.stores.sql.server.link_thread import LinkThread

_T = TypeVar("_T")

CLOCK = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
# The first is for the next transaction alone.
_LOOK = ("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "START TRANSACTION READ ONLY")


class Link(server.Link, Protocol):
    """A link to MySQL or MariaDB."""

    greeting: Greeting
    """What the server said as it was opened."""

    async def ask(self, steps: Steps[_T]) -> _T:
        """Takes the steps, each committed by itself."""
        ...

    async def transact(self, steps: Steps[_T]) -> _T:
        """Takes the steps in one READ COMMITTED transaction."""
        ...

    async def look(self, work: Callable[[Connection], _T]) -> _T:
        """As `run`, in a transaction that writes nothing and sees the same moment throughout."""
        ...


class Wire:
    """One connection, used where SQLAlchemy's sync side may do I/O."""

    def __init__(self, engine: Engine) -> None:
        self._opened = Opened(engine)
        try:
            dbapi = self._opened.dbapi
            dbapi.autocommit(True)
            self._cursor = dbapi.cursor()
            self.greeting = in_line(self._cursor, greet())
        except BaseException:
            self._opened.close()
            raise
        self.driver: Any = self._opened.driver

    def ask(self, steps: Steps[_T]) -> _T:
        try:
            return in_line(self._cursor, steps)
        except BaseException:
            steps.close()
            raise

    def transact(self, steps: Steps[_T]) -> _T:
        cursor = self._cursor
        cursor.execute("START TRANSACTION")
        try:
            answer = in_line(cursor, steps)
            cursor.execute("COMMIT")
        except BaseException as error:
            steps.close()
            # A connection that's broken is closed, and the server rolls back then.
            if not isinstance(error, Exception) or is_answer(error):
                self._roll_back()
            raise
        return answer

    def _roll_back(self) -> None:
        try:
            self._cursor.execute("ROLLBACK")
        except Exception:
            # What is open still would be kept by the next one's begin.
            cut(self.driver)

    def run(self, work: Callable[[Connection], _T], begin: Sequence[str] = ("START TRANSACTION",)) -> _T:
        def begun(connection: Connection) -> _T:
            for statement in begin:
                connection.exec_driver_sql(statement)
            return work(connection)

        return self._opened.in_transaction(begun)

    def look(self, work: Callable[[Connection], _T]) -> _T:
        return self.run(work, _LOOK)

    def ask_the_time(self) -> int:
        return self.ask(_the_time())

    def is_hung_up(self) -> bool:
        """Whether the connection has ended, as far as is known here."""
        return is_hung_up(self.driver)

    def close(self) -> None:
        self._opened.close()


class _Answers:
    """What errors say, the same for both links."""

    def is_answer(self, error: BaseException) -> bool:
        return is_answer(error)

    def is_worth_another_try(self, error: BaseException) -> bool:
        return errors.is_worth_another_try(error)

    def is_locked_out(self, error: BaseException) -> bool:
        return errors.is_locked_out(error)


class AsyncLink(_Answers):
    """A link over asyncmy's or aiomysql's connection."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.greeting = wire.greeting
        self.pid = wire.greeting.pid
        self._is_busy = False

    @classmethod
    async def open(cls, engine: Engine) -> AsyncLink:
        return cls(await greenlet_spawn(Wire, engine))

    async def ask(self, steps: Steps[_T]) -> _T:
        return await self._spawn(lambda: self._wire.ask(steps))

    async def transact(self, steps: Steps[_T]) -> _T:
        return await self._spawn(lambda: self._wire.transact(steps))

    async def run(self, work: Callable[[Connection], _T]) -> _T:
        return await self._spawn(lambda: self._wire.run(work))

    async def look(self, work: Callable[[Connection], _T]) -> _T:
        return await self._spawn(lambda: self._wire.look(work))

    async def ask_the_time(self) -> int:
        return await self._spawn(self._wire.ask_the_time)

    async def _spawn(self, work: Callable[[], _T]) -> _T:
        self._is_busy = True
        answer = await greenlet_spawn(work)
        self._is_busy = False
        return answer

    def is_usable(self) -> bool:
        return not self._is_busy and not is_hung_up(self._wire.driver)

    def is_answer(self, error: BaseException) -> bool:
        found = is_answer(error)
        if found:
            self._is_busy = False
        return found

    def abort(self) -> None:
        cut(self._wire.driver)

    def abandon(self) -> None:
        self.abort()

    async def close(self) -> None:
        if self._is_busy or is_hung_up(self._wire.driver):
            cut(self._wire.driver)
            return
        await greenlet_spawn(self._wire.close)


class SyncLink(_Answers):
    """A link over PyMySQL's connection, in a daemon thread of its own: one call is in it at a time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._wire: Wire | None = None
        self._thread = LinkThread("fastjobs mysql link", self._close)
        self.greeting: Greeting
        self.pid = 0

    @classmethod
    async def open(cls, engine: Engine) -> SyncLink:
        link = cls(engine)
        try:
            await link._thread.call(link._open)
        except BaseException:
            link._thread.end()
            raise
        return link

    async def ask(self, steps: Steps[_T]) -> _T:
        return await self._thread.call(lambda: self._open_wire().ask(steps))

    async def transact(self, steps: Steps[_T]) -> _T:
        return await self._thread.call(lambda: self._open_wire().transact(steps))

    async def run(self, work: Callable[[Connection], _T]) -> _T:
        return await self._thread.call(lambda: self._open_wire().run(work))

    async def look(self, work: Callable[[Connection], _T]) -> _T:
        return await self._thread.call(lambda: self._open_wire().look(work))

    async def ask_the_time(self) -> int:
        return await self._thread.call(lambda: self._open_wire().ask_the_time())

    def is_usable(self) -> bool:
        return self._wire is not None and not self._thread.is_busy and not is_hung_up(self._wire.driver)

    def abort(self) -> None:
        if self._wire is not None:
            cut(self._wire.driver)

    def abandon(self) -> None:
        # Its thread has no loop, and goes on waiting for calls until it's told to end.
        if self._thread.is_busy:
            self.abort()
        self._thread.end()

    async def close(self) -> None:
        self.abandon()

    def _open(self) -> None:
        self._wire = wire = Wire(self._engine)
        self.greeting, self.pid = wire.greeting, wire.greeting.pid

    def _open_wire(self) -> Wire:
        assert self._wire is not None
        return self._wire

    def _close(self) -> None:
        if self._wire is not None:
            self._wire.close()


def _the_time() -> Steps[int]:
    found = yield Step(CLOCK)
    return int(found.rows[0][0])


def is_answer(error: BaseException) -> bool:
    """Whether the error leaves no doubt that nothing of the statement is kept."""
    if errors.is_from_the_server(error) or not errors.is_the_drivers(error):
        return True
    # Without a number of the server's, these were raised before anything was sent.
    cause = error.orig if isinstance(error, DBAPIError) else error
    return errors.code(error) is None and type(cause).__name__ in (
        "DataError",
        "ProgrammingError",
        "NotSupportedError",
    )
