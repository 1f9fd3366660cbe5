"""The rows of the kinds: each kind has one before a job of it is there, and nobody waits long for another's.

A row that a transaction has inserted and not committed keeps all who insert the same waiting for its end. So a push in
a transaction of the app's, which may be open for long, notes its kind by another connection wherever it can; and
whoever meets such a row nevertheless goes on without it, and tries again.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Generic

from fastjobs.stores.sql.server.link import L

_AGAIN = 1_000_000
"""Microseconds until a row that someone's transaction kept from being noted is tried again."""


Insert = Callable[[L, Sequence[str], int], Awaitable[object]]
"""Inserts the rows of these kinds by a link, at this time, and leaves those that are there as they are. It raises what
`link.is_locked_out` tells, where another's transaction has one."""


class Kinds(Generic[L]):
    """Which kinds have a row, as far as this process knows, for one store."""

    def __init__(self, insert: Insert[L]) -> None:
        self._insert = insert
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
            await self._insert(link, kinds, now)
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
