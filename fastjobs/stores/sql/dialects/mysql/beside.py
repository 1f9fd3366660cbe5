"""What is asked of a MySQL or MariaDB server beside a transaction of the app's.

Such a one may read as of its start, and what it inserts or locks is had until it ends.

For async code that is done on the store's links. For sync code, which is on no loop, a few connections are kept.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable

from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.pool import NullPool
from sqlalchemy.util import await_only

from fastjobs.stores.sql import forks
from fastjobs.stores.sql.dialects.mysql.link import Link, Wire
from fastjobs.stores.sql.dialects.mysql.steps import Ask, Found, Step, aside
from fastjobs.stores.sql.server.kinds import Kinds

_KEPT = 4
"""How many connections are kept for sync code."""

_inherited: list[Wire] = []
"""What a fork gave this process of its parent's. To let it go would end connections that the parent has."""


class Beside:
    """What one store asks beside transactions of the app's."""

    def __init__(self, engine: Engine, kinds: Kinds[Link], read: Callable[[Step], Awaitable[Found]]) -> None:
        """`read` takes a step on a link of the store's, on the running loop."""
        self.kinds = kinds
        self.read = read
        self._engine = engine
        self._lock = threading.Lock()
        self._pid = 0
        self._idle: list[tuple[Engine, Wire]] = []
        self._by_pymysql: Engine | None = None

    def asks(self, connection: Connection) -> Ask:
        """What takes steps beside this connection's transaction, where SQLAlchemy's sync side may do I/O."""
        if connection.dialect.is_async:
            return lambda step: await_only(self.read(step))
        return self.asks_sync(connection.engine)

    def asks_sync(self, engine: Engine | None = None) -> Ask:
        """What takes steps in sync code; `engine` is the app's own sync one, for a store that has an async one."""
        if not self._engine.dialect.is_async:
            engine = self._engine
        elif engine is None:
            # It's for PyMySQL's own connection.
            with self._lock:
                if self._by_pymysql is None:
                    url = self._engine.url
                    driver = f"{url.get_backend_name()}+pymysql"
                    self._by_pymysql = create_engine(url.set(drivername=driver), poolclass=NullPool)
                engine = self._by_pymysql
        return lambda step: self._ask(engine, step)

    def close(self) -> None:
        """Lets the connections go."""
        with self._lock:
            idle, self._idle = self._mine(), []
        for _, wire in idle:
            wire.close()

    def _ask(self, engine: Engine, step: Step) -> Found:
        wire = self._take(engine)
        is_whole = False
        try:
            found = wire.ask(aside(step))
            is_whole = True
            return found
        finally:
            with self._lock:
                self._idle = self._mine()
                is_kept = is_whole and len(self._idle) < _KEPT
                if is_kept:
                    self._idle.append((engine, wire))
            if not is_kept:
                wire.close()

    def _take(self, engine: Engine) -> Wire:
        while True:
            with self._lock:
                self._idle = self._mine()
                nth = next((nth for nth, (of, _) in enumerate(self._idle) if of is engine), None)
                found = None if nth is None else self._idle.pop(nth)[1]
            if found is None:
                return Wire(engine)
            if not found.is_hung_up():
                return found
            found.close()

    def _mine(self) -> list[tuple[Engine, Wire]]:
        """Those that this process has opened."""
        if self._pid != forks.pid():
            _inherited.extend(wire for _, wire in self._idle)
            self._idle, self._pid = [], forks.pid()
        return self._idle
