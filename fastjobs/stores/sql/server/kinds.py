"""The rows of the kinds: each kind has one before a job of it is there, and nobody waits long for another's.

A row that a transaction has inserted and not committed keeps all who insert the same waiting for its end. So a push in
a transaction of the app's, which may be open for long, notes its kind by another connection wherever it can; and
whoever meets such a row nevertheless goes on without it, and tries again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Generic

from sqlalchemy import Connection, Engine

from fastjobs.stores.sql import operations
from fastjobs.stores.sql.server.aside import aside
from fastjobs.stores.sql.server.link import L
from fastjobs.stores.sql.tables import Tables

_AGAIN = 1_000_000
"""Microseconds until a row that someone's transaction kept from being noted is tried again."""


class Ways(Generic[L]):
    """How rows of kinds are written in one database. Those that are there are left as they are."""

    async def insert(self, link: L, kinds: Sequence[str], now: int) -> None:
        """Inserts them by a link; an error that is `link.is_locked_out` where another's transaction has one."""
        raise NotImplementedError

    def insert_within(self, connection: Connection, kinds: Sequence[str], now: int) -> None:
        """Inserts them through a connection of SQLAlchemy's, in its transaction."""
        raise NotImplementedError

    def hurry(self, connection: Connection) -> None:
        """Has that transaction wait for no lock for long."""
        raise NotImplementedError


class Kinds(Generic[L]):
    """Which kinds have a row, as far as this process knows, for one store."""

    def __init__(self, tables: Tables, ways: Ways[L]) -> None:
        self._tables = tables
        self._ways = ways
        self._lock = threading.Lock()
        self._known: set[str] = set()
        self._owed: dict[str, int] = {}
        """Those that someone's transaction has inserted and not committed, with the time to try again."""

    def forget(self) -> None:
        """Whoever opens the database again may have made it anew."""
        with self._lock:
            self._known, self._owed = set(), {}

    async def note(self, link: L, kinds: Iterable[str], now: int) -> None:
        """Sees to it that each of the kinds has a row, before a job of it is there. Those known cost nothing.

        One that a transaction has inserted and not committed is left to it, and owed: it's tried again by later calls,
        as the transaction may roll back.
        """
        asked = set(kinds)
        if not self._owed and self._known.issuperset(asked):
            return
        with self._lock:
            # A clock that was set back must not put them off.
            late = {kind for kind, at in self._owed.items() if not now < at <= now + _AGAIN}
            wanted = sorted((asked - self._known - self._owed.keys()) | late)
        if wanted and not await self._noted(link, wanted, now) and len(wanted) > 1:
            for kind in wanted:
                await self._noted(link, [kind], now)

    async def _noted(self, link: L, kinds: list[str], now: int) -> bool:
        try:
            await self._ways.insert(link, kinds, now)
        except Exception as error:
            if not link.is_locked_out(error):
                raise
            with self._lock:
                self._owed.update(dict.fromkeys(kinds, now + _AGAIN))
            return False
        with self._lock:
            self._known.update(kinds)
            for kind in kinds:
                self._owed.pop(kind, None)
        return True

    def is_owed(self) -> bool:
        """Whether there are any to be tried again."""
        return bool(self._owed)

    def unknown(self, kinds: Iterable[str]) -> list[str]:
        """Those of the kinds of which it isn't known that they have a row."""
        with self._lock:
            return sorted({*kinds} - self._known)

    def are_there(self, kinds: Iterable[str]) -> None:
        """These have a row, and it's committed."""
        with self._lock:
            self._known.update(kinds)

    def note_within(self, engine: Engine, connection: Connection, kinds: Sequence[str], now: int) -> None:
        """The same for a push through this connection of the app's, where SQLAlchemy may do I/O."""
        unknown = [kind for kind in kinds if kind not in self._known]
        new = operations.new_kinds(connection, self._tables, unknown) if unknown else []
        if not new:
            return
        # A row in the app's transaction is what others wait for until it ends; and at REPEATABLE READ one that came
        # after its first statement is a serialization failure of the app's.
        ways = self._ways
        if aside(engine, connection, lambda other: ways.insert_within(other, new, now), ways.hurry):
            with self._lock:
                self._known.update(new)
        else:
            ways.insert_within(connection, new, now)
